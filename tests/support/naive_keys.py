"""
State per key that anyone can check by eye: a dict of keys, and one loop over them a micro-batch.

It calls the same functions of the user as the engine does, with views of its own, and follows the
rules in their order: late events aside, keys that are over, events, timers that are due.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NamedTuple

import attrs

from sessionkit import StatefulSpec
from sessionkit.spec import Timer
from sessionkit.timeouts._policies import Deadline, deadlines_of


class Arrival(NamedTuple):
    key: str
    at: datetime
    event: Any


@attrs.define
class NaiveKey:
    """What is kept of one key: state, timers, and the instants that policies count from."""

    value: Any = None
    timers: dict[str, Timer] = attrs.field(factory=dict)
    since: dict[str, datetime] = attrs.field(factory=dict)


@attrs.define
class NaiveBatch:
    rows: list[tuple[str, Any]] = attrs.field(factory=list)
    late: int = 0
    failed: int = 0
    timers: int = 0
    failed_output: int = 0


@attrs.define
class View:
    """State and timers of one key during one call: `state` and `times` of the functions."""

    held: NaiveKey
    watermark: datetime | None
    processing_time: datetime
    age: datetime
    may_wait: bool
    was_set: bool = False

    @property
    def exists(self) -> bool:
        return self.held.value is not None

    @property
    def timers(self) -> Mapping[str, Timer]:
        return self.held.timers

    def get(self, default: Any = None) -> Any:
        return self.held.value if self.exists else default

    def set(self, value: Any) -> None:
        """Keep a state; its age begins where there was none."""
        if not self.exists:
            self.held.since["created"] = self.age
        self.held.since["updated"] = self.age
        self.held.value = value
        self.was_set = True

    def remove(self) -> None:
        self.held.value = None
        self.held.timers.clear()
        self.held.since.pop("created", None)
        self.held.since.pop("updated", None)

    def set_event_timer(self, name: str, at: datetime) -> None:
        self.held.timers[name] = Timer("event_time", at)

    def set_processing_timer(self, name: str, at: datetime) -> None:
        """Set a timer on the processing time, where the spec asks for such."""
        if not self.may_wait:
            message = "not asked for"
            raise ValueError(message)
        self.held.timers[name] = Timer("processing_time", at)

    def delete_timer(self, name: str) -> None:
        self.held.timers.pop(name, None)


@attrs.define
class NaiveKeys:
    """All keys of a spec whose functions are `process` and `on_timer`."""

    spec: StatefulSpec[Any, Any, Any]
    keys: dict[str, NaiveKey] = attrs.field(factory=dict)

    def batch(
        self, arrivals: Iterable[Arrival], watermark: datetime | None, now: datetime
    ) -> NaiveBatch:
        clocks = {"event_time": watermark, "processing_time": now}
        done = NaiveBatch()
        events: dict[str, list[Arrival]] = {}
        for arrival in sorted(arrivals, key=lambda a: (a.at, a.event.number)):
            if (
                self.spec.lateness.late_events == "reject"
                and watermark is not None
                and arrival.at <= watermark
            ):
                done.late += 1
            else:
                events.setdefault(arrival.key, []).append(arrival)
        for key in [key for key, held in self.keys.items() if self._ends(held, clocks)]:
            self._end(done, key, clocks)
        for key, arrived in events.items():
            self._process(done, key, arrived, clocks)
        for key in list(self.keys):
            self._fire(done, key, clocks)
            held = self.keys[key]
            if held.value is None and not held.timers:
                del self.keys[key]
            elif self._ends(held, clocks):
                self._end(done, key, clocks)
        return done

    def _ends(
        self, held: NaiveKey, clocks: Mapping[str, datetime | None]
    ) -> list[tuple[datetime, Deadline]]:
        """Return the ends that the clocks have reached, in the order in which they are named."""
        found = []
        for deadline in deadlines_of(self.spec.timeout):
            since, clock = held.since.get(deadline.since), clocks[deadline.clock]
            if since is not None and clock is not None and since + deadline.span <= clock:
                found.append((since + deadline.span, deadline))
        return found

    def _end(self, done: NaiveBatch, key: str, clocks: Mapping[str, datetime | None]) -> None:
        """End a key, unless one of its timers, which fire one by one, has moved its end."""
        self._fire(done, key, clocks, only_over=True)
        held = self.keys[key]
        ends = self._ends(held, clocks)
        is_kept = held.value is not None or bool(held.timers)
        if is_kept and not ends:
            return
        if is_kept:
            _, deadline = min(ends, key=lambda pair: pair[0])
            self._on_timer(done, key, deadline.name, clocks)
        del self.keys[key]

    def _process(
        self,
        done: NaiveBatch,
        key: str,
        arrived: Sequence[Arrival],
        clocks: Mapping[str, datetime | None],
    ) -> None:
        events = [arrival.event for arrival in arrived]
        process: Any = self.spec.process
        if not self._attempt(
            done, key, clocks, lambda key, state, times: process(key, events, state, times), arrived
        ):
            done.failed += len(events)

    def _fire(
        self,
        done: NaiveBatch,
        key: str,
        clocks: Mapping[str, datetime | None],
        *,
        only_over: bool = False,
    ) -> None:
        """Let timers fire one by one, up to the end that the key then has."""
        while True:
            held = self.keys[key]
            is_kept = held.value is not None or bool(held.timers)
            ends = self._ends(held, clocks) if is_kept else []
            if only_over and not ends:
                return
            until = dict(clocks)
            for end, deadline in ends:
                until[deadline.clock] = min(end, until[deadline.clock] or end)
            due = [
                (timer.at, timer.clock, name)
                for name, timer in self.keys[key].timers.items()
                if _is_before(timer.at, until[timer.clock])
            ]
            if not due:
                return
            *_, name = min(due)
            del self.keys[key].timers[name]
            self._on_timer(done, key, name, clocks)

    def _on_timer(
        self, done: NaiveBatch, key: str, name: str, clocks: Mapping[str, datetime | None]
    ) -> None:
        done.timers += 1
        on_timer: Any = self.spec.timer_function
        if not self._attempt(
            done, key, clocks, lambda key, state, times: on_timer(key, name, state, times)
        ):
            done.failed_output += 1

    def _attempt(
        self,
        done: NaiveBatch,
        key: str,
        clocks: Mapping[str, datetime | None],
        call: Callable[[Any, Any, Any], Any],
        arrived: Sequence[Arrival] = (),
    ) -> bool:
        """Call a function with a copy of the key, and keep the copy where the function returns."""
        before = self.keys.get(key, NaiveKey())
        held = deepcopy(before)
        for arrival in arrived:
            held.since["last_event_time"] = max(
                arrival.at, held.since.get("last_event_time", arrival.at)
            )
            held.since["last_processing_time"] = _now(clocks)
        ages = [d.clock for d in deadlines_of(self.spec.timeout) if d.name == "time_to_live"]
        age = held.since["last_event_time"] if "event_time" in ages else _now(clocks)
        may_wait = self.spec.processing_timers
        view = View(held, clocks["event_time"], _now(clocks), age, may_wait)
        try:
            rows = list(call((key,), view, view))
        except ValueError:
            return False
        if view.exists and not view.was_set:
            held.value = before.value
        self.keys[key] = held
        done.rows += [(key, row) for row in rows]
        return True


def _now(clocks: Mapping[str, datetime | None]) -> datetime:
    now = clocks["processing_time"]
    assert now is not None
    return now


def _is_before(at: datetime, clock: datetime | None) -> bool:
    return clock is not None and at < clock
