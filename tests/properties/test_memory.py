"""What is remembered of a key, and what `remember` returns, against a loop over all events."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeAlias

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import (
    EventTimeGap,
    Inputs,
    Lateness,
    Memory,
    Results,
    Session,
    SessionSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit._engine.counts import Counts
from sessionkit.state import DecimalType
from sessionkit.testing import SessionDriver

DAY = datetime(2026, 3, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP = 30 * MINUTE
LATEST = 60
"""By how many minutes an event comes late at most: never too late."""
FAILS, FORGETS, SILENT, UNFIT = "fails", "forgets", "silent", "unfit"
SOURCES = ["mail", "ad", "finish", "row", FAILS, FORGETS, SILENT, UNFIT]
"""What events say; some let a function fail, by its name or in another way."""

Event: TypeAlias = tuple[str, int, Any]
"""A key, a minute and a source."""
Row: TypeAlias = dict[str, Any]

lives = st.sampled_from([MINUTE, timedelta(hours=1), timedelta(hours=4), timedelta(days=5)])


OPTIONS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {},
    optional={
        "storage": st.builds(Storage, layout=st.just("pages")),
        "inputs": st.builds(Inputs, drop_duplicates_for=st.just("1 hour")),
        "results": st.builds(Results, emit=st.just("on_update")),
    },
)


class Mood(Enum):
    NEW = "new"
    KNOWN = "known"


@attrs.frozen
class View:
    source: str | None


class User(NamedTuple):
    key: str


@attrs.define
class Shopper:
    """What is remembered: of many types, and with a list that a function may change in place."""

    seen: list[str]
    since: datetime
    paid: Annotated[Decimal, DecimalType(10, 2)] = Decimal(0)
    mood: Mood = Mood.NEW
    longest: timedelta | None = None


@attrs.define
class Visit:
    sources: list[str] = attrs.field(factory=list)

    def update(self, view: View) -> None:
        self.sources = sorted([*self.sources, view.source or ""])

    def merge(self, other: "Visit") -> None:
        self.sources = sorted(self.sources + other.sources)

    def finish(self, session: Session[User, Shopper]) -> Any:
        return finish(session, self)


@attrs.define
class Told:
    known: str
    pages: int


def finish(session: Session[User, Shopper], visit: Visit) -> Told | None:
    """Return what is known, and then spoil it: nobody may see that."""
    if SILENT in visit.sources:
        return None
    found = Told(repr(session.memory), len(visit.sources))
    if session.memory is not None:
        session.memory.seen.clear()
    if "finish" in visit.sources:
        raise ValueError(session.key)
    if "row" in visit.sources:
        found.pages = 2**80
    return found


def remember(session: Session[User, Shopper], visit: Visit) -> Shopper | None:
    """Return what the next session finds, without what `finish` has cleared."""
    if FAILS in visit.sources:
        raise ValueError(session.key)
    if FORGETS in visit.sources:
        return None
    local = session.session_start.astimezone().replace(microsecond=1)
    shopper = session.memory or Shopper([], local)
    shopper.seen += visit.sources
    shopper.paid += Decimal("1.5")
    shopper.mood = Mood.NEW if shopper.longest is None else Mood.KNOWN
    shopper.longest = max(shopper.longest or GAP, session.session_end - session.session_start)
    if UNFIT in visit.sources:
        shopper.paid = Decimal("0.001")
    return shopper


@st.composite
def micro_batches(draw: st.DrawFn, sources: Sequence[str | None]) -> list[list[Event]]:
    """Return a stream out of order, in micro-batches."""
    event = st.tuples(st.sampled_from("ab"), st.integers(0, 900), st.sampled_from(sources))
    streams = st.lists(event, min_size=1, max_size=40, unique_by=lambda one: one[:2])
    stream = sorted(draw(streams), key=lambda one: one[1])
    delays = [draw(st.integers(0, LATEST)) for _ in stream]
    order = sorted(range(len(stream)), key=lambda at: stream[at][1] + delays[at])
    batches: list[list[Event]] = [[]]
    for at in order:
        batches[-1].append(stream[at])
        if draw(st.booleans()):
            batches.append([])
    return batches


def spec_of(life: timedelta, **options: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "ts",
        "gap": GAP,
        "watermark_delay": LATEST * MINUTE,
        "on_error": "reject",
        "result": Told,
        "memory": Memory(time_to_live=life, remember=remember, first={"landed": "pages"}),
    }
    return SessionSpec.of(Visit, **settings | options)


def run(
    spec: SessionSpec[Any, Any, Any], cuts: Sequence[Sequence[Event]]
) -> tuple[list[Any], Counts]:
    """Return the rows and the counts of a stream, restarted after each micro-batch."""
    driver, rows = SessionDriver(spec), list[Any]()
    for batch in cuts:
        for key, minute, source in batch:
            driver.add(key, DAY + minute * MINUTE, View(source))
        driver.run_batch()
        rows += driver.take_rows()
        driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_watermark_to(DAY + timedelta(days=9))
    driver.run_until_idle()
    rows += driver.take_rows()
    assert not driver.snapshot().groups, "nothing is remembered for ever"
    return rows, driver.counts


def last_rows(spec: SessionSpec[Any, Any, Any], cuts: Sequence[Sequence[Event]]) -> dict[Any, Any]:
    """Return the last final row of each session of a stream."""
    return {
        (row.key.key, row.session_start): row.result for row in run(spec, cuts)[0] if row.is_final
    }


def naive(cuts: Sequence[Sequence[Event]], life: timedelta) -> dict[Any, Any]:
    """Return the rows that a loop over all events finds."""
    found: dict[Any, Any] = {}
    events = sorted(one for batch in cuts for one in batch)
    for key in sorted({one[0] for one in events}):
        visits: list[list[Event]] = []
        for one in events:
            if one[0] != key:
                continue
            if not visits or (one[1] - visits[-1][-1][1]) * MINUTE > GAP:
                visits.append([])
            visits[-1].append(one)
        known: tuple[Any, ...] | None = None
        over = DAY - timedelta(days=99)
        for visit in visits:
            start, end = DAY + visit[0][1] * MINUTE, DAY + visit[-1][1] * MINUTE + GAP
            known = None if start >= over + life else known
            sources, over = sorted(one[2] for one in visit), end
            if {SILENT, "finish", "row"} & {*sources}:
                continue
            told = Told(repr(known and _shopper(*known)), len(visit))
            if FORGETS in sources and FAILS not in sources:
                known = None
            elif not {FAILS, UNFIT} & {*sources}:
                longest = max(known[2] if known else GAP, end - start)
                since, visited = (known[0], known[1] + 1) if known else (start, 1)
                known = since, visited, longest, sources
            elif FAILS in sources or UNFIT in sources:
                continue
            found[key, start] = told
    return found


def _shopper(since: datetime, visits: int, longest: timedelta, sources: list[str]) -> Shopper:
    """Return what is left after some visits that nothing forgot."""
    mood = Mood.KNOWN if visits > 1 else Mood.NEW
    paid = (visits * Decimal("1.5")).quantize(Decimal("0.01"))
    return Shopper(sources, since.replace(microsecond=1), paid, mood, longest)


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@given(cuts=micro_batches(SOURCES), life=lives, options=OPTIONS)
def test_each_session_finds_what_the_one_before_left(
    order: str, cuts: list[list[Event]], life: timedelta, options: Row
) -> None:
    """However it's cut; also where functions fail, or spoil what they are given."""
    assert last_rows(spec_of(life, order=order, **options), cuts) == naive(cuts, life)


