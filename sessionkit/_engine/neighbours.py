"""
What the rows of a partition say of each other: one that a call has missed is an older one.

In a micro-batch Spark calls every group whose timer is below the watermark, and each call writes
the row anew. So where one row was written at a watermark, no other one of its partition still waits
for a timer below that.
"""

import attrs

from sessionkit._engine.payload import NOBODY, RESTORE, Origin
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.timeouts import timer_ms

__all__ = ["Neighbours"]


@attrs.define(eq=False)
class Neighbours:
    """
    The rows that one task has read so far: that with the first timer, and that of the last write.

    Rows of several tasks can't be compared: they may be of copies of a query, or of two operators.
    """

    _waiting: tuple[int, str, Origin] | None = attrs.field(default=None, init=False)
    _written: tuple[str, Origin] = attrs.field(default=("", NOBODY), init=False)

    def add(self, what: str, origin: Origin, due_us: int | None, now: Origin) -> None:
        """
        Add the row of a group that Spark wakes in event time.

        Args:
            what: The row, for the error.
            origin: The micro-batch that wrote it. One that isn't known says nothing, and neither
                does the one that runs: it may still call the others.
            due_us: When the first thing is due in it, in microseconds.
            now: The micro-batch that runs.

        Raises:
            StateCorruptedError: It, or one that was read before, is an older row.
        """
        if not (origin.is_known and now.is_known and origin.batch < now.batch):
            return
        if origin.watermark_ms > self._written[1].watermark_ms:
            self._written = (what, origin)
        if due_us is not None:
            at_ms = timer_ms(due_us, origin.watermark_ms)
            if self._waiting is None or at_ms < self._waiting[0]:
                self._waiting = (at_ms, what, origin)
        # A timer is never below the watermark at which it was set, so the other row is newer.
        if self._waiting is not None and self._waiting[0] < self._written[1].watermark_ms:
            raise _older(*self._waiting[1:], *self._written)


def _older(old: str, before: Origin, new: str, after: Origin) -> StateCorruptedError:
    found = (
        f"the stored state is damaged: {old} is older than it may be: micro-batch {before.batch} "
        f"wrote it, and something in it was due by micro-batch {after.batch}, which wrote {new}"
    )
    return StateCorruptedError(with_hint(found, RESTORE))
