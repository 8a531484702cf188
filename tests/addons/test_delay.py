"""How many events are late under a delay is what the engine says of the same micro-batches."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import Lateness, NoTimeout, SessionSpec, StatefulSpec
from sessionkit import aggregates as agg
from sessionkit.addons.delay import LateEvents, late_events
from sessionkit.errors import SpecError
from sessionkit.testing import SessionDriver

NOON, MINUTE = datetime(2026, 3, 8, 12, tzinfo=UTC), timedelta(minutes=1)
DELAYS = (0 * MINUTE, 3 * MINUTE, 20 * MINUTE)


@attrs.frozen
class Click:
    pass


def spec_of(**options: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(
        Click,
        {"clicks": agg.count()},
        keys={"user": str},
        event_time="ts",
        gap="10 minutes",
        **{"watermark_delay": "0s", **options},
    )


def history() -> list[tuple[str, datetime, datetime]]:
    """Return events as they arrived: most soon, some an hour after their time, one from 2099."""
    choice = Random(4)
    events = []
    for number in range(400):
        came = NOON + choice.uniform(0, 240) * MINUTE
        late = choice.choice([0, 0, 0, 0, 1, 5, 20, 70]) * choice.random() * MINUTE
        events.append((f"user{number % 9}", came - late, came))
    events.append(("user1", datetime(2099, 1, 1, tzinfo=UTC), NOON + 100 * MINUTE))
    return sorted(events, key=lambda event: event[2])


def late_on_the_driver(spec: SessionSpec[Any, Any, Any]) -> int:
    """Return how many events are late where a micro-batch comes each minute."""
    driver, events = SessionDriver(spec, processing_time=NOON), history()
    for minute in range(241):
        driver.advance_processing_time(MINUTE)
        for user, at, came in events:
            if minute * MINUTE <= came - NOON < (minute + 1) * MINUTE:
                driver.add(user, at, Click())
        driver.run_batch()
    return len(driver.take_rejections("late"))


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> LateEvents:
    frame = spark.createDataFrame(history(), "user string, ts timestamp, came timestamp")
    return late_events(frame, spec_of(), arrived="came", delays=DELAYS)


def test_late_events_are_those_of_the_engine(measured: LateEvents) -> None:
    """Each event, under each delay; one that is quarantined moves no watermark."""
    expected = {delay: late_on_the_driver(spec_of(watermark_delay=delay)) for delay in DELAYS}
    assert expected == measured.late
    assert 0 < expected[20 * MINUTE] < expected[3 * MINUTE] < expected[0 * MINUTE]
    assert 400 == measured.events


def test_allowed_lateness_is_a_part_of_the_delay(measured: LateEvents) -> None:
    """Three minutes allowed after a delay of zero are as a delay of three minutes."""
    allowed = spec_of(lateness=Lateness(allowed=3 * MINUTE))
    assert late_on_the_driver(allowed) == measured.late[3 * MINUTE]


def test_a_delay_is_recommended(measured: LateEvents) -> None:
    """The smallest under which few enough are late; where there is none, the error says so."""
    share = measured.late[3 * MINUTE] / measured.events
    assert 3 * MINUTE == measured.smallest(share)
    assert timedelta(0) == measured.smallest(1.0)
    assert measured.behind[0.5] <= measured.behind[0.99] <= measured.behind[1]
    with pytest.raises(SpecError, match="longer delays") as refused:
        measured.smallest(0)
    assert str(measured.behind[1]) in str(refused.value)


def test_the_table_says_what_a_delay_costs(measured: LateEvents) -> None:
    """A row comes once the gap and the delay have passed."""
    line = next(one for one in str(measured).splitlines() if " 0:03:00 " in one)
    assert f"{measured.late[3 * MINUTE]}" in line
    assert "0:13:00 after its last event" in line


def test_a_spec_without_time_is_refused(spark: SparkSession) -> None:
    """No event of it is late."""
    spec: Any = StatefulSpec(
        process=lambda key, events, state, times: None,
        keys={"user": str},
        event=Click,
        state=Click,
        result=Click,
        timeout=NoTimeout(),
    )
    with pytest.raises(SpecError, match="no event time"):
        late_events(spark.range(1), spec, arrived="id")
