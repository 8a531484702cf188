"""Which events open a session: windows of other systems, and `opens_with` next to the rest."""

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import (
    Inputs,
    Lateness,
    Memory,
    Results,
    SessionRules,
    SessionSpec,
    UserFunctionError,
)
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, at, explain_session


@attrs.frozen
class Reading:
    """A value, and what it says of sessions."""

    value: int = 0
    name: str = "pageview"


BY_NAME = pc.field("name") == "pageview"


def counted(rules: SessionRules, **options: Any) -> SessionSpec[Reading, Any, Any]:
    """Return a spec that lists the values of a session."""
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "watermark_delay": "1 hour",
        "order": "event_time" if rules.in_order else "arrival",
        **options,
    }
    values = {"values": agg.collect("value", at_most=100)}
    return SessionSpec.aggregate(Reading, values, timeout=rules, **settings)


@attrs.define
class Values:
    """The values of a session, of which some can't be added."""

    values: list[int] = attrs.field(factory=list)

    def update(self, event: Reading) -> None:
        """Add a value, unless it's negative."""
        if event.value < 0:
            raise ValueError(event.value)
        self.values.append(event.value)

    def merge(self, other: "Values") -> None:
        self.values += other.values


def by_functions(rules: SessionRules, **options: Any) -> SessionSpec[Reading, Any, Any]:
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", **options}
    return SessionSpec.of(Values, event=Reading, timeout=rules, **settings)


def by_name(**rules: Any) -> SessionRules:
    return SessionRules("30 minutes", opens_with=BY_NAME, **rules)


def fed(driver: SessionDriver[Any, Any, Any], events: Mapping[str, Any]) -> None:
    """Run a micro-batch: times, each with a value that opens a session, or a text that doesn't."""
    for time, value in events.items():
        is_opener = isinstance(value, int)
        event = Reading(value) if is_opener else Reading(int(value), "engagement")
        driver.add("ann", at(time), event)
    driver.run_batch()


def ended(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, list[int]]]:
    """Close all sessions; return their starts and values."""
    driver.advance_watermark_to(at("2026-01-09 00:00"))
    driver.run_until_idle()
    return taken(driver)


def taken(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, list[int]]]:
    rows = [row for row in driver.take_rows() if row.is_final]
    return [(f"{row.session_start:%H:%M:%S}", row.result.values) for row in rows]


def rejected(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, int]]:
    found = driver.take_rejections()
    return [(one.kind, one.event["value"]) for one in found]


# -- of other systems ---------------------------------------------------------------------------

BY_SECOND = dict(enumerate([0, 4, 1, 5, 9, 5, 1, 1, 9, 9], start=1))
WINDOWS: dict[str, Any] = {
    # A window begins with a 1 and ends with a 9; before, between and after are readings of no
    # window. One that does both is a window of itself.
    "TDengine, EVENT_WINDOW(START WITH v = 1 END WITH v = 9)": (
        SessionRules("1 day", opens_with=pc.field("value") == 1, until=pc.field("value") == 9),
        [("10:00:03", [1, 5, 9]), ("10:00:07", [1, 1, 9])],
    ),
    "TDengine, EVENT_WINDOW(START WITH v > 4 END WITH v > 8)": (
        SessionRules("1 day", opens_with=pc.field("value") > 4, until=pc.field("value") > 8),
        [("10:00:04", [5, 9]), ("10:00:06", [5, 1, 1, 9]), ("10:00:10", [9])],
    ),
    # A session also ends with a timeout, and no session is longer than a limit.
    "Timeplus Proton, session(ts, 5s, 2s, [v >= 4, v < 2])": (
        SessionRules(
            "5 seconds",
            max_duration="2 seconds",
            opens_with=pc.field("value") >= 4,
            until=pc.field("value") < 2,
        ),
        [("10:00:02", [4, 1]), ("10:00:04", [5, 9, 5]), ("10:00:09", [9, 9])],
    ),
    "eKuiper, STATEWINDOW(v > 4, v = 1)": (
        SessionRules("1 day", opens_with=pc.field("value") > 4, until=pc.field("value") == 1),
        [("10:00:04", [5, 9, 5, 1]), ("10:00:09", [9, 9])],
    ),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_begin_where_other_systems_let_them(name: str, restarts: bool) -> None:
    """At the event that meets the condition, not at one before; the readings between are told."""
    rules, expected = WINDOWS[name]
    driver, rows = SessionDriver(counted(rules, watermark_delay="0 seconds")), []
    outside = list[tuple[str, int]]()
    for second, value in BY_SECOND.items():
        driver.add("ann", at(f"10:00:{second:02}"), Reading(value))
        if restarts:
            driver.run_batch()
            rows += taken(driver)
            outside += rejected(driver)
            driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.run_batch()
    rows += ended(driver)
    outside += rejected(driver)

    assert expected == rows
    inside = sum(len(values) for _, values in rows)
    assert {"outside"} == {kind for kind, _ in outside}
    assert len(BY_SECOND) == inside + len(outside)


@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_engagement_extends_a_visit_of_plausible_and_opens_none(order: Any) -> None:
    """A page view at 0, engagement at 40, and a page view at 60: the second visit begins at 60."""
    driver = SessionDriver(counted(by_name(), order=order))
    fed(driver, {"10:00": 0, "10:40": "1", "11:00": 2, "11:25": "3", "11:50": "4"})

    assert [("10:00:00", [0]), ("11:00:00", [2, 3, 4])] == ended(driver)
    assert [("outside", 1)] == rejected(driver)


# -- with other rules and options ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        # The session goes on as if the event hadn't come.
        ({"starts_with": pc.field("value") == 1}, [[0, 2, 3]]),
        ({"changes_of": "name"}, [[0, 2, 3]]),
        ({"until": pc.field("value") == 0}, [[0], [2, 3]]),
        ({"max_events": 1}, [[0], [2], [3]]),
        ({"max_duration": "9 minutes"}, [[0], [2, 3]]),
        ({"max_duration": "15 minutes"}, [[0, 1], [2, 3]]),
        ({"max_duration": "15 minutes", "max_duration_inclusive": False}, [[0], [2, 3]]),
        ({"midnight": "Etc/GMT-14"}, [[0], [2, 3]]),
        ({"extends": pc.field("value") != 0}, [[0], [2, 3]]),
        ({}, [[0, 1, 2, 3]]),
    ],
)
def test_an_event_that_may_not_open_comes_after_a_session(
    rules: dict[str, Any], expected: list[list[int]]
) -> None:
    """Whatever has ended the session: the event at 10:10 is outside, and ends none by itself."""
    driver = SessionDriver(counted(by_name(**rules)))
    fed(driver, {"09:55": 0, "10:10": "1", "10:15": 2, "10:16": 3})

    found = [values for _, values in ended(driver)]

    assert expected == found
    assert ([] if expected[0][:2] == [0, 1] else [("outside", 1)]) == rejected(driver)


