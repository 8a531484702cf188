"""The driver against Spark: for any spec and any stream they say the same, batch by batch."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from sessionkit import Counts
from sessionkit._instants import micros_of
from sessionkit.testing import OpenSession, SessionDriver
from sessionkit.testing.drivers.results import BatchResult
from tests.support.random_scripts import SCHEMA, Script, Stretch, scripts
from tests.support.steps import batches_of

Rows: TypeAlias = list[tuple[Any, ...]]


@attrs.frozen
class Report:
    """All that can be seen of a query."""

    counts: dict[int, Counts]
    sessions: dict[int, Rows]
    rejections: dict[int, Rows]
    still_open: Rows


SHORT = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LONG = settings(SHORT, max_examples=150, derandomize=False, print_blob=True)


@SHORT
@given(script=scripts())
def test_driver_says_what_spark_does(script: Script, spark: SparkSession) -> None:
    """Rows, ids, counts, rejections and open sessions are the same on the driver and on Spark."""
    assert on_spark(script, spark) == on_driver(script)


@pytest.mark.long
@LONG
@given(script=scripts(max_size=40))
def test_driver_says_what_spark_does_for_long(script: Script, spark: SparkSession) -> None:
    """The same, for many more and longer streams."""
    assert on_spark(script, spark) == on_driver(script)


@pytest.mark.long
@LONG
@given(script=scripts(layout="pages"))
def test_pages_say_what_buckets_do(script: Script, spark: SparkSession) -> None:
    """The same, for buckets in pages."""
    assert on_spark(script, spark) == on_driver(script)


def on_driver(script: Script) -> Report:
    # Events in the future are those that are far ahead of now, on Spark and so here.
    driver = SessionDriver(script.spec, processing_time=datetime.now(UTC))
    report = Report({}, {}, {}, [])
    for stretch in script.stretches:
        driver = SessionDriver.restore(script.spec, driver.snapshot())
        for result in _stretch(driver, stretch):
            assert result.batch_id is not None
            report.counts[result.batch_id] = result.counts
            _keep(report.sessions, result.batch_id, _sessions(result))
            _keep(report.rejections, result.batch_id, _rejections(result))
    report.still_open.extend(_still_open(driver.open_sessions()))
    return report


def on_spark(script: Script, spark: SparkSession) -> Report:
    report = Report({}, {}, {}, [])
    with TemporaryDirectory() as folder:
        stream = batches_of(spark, script.spec, SCHEMA, Path(folder))
        for stretch in script.stretches:
            if stretch.pauses:
                stream.run_with_pauses(stretch.batches)
            else:
                stream.run(stretch.batches)
        report.still_open.extend(_still_open(stream.files.open()))
    report.counts.update(stream.counts)
    for batch_id, rows in stream.rows.items():
        closed = [_from_session(row) for row in rows if row["kind"] == "session"]
        rejected = [_from_rejection(row) for row in rows if row["kind"] != "session"]
        _keep(report.sessions, batch_id, closed)
        _keep(report.rejections, batch_id, rejected)
    return report


def _stretch(driver: SessionDriver[Any, Any, Any], stretch: Stretch) -> list[BatchResult[Any]]:
    results: list[BatchResult[Any]] = []
    for batch in stretch.batches:
        for row in batch:
            driver.add_row(row)
        results += driver.run_until_idle() if stretch.pauses else [driver.run_batch()]
    return results + driver.run_until_idle()


def _keep(batches: dict[int, Rows], batch_id: int, rows: Rows) -> None:
    if rows:
        batches[batch_id] = sorted(rows, key=repr)


def _sessions(result: BatchResult[Any]) -> Rows:
    return [
        (
            s.key[0],
            s.session_id,
            micros_of(s.session_start),
            micros_of(s.session_end),
            s.closed_by,
            (s.revision, s.is_final, [*s.supersedes]),
            *attrs.astuple(s.result),
        )
        for s in result.rows
    ]


def _from_session(row: dict[str, Any]) -> tuple[Any, ...]:
    bounds = (row[name] for name in ("key", "session_id", "session_start", "session_end"))
    is_final = row.get("is_final", True)
    closed_by = row.get("closed_by", "gap") if is_final else None
    revision = row.get("revision", 1), is_final, row.get("supersedes", [])
    return (*bounds, closed_by, revision, row["values"], row["events"])


def _rejections(result: BatchResult[Any]) -> Rows:
    return [
        (
            rejection.kind,
            rejection.reason.splitlines()[0],
            rejection.key[0],
            None if rejection.event_time is None else micros_of(rejection.event_time),
            rejection.passthrough["offset"],
        )
        for rejection in result.rejections
    ]


def _from_rejection(row: dict[str, Any]) -> tuple[Any, ...]:
    reason = row["reason"].splitlines()[0]
    return row["kind"], reason, row["key"], row["event_time"], row["offset"]


def _still_open(sessions: list[OpenSession[Any]]) -> Rows:
    return [
        (
            s.key[0],
            s.session_id,
            micros_of(s.session_start),
            micros_of(s.session_end),
            s.state.values,
            s.events,
        )
        for s in sorted(sessions, key=lambda session: (repr(session.key), session.session_start))
    ]
