"""`StatefulDriver`: what happens when, clocks, batches without data, restarts, and refusals."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from sessionkit import Counts, EventTimeGap, KeyState, KeyTimes, ProcessingTimeGap, SpecError
from sessionkit.errors import DriverError
from sessionkit.testing import KeyRow, StatefulDriver, StoredKey, at, minutes
from sessionkit.testing.drivers.results import BatchResult
from tests.support.stateful_specs import (
    Added,
    Amount,
    Driver,
    Sum,
    adding,
    driver_of,
    report,
    summing,
)

gapped = summing(on_timer=report, timeout=EventTimeGap("30m"))
waiting = summing(on_timer=report, timeout=ProcessingTimeGap("5m"))


def driver_after_noon(spec: Any = gapped, processing_time: Any = None) -> Driver:
    """Return a driver that has run one event of ann at 12:00; the delay is 10 minutes."""
    driver = driver_of(spec, processing_time)
    adding(driver, "ann", at("12:00"), 5)
    return driver


# -- what a batch gives ------------------------------------------------------------------------


def test_a_batch_gives_its_rows_rejections_and_counts() -> None:
    """What one batch did is its result; what all did is taken from the driver."""
    driver = driver_of(gapped)
    driver.add("ann", at("12:00"), Amount(5))
    driver.add_row({"key": None, "at": at("12:00"), "number": 1})

    result = driver.run_batch()

    key = driver.stored_keys()[0].key
    assert (
        BatchResult(
            batch_id=0,
            watermark=None,
            rows=[KeyRow(key, Added("process", 5))],
            rejections=driver.take_rejections("quarantined"),
            counts=Counts(events=2, processed=1, quarantined=1, rows=1),
        )
        == result
    )
    assert [StoredKey(key, Sum(5), {})] == driver.stored_keys()
    expected = pd.DataFrame({"key": ["ann"], "what": ["process"], "total": [5]})
    pd.testing.assert_frame_equal(expected, driver.take_frame())
    assert ["key", "what", "total"] == list(driver.take_frame().columns)


# -- clocks ------------------------------------------------------------------------------------


def test_the_functions_see_the_epoch_where_the_test_has_no_processing_time() -> None:
    """A spec without a clock in processing time may be tested without one."""
    seen: list[datetime] = []

    def look(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        seen.append(times.processing_time)

    adding(driver_of(summing(look)), "ann", at("12:00"))

    assert [datetime(1970, 1, 1, tzinfo=UTC)] == seen


@pytest.mark.parametrize(
    ("said", "spec", "move"),
    [
        (
            "has no watermark",
            summing(watermark_delay=None),
            lambda d: d.advance_watermark_to(at("13:00")),
        ),
        ("has no processing time", gapped, lambda d: d.advance_processing_time(minutes(1))),
    ],
)
def test_a_step_that_cannot_be_is_refused(said: str, spec: Any, move: Any) -> None:
    """A refused step changes nothing; what is shared with sessions is in test_session_driver."""
    driver = driver_after_noon(spec)
    before = driver.snapshot()

    with pytest.raises(DriverError, match=said) as refused:
        move(driver)

    assert "\n\nHint: " in str(refused.value)
    assert before == driver.snapshot()


def test_a_clock_in_processing_time_must_be_given() -> None:
    """A test of what waits for the engine's clock has to pass its reading."""
    with pytest.raises(DriverError, match=r"clock in processing time(.|\n)*Hint: pass proc"):
        StatefulDriver(waiting)


# -- batches without data ----------------------------------------------------------------------


def test_without_a_clock_no_batch_runs_without_data() -> None:
    """Nothing waits for a clock, so that there is no reason to run one."""
    driver = driver_after_noon(summing(watermark_delay=None))

    assert None is driver.run_batch().batch_id


def test_under_a_clock_in_processing_time_every_trigger_runs_a_batch() -> None:
    """Spark cannot know whether a timer is due, so it runs one each time."""
    driver = driver_after_noon(waiting, at("12:00"))

    assert [1, 2, 3] == [driver.run_batch().batch_id for _ in range(3)]


@pytest.mark.parametrize(
    ("spec", "processing_time", "further"),
    [(gapped, None, []), (waiting, at("12:00"), [2])],
    ids=["event", "both"],
)
def test_run_until_idle_ends_though_spark_would_always_have_one_more_batch(
    spec: Any, processing_time: Any, further: list[int]
) -> None:
    """With a clock in processing time Spark has always one more batch, so one runs, not all."""
    driver = driver_of(spec, processing_time)
    driver.add("ann", at("12:00"), Amount())

    assert [0, 1] == [result.batch_id for result in driver.run_until_idle()]
    assert driver.is_idle
    assert further == [result.batch_id for result in driver.run_until_idle()]


# -- sinks that fail, restarts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "until", "said"),
    [
        (gapped, at("12:00").replace(tzinfo=None), "`until` must be a datetime with a time zone"),
        (summing(event_time=None, watermark_delay=None), at("12:00"), "has no `event_time`"),
    ],
    ids=["naive", "no event time"],
)
def test_a_backfill_checks_its_end_as_a_batch_on_spark_does(
    spec: Any, until: datetime, said: str
) -> None:
    """The error is the one that `sessionize` and `bootstrap` raise."""
    with pytest.raises(SpecError, match=said):
        StatefulDriver.backfill(spec, [], until=until)
