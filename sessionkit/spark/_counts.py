"""The counts of a micro-batch, read from the progress of the query."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from sessionkit._output import COUNTS
from sessionkit.errors import SessionkitError, with_hint

__all__ = ["OBSERVATION", "Counts", "batch_counts"]

OBSERVATION: Final = "sessionkit"
"""The name under which the counts stand in a query's observed metrics."""


@attrs.frozen
class Counts:
    """
    What became of the events of one micro-batch, or of a whole batch.

    Attributes:
        events: The rows that reached sessionkit.
        folded: Events that became part of a session.
        late: Events that came too late.
        quarantined: Rows that could not be events: a null key or time, a null in a required field.
        failed: Events for which a function raised, under `on_error="reject"`.
        held: By how many the events that wait for their turn have grown; negative where more were
            folded than came, under `order="event_time"`.
        sessions: Sessions that closed.
        rows: The rows that `finish` returned for them.
        unfinished: Sessions that closed and whose `finish` raised, under `on_error="reject"`.
        dropped: Rows that Spark dropped behind its own watermark, before they reached sessionkit.
    """

    events: int = 0
    folded: int = 0
    late: int = 0
    quarantined: int = 0
    failed: int = 0
    held: int = 0
    sessions: int = 0
    rows: int = 0
    unfinished: int = 0
    dropped: int = 0

    @property
    def add_up(self) -> bool:
        """Whether every event is accounted for exactly once."""
        rejected = self.late + self.quarantined + self.failed
        return self.events == self.folded + rejected + self.held


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
    return Counts(**{name: int(values[name] or 0) for name in COUNTS}, dropped=dropped)


def _by_name(observed: Any) -> dict[str, Any]:
    if hasattr(observed, "asDict"):
        found: dict[str, Any] = observed.asDict()
        return found
    if "values" in observed and "schema" in observed:
        return dict(zip(COUNTS, observed["values"], strict=True))
    return dict(observed)
