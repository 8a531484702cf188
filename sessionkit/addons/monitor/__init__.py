"""
Watch a query: how it stands, its metrics for Prometheus, OpenTelemetry and the log, a live view.

`PrometheusEndpoint`, `watch` and `watch_endpoint` need prometheus-client and rich (the extra
`sessionkit-spark[monitor]`); the other names need neither.
"""

from typing import TYPE_CHECKING, Any, Final

from sessionkit._installed import check_extra
from sessionkit._lazy import lazy_names

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

NEEDED: Final = {
    "PrometheusEndpoint": ("prometheus_client",),
    "watch": ("prometheus_client", "rich"),
    "watch_endpoint": ("prometheus_client", "rich"),
}

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
else:
    _load, __dir__ = lazy_names(
        __name__,
        __all__,
        "sessionkit.addons.monitor.query_status",
        "sessionkit.addons.monitor.metrics",
        "sessionkit.addons.monitor.prometheus",
        "sessionkit.addons.monitor.watching",
    )

    def __getattr__(name: str) -> Any:
        for module in NEEDED.get(name, ()):
            check_extra("monitor", module, f"`{name}`", "where it runs")
        return _load(name)
