"""
Watch a query: its status, its metrics for Prometheus, OpenTelemetry and the log, a live view.

`PrometheusEndpoint`, `watch` and `watch_endpoint` need prometheus-client and rich (the extra
`sessionkit-spark[monitor]`); the other names need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sessionkit.arguments import check_extra

if TYPE_CHECKING:
    from sessionkit.addons.monitor.metrics import (
        METRICS,
        Metric,
        PrometheusEndpoint,
        to_log,
        to_opentelemetry,
    )
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


def __getattr__(name: str) -> Any:
    """Load what is used: the live view needs other libraries, and `--help` needs no Spark."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    modules = ["query_status", "metrics"]
    if name in {"watch", "watch_endpoint"}:
        modules = ["watching"]
        for library in ("prometheus_client", "rich"):
            check_extra("monitor", library, f"`{name}`", "where it runs")
    loaded = (import_module(f"{__name__}.{module}") for module in modules)
    return next(getattr(module, name) for module in loaded if hasattr(module, name))
