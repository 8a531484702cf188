"""
The keys that a timeout policy ends, before the events of the micro-batch or after them.

What was due by the end goes off first, one timer after the other, since each may move the end; then
the policy has the last call. A timer after the end never goes off, and a key of which the timers
leave nothing isn't ended once more: so it would have been in small steps of the clocks.
"""

from collections.abc import Collection
from typing import Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.table import policy_ends
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.timeouts import Clock, deadlines_of, is_over

__all__ = ["CLOCKS", "End", "end_of", "end_overdue", "over_in"]

Mask: TypeAlias = npt.NDArray[np.bool_]

CLOCKS: Final[tuple[Clock, Clock]] = ("event_time", "processing_time")


@attrs.frozen
class End:
    """
    The end of a key.

    Attributes:
        at_us: When it ends.
        name: By which policy: the one whose end comes first.
        lived: The clocks until which it lives.
    """

    at_us: int
    name: str
    lived: BatchClocks


def over_in(
    spec: AnyStatefulSpec, keys: pa.Table, clocks: BatchClocks, by: Collection[Clock]
) -> Mask:
    """Mark the keys that a policy ends, by one of these clocks."""
    now: dict[Clock, int] = _times(clocks)
    over = np.zeros(keys.num_rows, np.bool_)
    for deadline in deadlines_of(spec.timeout):
        if deadline.clock in by:
            over |= is_over(policy_ends(keys, deadline), now[deadline.clock])
    return over


def end_of(
    calls: Calls, run: KeyRun, clocks: BatchClocks, by: Collection[Clock] = CLOCKS
) -> End | None:
    """Return how a policy ends a key, as it stands now, by some clocks; None if none does."""
    if not run.is_kept:
        return None
    times = _times(clocks)
    lived, ends = dict(times), list[tuple[int, str]]()
    for name, clock, start, length_us in calls.spans:
        since = getattr(run.since, start)
        if clock in by and since is not None and is_over(since + length_us, times[clock]):
            lived[clock] = min(lived[clock], since + length_us)
            ends.append((since + length_us, name))
    if not ends:
        return None
    at_us, name = min(ends, key=lambda end: end[0])
    return End(at_us, name, BatchClocks(lived["event_time"], lived["processing_time"]))


def end_overdue(calls: Calls, run: KeyRun, by: Collection[Clock]) -> None:
    """End a key that is over; a timer that was due before its end may let it live on."""

    def lived() -> BatchClocks | None:
        end = end_of(calls, run, calls.clocks, by)
        return None if end is None else end.lived

    calls.fire(run, lived)
    end = end_of(calls, run, calls.clocks, by)
    if end is not None:
        calls.end(run, end.name)
        run.begin_anew()


def _times(clocks: BatchClocks) -> dict[Clock, int]:
    return {"event_time": clocks.watermark_us, "processing_time": clocks.processing_us}
