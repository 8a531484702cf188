"""The app `trips` and the demo: specs, files, and the programs on the first days of the year."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from examples.running import cut
from examples.trips.__main__ import run as run_app
from examples.trips.__main__ import until
from examples.trips.demo import run
from examples.trips.events import arriving, read_flights, smallest_lead
from examples.trips.spec import DUTY_DAYS, Duty, DutyPeriod, Flight, create, finish, merge, update
from sessionkit import Session
from sessionkit.testing import SessionDriver

Capture: TypeAlias = pytest.CaptureFixture[str]

MORNING = datetime(2013, 1, 1, 10, tzinfo=UTC)
DELAY = timedelta(hours=12)
GAP_OF, MOST = timedelta(hours=8), timedelta(hours=14)


def _flight(hour: int, origin: str, dest: str, distance: int) -> Flight:
    return Flight(MORNING + timedelta(hours=hour), origin, dest, distance)


DAY = [_flight(0, "EWR", "BOS", 200), _flight(5, "LGA", "ORD", 733), _flight(9, "JFK", "MIA", 1089)]
ORDERS = list(permutations(DAY))


def _folded(flights: Sequence[Flight]) -> Duty:
    state = create(("N1",), flights[0])
    for flight in flights[1:]:
        state = update(state, flight)
    return state


class TestSpec:
    """The four functions, called as plain functions."""

    def test_a_trip_has_the_first_origin_the_last_destination_and_the_sums(self) -> None:
        """The result has the first origin, the last destination, and the sums."""
        session = Session(("N1",), "id", MORNING, MORNING + timedelta(hours=17), 3)

        assert DutyPeriod(3, 2022, "EWR", "MIA") == finish(session, _folded(DAY))

    @pytest.mark.parametrize("flights", ORDERS)
    def test_flights_in_any_order_give_the_same_state(self, flights: Sequence[Flight]) -> None:
        """Flights give the same state in whatever order they come."""
        assert _folded(DAY) == _folded(flights)

    def test_two_merged_parts_give_the_state_of_all_flights(self) -> None:
        """Two parts merged, either first, give the same state as all flights in a row."""
        one, other = _folded(DAY[:1]), _folded(DAY[1:])

        assert _folded(DAY) == merge(one, other) == merge(other, one)


@pytest.fixture(scope="module", name="year")
def _year() -> pa.Table:
    return read_flights()


@pytest.fixture(scope="module", name="days")
def _days(year: pa.Table) -> pa.Table:
    """The flights of the first three days."""
    return until(year, 3)


def _in_new_york(clock: str) -> datetime:
    return datetime.fromisoformat(clock).replace(tzinfo=ZoneInfo("America/New_York"))


class TestFiles:
    """What the stream is fed with."""

    @pytest.mark.parametrize(
        ("carrier", "flight", "scheduled", "departure"),
        [
            ("UA", 1545, "2013-01-01 05:15", "2013-01-01 05:17"),
            ("MQ", 3944, "2013-01-01 18:35", "2013-01-02 08:48"),
            ("B6", 1203, "2013-06-30 22:31", "2013-07-01 00:12"),
        ],
        ids=["winter", "after midnight", "summer"],
    )
    def test_a_departure_is_the_instant_that_new_yorks_clocks_showed(
        self, year: pa.Table, carrier: str, flight: int, scheduled: str, departure: str
    ) -> None:
        """A departure is the instant that New York's clocks showed on its day."""
        found = year.filter(
            (pc.field("carrier") == carrier)
            & (pc.field("flight") == flight)
            & (pc.field("scheduled") == _in_new_york(scheduled))
        )

        assert [_in_new_york(departure)] == found["departure"].to_pylist()

    def test_the_files_have_every_flight_of_the_year(self, year: pa.Table) -> None:
        """Every flight of the year is there, and the cancelled ones have no departure."""
        assert 336_776 == year.num_rows
        assert 8_255 == year["departure"].null_count

    def test_every_flight_is_ahead_of_the_watermark_however_files_are_cut(
        self, year: pa.Table
    ) -> None:
        """However the files are cut, every flight is strictly ahead of the watermark in force."""
        arrived = arriving(year, DELAY)

        for count in (2, 24, 2_000):
            assert timedelta(0) < smallest_lead(cut(arrived, count), DELAY)


class TestDemo:
    """The demo on a few days, and what it says of sessions that differ."""

    @pytest.mark.nightly
    def test_the_demo_says_that_stream_and_batch_are_equal(
        self, spark: SparkSession, days: pa.Table, tmp_path: Path, capsys: Capture
    ) -> None:
        """The last line tells how many sessions there are and that they are equal."""
        code = run(spark, days, tmp_path, file_count=2)
        last = capsys.readouterr().out.splitlines()[-1]

        assert 0 == code
        assert re.fullmatch(r"demo: \d+ sessions emitted, \d+ open, equal to session_window", last)
        assert f"demo: {len(pd.read_parquet(tmp_path / 'duty_periods'))} sessions" in last


def _naive(flights: pa.Table) -> list[tuple[str, datetime, int]]:
    """Cut the flights of each aircraft by hand: who, since when, and how many."""
    found: list[tuple[str, datetime, int]] = []
    before: tuple[str, datetime] | None = None
    rows = [(row["tailnum"], row["departure"]) for row in flights.to_pylist()]
    for tail, time in sorted(row for row in rows if None not in row):
        if before is not None and before[0] == tail:
            _, start, count = found[-1]
            same_day = _day(start) == _day(time)
            if same_day and time - before[1] <= GAP_OF and time - start <= MOST:
                found[-1] = (tail, start, count + 1)
                before = (tail, time)
                continue
        found.append((tail, time, 1))
        before = (tail, time)
    return found


def _day(time: datetime) -> date:
    return time.astimezone(ZoneInfo("America/New_York")).date()


class TestDutyDays:
    """Duty periods with a longest time, and cut at midnight."""

    def test_duties_are_those_of_a_loop_over_all_flights(self, year: pa.Table) -> None:
        """Four days give what a loop over all flights gives; so does summer time's first day."""
        for first, last in ((0, 4), (67, 70)):
            before = until(year, first).num_rows
            flights = until(year, last).slice(before)
            driver = SessionDriver(DUTY_DAYS)
            for row in arriving(flights, DELAY).to_pylist():
                driver.add_row(row)
            driver.run_batch()
            driver.advance_watermark_to(datetime(2014, 1, 1, tzinfo=UTC))
            driver.run_until_idle()
            rows = driver.take_rows()

            expected = _naive(flights)
            assert expected == sorted(
                (row.key.tailnum, row.session_start, row.result.flights) for row in rows
            )
            assert {"gap", "max_duration", "midnight"} == {row.closed_by for row in rows}

    def test_the_program_shows_why_duties_end(
        self, spark: SparkSession, days: pa.Table, tmp_path: Path, capsys: Capture
    ) -> None:
        """It shows why duties end, and the report has the airports."""
        page = run_app(spark, days, tmp_path, files=2)

        assert "midnight" in capsys.readouterr().out
        assert "LGA" in page.read_text(encoding="utf-8")
