"""Events that their own class refuses, among those that join sessions."""

from datetime import timedelta
from typing import Any, Literal

import attrs
import pyarrow as pa
import pytest

from sessionkit import EventTimeGap, Functions, Lateness, SessionSpec
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.sessions.by_functions import OBJECTS_AT_ONCE
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.verdicts import JoinedEvents, join
from sessionkit._instants import micros_of
from sessionkit.testing import at

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
) -> JoinedEvents:
    """Let events of one key, each a time and a number, join no open session."""
    times, numbers = zip(*events, strict=True)
    columns = {
        "key.key": ["a"] * len(events),
        "time": [at(time) for time in times],
        "event.number": list(numbers),
    }
    arrived = pa.table(columns, schema=spec.events_schema)
    program = Program.of(spec)
    horizon = program.horizon(BatchClocks(micros_of(at(watermark)), 0))
    return join(program, program.schema.empty_table(), arrived, horizon)


def rejected(found: JoinedEvents) -> set[tuple[str, int]]:
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


@pytest.mark.parametrize(
    ("judged_by", "events", "kept"),
    [
        # The reason that lies in the event itself comes first, as for a null.
        ("event", [("10:00", -1), ("10:00", 1), ("10:30", 2)], 1),
        # Without it, the session that the other would join is over.
        ("session", [("10:00", 1), ("10:08", -1)], 0),
        # Their session is over with or without it.
        ("session", [("10:00", 1), ("10:02", -1)], 0),
    ],
)
def test_a_refused_event_is_quarantined_and_saves_no_other_from_being_late(
    judged_by: Any, events: Any, kept: int
) -> None:
    """Whether it's late itself or not."""
    found = joined(spec_of(judged_by), *events, watermark="10:15")

    assert (kept, {("quarantined", -1), ("late", 1)}) == (found.events, rejected(found))


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
