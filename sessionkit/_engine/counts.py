"""What is counted for every micro-batch."""

from typing import Final

import attrs

__all__ = ["COUNTED", "Counts"]


@attrs.frozen
class Counts:
    """
    What became of the events of one micro-batch, or of a whole batch.

    Attributes:
        events: The rows that came in. Spark drops none of them, however late they are.
        processed: Events that became part of a session, or that the functions of a `StatefulSpec`
            were given.
        late: Events that came too late.
        duplicate: Events whose id was processed already, under `drop_duplicates_for`.
        quarantined: Rows that could not be events: a null key or time, a null in a required field.
        failed: Events for which a function raised, under `on_error="reject"`, and those of sessions
            that were dropped for that, under `on_error="drop_session"`.
        buffered: Under `order="event_time"`, by how many the events that wait for the watermark
            have grown; negative where more were processed than came.
        sessions: Sessions that closed; one that late events reopen or revise closes again.
        timers: Named timers that went off, and keys that their timeout policy ended, of a
            `StatefulSpec`.
        rows: The result rows.
        failed_output: Sessions that closed and whose `finish` raised, sessions that were dropped,
            and timers whose `on_timer` raised, unless `on_error="raise"`.
        unknown: The names of counts that Spark didn't report, see `batch_counts`.
    """

    events: int = 0
    processed: int = 0
    late: int = 0
    duplicate: int = 0
    quarantined: int = 0
    failed: int = 0
    buffered: int = 0
    sessions: int = 0
    timers: int = 0
    rows: int = 0
    failed_output: int = 0
    unknown: frozenset[str] = frozenset()

    @property
    def is_balanced(self) -> bool:
        """Whether every event is accounted for exactly once."""
        rejected = self.late + self.duplicate + self.quarantined + self.failed
        return self.events == self.processed + rejected + self.buffered

    def __add__(self, other: "Counts") -> "Counts":
        """Return the counts of two micro-batches together."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        return Counts(**sums, unknown=self.unknown | other.unknown)


COUNTED: Final = tuple(field.name for field in attrs.fields(Counts) if field.name != "unknown")
"""What a bucket counts, in the order in which it crosses to Spark."""
