"""What the apps share: where their events come from, and where their report is."""

from pathlib import Path

import pytest

from examples.running import DATA, log_of, write_report
from examples.visits import View, visits
from sessionkit.testing import SessionDriver, at


def test_a_log_of_ones_own_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that isn't there is an error with a hint, before Spark starts."""
    own = tmp_path / "own.csv"
    with pytest.raises(SystemExit, match="leave --events out"):
        log_of("ecom/ecom.csv.gz", own)
    own.touch()

    assert own == log_of("ecom/ecom.csv.gz", own)
    assert "The events come from own.csv.\n" == capsys.readouterr().out


def test_without_a_log_the_events_are_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Which is said; the log next to the checkout is taken where there is one."""
    assert log_of("no/such.log", None) is None
    assert "MADE UP" in capsys.readouterr().out

    known = DATA / "ecom" / "ecom.csv.gz"
    assert (known if known.exists() else None) == log_of("ecom/ecom.csv.gz", None)


def test_the_report_is_printed_as_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal opens it at a click, wherever the app was started."""
    pytest.importorskip("duckdb")
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), View(url="/", seconds=1.0))
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    page = write_report(driver.take_frame(), tmp_path, "Visits")
    assert f"\nThe report: {page.resolve().as_uri()}\n" == capsys.readouterr().out
    assert page.exists()
