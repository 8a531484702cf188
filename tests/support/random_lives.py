"""
Random lives of queries, under every option that may change which sessions there are.

There are events at and before the watermark, restarts, micro-batches that run again, and state that
is carried over to other rules. What is under test is only that no two sessions of a key have one
id, so nothing here says what the sessions are.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit import Aggregates, Lateness, Results, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.spec.logic import Events
from sessionkit.testing import SessionDriver
from tests.support import random_scripts
from tests.support.random_scripts import Result, State, is_poison

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Driver: TypeAlias = SessionDriver[Any, Any, Any]

BEGIN: Final = datetime(2026, 3, 8, 23, 59, 30, tzinfo=UTC)
"""Just before midnight."""
LATEST: Final = timedelta(hours=1)
LARGE: Final = 2**62
CARRIED: Final = 0
"""The revision of rows that were out when the query was carried over."""


@attrs.frozen
class Event(random_scripts.Event):
    """
    An event with its place among the events of its instant.

    Two of its weight may be too large for a sum.
    """

    weight: int
    place: int


@attrs.frozen
class Total:
    values: list[int]
    total: int


def finish(session: Any, state: State) -> Result:
    return Result(state.values, session.events)


def fussy_finish(session: Any, state: State) -> Result:
    if len(state.values) % 4 == 3:
        message = "no threes"
        raise ValueError(message)
    return finish(session, state)


@st.composite
def specs(draw: DrawFn, *, kind: str, on_error: str) -> AnySpec:
    """Make a spec; how states are folded is given, since it can't be migrated to another."""
    layout = draw(st.sampled_from(["buckets", "pages"]))
    spec = draw(random_scripts.specs(layout, [on_error]))
    timeout: Any = spec.timeout
    logic: Any = spec.logic
    if isinstance(timeout, SessionRules):
        idle = draw(st.sampled_from([None, None, timedelta(seconds=30)]))
        timeout = attrs.evolve(timeout, close_idle_after=idle)
        if kind != "functions":
            timeout = attrs.evolve(timeout, state_gap=None)
    changes: dict[str, Any] = {
        "timeout": timeout,
        "sequence": draw(st.sampled_from([None, "place"])),
        "inputs": attrs.evolve(spec.inputs, passthrough={}),
    }
    if kind == "functions":
        ends = finish if on_error == "raise" else draw(st.sampled_from([finish, fussy_finish]))
        return attrs.evolve(spec, logic=attrs.evolve(logic, event=Event, finish=ends), **changes)
    if not (isinstance(timeout, SessionRules) and timeout.in_order):
        changes["order"] = "arrival"
    if kind == "aggregates":
        aggregates = {"values": agg.collect("value", at_most=1_000), "total": agg.sum("weight")}
        return attrs.evolve(spec, logic=Aggregates(Event, aggregates, result=Total), **changes)
    changes["lateness"] = Lateness(judged_by=spec.lateness.judged_by)
    return attrs.evolve(spec, logic=Events(Event), results=Results(), **changes)


@attrs.define
class Sightings:
    """
    What was seen of the ids of sessions.

    Attributes:
        rows: By key and id, the numbers in the last row, its revision, and its place in the life.
        gone: Ids that another row has superseded.
        last: Ids of sessions that are over: nothing comes after that.
        failed: Ids of all that are rejected.
        faults: What can't be.
        story: What happened, for people.
    """

    rows: dict[tuple[str, str], tuple[frozenset[int], int, datetime]] = attrs.field(factory=dict)
    superseded: set[tuple[str, str]] = attrs.field(factory=set)
    last: set[tuple[str, str]] = attrs.field(factory=set)
    failed: set[tuple[str, str]] = attrs.field(factory=set)
    faults: list[str] = attrs.field(factory=list)
    story: list[str] = attrs.field(factory=list)

    def take(self, driver: Driver) -> None:
        """Look at what a driver has handed out."""
        spec, rows = driver.spec, driver.take_rows()
        if isinstance(spec.logic, Events):
            rows = _by_session(rows)
        for row in rows:
            values = getattr(row.result, "values", None)
            numbers = frozenset(values if values is not None else row.result)
            self.story.append(f"  row {row}")
            self._row(spec, row, numbers)
        # Rows of one micro-batch have no order but the order of their starts.
        self.superseded |= {
            (row.key[0], name) for row in rows if spec.revises for name in row.supersedes
        }
        for lost in driver.take_rejections():
            if lost.kind == "failed_output":
                name = (lost.key[0], str(lost.session_id))
                self.story.append(f"  {lost.kind} {name} {lost.session_start}: {lost.reason}")
                if not spec.revises:
                    self.last.add(name)
                self.failed.add(name)
            else:
                self.story.append(f"  {lost.kind} {lost.event_time}")
        for event in driver.take_events():
            name = (event.key[0], event.session_id)
            if name not in self.rows and name not in self.failed:
                self.faults.append(f"an event has the id of no session: {event}")

    def _row(self, spec: AnySpec, row: Any, numbers: frozenset[int]) -> None:
        name, revision = (row.key[0], row.session_id), row.revision if spec.revises else 1
        if name in self.superseded or name in self.last:
            self.faults.append(f"superseded or failed, and there again: {row}")
        if name in self.rows:
            before, last, start = self.rows[name]
            same = not numbers.isdisjoint(before)
            again = last == CARRIED or (spec.revises and revision > last)
            if not again or not same or start != row.session_start:
                self.faults.append(f"seen as {sorted(before)}, {last}, {start}: {row}")
        self.rows[name] = (numbers, revision, row.session_start)


