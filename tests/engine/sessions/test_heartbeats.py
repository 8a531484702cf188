"""Events that don't extend a session, behind the watermark: which session they're in, or late."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import Inputs, Lateness, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, at

GAP = timedelta(minutes=30)
ALONE = "no open session is there at its time, which is at or before the watermark"
GONE = "the session it would join is over: its end is at or before the watermark"


@attrs.frozen
class Beat:
    """An event: a number, and whether it keeps a session open."""

    number: int
    keeps: bool = False


@attrs.define
class Beats:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Beat) -> None:
        """Add a number, and fail over a negative one."""
        self.numbers.append(event.number)
        if event.number < 0:
            raise ValueError

    def merge(self, other: "Beats") -> None:
        self.numbers += other.numbers


@attrs.frozen
class Collected:
    numbers: list[int]


def by_functions(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Beats, event=Beat, **settings(**changes))


def by_aggregates(**changes: Any) -> SessionSpec[Any, Any, Any]:
    aggregates = {"numbers": agg.collect("number", at_most=100)}
    return SessionSpec.aggregate(Beat, aggregates, result=Collected, **settings(**changes))


def settings(*, inclusive: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "keys": {"key": str},
        "event_time": "ts",
        "timeout": SessionRules(GAP, extends="keeps", gap_inclusive=inclusive),
        "watermark_delay": "0 seconds",
        **changes,
    }


def opened_at_10(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    """Return a query with a session from 10:00 to 10:30, at a watermark of 10:10."""
    driver = SessionDriver(spec)
    driver.add("ann", at("10:00"), Beat(1, keeps=True))
    driver.add("clock", at("10:10"), Beat(0, keeps=True))
    driver.run_until_idle()
    return driver


def sessions(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, str, list[int]]]:
    return [
        (f"{one.session_start:%H:%M}", f"{one.session_end:%H:%M}", sorted(one.state.numbers))
        for one in driver.open_sessions()
        if one.key == ("ann",)
    ]


def late(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, str]]:
    return [(f"{one.event_time:%H:%M}", one.reason) for one in driver.take_rejections("late")]


MAKERS = pytest.mark.parametrize("make", [by_functions, by_aggregates])
BOTH = pytest.mark.parametrize("judged_by", ["event", "session"])


@MAKERS
@BOTH
def test_a_heartbeat_behind_the_watermark_belongs_to_the_session_open_at_its_time(
    make: Any, judged_by: Any
) -> None:
    """It's not late, and it extends nothing: neither the end nor the start moves."""
    driver = opened_at_10(make(lateness=Lateness(judged_by=judged_by)))

    for time in ("10:05", "10:30", "10:00"):
        driver.add("ann", at(time), Beat(2))
    driver.run_batch()

    assert [] == late(driver)
    assert [("10:00", "10:30", [1, 2, 2, 2])] == sessions(driver)


@MAKERS
@pytest.mark.parametrize(("judged_by", "reason"), [("event", ALONE), ("session", GONE)])
def test_a_heartbeat_behind_the_watermark_without_an_open_session_is_late(
    make: Any, judged_by: Any, reason: str
) -> None:
    """Its own window is over as soon as it happens; a later session isn't there at its time."""
    driver = opened_at_10(make(lateness=Lateness(judged_by=judged_by)))

    driver.add("ann", at("09:59"), Beat(2))
    driver.add("bob", at("10:05"), Beat(3))
    driver.add("bob", at("10:10"), Beat(4))
    driver.run_batch()

    assert [("09:59", reason), ("10:05", reason), ("10:10", reason)] == sorted(late(driver))
    assert [("10:00", "10:30", [1])] == sessions(driver)


@MAKERS
@pytest.mark.parametrize(
    ("judged_by", "kinds"),
    [("event", ["late", "duplicate", "late", "late", "duplicate"]), ("session", ["duplicate"] * 5)],
)
def test_a_repeated_heartbeat_is_late_where_the_first_would_be(
    make: Any, judged_by: Any, kinds: list[str]
) -> None:
    """While its session is open it's a duplicate, and so it is ahead of the watermark."""
    driver = opened_at_10(
        make(
            lateness=Lateness(judged_by=judged_by),
            inputs=Inputs(event_id="number", drop_duplicates_for="1 day"),
        )
    )
    for _ in range(2):
        driver.add("ann", at("10:05"), Beat(2))
        driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_until_idle()
    for time in ("10:05", "10:50", "11:10"):
        driver.add("ann", at(time), Beat(2))
    driver.add("ann", at("10:00"), Beat(1, keeps=True))
    driver.run_batch()

    found = [(one.event_time, one.kind) for one in driver.take_rejections()]
    assert kinds == [kind for _, kind in sorted(found)]
    assert driver.counts.is_balanced


@MAKERS
@pytest.mark.parametrize("micros", [-1, 0, 1])
def test_with_an_exclusive_gap_the_end_is_not_part_of_the_session(make: Any, micros: int) -> None:
    """Exactly one gap after the last event, it's in no session; before that, in the open one."""
    driver = opened_at_10(make(inclusive=False))
    driver.add("clock", at("10:29"), Beat(0, keeps=True))
    driver.run_until_idle()

    driver.add("ann", at("10:30") + timedelta(microseconds=micros), Beat(2))
    driver.run_batch()

    assert 1 + (micros >= 0) == len(sessions(driver))


def test_a_heartbeat_is_late_where_the_event_that_opens_its_session_fails() -> None:
    """Without it no session is there at its time; the failed event leaves no trace."""
    driver = opened_at_10(by_functions(on_error="reject"))

    driver.add("bob", at("10:01"), Beat(-1, keeps=True))
    driver.add("bob", at("10:05"), Beat(2))
    driver.run_batch()

    assert [("10:05", ALONE)] == late(driver)
    assert (1, 1) == (driver.counts.failed, driver.counts.late)
    assert driver.counts.is_balanced
