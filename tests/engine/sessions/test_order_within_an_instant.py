"""Events of one instant in a `sequence`: how they're cut, and the ids of their sessions."""

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import Inputs, SessionRules, SessionSpec
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at
from tests.support.session_specs import ended, fed

IN, OUT = pc.field("act") == "in", pc.field("act") == "out"


@attrs.frozen
class Line:
    act: str
    offset: int


@attrs.define
class Acts:
    """What was done in a session, in the order in which it was folded."""

    acts: list[str] = attrs.field(factory=list)

    def update(self, line: Line) -> None:
        """Add what was done; a `bad` act can't be."""
        self.acts.append(line.act)
        if line.act == "bad":
            raise ValueError(line.act)


def spec_of(**options: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "watermark_delay": "1 minute",
        "timeout": SessionRules("30 minutes", until=OUT, starts_with=IN, max_events=3),
        "order": "event_time",
        "sequence": "offset",
        **options,
    }
    return SessionSpec.of(Acts, **settings)


def rows_of(spec: SessionSpec[Any, Any, Any], *instants: Sequence[str]) -> list[Any]:
    driver, offset = SessionDriver(spec), 0
    for minute, acts in enumerate(instants):
        lines = [Line(act, offset + place) for place, act in enumerate(acts)]
        offset += len(lines)
        for line in reversed(lines):
            driver.add("a", at(f"10:{minute:02}"), line)
    driver.run_batch()
    rows = ended(driver)
    assert driver.counts.is_balanced
    return rows


def test_sessions_of_one_instant_have_ids_of_their_own() -> None:
    """The first has the id that it has without a sequence; cut and restart change none."""
    acts = ["in", "out"] * 3
    rows = rows_of(spec_of(), acts)
    assert [at("10:00")] * 3 == [row.session_start for row in rows]
    assert 3 == len({row.session_id for row in rows})
    (alone,) = rows_of(spec_of(sequence=None), ["in", "out"])
    assert alone.session_id == rows[0].session_id

    driver, found = SessionDriver(spec_of()), []
    for offset, act in enumerate(acts):
        driver.add("a", at("10:00"), Line(act, offset))
        driver.run_batch()
        found += driver.take_rows()
        driver = SessionDriver.restore(spec_of(), driver.snapshot())
    assert [row.session_id for row in rows] == [row.session_id for row in [*found, *ended(driver)]]


def test_an_event_that_fails_leaves_the_others_of_its_instant() -> None:
    """Its session goes on without it, under an id that none of the others has."""
    driver = SessionDriver(spec_of(on_error="reject"))
    acts = ["in", "out", "in", "bad", "out", "in"]
    fed(driver, *(("10:00", Line(act, offset)) for offset, act in enumerate(acts)))
    rows = ended(driver)
    assert 3 == len({row.session_id for row in rows})
    assert ["in out", "in out", "in"] == [" ".join(row.result.acts) for row in rows]


def test_of_two_copies_the_one_that_comes_first_in_the_sequence_counts() -> None:
    """Under `drop_duplicates_for`, of events that are known by another field."""
    spec = spec_of(
        inputs=Inputs(drop_duplicates_for="1 hour", event_id="act"), timeout=SessionRules("1 hour")
    )
    driver = SessionDriver(spec)
    fed(driver, *(("10:00", Line(act, offset)) for act, offset in (("b", 7), ("a", 9), ("b", 3))))
    assert [["b", "a"]] == [row.result.acts for row in ended(driver)]
    assert [7] == [one.event["offset"] for one in driver.take_rejections()]


def test_a_checkpoint_keeps_its_sequence() -> None:
    """Another one is refused with a hint; `migrate` carries sessions over to it."""
    driver = SessionDriver(spec_of(sequence=None))
    fed(driver, ("10:00", Line("a", 1)), ("10:05", Line("b", 2)))
    other = SessionDriver.restore(spec_of(), driver.snapshot())
    other.add("a", at("10:06"), Line("c", 3))
    with pytest.raises(StateError, match=r"(?s)sequence.*Hint: carry the state over"):
        other.run_batch()
    driver = driver.migrate(attrs.evolve(driver.spec, sequence="offset"))
    fed(driver, ("10:06", Line("in", 5)), ("10:06", Line("out", 4)))
    assert [["a", "b", "out"], ["in"]] == [row.result.acts for row in ended(driver)]
