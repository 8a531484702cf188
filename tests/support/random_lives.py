"""
Random lives of queries, under every option that may change which sessions there are.

A life is a function of its seed: specs, events at and behind the watermark, restarts, micro-batches
that run again, and state that is carried over to other rules. What is under test is only that no
two sessions of a key have one id, so nothing here says what the sessions are.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

import attrs

from sessionkit import (
    EventTimeGap,
    Functions,
    Inputs,
    Lateness,
    Results,
    SessionRules,
    SessionSpec,
    SpecError,
    StateMismatchError,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.spec.logic import Events
from sessionkit.testing import SessionDriver

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Driver: TypeAlias = SessionDriver[Any, Any, Any]

BEGIN: Final = datetime(2026, 3, 8, 23, 59, 30, tzinfo=UTC)
"""Just before midnight."""
GAPS: Final = (2, 5, 20)
LATEST: Final = timedelta(hours=1)
LARGE: Final = 2**62
CARRIED: Final = 0
"""The revision of rows that were out when the query was carried over."""


@attrs.frozen
class Event:
    """
    An event: its number, the gap that it asks for, and its place among those of its instant.

    Two of its weight may be too large for a sum.
    """

    value: int
    gap_s: int
    weight: int
    place: int


@attrs.define
class State:
    values: list[int]


@attrs.frozen
class Result:
    values: list[int]
    total: int = 0


def _is_poison(value: int) -> bool:
    return value % 9 == 4


def update(state: State, event: Event) -> State:
    state.values.append(event.value)
    return state


def fussy_update(state: State, event: Event) -> State:
    """Add a number, and fail after that for some."""
    state.values.append(event.value)
    if _is_poison(event.value):
        message = "poison"
        raise ValueError(message)
    return state


def create(key: Any, event: Event) -> State:
    return State([event.value])


def merge(left: State, right: State) -> State:
    return State(left.values + right.values)


def fussy_merge(left: State, right: State) -> State:
    if (left.values[-1] + right.values[0]) % 5 == 0:
        message = "these don't go together"
        raise ValueError(message)
    return merge(left, right)


def finish(session: Any, state: State) -> Result:
    return Result(state.values)


def fussy_finish(session: Any, state: State) -> Result:
    if len(state.values) % 4 == 3:
        message = "no threes"
        raise ValueError(message)
    return finish(session, state)


def own_gap(event: Event) -> timedelta:
    """Return the gap that an event asks for."""
    return timedelta(seconds=event.gap_s)


def gap_by_values(state: State) -> timedelta:
    return timedelta(seconds=GAPS[sum(state.values) % 3])


def begins(event: Event) -> bool:
    return event.value % 11 == 0


def spec_of(random: Random, *, kind: str, on_error: str) -> AnySpec:
    """Make a spec; how states are folded is given, since it can't be migrated to another."""
    while True:
        try:
            return _spec(random, kind=kind, on_error=on_error)
        except SpecError:
            # Some options exclude each other.
            continue


def _spec(random: Random, *, kind: str, on_error: str) -> AnySpec:
    order = random.choice(["arrival", "arrival", "arrival", "event_time"])
    lateness: dict[str, Any] = {}
    results: dict[str, Any] = {}
    if kind != "per event":
        lateness, results = _revisions(random, order)
    if kind != "per event" and not lateness and not results:
        results = {"results": Results(with_events=random.choice([False, False, True]))}
    if order == "arrival":
        lateness["judged_by"] = random.choice(["event", "session"])
    duplicates = random.choice([None, None, timedelta(0), timedelta(seconds=9)])
    shared: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "timeout": _timeout(random, order=order, kind=kind),
        "order": order,
        "sequence": random.choice([None, None, "place"]),
        "watermark_delay": timedelta(seconds=random.choice([0, 0, 5, 20])),
        "on_error": on_error,
        "lateness": Lateness(**lateness),
        "results": Results(**results),
        "inputs": Inputs(
            max_buffered_per_key=random.choice([3, 100]), drop_duplicates_for=duplicates
        ),
        "storage": Storage(
            bucket_count=random.choice([1, 3]), layout=random.choice(["buckets", "pages"])
        ),
    }
    if kind == "per event":
        return SessionSpec.per_event(Event, **shared)
    if kind == "aggregates":
        aggregates = {"values": agg.collect("value", at_most=1_000), "total": agg.sum("weight")}
        return SessionSpec.aggregate(Event, aggregates, result=Result, **shared)
    fussy = on_error != "raise"
    logic = Functions(
        event=Event,
        state=State,
        result=Result,
        create=fussy_create if fussy and random.random() < 0.5 else create,
        update=fussy_update if fussy else update,
        merge=fussy_merge if fussy else merge,
        finish=fussy_finish if fussy and random.random() < 0.5 else finish,
    )
    return SessionSpec(logic=logic, **shared)


def fussy_create(key: Any, event: Event) -> State:
    """Start with one number, but not with any."""
    return fussy_update(State([]), event)


def _revisions(random: Random, order: str) -> tuple[dict[str, Any], dict[str, Any]]:
    emit = ["on_update", "every 3 events", "every 6 seconds", "every 6 seconds of processing time"]
    lateness: dict[str, Any] = {}
    results: dict[str, Any] = {}
    if random.random() < 0.3:
        results["emit"] = random.choice(emit)
    if order == "arrival" and random.random() < 0.4:
        name = random.choice(["allowed", "reopen_within"])
        lateness[name] = timedelta(seconds=random.choice([3, 10, 30]))
    return lateness, results


