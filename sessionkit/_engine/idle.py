"""
An idle source: a group's own watermark, where nothing has moved Spark's for a while.

Spark's watermark moves with events alone. Under `close_idle_after`, each group notes since when it
has stood still, in processing time. After that span the group goes on by the *floor*: the watermark
that an event of this moment would bring. The floor is stored, so that events that come later for
what has closed are late; Spark's watermark takes over once it has passed the floor.

A group counts only the time that it has witnessed: under a timeout in processing time Spark calls
it in every micro-batch. A longer pause between two of them, as after a restart, starts the count
anew.
"""

import attrs
import pyarrow as pa

from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spec.shared import AnySpec


@attrs.frozen
class IdleClock:
    """
    Since when nothing has moved the watermark. All in microseconds.

    Attributes:
        watermark: Spark's watermark, when the group was last called.
        seen: The processing time of that.
        since: The processing time since which the watermark has been the same.
        floor: The watermark in force at least.
    """

    watermark: int
    seen: int
    since: int
    floor: int

    @classmethod
    def of_table(cls, table: pa.Table) -> "IdleClock":
        return cls(**table.to_pylist()[0])

    def table(self) -> pa.Table:
        return pa.Table.from_pylist([attrs.asdict(self)])

    @property
    def holds(self) -> bool:
        """Whether the floor is still ahead of Spark's watermark, so that it must be remembered."""
        return self.floor > self.watermark


def idle_clock(
    spec: AnySpec, before: IdleClock | None, watermark_us: int, now: int
) -> IdleClock | None:
    """Return the idle clock of a group in a micro-batch, from the last; None where none counts."""
    if (after := spec.close_idle_after) is None or spec.watermark_delay is None:
        return None
    span = span_us(after)
    if before is None:
        return IdleClock(watermark_us, now, now, BEGINNING_US)
    moved = watermark_us > before.watermark
    since = now if moved or now - before.seen > span else before.since
    floor = before.floor
    if now - since >= span:
        floor = max(floor, now - span_us(spec.watermark_delay))
    return IdleClock(max(watermark_us, before.watermark), now, since, floor)