@given(
    cuts=micro_batches(SOURCES),
    life=lives,
    options=st.fixed_dictionaries(
        {"storage": st.builds(Storage, layout=st.sampled_from(["buckets", "pages"]))},
        optional={"results": st.builds(Results, emit=st.just("on_update"))},
    ),
)
def test_late_events_leave_what_a_loop_finds(
    cuts: list[list[Event]], life: timedelta, options: Row
) -> None:
    """The last row of each session that has one; what failed may leave an earlier row."""
    late: Row = {"watermark_delay": MINUTE, "lateness": Lateness(allowed=LATEST * MINUTE)}
    rows, expected = last_rows(spec_of(life, **late, **options), cuts), naive(cuts, life)
    assert {place: rows.get(place) for place in expected} == expected


SPANS = {"mail": 30 * MINUTE, "ad": 3 * 30 * MINUTE}
"""The gap after an event; 5 minutes after others."""


@attrs.frozen
class Ids:
    ids: list[str]


@attrs.frozen
class Line:
    """The sessions of a key, up to this one."""

    ids: list[str]


def so_far(session: Session[User, Ids], _: Visit) -> Line:
    return Line([*(session.memory.ids if session.memory else []), session.session_id])


def and_this(session: Session[User, Ids], _: Visit) -> Ids:
    return Ids([*(session.memory.ids if session.memory else []), session.session_id])


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@given(
    cuts=micro_batches(SOURCES),
    gap=st.sampled_from(
        [GAP, EventTimeGap(lambda view: SPANS.get(view.source, 5 * MINUTE), max_gap="90 minutes")]
    ),
)
def test_sessions_that_lateness_has_split_are_counted(
    emit: str, cuts: list[list[Event]], gap: Any
) -> None:
    """Each is told what had closed by then, and an early row nothing of others that are open."""
    memory = Memory(time_to_live="5 days", remember=and_this)
    own: Row = {
        "finish": so_far,
        "result": Line,
        "memory": memory,
        "results": Results(emit=emit),
        "timeout": gap,
    }
    spec = spec_of(timedelta(days=5), **own, gap=None, watermark_delay=MINUTE)
    rows, counts = run(spec, cuts)
    closed: dict[str, list[str]] = {"a": [], "b": []}
    for row in rows:
        ids = [*closed[row.key.key], row.session_id]
        assert (row.memory["session_number"], row.result.ids) == (len(ids), ids)
        assert row.memory["previous_session_id"] == (ids[-2] if ids[1:] else None)
        if row.is_final:
            closed[row.key.key] = ids
    final = [row.memory for row in rows if row.is_final]
    before = [one["since_previous"] for one in final if one["since_previous"]]
    assert sum(since < timedelta(0) for since in before) == counts.out_of_order


