"""The specs of the example jobs, without Spark: log-ins, silent sensors, enriched visits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import permutations

import pytest

from examples.enriched_visits import VISITS, View, VisitRow
from examples.logins import LOGINS, Action, Period, Record
from examples.silent_sensors import GIVEN_UP, Alert, Reading, Sensor, sensors
from sessionkit.testing import SessionDriver, StatefulDriver, at, minutes, seconds
from sessionkit.testing.strategies import check_merge_law

ANN = ("ann", 1)
LOG_IN = Record(at("08:00"), Action.LOG_IN)
ALIVE = Record(at("08:04"), Action.ALIVE)
LOG_OUT = Record(at("08:09"), Action.LOG_OUT)
LOGGED_OUT = Period(at("08:00"), at("08:09"), minutes(9), "logged out")


def _ended(batches: Sequence[Sequence[Record]], *watermarks: datetime) -> list[Period]:
    """Return the periods of ann's session, given the records of each micro-batch."""
    driver = StatefulDriver(LOGINS)
    for records in batches:
        for record in records:
            driver.add(ANN, record.at, record)
        driver.run_batch()
    for watermark in watermarks:
        driver.advance_watermark_to(watermark)
        driver.run_batch()
    assert [] == driver.stored_keys()
    return driver.take_results()


class TestLogins:
    """Sessions with an explicit end."""

    @pytest.mark.parametrize("records", list(permutations([LOG_IN, ALIVE, LOG_OUT])))
    def test_any_order(self, records: Sequence[Record]) -> None:
        """The records give one period in whatever order they come, in one micro-batch or three."""
        watermark = at("08:10")

        assert [LOGGED_OUT] == _ended([records], watermark)
        assert [LOGGED_OUT] == _ended([[record] for record in records], watermark)

    def test_waits_for_the_watermark(self) -> None:
        """A period is reported once the watermark is past the log-out, and not at it."""
        driver = StatefulDriver(LOGINS)
        driver.add(ANN, LOG_OUT.at, LOG_OUT)
        driver.run_batch()
        driver.advance_watermark_to(LOG_OUT.at)

        assert [] == driver.run_batch().rows

        driver.advance_watermark_to(LOG_OUT.at + timedelta(milliseconds=1))

        assert [Period(None, LOG_OUT.at, None, "logged out")] == [
            row.result for row in driver.run_batch().rows
        ]

    def test_lost(self) -> None:
        """Without a log-out a session ends with its last sign of life, half an hour behind it."""
        expected = [Period(LOG_IN.at, ALIVE.at, minutes(4), "lost")]

        assert expected == _ended([[LOG_IN], [ALIVE]], ALIVE.at + minutes(30))

    def test_lost_at_both_ends(self) -> None:
        """Where the log-in is lost too, there is no duration."""
        assert [Period(None, ALIVE.at, None, "lost")] == _ended([[ALIVE]], ALIVE.at + minutes(30))

    def test_one_period(self) -> None:
        """Where the watermark passes log-out and gap at once, the session is reported once."""
        apart = _ended([[LOG_IN, LOG_OUT]], at("08:10"), at("09:00"))

        assert [LOGGED_OUT] == apart
        assert apart == _ended([[LOG_IN, LOG_OUT]], at("09:00"))


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

    def test_silent_once(self, cellar: StatefulDriver[Reading, Sensor, Alert]) -> None:
        """A sensor is silent once five minutes are past, and told of once."""
        assert [] == _wait(cellar, SILENCE)
        assert [Alert("silent", SPOKE, 7.0)] == _wait(cellar, seconds(1))
        assert [] == _wait(cellar, minutes(60))

    def test_every_reading_counts(self, cellar: StatefulDriver[Reading, Sensor, Alert]) -> None:
        """A reading in time sets the timer anew."""
        _wait(cellar, minutes(4))

        assert [] == _speak(cellar, 8.0)
        assert [] == _wait(cellar, minutes(4))
        assert [Alert("silent", SPOKE + minutes(4), 8.0)] == _wait(cellar, minutes(2))

    def test_recovered(self, cellar: StatefulDriver[Reading, Sensor, Alert]) -> None:
        """Who was silent and speaks again is told of once, and can fall silent again."""
        _wait(cellar, minutes(10))

        assert [Alert("recovered", SPOKE, 7.0)] == _speak(cellar, 8.0)
        assert [] == _speak(cellar, 9.0)
        assert [Alert("silent", SPOKE + minutes(10), 9.0)] == _wait(cellar, minutes(6))

    def test_in_time_for_the_batch(self, cellar: StatefulDriver[Reading, Sensor, Alert]) -> None:
        """A reading that comes in the very micro-batch in which the timer is due is in time."""
        cellar.advance_processing_time(minutes(6))

        assert [] == _speak(cellar, 8.0)

    def test_given_up(self, cellar: StatefulDriver[Reading, Sensor, Alert]) -> None:
        """A sensor that is silent for a week is given up, and nothing of it is kept."""
        _wait(cellar, minutes(10))

        assert [Alert("given up", SPOKE, 7.0)] == _wait(cellar, GIVEN_UP)
        assert [] == cellar.stored_keys()


class TestEnrichedVisits:
    """Sessions over the columns of a join."""

    def test_a_view_without_a_section(self) -> None:
        """A view of a page that the table does not know is part of the visit."""
        driver = SessionDriver(VISITS)
        driver.add("ann", at("10:00"), View("shop", 5.0))
        driver.add("ann", at("10:05"), View(None, 6.0))
        driver.run_batch()
        driver.advance_watermark_to(at("10:35"))
        driver.run_batch()

        assert [VisitRow(2, "(unknown)", 6.0)] == driver.take_results()
        assert 0 == driver.counts.quarantined

    def test_a_tie(self) -> None:
        """Of sections that were read equally long the first by name is shown."""
        driver = SessionDriver(VISITS)
        driver.add("ann", at("10:00"), View("shop", 5.0))
        driver.add("ann", at("10:05"), View("home", 5.0))
        driver.run_batch()
        driver.advance_watermark_to(at("10:35"))
        driver.run_batch()

        assert [VisitRow(2, "home", 5.0)] == driver.take_results()

    def test_any_order(self) -> None:
        """The functions give the same visit in whatever order its views come."""
        check_merge_law(VISITS)
