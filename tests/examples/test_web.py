"""The app `web`: who is a program, the log of a server, and the program."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples.running import DATA, write_report
from examples.web.__main__ import REPORT, run
from examples.web.events import made_up, read_log
from examples.web.spec import VISITS
from sessionkit.testing import SessionDriver

LOG = DATA / "apache_logs" / "apache_logs.gz"
PROGRAMS = {"10.1.0.1": "name", "10.1.0.2": "rate", "10.1.0.3": "age"}


def _visits(hits: pa.Table) -> Any:
    """Return the result rows of requests, by way of a driver."""
    driver = SessionDriver(VISITS)
    for row in hits.to_pylist():
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    assert driver.counts.processed == hits.num_rows
    return driver.take_frame()


def test_programs_are_marked_and_people_are_not() -> None:
    """Each of the three by its own sign, and by no other; none is left out."""
    visits = _visits(made_up(100))
    signs = {
        address: [sign for sign in ("name", "rate", "age") if row[f"bot_by_{sign}"]]
        for address, row in ((row["address"], row) for row in visits.to_dict("records"))
    }

    assert {address: [sign] for address, sign in PROGRAMS.items()} == {
        address: found for address, found in signs.items() if found
    }
    assert 103 == len(signs)


def test_where_a_visit_begins_and_ends() -> None:
    """With a page, whatever the picture before or after it; engaged time is up to a minute each."""
    path = [("/logo.png", 0), ("/", 1), ("/blog", 4), ("/shop", 304), ("/logo.png", 305)]
    hits = [
        {
            "address": "10.0.0.1",
            "agent": "browser",
            "at": datetime(2026, 3, 2, 8, second // 60, second % 60, tzinfo=UTC),
            "path": name,
            "is_page": not name.endswith("png"),
            "is_named": False,
        }
        for name, second in path
    ]
    (visit,) = _visits(pa.Table.from_pylist(hits, made_up(1).schema)).to_dict("records")

    assert ("/", "/shop", ["/", "/blog", "/shop"]) == (
        visit["entry"],
        visit["exit"],
        list(visit["path"]),
    )
    assert (3, 5, False) == (visit["pages"], visit["hits"], visit["is_bounce"])
    assert 1 + 3 + 60 + 1 == visit["engaged_for"].total_seconds()


def test_the_report_counts_pages(tmp_path: Path) -> None:
    """Pictures and scripts are requests, and no views of pages."""
    visits = _visits(made_up(10))
    page = write_report(visits.assign(visitor="person"), tmp_path, "A web site", **REPORT)

    assert '"events":"pages","views":"views"' in page.read_text(encoding="utf-8")
    assert (visits["views"].map(lambda views: sum(views.values())) == visits["pages"]).all()


@pytest.mark.skipif(not LOG.exists(), reason="the data of third parties is next to the project")
def test_the_log_has_the_visits_that_are_known() -> None:
    """Every line but the one that was cut off, and the sessions of all its visitors."""
    visits = _visits(read_log(LOG))

    assert 9_999 == visits["hits"].sum()
    assert 1_861 == len(visits[["address", "agent"]].drop_duplicates())
    assert 3_223 == len(visits)
    google = visits[visits["agent"].str.contains("Googlebot")]
    assert len(google)
    assert google["bot_by_name"].all()


@pytest.mark.nightly
def test_the_program_counts_visits_of_programs_apart(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs have a row of their own, and where people go in and out is that of people."""
    page = run(spark, made_up(30), tmp_path, files=2)
    shown = capsys.readouterr().out

    for sign in PROGRAMS.values():
        assert f"program, by its {sign}" in shown
    assert "program, by its rate" in page.read_text(encoding="utf-8")
