"""
Fire the timers of a key, and end it by its timeout policy, as time passes.

Before the policy ends a key, timers due by its end fire, one after the other, since each may move
the end. Then the policy makes the last call. A timer after the end never fires. If a timer removes
the key, the policy doesn't end it too. So the calls are the same as if the clocks had moved in
small steps.

Under `order="event_time"`, the events of a key interleave with its timers and ends. `process` is
called once for each instant, with the events of that instant. Earlier timers and ends go before it.
At the same instant, events go first, so an event exactly one gap after the last still belongs to
the key. So no call depends on how events are split into micro-batches.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final, NamedTuple

from sessionkit._engine.boundaries import has_passed, is_over
from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.program import clock_times
from sessionkit._engine.micro_batch import CLOCKS, BatchClocks
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure
from sessionkit.spec.views import StoredTimer
from sessionkit.timeouts._policies import Clock

MOST_TIMERS: Final = 100_000
"""The limit of timers that a key fires in a micro-batch: an hourly timer catches up ten years."""


class End(NamedTuple):
    """When a key ends, the policy that ends it first, and the key's clocks at its end."""

    at_us: int
    name: str
    lived: BatchClocks


def _end_of(calls: Calls, run: KeyRun, clocks: BatchClocks, by: Collection[Clock]) -> End | None:
    """Return the end of a key on the clocks `by`; None if it isn't over."""
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
    """End a key that is over, unless a timer that was due earlier moves its end."""
    clocks = calls.clocks
    end = _fire(calls, run, clocks, by, lambda end: None if end is None else end.lived)
    if end is not None:
        _end(calls, run, end.name)


def _end(calls: Calls, run: KeyRun, policy: str) -> None:
    calls.on_timer(run, policy, is_last=True)
    run.begin_anew()


def fire_due(calls: Calls, run: KeyRun) -> None:
    """Fire the timers of a key that are due after its events, until the key ends."""
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

    A timer that `on_timer` sets to a past instant is due too: if it waited until its bucket runs
    again, results would depend on the bucket. Since a timer may move the end of the key, `until`
    returns, before each timer, the clocks that timers may reach; None stops.

    Returns:
        The end of the key after its timers; None if it isn't over.
    """
    lived: BatchClocks | None = None
    pending: list[tuple[int, Clock, str]] = []
    fired, end = 0, _end_of(calls, run, clocks, by)
    while run.snapshot.timers and (now := until(end)) is not None:
        if now != lived:
            lived, due = now, _is_due(now)
            timers = run.snapshot.timers.items()
            pending = [_place(name, timer) for name, timer in timers if due(timer)]
            heapify(pending)
        if not pending:
            break
        at_us, clock, name = heappop(pending)
        if run.snapshot.timers.get(name) != StoredTimer(clock, at_us):
            continue  # deleted or set anew by an earlier call
        if fired == MOST_TIMERS:
            _give_up(calls, run, due)
            return _end_of(calls, run, clocks, by)
        fired += 1
        del run.snapshot.timers[name]
        calls.on_timer(run, name)
        for new_name in run.snapshot.newly_set:
            timer = run.snapshot.timers.get(new_name)
            if timer is not None and due(timer):
                heappush(pending, _place(new_name, timer))
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
    timers = run.snapshot.timers.items()
    run.snapshot.timers = {name: timer for name, timer in timers if not due(timer)}
    calls.failed_output.append((run.snapshot.key, Failure(text)))


def _place(name: str, timer: StoredTimer) -> tuple[int, Clock, str]:
    return timer.at_us, timer.clock, name


def _is_due(clocks: BatchClocks) -> Callable[[StoredTimer], bool]:
    """Return a predicate: whether the clock of a timer has passed it."""
    now = clock_times(clocks)
    return lambda timer: has_passed(timer.at_us, now[timer.clock])


def in_turn(
    calls: Calls, run: KeyRun, times_us: Sequence[int], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """
    Yield the first and last (exclusive) position of the events of each instant of a key.

    Event time passes before each instant, and after the last: timers fire, and the key may end.
    """
    for time_us, same_time in groupby(range(first, last), times_us.__getitem__):
        # The times 10, 10, 30 give the positions 0 and 2, then 2 and 3.
        places = [*same_time]
        _pass_time(calls, run, time_us, time_us - 1)
        yield places[0], places[-1] + 1
    _pass_time(calls, run, calls.clocks.watermark_us, calls.clocks.watermark_us)


def _pass_time(calls: Calls, run: KeyRun, timers_before_us: int, ends_until_us: int) -> None:
    """Move the event time of a key on: fire its timers, and end it by its policy, in time order."""
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
