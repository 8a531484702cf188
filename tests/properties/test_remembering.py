"""What `remember` returns, session after session, against a loop over all events."""

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
    DecimalType,
    EventTimeGap,
    Inputs,
    Lateness,
    Memory,
    Results,
    Session,
    SessionSpec,
    Storage,
)
from sessionkit._engine.counts import Counts
from sessionkit.testing import SessionDriver

DAY = datetime(2026, 3, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP = 30 * MINUTE
LATEST = 60
"""By how many minutes an event comes late at most: never too late."""
FAILS, FORGETS, SILENT, UNFIT = "fails", "forgets", "silent", "unfit"
SOURCES = ["mail", "ad", "finish", "row", FAILS, FORGETS, SILENT, UNFIT]
"""What events say; some let a function fail, by its name or in another way."""

Event: TypeAlias = tuple[str, int, str]
"""A key, a minute and a source."""
Row: TypeAlias = dict[str, Any]

event = st.tuples(st.sampled_from("ab"), st.integers(0, 900), st.sampled_from(SOURCES))
streams = st.lists(event, min_size=1, max_size=40, unique_by=lambda one: one[:2])
lives = st.sampled_from([MINUTE, timedelta(hours=1), timedelta(hours=4), timedelta(days=5)])


class Mood(Enum):
    NEW = "new"
    KNOWN = "known"


@attrs.frozen
class View:
    source: str


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
        self.sources = sorted([*self.sources, view.source])

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
    local = session.start.astimezone().replace(microsecond=1)
    shopper = session.memory or Shopper([], local)
    shopper.seen += visit.sources
    shopper.paid += Decimal("1.5")
    shopper.mood = Mood.NEW if shopper.longest is None else Mood.KNOWN
    shopper.longest = max(shopper.longest or GAP, session.end - session.start)
    if UNFIT in visit.sources:
        shopper.paid = Decimal("0.001")
    return shopper


@st.composite
def micro_batches(draw: st.DrawFn) -> list[list[Event]]:
    """Return a stream out of order, in micro-batches."""
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
    return {(row.key.key, row.start): row.result for row in run(spec, cuts)[0] if row.is_final}


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
@given(
    cuts=micro_batches(),
    life=lives,
    options=st.fixed_dictionaries(
        {},
        optional={
            "storage": st.builds(Storage, layout=st.just("pages")),
            "inputs": st.builds(Inputs, drop_duplicates_for=st.just("1 hour")),
            "results": st.builds(Results, emit=st.just("on_update")),
        },
    ),
)
def test_each_session_finds_what_the_one_before_left(
    order: str, cuts: list[list[Event]], life: timedelta, options: Row
) -> None:
    """However it's cut; also where functions fail, or spoil what they are given."""
    assert last_rows(spec_of(life, order=order, **options), cuts) == naive(cuts, life)


@given(
    cuts=micro_batches(),
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


def span(view: View) -> timedelta:
    return SPANS.get(view.source, 5 * MINUTE)


@attrs.frozen
class Ids:
    ids: list[str]


@attrs.frozen
class Line:
    """The sessions of a key, up to this one."""

    ids: list[str]


def so_far(session: Session[User, Ids], _: Visit) -> Line:
    return Line([*(session.memory.ids if session.memory else []), session.id])


def and_this(session: Session[User, Ids], _: Visit) -> Ids:
    return Ids([*(session.memory.ids if session.memory else []), session.id])


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@given(cuts=micro_batches(), gap=st.sampled_from([GAP, EventTimeGap(span, max_gap="90 minutes")]))
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
        ids = [*closed[row.key.key], row.id]
        assert (row.memory["session_number"], row.result.ids) == (len(ids), ids)
        assert row.memory["previous_session_id"] == (ids[-2] if ids[1:] else None)
        if row.is_final:
            closed[row.key.key] = ids
    final = [row.memory for row in rows if row.is_final]
    before = [one["since_previous"] for one in final if one["since_previous"]]
    assert sum(since < timedelta(0) for since in before) == counts.out_of_order
