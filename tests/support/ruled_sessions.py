"""Clicks under rules: the events, the rules to draw, specs that list values, and a run of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import attrs
import pyarrow.compute as pc
from hypothesis import strategies as st

from sessionkit import Session, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, SessionRow
from tests.support.naive_rules import Click

GAP = timedelta(seconds=10)
MICRO = timedelta(microseconds=1)
ZONE = "America/New_York"
# Half a minute before midnight there, on the day that has 23 hours.
START = datetime(2026, 3, 8, 4, 59, 30, tzinfo=UTC)
END = START + timedelta(days=3)

STEPS = [timedelta(0), MICRO, GAP / 2, GAP - MICRO, GAP, GAP + MICRO, 3 * GAP]
sequences = st.sampled_from([None, "seq"])


@attrs.frozen
class Shown:
    value: int
    gap: timedelta
    ends: bool
    begins: bool
    keeps: bool
    campaign: str | None
    seq: int
    opens: bool = True


@attrs.define
class Values:
    """The values of a session, as they were folded, and what `finish` is told."""

    values: list[int] = attrs.field(factory=list)
    ended_by: str = ""
    last: datetime | None = None
    length: timedelta | None = None

    def update(self, event: Shown) -> None:
        """Add a value, unless it's one that can't be added."""
        if event.value < 0:
            raise ValueError(event.value)
        self.values.append(event.value)

    def merge(self, other: "Values") -> None:
        self.values += other.values

    def finish(self, session: Session) -> "Values":
        return Values(self.values, session.closed_by, session.last_event_time, session.length)


@st.composite
def timelines(draw: st.DrawFn, sequence: str | None) -> list[Click]:
    """Draw the events of two keys, by time; with a sequence, many are at one instant."""
    events, at = [], dict.fromkeys("ab", START)
    steps = st.sampled_from(STEPS if sequence is None else [timedelta(0)] * 7 + STEPS)
    turns = st.just(0) if sequence is None else st.integers(-3, 3)
    for value in range(draw(st.integers(1, 14))):
        key = draw(st.sampled_from("ab"))
        at[key] += draw(steps)
        some = st.integers(0, 3).map(lambda n: n == 0)
        campaign = draw(st.sampled_from([None, None, "x", "y"]))
        gap = draw(st.sampled_from([GAP, GAP, GAP / 2]))
        flags = draw(some), draw(some), not draw(some)
        turn, opens = draw(turns), draw(st.booleans())
        events.append(Click(key, at[key], value, gap, *flags, campaign, turn, opens))
    return sorted(events, key=lambda event: event.at)


def either(name: str, function: Any) -> st.SearchStrategy[Any]:
    """Leave a rule out, or say it as the name of a field, an expression, or a function."""
    return st.sampled_from([None, None, name, pc.field(name), function])


def ends(event: Shown) -> bool:
    return event.ends


def begins(event: Shown) -> bool:
    return event.begins


def keeps(event: Shown) -> bool:
    return event.keeps


def opens(event: Shown) -> bool:
    return event.opens


def gap_by_values(state: Any) -> timedelta:
    """Read the gap from the values so far, of a state or of the model."""
    return GAP / (1 + len(state.values) % 3)


gaps: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"gap": GAP}, {"gap": lambda event: event.gap, "max_gap": GAP}]
)
in_any_order = st.fixed_dictionaries(
    {
        "gap_inclusive": st.booleans(),
        "midnight": st.sampled_from([None, ZONE]),
        "extends": either("keeps", keeps),
    }
)
lengths = st.fixed_dictionaries(
    {
        "max_duration": st.sampled_from([GAP / 2, 2 * GAP]),
        "max_duration_inclusive": st.booleans(),
    }
)
openings = either("opens", opens).map(lambda by: {"opens_with": by})
cuttings = st.fixed_dictionaries(
    {
        "max_events": st.sampled_from([None, None, 1, 2, 3]),
        "until": either("ends", ends),
        "starts_with": either("begins", begins),
        "changes_of": st.sampled_from([(), ("campaign",)]),
    }
)
in_order: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda *parts: reduce(or_, parts), cuttings, openings, st.just({}) | lengths
)


def does_not_fit(values: Sequence[int], value: int) -> bool:
    """Tell whether a value fails after others: that depends on where the session began."""
    return (len(values) + value) % 3 == 2


@attrs.define
class Fussy(Values):
    """Values that don't take every other one."""

    def update(self, event: Shown) -> None:
        if does_not_fit(self.values, event.value):
            raise ValueError(event.value)
        self.values.append(event.value)

    def finish(self, session: Session) -> "Fussy":
        return Fussy(self.values, session.closed_by, session.last_event_time, session.length)


def spec_of(
    rules: SessionRules, *, aggregated: bool, state: Any = Values, **options: Any
) -> SessionSpec[Any, Any, Any]:
    """Return a spec that lists the values of a session."""
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "at",
        "timeout": rules,
        "order": "event_time" if rules.in_order else "arrival",
        **options,
    }
    if aggregated:
        values = {"values": agg.collect("value", at_most=100)}
        return SessionSpec.aggregate(Shown, values, **settings)
    return SessionSpec.of(state, event=Shown, **settings)


def told(
    spec: SessionSpec[Any, Any, Any], cut: Sequence[Sequence[Click]], *, restart: bool
) -> tuple[list[SessionRow[Any]], list[str]]:
    """
    Run a cut through the driver, then the end of all sessions; return rows and rejections.

    Each row says when the last event of its session was, and `finish` is told the same.
    """
    driver, rows, kinds = SessionDriver(spec), [], []
    for batch in cut:
        for click in batch:
            driver.add(click.key, click.at, Shown(*click[2:10]))
        driver.run_batch()
        rows += driver.take_rows()
        kinds += [rejection.kind for rejection in driver.take_rejections()]
        if restart:
            driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    rows += driver.take_rows()
    kinds += [rejection.kind for rejection in driver.take_rejections()]
    assert driver.counts.is_balanced
    assert not driver.open_sessions()
    at = {click.value: click.at for batch in cut for click in batch}
    for row in rows:
        if (values := getattr(row.result, "values", None)) is not None:
            assert max(at[value] for value in values) == row.last_event_time
        if (last := getattr(row.result, "last", None)) is not None:
            assert (row.last_event_time, last - row.session_start) == (last, row.result.length)
    return sorted(rows, key=lambda row: (row.key, row.session_start)), kinds
