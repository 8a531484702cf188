"""
Watch a query: its status, its Prometheus metrics, and a live view in the terminal.

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
    """Import the live view on first use: it needs rich."""
    if name != "watch":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    check_extra("monitor", "rich", "`watch`", "where it runs")
    return import_module(f"{__name__}.watching").watch
