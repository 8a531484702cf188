"""
How time passes for a key: its timers fire, and the timeout policy ends it.

A key that the policy ends lives until then: what was due by its end fires first, one timer after
the other, since each may move the end; then the policy has the last call. A timer after the end
never fires, and a key of which the timers leave nothing isn't ended once more: so it would have
been in small steps of the clocks.

Under `order="event_time"`, the events of a key take their turns with its timers and ends. `process`
is called once for each instant, with the events of that instant. Before it, timers that lie earlier
fire, and a policy that ends the key earlier does. At one instant events go first, so an event
exactly one gap after the last one still belongs to the key. So no call depends on how the events
were cut into micro-batches.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final, NamedTuple

from sessionkit._engine.boundaries import has_passed, is_over
from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.program import CLOCKS, clock_times
from sessionkit._engine.logic import BatchClocks
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure
from sessionkit.spec.views import StoredTimer
from sessionkit.timeouts._policies import Clock

MOST_TIMERS: Final = 100_000
"""How many timers of a key may fire in one micro-batch: an hourly one catches up ten years."""


class End(NamedTuple):
    """When a key ends, by which policy (the one that ends it first), and its clocks until then."""

    at_us: int
    name: str
    lived: BatchClocks


def _end_of(calls: Calls, run: KeyRun, clocks: BatchClocks, by: Collection[Clock]) -> End | None:
    """Return how the policy ends a key by some clocks; None if it doesn't."""
    if not run.is_kept:
        return None
    times = clock_times(clocks)
    lived, ends = dict(times), list[tuple[int, str]]()
    for span in calls.program.spans:
        since = getattr(run.since, span.since)
        at_us = None if since is None else since + span.length_us
        if span.clock in by and at_us is not None and is_over(at_us, times[span.clock]):
            lived[span.clock] = min(lived[span.clock], at_us)
            ends.append((at_us, span.name))
    if not ends:
        return None
    at_us, name = min(ends, key=lambda end: end[0])
    return End(at_us, name, BatchClocks(lived["event_time"], lived["processing_time"]))


def end_overdue(calls: Calls, run: KeyRun, by: Collection[Clock]) -> None:
    """End a key that is over; a timer that was due before its end may let it live on."""
    clocks = calls.clocks
    end = _fire(calls, run, clocks, by, lambda end: None if end is None else end.lived)
    if end is not None:
        _end(calls, run, end.name)


def _end(calls: Calls, run: KeyRun, policy: str) -> None:
    calls.on_timer(run, policy, is_last=True)
    run.begin_anew()


def fire_due(calls: Calls, run: KeyRun) -> None:
    """Call the timers of a key that are due after its events, up to its end."""
    if run.snapshot.timers:
        clocks = calls.clocks
        _fire(calls, run, clocks, CLOCKS, lambda end: clocks if end is None else end.lived)


def _fire(
    calls: Calls,
    run: KeyRun,
    clocks: BatchClocks,
    by: Collection[Clock],
    until: Callable[[End | None], BatchClocks | None],
) -> End | None:
    """
    Call `on_timer` for the timers that are due, in the order of their instants.

    One that it sets to an instant already past is due too: were it to wait for the next micro-batch
    in which its bucket is looked at, the bucket would show. A timer may also change when the key
    ends, so before each, `until` says which clocks timers may reach; with None, none fires any
    more. Returns how the policy ends the key after them.
    """
    lived: BatchClocks | None = None
    pending: list[tuple[int, Clock, str]] = []
    fired, end = 0, _end_of(calls, run, clocks, by)
    while run.snapshot.timers and (now := until(end)) is not None:
        if now != lived:
            lived, due = now, _is_due(now)
            pending = [_place(name, one) for name, one in run.snapshot.timers.items() if due(one)]
            heapify(pending)
        if not pending:
            break
        at_us, clock, name = heappop(pending)
        if run.snapshot.timers.get(name) != StoredTimer(clock, at_us):
            continue  # deleted, or set anew, by a call before
        if fired == MOST_TIMERS:
            _give_up(calls, run, due)
            return _end_of(calls, run, clocks, by)
        fired += 1
        del run.snapshot.timers[name]
        calls.on_timer(run, name)
        for anew in run.snapshot.newly_set:
            one = run.snapshot.timers.get(anew)
            if one is not None and due(one):
                heappush(pending, _place(anew, one))
        run.snapshot.newly_set.clear()
        end = _end_of(calls, run, clocks, by)
    return end


def _give_up(calls: Calls, run: KeyRun, due: Callable[[StoredTimer], bool]) -> None:
    found = f"{MOST_TIMERS:,} timers of {run.snapshot.key!r} have fired in one micro-batch"
    found = f"{found}, and more are due"
    hint = (
        "set the next one after `times.watermark` or `times.processing_time`, and none once "
        "the watermark is in the year 9999, where a batch ends"
    )
    text = with_hint(found, hint)
    if not calls.program.rejects:
        raise UserFunctionError(text)
    run.snapshot.timers = {name: one for name, one in run.snapshot.timers.items() if not due(one)}
    calls.failed_output.append((run.snapshot.key, Failure(text)))


def _place(name: str, timer: StoredTimer) -> tuple[int, Clock, str]:
    return timer.at_us, timer.clock, name


def _is_due(clocks: BatchClocks) -> Callable[[StoredTimer], bool]:
    """Return the test whether the clock of a timer has passed it."""
    now = clock_times(clocks)
    return lambda timer: has_passed(timer.at_us, now[timer.clock])


def in_turn(
    calls: Calls, run: KeyRun, times_us: Sequence[int], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """
    Yield where the events of each instant of a key begin and end, from a place to another.

    Before each of them, and after the last one, the time of the key passes.
    """
    for time_us, same in groupby(range(first, last), times_us.__getitem__):
        # The times 10, 10, 30 give the places 0 1, so 0 and 2, and then 2 and 3.
        places = [*same]
        _pass_time(calls, run, time_us, time_us - 1)
        yield places[0], places[-1] + 1
    _pass_time(calls, run, calls.clocks.watermark_us, calls.clocks.watermark_us)


def _pass_time(calls: Calls, run: KeyRun, timers_before_us: int, ends_until_us: int) -> None:
    """Let the event time of a key pass: timers fire and its policy ends it, in time order."""
    clocks = BatchClocks(ends_until_us, BEGINNING_US)
    before = BatchClocks(timers_before_us, BEGINNING_US)
    processing_us = calls.clocks.processing_us

    def until(end: End | None) -> BatchClocks:
        return before if end is None else BatchClocks(end.at_us, processing_us)

    while run.snapshot.timers or calls.program.spans:
        end = _fire(calls, run, clocks, CLOCKS, until)
        if end is None:
            return
        _end(calls, run, end.name)