def test_an_event_that_may_open_takes_those_of_its_instant_along() -> None:
    """An event that may open takes those of its instant along, unless a sequence comes first."""
    spec = counted(by_name())
    driver = SessionDriver(spec)
    driver.add("ann", at("10:00"), Reading(0, "engagement"))
    driver.add("ann", at("10:00"), Reading(1))
    driver.run_batch()
    assert [("10:00:00", [0, 1])] == ended(driver)

    ordered = SessionDriver(attrs.evolve(spec, order="event_time", sequence="value"))
    ordered.add("ann", at("10:00"), Reading(0, "engagement"))
    ordered.add("ann", at("10:00"), Reading(1))
    ordered.run_batch()
    assert [("10:00:00", [1])] == ended(ordered)
    assert [("outside", 0)] == rejected(ordered)


def test_by_arrival_an_opener_that_comes_later_brings_back_no_event() -> None:
    """Within a micro-batch time decides; in event-time order, no event comes before its turn."""
    for order, expected in (("arrival", [0, 3]), ("event_time", [0, 1, 2, 3])):
        driver = SessionDriver(counted(by_name(), order=order))
        fed(driver, {"10:05": "1", "10:10": "2"})
        fed(driver, {"10:20": "3", "10:00": 0})
        assert [("10:00:00", expected)] == ended(driver)
        assert len(expected) == driver.counts.processed


def test_a_late_event_joins_two_sessions() -> None:
    """One that may not open does so too, at a time when the first is open, and at no other time."""
    for time, expected in (("10:25", [[0, 1, 2]]), ("10:31", [[0], [2]])):
        driver = SessionDriver(counted(by_name()))
        fed(driver, {"10:00": 0, "10:50": 2})
        fed(driver, {time: "1"})
        assert expected == [values for _, values in ended(driver)]


def test_an_event_before_a_session_neither_joins_nor_moves_its_start() -> None:
    """Only one that may open moves it back, and then those between belong to it."""
    driver = SessionDriver(counted(by_name()))
    fed(driver, {"10:30": 2})
    fed(driver, {"10:20": "1"})
    assert [("outside", 1)] == rejected(driver)
    fed(driver, {"10:10": 0, "10:21": "1"})
    assert [("10:10:00", [0, 1, 2])] == ended(driver)


