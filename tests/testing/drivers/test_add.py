"""`add` of both drivers: what is said once is enough, and what is said twice must agree."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from examples.visits import View, visits
from sessionkit import Inputs, NoTimeout, SessionSpec, SpecError, StatefulSpec
from sessionkit.aggregates import count
from sessionkit.errors import DriverError
from sessionkit.testing import SessionDriver, StatefulDriver, at


@attrs.frozen
class Click:
    """An event with its own time and user, as the spec's columns of these names."""

    ts: datetime | None
    user_id: str
    url: str = "/"
    seconds: float = 1.0


@attrs.define
class Latest:
    """A state: the last time and place."""

    ts: datetime | None
    url: str


@attrs.frozen
class Nothing:
    """A result that never comes."""


def remember(key: Any, events: list[Click], state: Any, times: Any) -> None:
    state.set(Latest(events[-1].ts, events[-1].url))


clicks: StatefulSpec[Any, Any, Any] = StatefulSpec(
    keys={"user_id": str},
    event_time="ts",
    watermark_delay="10 minutes",
    event=Click,
    state=Latest,
    result=Nothing,
    process=remember,
    timeout=NoTimeout(),
    inputs=Inputs(passthrough={"offset": int, "url": str}),
)
timeless = attrs.evolve(clicks, event_time=None, watermark_delay=None)
ANN = Click(at("10:00"), "ann")


def stored(spec: Any, *args: Any, **passthrough: Any) -> list[tuple[str, Any]]:
    """Return what is stored after one `add` and a batch."""
    driver = StatefulDriver(spec)
    driver.add(*args, **passthrough)
    driver.run_batch()
    return [(found.key.user_id, found.state) for found in driver.stored_keys()]


@pytest.mark.parametrize("args", [("ann", ANN), ("ann", at("10:00"), ANN), (("ann",), ANN)])
def test_an_event_that_has_its_time_needs_no_second_one(args: tuple[Any, ...]) -> None:
    """Said twice it must be the same."""
    assert [("ann", Latest(at("10:00"), "/"))] == stored(clicks, *args)


def test_a_session_driver_takes_the_time_of_the_event_too() -> None:
    """It is the event time: the session starts there. A null is quarantined, as on Spark."""
    spec = SessionSpec.aggregate(
        Click,
        {"clicks": count()},
        keys={"user_id": str},
        event_time="ts",
        gap="1h",
        watermark_delay="1h",
    )
    driver = SessionDriver(spec)
    driver.add("ann", ANN)
    driver.add("ann", Click(None, "ann"))

    assert 1 == driver.run_batch().counts.quarantined
    assert [at("10:00")] == [session.session_start for session in driver.open_sessions()]


@pytest.mark.parametrize("args", [("ann", ANN), ("ann", None, ANN), ("ann", at("12:00"), ANN)])
def test_without_an_event_time_none_is_looked_at(args: tuple[Any, ...]) -> None:
    """The field of that name is a field like any other."""
    assert [("ann", Latest(at("10:00"), "/"))] == stored(timeless, *args)


@pytest.mark.parametrize(
    ("args", "passthrough", "said"),
    [
        (("ann", at("10:01"), ANN), {}, "`ts` is 2026-01-01 10:00:00+00:00 in the Click, and 2026"),
        (("ann", None, ANN), {}, "in the Click, and None as the event time"),
        (("bob", ANN), {}, "`user_id` is ann in the Click, and bob in the key"),
        (("ann", ANN), {"url": "/b"}, "`url` is / in the Click, and /b in the passthrough"),
    ],
)
def test_what_is_said_twice_must_agree(
    args: tuple[Any, ...], passthrough: dict[str, Any], said: str
) -> None:
    """A value that another one would overwrite is refused."""
    with pytest.raises(DriverError) as refused:
        stored(clicks, *args, **passthrough)

    assert said in str(refused.value)
    assert str(refused.value).endswith("\n\nHint: give both the same value")


def test_rows_that_wait_for_a_micro_batch_are_missed_with_a_word() -> None:
    """A watermark that a test moves brings rows in the next micro-batch, and warns without one."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), View("/", 1.0))
    driver.run_batch()
    driver.advance_watermark_to(at("10:01"))
    assert [] == driver.take_rows()
    driver.advance_watermark_to(at("23:00"))
    with pytest.warns(UserWarning, match="no micro-batch has run since `advance_watermark_to`"):
        assert [] == driver.take_results()
    driver.run_batch()
    assert 1 == len(driver.take_rows())
    assert [] == driver.take_rows()


AGAIN = attrs.make_class("Click", {}, class_body={"__module__": __name__})


@pytest.mark.parametrize(
    ("spec", "args", "said"),
    [
        (visits, [visits.event("/", 1.0)], "no event time is given, and View has no field `ts`"),
        (clicks, [at("10:00")], "the event must be a Click, found datetime"),
        # As where a cell of a notebook is run again: the two classes have one name.
        (clicks, [at("10:00"), AGAIN()], "the class was defined again after the spec"),
    ],
)
def test_an_event_without_a_time_or_of_another_class_is_refused(
    spec: Any, args: list[Any], said: str
) -> None:
    """A null time is given as None."""
    driver: Any = (SessionDriver if spec is visits else StatefulDriver)(spec)
    with pytest.raises(DriverError, match=said):
        driver.add("ann", *args)


@attrs.frozen
class Pause:
    """An event with a duration, and durations in a list."""

    took: timedelta
    others: list[timedelta]


pauses = SessionSpec.per_event(
    Pause, keys={"user": str}, event_time="ts", gap="1h", watermark_delay="1h"
)
LONGEST = timedelta(microseconds=2**63 - 1)


@pytest.mark.parametrize("span", [timedelta.max, timedelta.min, LONGEST + timedelta.resolution])
def test_a_duration_that_no_column_can_hold_is_refused(span: timedelta) -> None:
    """Its path and the limit are in the error, of a field and of an item in a list."""
    driver = SessionDriver(pauses)
    with pytest.raises(DriverError, match="`took` must be a timedelta that fits in 64 bits"):
        driver.add("ann", at("10:00"), Pause(span, []))
    with pytest.raises(DriverError, match=r"`others.*` must be a timedelta that fits in 64 bits"):
        driver.add("ann", at("10:00"), Pause(LONGEST, [LONGEST, span]))


@pytest.mark.parametrize("span", [timedelta.max, timedelta(days=2_921_940)])
def test_a_processing_time_after_the_year_9999_is_refused(span: timedelta) -> None:
    """The clock stays where it was."""
    driver = SessionDriver(pauses, processing_time=at("10:00"))
    with pytest.raises(DriverError, match="after the year 9999"):
        driver.advance_processing_time(span)
    driver.advance_processing_time(timedelta(days=2_900_000))
    driver.run_batch()


def test_a_clock_outside_of_its_years_is_refused() -> None:
    """In UTC, in which a local time of the year 9999 may be one of the next."""
    end = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
    for instant in (datetime(1969, 12, 31, tzinfo=UTC), end):
        with pytest.raises(DriverError, match="`processing_time` must be from 1970 to 9999 in UTC"):
            SessionDriver(pauses, processing_time=instant)
    with pytest.raises(SpecError, match="`until` is outside the years 1 to 9999 in UTC"):
        SessionDriver.backfill(pauses, [], until=end)
