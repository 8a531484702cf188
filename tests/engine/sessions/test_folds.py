"""Which code folds the sessions of a micro-batch."""

import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import attrs
import pyarrow as pa
import pytest

from sessionkit import EventTimeGap, Functions, Lateness, SessionSpec
from sessionkit._engine.logic import BatchClocks
from sessionkit._engine.sessions.by_functions import OBJECTS_AT_ONCE
from sessionkit._engine.sessions.joining import Joined, horizon_of, join
from sessionkit._engine.sessions.program import Program
from sessionkit._instants import micros_of
from sessionkit.testing import SessionDriver, at
from tests.support.session_specs import fed

CAREFUL = {"careful_fold.py", "cutting.py", "rejecting.py"}


@attrs.frozen
class Step:
    """An event: its number; functions fail over a negative one."""

    number: int


@attrs.define
class Total:
    total: int = 0

    def update(self, event: Step) -> None:
        if event.number < 0:
            message = "negative"
            raise ValueError(message)
        self.total += event.number

    def merge(self, other: "Total") -> None:
        self.total += other.total


def entered(on_error: Any, bad: int) -> set[str]:
    """Return the files entered while two events join two open sessions, one with this number."""
    spec = SessionSpec.of(
        Total,
        keys={"key": str},
        event_time="ts",
        gap=timedelta(minutes=10),
        watermark_delay="10 hours",
        on_error=on_error,
    )
    driver = fed(SessionDriver(spec), ("10:00", Step(1)), ("10:16", Step(2)))
    files = set[str]()

    def see(frame: FrameType, kind: str, _: Any) -> None:
        if kind == "call":
            files.add(Path(frame.f_code.co_filename).name)

    sys.setprofile(see)
    try:
        fed(driver, ("10:08", Step(3)), ("10:17", Step(bad)))
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_where_nothing_fails_only_the_fast_fold_is_entered(on_error: str) -> None:
    """What cuts by rules, says why or leaves out costs nothing there."""
    files = entered(on_error, 4)

    assert "by_functions.py" in files
    assert not files & CAREFUL


def test_where_an_event_fails_its_session_alone_is_folded_again() -> None:
    """A spec without rules enters none."""
    files = entered("reject", -4)

    assert {"rejecting.py"} == {"rejecting.py", "rules.py"} & files


# -- events that their own class refuses, among those that join sessions -------------------------


GAP = timedelta(minutes=10)


@attrs.define
class Positive:
    """An event that takes no number below 1."""

    number: int = attrs.field(validator=attrs.validators.ge(1))


@attrs.define
class Numbers:
    """The numbers of a session, in order."""

    numbers: list[int] = attrs.field(factory=list)


def update(state: Numbers, event: Positive) -> None:
    state.numbers.append(event.number)


def spec_of(judged_by: Literal["event", "session"] = "event") -> SessionSpec[Any, Any, Any]:
    return SessionSpec(
        keys={"key": str},
        event_time="ts",
        logic=Functions(
            update=update, merge=lambda left, right: Numbers(left.numbers + right.numbers)
        ),
        timeout=EventTimeGap(GAP),
        watermark_delay="1 minute",
        lateness=Lateness(judged_by=judged_by),
    )


def joined(
    spec: SessionSpec[Any, Any, Any], *events: tuple[str, int], watermark: str = "09:00"
) -> Joined:
    """Let events of one key, each a time and a number, join no open session."""
    times, numbers = zip(*events, strict=True)
    columns = {
        "key.key": ["a"] * len(events),
        "time": [at(time) for time in times],
        "event.number": list(numbers),
    }
    arrived = pa.table(columns, schema=spec.events_schema)
    program = Program.of(spec)
    horizon = horizon_of(program, BatchClocks(micros_of(at(watermark)), 0))
    return join(program, program.schema.empty_table(), arrived, horizon)


def rejected(found: Joined) -> set[tuple[str, int]]:
    """Return the rejected events: of which kind, and the number."""
    return {
        (part.kind, number)
        for part in found.rejected
        for number in part.rows["event.number"].to_pylist()
    }


def test_a_refused_event_holds_nothing_together() -> None:
    """The events on both sides of it are sessions of their own."""
    found = joined(spec_of(), ("10:00", 1), ("10:08", -1), ("10:16", 2))

    assert [[1], [2]] == found.sessions["state.numbers"].to_pylist()
    assert (2, {("quarantined", -1)}) == (found.events, rejected(found))


def test_a_refused_event_that_is_late_is_quarantined() -> None:
    """The reason that lies in the event itself comes first, as for a null."""
    found = joined(spec_of(), ("10:00", -1), ("10:00", 1), ("10:30", 2), watermark="10:15")

    assert (1, {("quarantined", -1), ("late", 1)}) == (found.events, rejected(found))


def test_a_refused_event_saves_no_other_from_being_late() -> None:
    """Without it, the session that the other would join is over."""
    found = joined(spec_of("session"), ("10:00", 1), ("10:08", -1), watermark="10:15")

    assert (0, {("quarantined", -1), ("late", 1)}) == (found.events, rejected(found))


def test_refused_events_in_a_session_that_is_over_are_quarantined() -> None:
    """The other events of that session are late, with or without them."""
    found = joined(spec_of("session"), ("10:00", 1), ("10:02", -1), watermark="10:15")

    assert (0, {("quarantined", -1), ("late", 1)}) == (found.events, rejected(found))


def test_a_refused_event_after_many_others_is_left_out_alone() -> None:
    """Objects are made of some events at a time, and a session goes on over the edge."""
    number = OBJECTS_AT_ONCE + 9
    events = [("10:00", 1 + place) for place in range(number)]

    found = joined(spec_of(), *events, ("10:05", -1), ("10:30", 1), ("10:45", 0), ("11:00", 2))

    assert [[*range(1, 1 + number)], [1], [2]] == found.sessions["state.numbers"].to_pylist()
    assert (number + 2, {("quarantined", -1), ("quarantined", 0)}) == (
        found.events,
        rejected(found),
    )
