"""
One key under `order="event_time"`: its events, timers and ends take their turns in time order.

`process` is called once for each instant, with the events of that instant. Before it, timers that
lie earlier go off, and a policy that ends the key earlier does. At one instant events go first, so
an event exactly one gap after the last one still belongs to the key. So no call depends on how the
events were cut into micro-batches.
"""

from itertools import groupby
from typing import Any

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.keys.active import ActiveKeys
from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.ends import end_of
from sessionkit._engine.rows.table import micros
from sessionkit._instants import BEGINNING_US
from sessionkit.spec.functions import Failure

__all__ = ["process_in_turn"]


def process_in_turn(active: ActiveKeys, calls: Calls, objects: list[Any]) -> dict[int, Failure]:
    """Call the functions of every key in time order; return why events failed, by their place."""
    failures: dict[int, Failure] = {}
    times_us, part = micros(active.events["time"]).tolist(), active.parts(objects)
    for run, start, last in active.spans():
        for time_us, same in groupby(times_us[start:last]):
            stop = start + len([*same])
            _pass_time(calls, run, time_us, time_us - 1)
            failure = calls.process(run, part(start, stop), times_us[start:stop])
            if failure is not None:
                failures |= dict.fromkeys(active.order[start:stop].tolist(), failure)
            start = stop  # noqa: PLW2901 (the instants of a key follow each other)
        _pass_time(calls, run, calls.clocks.watermark_us, calls.clocks.watermark_us)
    return failures


def _pass_time(calls: Calls, run: KeyRun, timers_before_us: int, ends_until_us: int) -> None:
    """Let the event time of a key pass: timers go off and its policy ends it, in time order."""
    clocks = BatchClocks(ends_until_us, BEGINNING_US)

    def lived() -> BatchClocks:
        end = end_of(calls, run, clocks)
        if end is None:
            return BatchClocks(timers_before_us, BEGINNING_US)
        return BatchClocks(end.at_us, calls.clocks.processing_us)

    while run.held.armed or calls.spans:
        calls.fire(run, lived)
        end = end_of(calls, run, clocks)
        if end is None:
            return
        calls.end(run, end.name)
        run.begin_anew()
