"""Read the counts of a micro-batch from the progress of its query."""

from collections.abc import Mapping
from typing import Any, Final

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit.errors import SessionkitError, with_hint

__all__ = ["OBSERVATION", "batch_counts"]

OBSERVATION: Final = "sessionkit"
"""The name of the counts among a query's observed metrics."""


def batch_counts(progress: Mapping[str, Any]) -> Counts:
    """
    Read the counts of one micro-batch from the progress of its query.

    Args:
        progress: An entry of `query.recentProgress`, or `query.lastProgress`; from Spark or from
            Spark Connect, which differ in shape.

    Raises:
        SessionkitError: The progress is from a query that sessionkit didn't build.
    """
    observed = (progress.get("observedMetrics") or {}).get(OBSERVATION)
    if observed is None:
        found = f"the progress has no observed metrics named {OBSERVATION!r}"
        hint = "pass the progress of a query over the frame that sessionize returned"
        raise SessionkitError(with_hint(found, hint))
    values = _by_name(observed)
    return Counts(**{name: int(values[name] or 0) for name in COUNTED})


def _by_name(observed: Any) -> dict[str, Any]:
    if hasattr(observed, "asDict"):
        found: dict[str, Any] = observed.asDict()
        return found
    if "values" in observed and "schema" in observed:
        return dict(zip(COUNTED, observed["values"], strict=True))
    return dict(observed)
