"""What is remembered of a key, where sessions give several rows, and across specs."""

from datetime import timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import Lateness, Memory, Session, SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at
from tests.support.session_specs import ended, fed

MONTH = Memory(time_to_live="30 days", last={"credited": "source"}, lookback="10 days")


@attrs.frozen
class View:
    source: str = "direct"


@attrs.define
class Visit:
    pages: int = 0
    number: int = 0
    before: str | None = None
    since: timedelta | None = None

    def update(self, _: View) -> None:
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages

    def finish(self, session: Session[Any]) -> "Visit":
        number = session.session_number or 0
        return Visit(self.pages, number, session.previous_session_id, session.since_previous)


def spec_of(memory: Any = MONTH, **options: Any) -> SessionSpec[Any, Any, Any]:
    chosen = agg.last("source", where=pc.field("source") != "direct")
    return SessionSpec.aggregate(
        View,
        {"pages": agg.count(), "source": chosen},
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="0 seconds",
        memory=memory,
        **options,
    )


def shown(
    driver: SessionDriver[Any, Any, Any], *events: tuple[str, str], until: str | None = None
) -> list[Any]:
    """
    Return what the rows of a micro-batch say: start, revision, number, credited source.

    Before it, the watermark may move.
    """
    if until is not None:
        driver.advance_watermark_to(at(until))
    for time, source in events:
        driver.add("ann", at(time), View(source))
    driver.run_batch()
    return [
        (
            f"{row.session_start:%H:%M}",
            row.revision,
            row.memory["session_number"],
            row.memory["credited"],
        )
        for row in driver.take_rows()
    ]


def test_finish_is_told_what_comes_before_its_session() -> None:
    """Its number, the id of the one before, and how long ago that was over."""
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", "gap": "30 minutes"}
    spec = SessionSpec.of(
        Visit, watermark_delay="1 minute", memory=Memory(time_to_live="1 day"), **settings
    )
    driver = SessionDriver(spec)
    first, second = ended(fed(driver, ("10:00", View()), ("12:00", View())))
    assert first.result == Visit(1, 1)
    assert second.result == Visit(1, 2, first.session_id, at("12:00") - at("10:30"))


def test_each_event_of_a_session_has_its_number() -> None:
    """Under `SessionSpec.per_event`."""
    spec = SessionSpec.per_event(
        View,
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="0 seconds",
        memory=Memory(time_to_live="1 day", first={"landed": "source"}),
    )
    driver = SessionDriver(spec)
    visits = (("10:00", "mail"), ("10:01", "ad"), ("12:00", "x"))
    fed(driver, *((time, View(source)) for time, source in visits))
    rows = [(row.memory["session_number"], row.memory["landed"]) for row in ended(driver)]
    assert rows == [(1, "mail"), (1, "mail"), (2, "mail")]


def test_another_gap_goes_on_with_the_numbers() -> None:
    """A migration carries what is remembered; a spec without memory drops it."""
    driver = SessionDriver(spec_of())
    shown(driver, ("10:00", "mail"))
    shown(driver, ("12:00", "direct"))
    shown(driver)
    wider = attrs.evolve(spec_of(), timeout="45 minutes")
    after = driver.migrate(wider)
    assert shown(after, until="13:00") == [("12:00", 1, 2, "mail")]
    without = driver.migrate(spec_of(memory=None))
    without.advance_watermark_to(at("13:00"))
    without.run_batch()
    assert without.take_rows()[0].memory == {}
    again = without.migrate(spec_of())
    assert shown(again, ("20:00", "direct")) == []
    assert shown(again, until="21:00") == [("20:00", 1, 1, None)]


def test_history_stays_where_sessions_no_longer_wait_for_late_events() -> None:
    """A session that was over and waited is forgotten then, and its key is remembered."""
    driver = SessionDriver(spec_of(lateness=Lateness(allowed="10 hours")))
    shown(driver, ("10:00", "mail"))
    shown(driver, ("12:00", "direct"))
    shown(driver)
    without = driver.migrate(spec_of())
    assert shown(without, until="13:00") == [("12:00", 1, 2, "mail")]


def test_another_time_to_live_is_refused_on_a_checkpoint() -> None:
    """It would forget keys that the one before remembered."""
    driver = SessionDriver(spec_of())
    shown(driver, ("10:00", "mail"))
    longer = spec_of(memory=attrs.evolve(MONTH, time_to_live="60 days"))
    with pytest.raises(StateError, match="`memory` is"):
        shown(SessionDriver.restore(longer, driver.snapshot()), ("10:10", "ad"))


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ("30 days", "`memory` must be a Memory, found '30 days'"),
        (Memory(time_to_live="1 day", first={"a": "sorce"}), "no such field\n+Hint: .*source"),
        (Memory(time_to_live="1 day", last={"source": "source"}), "two columns named `source`"),
        (Memory(time_to_live="1 day", last={"a b": "source"}), "can't name a column 'a b'"),
    ],
)
def test_a_memory_that_cannot_work_is_refused(memory: Any, message: str) -> None:
    """At construction."""
    with pytest.raises(SpecError, match=message):
        spec_of(memory=memory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Memory needs `time_to_live`"),
        ({"time_to_live": "1 day", "lookback": "1 hour"}, "there is none"),
        (
            {"time_to_live": "1 day", "lookback": "2 days", "last": {"a": "b"}},
            "`lookback` is longer than `time_to_live`",
        ),
    ],
)
def test_spans_that_cannot_work_are_refused(arguments: Any, message: str) -> None:
    """Before there is a spec."""
    with pytest.raises(SpecError, match=message):
        Memory(**arguments)


def test_an_erased_key_is_remembered_no_more() -> None:
    """Its next session is the first."""
    driver = SessionDriver(spec_of())
    shown(driver, ("10:00", "mail"))
    shown(driver, ("12:00", "direct"))
    assert shown(driver) == [("10:00", 1, 1, "mail")]
    driver.erase("ann")
    shown(driver, ("14:00", "direct"))
    assert shown(driver, until="15:00") == [("14:00", 1, 1, None)]