# -- without a function ------------------------------------------------------------------------

SEEN = ["mail", "ad", None]
"""Sources, of which a session may have none."""
HOUR, DAYS = timedelta(hours=1), timedelta(days=5)
spans = st.sampled_from(
    [(MINUTE, None), (HOUR, None), (4 * HOUR, HOUR), (DAYS, None), (DAYS, 3 * HOUR)]
)
"""For how long a key is remembered, and how far back the last source may be."""


@attrs.define
class Last:
    """What the aggregate of the other spec says, and what `finish` is told."""

    source: str | None = None
    told: str = ""

    def update(self, view: View) -> None:
        self.source = view.source or self.source

    def finish(self, session: Session[Any]) -> "Last":
        return Last(self.source, f"{session.session_number} {session.previous_session_id}")


def carrying(way: str, life: timedelta, lookback: timedelta | None, **options: Any) -> Any:
    """Return a spec that remembers the first source and the last, by functions or aggregates."""
    carried: Row = {"first": {"landed": "source"}, "last": {"credited": "source"}}
    settings: Row = {
        "keys": {"key": str},
        "event_time": "ts",
        "gap": GAP,
        "watermark_delay": LATEST * MINUTE,
        "memory": Memory(time_to_live=life, lookback=lookback, **carried),
    }
    if way == "functions":
        return SessionSpec.of(Last, order="event_time", **settings | options)
    return SessionSpec.aggregate(View, {"source": agg.last("source")}, **settings | options)


def last_of_all(spec: SessionSpec[Any, Any, Any], cuts: Sequence[Sequence[Event]]) -> list[Row]:
    """Return the last final row of each session that no other supersedes."""
    rows, _ = run(spec, cuts)
    last = {row.session_id: row for row in rows if row.is_final}
    for gone in (name for row in rows for name in row.supersedes):
        last.pop(gone, None)
    found: list[Row] = []
    for row in sorted(last.values(), key=lambda row: (row.key, row.session_start)):
        facts = {
            "key": row.key.key,
            "start": row.session_start,
            "end": row.session_end,
            "id": row.session_id,
        }
        found.append({**facts, "source": row.result.source, **row.memory})
        told = getattr(row.result, "told", None)
        own = f"{row.memory['session_number']} {row.memory['previous_session_id']}"
        assert told in {None, own}
    return found


def remembered(rows: Sequence[Row], memory: Memory) -> list[Row]:
    """Return the rows with what a loop remembers of each key."""
    found: list[Row] = []
    line: list[Row] = []
    for row in rows:
        last = line[-1] if line and line[-1]["key"] == row["key"] else None
        if last is None or row["start"] >= last["end"] + memory.time_to_live:
            line, last = [], None
        line.append(row)
        known = [one for one in line if one["source"]]
        reach = memory.lookback or timedelta.max
        near = [one for one in known if row["start"] - one["start"] <= reach]
        own = {
            "session_number": len(line),
            "previous_session_id": last and last["id"],
            "since_previous": last and row["start"] - last["end"],
            "landed": known[0]["source"] if known else None,
            "credited": near[-1]["source"] if near else None,
        }
        found.append({**row, **own})
    return found


@pytest.mark.parametrize("way", ["functions", "aggregates"])
@given(cuts=micro_batches(SEEN), within=spans, options=OPTIONS)
def test_a_key_is_remembered_and_forgotten_in_time(
    way: str, cuts: list[list[Event]], within: Any, options: Row
) -> None:
    """By the times of its sessions alone, whatever the watermark was and however it's cut."""
    spec = carrying(way, *within, **options)
    rows = last_of_all(spec, cuts)
    assert remembered(rows, spec.memory) == rows


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@given(cuts=micro_batches(SEEN), within=spans, layout=st.sampled_from(["buckets", "pages"]))
def test_late_events_leave_the_rows_that_a_loop_finds(
    emit: str, layout: Any, cuts: list[list[Event]], within: Any
) -> None:
    """The last row of each session, of those that no other supersedes."""
    late: Row = {
        "watermark_delay": MINUTE,
        "lateness": Lateness(allowed=LATEST * MINUTE),
        "results": Results(emit=emit),
        "storage": Storage(layout=layout),
    }
    spec = carrying("aggregates", *within, **late)
    rows = last_of_all(spec, cuts)
    assert remembered(rows, spec.memory) == rows
