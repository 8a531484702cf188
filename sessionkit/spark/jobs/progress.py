"""The counts of a micro-batch, read from the progress of the query."""

from collections.abc import Mapping
from typing import Any, Final

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit.errors import SessionkitError, with_hint

__all__ = ["OBSERVATION", "batch_counts"]

OBSERVATION: Final = "sessionkit"
"""The name under which the counts stand in a query's observed metrics."""


def batch_counts(progress: Mapping[str, Any]) -> Counts:
    """
    Read the counts of one micro-batch from the progress of its query.

    Args:
        progress: An entry of `query.recentProgress`, or `query.lastProgress`; of Spark itself or
            of Spark Connect, whose shapes differ.

    Raises:
        SessionkitError: The progress is not that of a query that sessionkit built.
    """
    observed = (progress.get("observedMetrics") or {}).get(OBSERVATION)
    if observed is None:
        found = f"the progress has no observed metrics named {OBSERVATION!r}"
        hint = "pass the progress of a query over the frame that sessionize returned"
        raise SessionkitError(with_hint(found, hint))
    values = _by_name(observed)
    dropped = sum(
        operator.get("numRowsDroppedByWatermark", 0)
        for operator in progress.get("stateOperators", [])
    )
    return Counts(**{name: int(values[name] or 0) for name in COUNTED}, dropped=dropped)


def _by_name(observed: Any) -> dict[str, Any]:
    if hasattr(observed, "asDict"):
        found: dict[str, Any] = observed.asDict()
        return found
    if "values" in observed and "schema" in observed:
        return dict(zip(COUNTED, observed["values"], strict=True))
    return dict(observed)
