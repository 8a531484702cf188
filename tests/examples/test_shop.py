"""The app `shop`: known figures, and the program; tests/spark/test_kafka.py runs its job."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples.embedded_postgres import PostgresMissingError, running_postgres
from examples.running import DATA
from examples.shop.__main__ import conclude, run
from examples.shop.events import made_up, read_log
from examples.shop.spec import LOOKBACK, STEPS, VISITS
from sessionkit.testing import SessionDriver

LOG = DATA / "ecom" / "ecom.csv.gz"
# Sales of sessions, and sessions, by where the user came from.
SALES = {
    "direct": (18, 156),
    "email": (75, 583),
    "organic": (161, 1289),
    "paid_search": (161, 1023),
    "social": (55, 554),
}


def _visits(events: pa.Table) -> Any:
    """Return the result rows of events, one after the other, by way of a driver."""
    driver = SessionDriver(VISITS)
    for row in events.to_pylist():
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    assert driver.counts.processed == events.num_rows
    return driver.take_frame()


@pytest.mark.skipif(not LOG.exists(), reason="the data of third parties is next to the project")
def test_the_log_has_the_visits_and_sales_that_are_known() -> None:
    """By the channel that won the user; and whoever paid in the end of the funnel has bought."""
    visits = _visits(read_log(LOG))

    seen, sold = Counter(visits["channel"]), Counter(visits["channel"][visits["bought"]])
    assert SALES == {name: (sold[name], seen[name]) for name in seen}
    assert 31_106 == visits["events"].sum()
    assert not ((visits["far"] == len(STEPS)) & ~visits["bought"]).any()


def test_what_is_made_up_is_the_same_each_time() -> None:
    """With all sources, and some visits that buy."""
    events = made_up(40)

    assert events.equals(made_up(40))
    assert {"email", "organic", "promotion", "social", None} == set(events["source"].to_pylist())
    assert _visits(events)["bought"].any()


def test_what_is_made_up_ends_in_full_swing() -> None:
    """The last four weeks have about as many visits as those before, so a report shows no fall."""
    starts = pd.Series(made_up()["at"].to_pandas())
    weeks = (starts.max() - starts).dt.days // 28

    last, before = (int((weeks == n).sum()) for n in (0, 1))
    assert abs(last - before) / before < 0.25


def test_the_program_gives_credit_to_the_last_source(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files become a table, the table a report; credit goes to the last source in 30 days."""
    events = made_up(40)
    try:
        with running_postgres() as server:
            run(spark, events, server.dsn, tmp_path, files=2)
            page = conclude(server.dsn, tmp_path)
            credited = server.rows('SELECT "user", session_start, source, credit FROM visits')
    except PostgresMissingError as error:
        pytest.skip(f"not run: {error}")

    lives: dict[Any, list[Any]] = {}
    for user, start, source, _ in credited:
        lives.setdefault(user, []).append((start, source))
    for user, start, _, credit in credited:
        touches = [
            (at, source)
            for at, source in lives[user]
            if source and timedelta(0) <= start - at <= LOOKBACK
        ]
        assert credit == max(touches, default=(None, None))[1]
    shown = capsys.readouterr().out
    assert f"{events.num_rows:,} events: {events.num_rows:,} in sessions, 0 late" in shown
    assert "promotion" in shown[shown.index("... and by the last source") :]
    assert "promotion" in page.read_text(encoding="utf-8")
