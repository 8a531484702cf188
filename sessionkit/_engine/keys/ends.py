"""
The keys that a timeout policy ends, before the events of the micro-batch or after them.

What was due by the end goes off first, then the policy has the last call. A timer after the end
never goes off, and a key of which the timers leave nothing isn't ended once more: so it would have
been, had a batch without data come between.
"""

from collections.abc import Collection
from operator import itemgetter
from typing import Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.keys.active import runs_of_rows
from sessionkit._engine.keys.calls import Calls, KeyRun, is_due
from sessionkit._engine.keys.table import policy_ends
from sessionkit._instants import END_OF_TIME_US
from sessionkit.stateful import AnyStatefulSpec
from sessionkit.timeouts import Clock, deadlines_of, is_over

__all__ = ["CLOCKS", "Ending", "end_keys", "first_end", "part_ended"]

Mask: TypeAlias = npt.NDArray[np.bool_]

CLOCKS: Final[tuple[Clock, Clock]] = ("event_time", "processing_time")


@attrs.frozen
class Ending:
    """
    The keys that a policy ends.

    Attributes:
        keys: Their rows.
        names: For each, the name of the policy: the one whose end came first.
        reached: For each, the clocks until which it lived.
    """

    keys: pa.Table
    names: list[str]
    reached: list[BatchClocks]


def part_ended(
    spec: AnyStatefulSpec, keys: pa.Table, clocks: BatchClocks, by: Collection[Clock] = CLOCKS
) -> tuple[Ending, pa.Table]:
    """Part the keys that a policy ends, by one of these clocks, from the others."""
    names = np.full(keys.num_rows, None, np.object_)
    first = np.full(keys.num_rows, END_OF_TIME_US + 1, np.int64)
    now: dict[Clock, int] = {
        "event_time": clocks.watermark_us,
        "processing_time": clocks.processing_us,
    }
    reached = {clock: np.full(keys.num_rows, now_us) for clock, now_us in now.items()}
    for deadline in (one for one in deadlines_of(spec.timeout) if one.clock in by):
        clock, ends = deadline.clock, policy_ends(keys, deadline)
        is_first = is_over(ends, now[clock]) & (ends < first)
        names[is_first], first[is_first] = deadline.name, ends[is_first]
        reached[clock] = np.minimum(reached[clock], ends)
    over = names != None  # noqa: E711 (for each element)
    lived = (reached[clock][over].tolist() for clock in CLOCKS)
    ended = Ending(keys.filter(pa.array(over)), names[over].tolist(), [*map(BatchClocks, *lived)])
    return ended, keys.filter(pa.array(~over)) if over.any() else keys


def end_keys(calls: Calls, ending: Ending) -> list[KeyRun]:
    """End keys, and return them with the rows of their last calls."""
    runs = runs_of_rows(calls.spec, ending.keys)
    for run, name, reached in zip(runs, ending.names, ending.reached, strict=True):
        calls.fire(run, is_due(reached))
        if run.is_kept:
            calls.end(run, name)
    return runs


def first_end(calls: Calls, run: KeyRun, limit_us: int) -> tuple[int, str] | None:
    """Return the first end of a key in event time up to a limit, and its policy; None if none."""
    if not run.is_kept:
        return None
    ends = [
        (since + length_us, name)
        for name, start, length_us in calls.spans_in_event_time
        if (since := getattr(run.since, start)) is not None and is_over(since + length_us, limit_us)
    ]
    return min(ends, key=itemgetter(0), default=None)
