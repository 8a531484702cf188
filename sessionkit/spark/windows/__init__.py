"""Windowed aggregation with Spark's own operators, and its rules checked before Spark runs."""

from sessionkit.spark.windows.builder import (
    UnboundedStateWarning,
    WindowedAggregation,
    Windows,
    session,
    sliding,
    tumbling,
)

__all__ = [
    "UnboundedStateWarning",
    "WindowedAggregation",
    "Windows",
    "session",
    "sliding",
    "tumbling",
]