@pytest.mark.parametrize("judged_by", ["event", "session"])
def test_a_late_event_is_late_wherever_it_is(judged_by: Any) -> None:
    """Its own window is over; one whose window isn't is outside."""
    spec = counted(by_name(), watermark_delay="0 seconds", lateness=Lateness(judged_by=judged_by))
    driver = SessionDriver(spec)
    fed(driver, {"12:00": 0})
    fed(driver, {"11:30": "1", "11:30:01": "2"})
    assert {("late", 1), ("outside", 2)} == set(rejected(driver))


def test_a_heartbeat_that_may_not_open_is_no_session() -> None:
    """Behind the watermark, it's late; before, a session that comes in its micro-batch has it."""
    rules = by_name(extends=BY_NAME)
    driver = SessionDriver(counted(rules, watermark_delay="0 seconds"))
    fed(driver, {"10:00": 0})
    fed(driver, {"10:20": "1", "10:31": "2", "09:59": "3"})
    assert {("outside", 2), ("late", 3)} == set(rejected(driver))
    assert [("10:00:00", [0, 1])] == ended(driver)


def test_a_session_that_is_kept_takes_such_an_event() -> None:
    """And gives a row again; after its end, the event is outside."""
    lateness = Lateness(allowed="2 hours")
    driver = SessionDriver(counted(by_name(), watermark_delay="0 seconds", lateness=lateness))
    fed(driver, {"10:00": 0})
    driver.advance_watermark_to(at("11:00"))
    driver.run_until_idle()
    fed(driver, {"10:20": "1"})
    assert [[0], [0, 1]] == [row.result.values for row in driver.take_rows()]
    fed(driver, {"10:51": "2"})
    assert [("outside", 2)] == rejected(driver)


def test_early_rows_have_what_is_in_a_session() -> None:
    """No event that was in a row leaves its session."""
    driver = SessionDriver(counted(by_name(), results=Results(emit="on_update")))
    seen = []
    for events in ({"09:50": "7"}, {"10:00": 0}, {"10:20": "1", "09:40": "8"}, {"09:45": 3}):
        fed(driver, events)
        seen += [sorted(row.result.values) for row in driver.take_rows()]
    assert [[0], [0, 1], [0, 1, 3]] == seen
    assert [("outside", 7), ("outside", 8)] == rejected(driver)


def test_a_key_remembers_sessions_alone() -> None:
    """An event outside any session isn't the first that is known of a key."""
    spec = counted(by_name(), memory=Memory(time_to_live="10 days"))
    driver = SessionDriver(spec)
    fed(driver, {"08:00": "1", "10:00": 0, "11:00": "2", "12:00": 3})
    driver.advance_watermark_to(at("2026-01-02 00:00"))
    driver.run_until_idle()
    assert [1, 2] == [row.memory["session_number"] for row in driver.take_rows()]


def test_a_copy_counts_where_the_first_event_is_outside() -> None:
    """An id is known once an event with it is in a session."""
    driver = SessionDriver(counted(by_name(), inputs=Inputs(drop_duplicates_for="1 hour")))
    fed(driver, {"10:05": "1"})
    fed(driver, {"10:00": 0, "10:05": "1"})
    fed(driver, {"10:05": "1"})
    assert [("outside", 1), ("duplicate", 1)] == rejected(driver)
    assert [("10:00:00", [0, 1])] == ended(driver)


def test_an_event_that_fails_opens_nothing_and_ends_nothing() -> None:
    """Events that came after it are judged as if it had never come."""
    options = {"on_error": "reject", "watermark_delay": "1 hour", "order": "event_time"}
    driver = SessionDriver(by_functions(by_name(until=pc.field("value") < 0), **options))
    fed(driver, {"10:00": -1, "10:10": "1", "10:20": 0, "10:21": -2, "10:22": "2"})
    assert [("10:20:00", [0, 2])] == ended(driver)
    assert {("failed", -1), ("outside", 1), ("failed", -2)} == set(rejected(driver))


def test_the_condition_may_be_a_function_that_fails() -> None:
    """Then the event fails, as by any rule that asks the event."""

    def opens(event: Reading) -> bool:
        return 1 // event.value == 1

    driver = SessionDriver(
        by_functions(SessionRules("1 hour", opens_with=opens), watermark_delay="1 hour")
    )
    with pytest.raises(UserFunctionError, match=r"`opens_with` \(.*opens\) raised ZeroDivision"):
        fed(driver, {"10:00": 0})


def test_the_explanation_says_which_events_are_outside() -> None:
    """With the reason, and when the sessions of the others close."""
    events = [(at("10:00"), Reading(0, "engagement")), (at("10:05"), Reading(1))]
    found = explain_session(counted(by_name()), "ann", events)
    (outside,) = found.rejected
    assert ("outside", at("10:00")) == (outside.kind, outside.event_time)
    assert [at("10:05")] == [session.session_start for session in found.sessions]
    text = "outside  10:00, no session is open at its time, and by `opens_with` it may not open one"
    assert text in str(found)