def _timeout(random: Random, *, order: str, kind: str) -> Any:
    gap: Any = timedelta(seconds=random.choice(GAPS))
    max_gap = None
    if random.random() < 0.4:
        gap, max_gap = own_gap, timedelta(seconds=max(GAPS))
    inclusive = random.random() < 0.7
    if random.random() < 0.5:
        return EventTimeGap(gap, max_gap=max_gap, gap_inclusive=inclusive)
    rules: dict[str, Any] = {
        "midnight": "UTC",
        "extends": _keeps,
        "close_idle_after": timedelta(seconds=30),
    }
    if order == "event_time":
        rules |= {
            "max_duration": timedelta(seconds=9),
            "max_events": 3,
            "until": _ends,
            "starts_with": begins,
            "changes_of": "gap_s",
        }
        if kind == "functions" and max_gap is None:
            rules["state_gap"] = gap_by_values
            gap = timedelta(seconds=max(GAPS))
    chosen = {name: rule for name, rule in rules.items() if random.random() < 0.4}
    return SessionRules(gap, max_gap=max_gap, gap_inclusive=inclusive, **chosen)


def _keeps(event: Event) -> bool:
    return event.value % 3 != 0


def _ends(event: Event) -> bool:
    return event.value % 7 == 0


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
    gone: set[tuple[str, str]] = attrs.field(factory=set)
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
        # Rows of one micro-batch have no order but that of their starts.
        self.gone |= {(row.key[0], one) for row in rows if spec.revises for one in row.supersedes}
        for one in driver.take_rejections():
            if one.kind == "failed_output":
                name = (one.key[0], str(one.session_id))
                self.story.append(f"  {one.kind} {name} {one.session_start}: {one.reason}")
                if not spec.revises:
                    self.last.add(name)
                self.failed.add(name)
            else:
                self.story.append(f"  {one.kind} {one.event_time}")
        for event in driver.take_events():
            name = (event.key[0], event.session_id)
            if name not in self.rows and name not in self.failed:
                self.faults.append(f"an event has the id of no session: {event}")

    def _row(self, spec: AnySpec, row: Any, numbers: frozenset[int]) -> None:
        name, revision = (row.key[0], row.id), row.revision if spec.revises else 1
        if name in self.gone or name in self.last:
            self.faults.append(f"superseded or failed, and there again: {row}")
        if name in self.rows:
            before, last, start = self.rows[name]
            same = not numbers.isdisjoint(before)
            again = last == CARRIED or (spec.revises and revision > last)
            if not again or not same or start != row.start:
                self.faults.append(f"seen as {sorted(before)}, {last}, {start}: {row}")
        self.rows[name] = (numbers, revision, row.start)


@attrs.frozen
class _Rows:
    """The rows of one session of a spec of events."""

    key: Any
    id: str
    start: datetime
    result: list[int]


def _by_session(rows: Iterable[Any]) -> list[Any]:
    found: dict[Any, _Rows] = {}
    for row in rows:
        one = found.setdefault((row.id, row.start), _Rows(row.key, row.id, row.start, []))
        one.result.append(row.result.value)
    return list(found.values())


def lived(seed: int) -> Sightings:
    """Live the life of a seed, and return what was seen of its ids."""
    random, seen = Random(seed), Sightings()
    kind = random.choice(["functions", "functions", "aggregates", "per event"])
    on_error = random.choice(["raise", "reject"])
    if kind == "per event":
        on_error = "raise"
    make = partial(spec_of, random, kind=kind, on_error=on_error)
    spec = make()
    seen.story.append(f"spec {spec}")
    driver: Driver = SessionDriver(spec, processing_time=BEGIN)
    front, value = BEGIN, 0
    for _ in range(random.randint(4, 12)):
        front += timedelta(seconds=random.choice([0, 0, 1, 5, 10]))
        for _ in range(random.choice([0, 1, 1, 2, 4])):
            value += random.choice([0, 1, 1, 1, 1])
            at = front - timedelta(seconds=random.choice([0, 0, 1, 2, 5, 5, 10, 20]))
            # Near the poison, large numbers make sums fail.
            weight = LARGE if on_error != "raise" and _is_poison(value) else 0
            seen.story.append(f"  event {value} {at}")
            gap_s = random.choice(GAPS)
            place = random.choice([1, 2, 3])
            driver.add(random.choice("aab"), at, Event(value, gap_s, weight, place))
        driver = _went_on(random, driver, seen, make)
    driver.run_batch()
    driver.advance_watermark_to(BEGIN + LATEST)
    driver.add("end", BEGIN + LATEST, Event(1, 2, 0, 1))
    driver.run_batch()
    driver.advance_processing_time(LATEST)
    driver.run_batch()
    driver.run_batch()
    seen.take(driver)
    return seen


def _went_on(random: Random, driver: Driver, seen: Sightings, make: Any) -> Driver:
    """Run a micro-batch, and perhaps something else."""
    driver.advance_processing_time(timedelta(seconds=random.choice([0, 1, 1, 10, 40])))
    if random.random() < 0.1:
        driver.run_batch(sink_fails=True)
    result = driver.run_batch()
    seen.story.append(f"batch at {result.watermark}")
    seen.take(driver)
    chance = random.random()
    if chance < 0.15:
        return type(driver).restore(driver.spec, driver.snapshot())
    if chance < 0.3:
        return _carried(driver, seen, make)
    return driver


def _carried(driver: Driver, seen: Sightings, make: Any) -> Driver:
    for _ in range(5):
        spec = make()
        try:
            other = driver.migrate(spec)
        except StateMismatchError:
            continue
        seen.story.append(f"carried over to {spec}")
        _forget_revisions(seen)
        return other
    return driver


def _forget_revisions(seen: Sightings) -> None:
    """Rows that are out under other options may be followed by any revision of their session."""
    seen.rows = {name: (numbers, CARRIED, at) for name, (numbers, _, at) in seen.rows.items()}
