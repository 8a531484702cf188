"""The app `logins`: sessions with an explicit end, the fraud rule, and the program."""

from collections.abc import Sequence
from datetime import datetime
from itertools import permutations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.logins.__main__ import run
from examples.logins.events import made_up, read_log
from examples.logins.spec import FRAUD, LOGINS, Action, Alert, Attempt, Period, Record
from sessionkit.testing import StatefulDriver, at, minutes

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
    def test_records_in_any_order_give_one_period(self, records: Sequence[Record]) -> None:
        """The records give one period in whatever order they come, in one micro-batch or three."""
        watermark = at("08:10")

        assert [LOGGED_OUT] == _ended([records], watermark)
        assert [LOGGED_OUT] == _ended([[record] for record in records], watermark)

    def test_a_period_without_a_log_out_ends_half_an_hour_after_its_last_sign(self) -> None:
        """Without a log-out a session ends with its last sign of life, half an hour behind it."""
        expected = [Period(LOG_IN.at, ALIVE.at, minutes(4), "lost")]

        assert expected == _ended([[LOG_IN], [ALIVE]], ALIVE.at + minutes(30))


def _alerts(attempts: Sequence[tuple[int, Action, str]]) -> list[Alert]:
    driver = StatefulDriver(FRAUD)
    for minute, action, country in attempts:
        driver.add("ann", at("10:00") + minutes(minute), Attempt(action, country))
    driver.run_batch()
    driver.advance_watermark_to(at("18:00"))
    driver.run_until_idle()
    assert [] == driver.stored_keys()
    return driver.take_results()


class TestFraud:
    """Alerts about log-ins."""

    def test_five_wrong_passwords_in_ten_minutes_are_reported_once(self) -> None:
        """Five in ten minutes are told of once; four aren't, nor are five in a longer time."""
        wrong = Action.WRONG

        assert [Alert(at("10:04"), "5 wrong passwords")] == _alerts(
            [(minute, wrong, "DE") for minute in (5, 0, 2, 1, 3, 4)]
        )
        assert [] == _alerts([(minute, wrong, "DE") for minute in (0, 1, 2, 3)])
        assert [] == _alerts([(minute * 3, wrong, "DE") for minute in range(8)])

    def test_log_ins_from_two_countries_within_an_hour_are_reported(self) -> None:
        """Log-ins from two countries within an hour, in whatever order they come."""
        login = Action.LOG_IN
        attempts = [(0, login, "DE"), (60, login, "BR"), (121, login, "DE")]

        for arrived in permutations(attempts):
            assert [Alert(at("11:00"), "BR after DE")] == _alerts(arrived)
        assert [] == _alerts([(0, login, "DE"), (1, Action.ALIVE, "BR"), (2, login, "DE")])


@pytest.mark.nightly
def test_the_program_reports_accounts_in_other_hands(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two accounts in other hands are told of, and the periods are in the report."""
    run(spark, made_up(5), tmp_path, files=2)
    shown = capsys.readouterr().out

    alerts = shown[shown.index("Alerts") : shown.index("Sessions")]
    assert ["mallory", "trudy"] == [line.split()[0] for line in alerts.splitlines()[2:] if line]
    assert "logged out" in shown
    assert "logged out" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_program_takes_a_log_of_ones_own(tmp_path: Path) -> None:
    """A CSV file gives the same records as those that are made up."""
    path = tmp_path / "log.csv"
    records = made_up(2)
    lines = [",".join(map(str, row.values())) for row in records.to_pylist()]
    path.write_text("\n".join(["user,session,at,action,country", *lines]), encoding="utf-8")

    assert records.equals(read_log(path))
