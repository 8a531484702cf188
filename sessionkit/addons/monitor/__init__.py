"""
Watch a query: how it stands, its metrics for Prometheus, OpenTelemetry and the log, a live view.

`PrometheusEndpoint`, `watch` and `watch_endpoint` need prometheus-client and rich (the extra
`sessionkit-spark[monitor]`); the other names need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sessionkit.arguments import check_extra

if TYPE_CHECKING:
    from sessionkit.addons.monitor.metrics import METRICS, Metric, to_log, to_opentelemetry
    from sessionkit.addons.monitor.prometheus import PrometheusEndpoint
    from sessionkit.addons.monitor.query_status import (
        Bucket,
        QueryStatus,
        Receiver,
        monitor,
        status,
    )
    from sessionkit.addons.monitor.watching import watch, watch_endpoint

__all__ = [
    "METRICS",
    "Bucket",
    "Metric",
    "PrometheusEndpoint",
    "QueryStatus",
    "Receiver",
    "monitor",
    "status",
    "to_log",
    "to_opentelemetry",
    "watch",
    "watch_endpoint",
]

ELSEWHERE: Final = dict.fromkeys(["METRICS", "Metric", "to_log", "to_opentelemetry"], "metrics") | {
    "PrometheusEndpoint": "prometheus",
    "watch": "watching",
    "watch_endpoint": "watching",
}
"""The modules of the names that aren't in `query_status`."""
NEEDED: Final = {
    "prometheus": ["prometheus_client"],
    "watching": ["prometheus_client", "rich"],
}


def __getattr__(name: str) -> Any:
    """Load what is used: each part needs other libraries, and `--help` needs none."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    module = ELSEWHERE.get(name, "query_status")
    for library in NEEDED.get(module, ()):
        check_extra("monitor", library, f"`{name}`", "where it runs")
    return getattr(import_module(f"{__name__}.{module}"), name)
