"""
Watch a query: its status, its metrics for Prometheus, a live view.

`PrometheusEndpoint` needs prometheus-client, and `watch` needs rich (the extra
`sessionkit-spark[monitor]`); the other names need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sessionkit._for_addons import check_extra
from sessionkit.addons.monitor.metrics import PrometheusEndpoint
from sessionkit.addons.monitor.query_status import monitor, status

if TYPE_CHECKING:
    from sessionkit.addons.monitor.watching import watch

__all__ = [
    "PrometheusEndpoint",
    "monitor",
    "status",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Load the live view when it's used: it needs another library."""
    if name != "watch":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    check_extra("monitor", "rich", "`watch`", "where it runs")
    return import_module(f"{__name__}.watching").watch