@attrs.frozen
class _Rows:
    """The rows of one session of a spec of events."""

    key: Any
    session_id: str
    session_start: datetime
    result: list[int]


def _by_session(rows: Iterable[Any]) -> list[Any]:
    found: dict[Any, _Rows] = {}
    for row in rows:
        name = row.session_id, row.session_start
        session = found.setdefault(name, _Rows(row.key, *name, []))
        session.result.append(row.result.value)
    return list(found.values())


@st.composite
def lives(draw: DrawFn) -> Sightings:
    """Live a life, and return what was seen of its ids."""
    seen, choose = Sightings(), partial(_choose, draw)
    kind = choose("functions", "functions", "aggregates", "per event")
    on_error = "raise" if kind == "per event" else choose("raise", "reject")
    every = specs(kind=kind, on_error=on_error)
    spec = draw(every)
    seen.story.append(f"spec {spec}")
    driver: Driver = SessionDriver(spec, processing_time=BEGIN)
    front, value = BEGIN, 0
    for _ in range(draw(st.integers(4, 12))):
        front += timedelta(seconds=choose(0, 0, 1, 5, 10))
        for _ in range(choose(0, 1, 1, 2, 4)):
            value += choose(0, 1, 1, 1, 1)
            value += on_error == "raise" and is_poison(value)
            at = front - timedelta(seconds=choose(0, 0, 1, 2, 5, 5, 10, 20))
            # Near the poison, large numbers make sums fail.
            weight = LARGE if on_error != "raise" and is_poison(value) else 0
            seen.story.append(f"  event {value} {at}")
            event = Event(value, choose(2, 5, 10), weight, choose(1, 2, 3))
            driver.add(choose("a", "a", "b"), at, event)
        driver = _went_on(draw, driver, seen, every)
    driver.run_batch()
    driver.advance_watermark_to(BEGIN + LATEST)
    driver.add("end", BEGIN + LATEST, Event(1, 2, 0, 1))
    driver.run_batch()
    driver.advance_processing_time(LATEST)
    driver.run_batch()
    driver.run_batch()
    seen.take(driver)
    return seen


def _choose(draw: DrawFn, *among: Any) -> Any:
    return draw(st.sampled_from(among))


def _went_on(draw: DrawFn, driver: Driver, seen: Sightings, every: SearchStrategy[Any]) -> Driver:
    """Run a micro-batch, and perhaps something else."""
    driver.advance_processing_time(timedelta(seconds=_choose(draw, 0, 1, 1, 10, 40)))
    chance = draw(st.integers(0, 19))
    if chance < 2:
        driver.run_batch(sink_fails=True)
    result = driver.run_batch()
    seen.story.append(f"batch at {result.watermark}")
    seen.take(driver)
    if 2 <= chance < 5:
        return type(driver).restore(driver.spec, driver.snapshot())
    if 5 <= chance < 8:
        return _carried(draw, driver, seen, every)
    return driver


def _carried(draw: DrawFn, driver: Driver, seen: Sightings, every: SearchStrategy[Any]) -> Driver:
    for _ in range(5):
        spec = draw(every)
        try:
            other = driver.migrate(spec)
        except StateError:
            continue
        seen.story.append(f"carried over to {spec}")
        # Rows that are out under other options may be followed by any revision of their session.
        seen.rows = {name: (numbers, CARRIED, at) for name, (numbers, _, at) in seen.rows.items()}
        return other
    return driver
