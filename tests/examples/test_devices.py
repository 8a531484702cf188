"""The app `devices`: alerts by the engine's clock, and the program."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.devices.__main__ import WEAK, run
from examples.devices.spec import GIVEN_UP, Alert, Reading, Sensor, sensors
from sessionkit.testing import StatefulDriver, at, minutes, seconds

SPOKE = at("10:00")
SILENCE = minutes(5)


@pytest.fixture(name="cellar")
def _cellar() -> StatefulDriver[Reading, Sensor, Alert]:
    """A driver in which the cellar has spoken at ten."""
    driver = StatefulDriver(sensors(silence=SILENCE), processing_time=SPOKE)
    _speak(driver, 7.0)
    return driver


def _speak(driver: StatefulDriver[Reading, Sensor, Alert], celsius: float) -> list[Alert]:
    driver.add("cellar", SPOKE, Reading(celsius))
    driver.run_batch()
    return driver.take_results()


def _wait(driver: StatefulDriver[Reading, Sensor, Alert], span: timedelta) -> list[Alert]:
    driver.advance_processing_time(span)
    driver.run_batch()
    return driver.take_results()


class TestSilentSensors:
    """Alerts by the engine's clock."""

    def test_a_silent_sensor_is_reported_once(
        self, cellar: StatefulDriver[Reading, Sensor, Alert]
    ) -> None:
        """A sensor is silent once five minutes are past, and told of once."""
        assert [] == _wait(cellar, SILENCE)
        assert [Alert("silent", SPOKE, 7.0)] == _wait(cellar, seconds(1))
        assert [] == _wait(cellar, minutes(60))

    def test_a_reading_in_time_sets_the_timer_anew(
        self, cellar: StatefulDriver[Reading, Sensor, Alert]
    ) -> None:
        """A reading in time sets the timer anew."""
        _wait(cellar, minutes(4))

        assert [] == _speak(cellar, 8.0)
        assert [] == _wait(cellar, minutes(4))
        assert [Alert("silent", SPOKE + minutes(4), 8.0)] == _wait(cellar, minutes(2))

    def test_a_sensor_that_speaks_again_is_reported_once(
        self, cellar: StatefulDriver[Reading, Sensor, Alert]
    ) -> None:
        """Who was silent and speaks again is told of once, and can fall silent again."""
        _wait(cellar, minutes(10))

        assert [Alert("recovered", SPOKE, 7.0)] == _speak(cellar, 8.0)
        assert [] == _speak(cellar, 9.0)
        assert [Alert("silent", SPOKE + minutes(10), 9.0)] == _wait(cellar, minutes(6))

    def test_a_reading_in_the_batch_of_the_timer_comes_in_time(
        self, cellar: StatefulDriver[Reading, Sensor, Alert]
    ) -> None:
        """A reading that comes in the very micro-batch in which the timer is due is in time."""
        cellar.advance_processing_time(minutes(6))

        assert [] == _speak(cellar, 8.0)

    def test_a_sensor_that_is_silent_for_a_week_is_forgotten(
        self, cellar: StatefulDriver[Reading, Sensor, Alert]
    ) -> None:
        """A sensor that is silent for a week is given up, and nothing of it is kept."""
        _wait(cellar, minutes(10))

        assert [Alert("given up", SPOKE, 7.0)] == _wait(cellar, GIVEN_UP)
        assert [] == cellar.stored_keys()


@pytest.mark.nightly
def test_the_program_reports_sensors_that_fall_silent_and_recover(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The weak sensors fall silent and recover; the report is there."""
    outages = run(spark, tmp_path, silence=timedelta(seconds=1))

    assert [*WEAK] == sorted(row["sensor"] for row in outages)
    assert {"recovered"} == {row["outcome"] for row in outages}
    assert "cellar" in (tmp_path / "report.html").read_text(encoding="utf-8")
