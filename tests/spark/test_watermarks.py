"""Watermarks: what is refused before a start, what guards them, and what a query reports."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit.spark.watermarks import (
    POLICY_SETTING,
    Watermark,
    _report,
    check_watermarks,
    declare_watermark,
    declared_watermarks,
    explain_watermark,
    guard_future,
)
from tests.support.refusals import refusal, says
from tests.support.spark_settings import changed
from tests.support.steps import Source, instant, running

Options: TypeAlias = dict[str, Any]

SECOND = 1_000
DAY = 86_400_000
YEAR_2999 = int(datetime(2999, 1, 1, tzinfo=UTC).timestamp()) * SECOND
TEN_SECONDS = timedelta(seconds=10)


@pytest.fixture(name="source")
def _source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "in")


class TestDeclare:
    """`declare_watermark`, and what Spark does without it."""

    def test_a_stream_carries_its_column_and_delay(self, source: Source) -> None:
        """A stream carries column and delay, which can be read again; rows are as before."""
        declared = declare_watermark(source.stream(), "ts", "1m30s")

        assert (Watermark("ts", timedelta(seconds=90)),) == declared_watermarks(declared)
        assert source.stream().columns == declared.columns

    def test_a_copy_of_the_event_time_carries_the_watermark(self, source: Source) -> None:
        """A copy of the event time carries the watermark too."""
        declared = declare_watermark(source.stream(), "ts", "10 seconds")
        copied = declared.withColumn("again", F.col("ts"))

        expected = (Watermark("ts", TEN_SECONDS), Watermark("again", TEN_SECONDS))
        assert expected == declared_watermarks(copied)

    def test_a_column_that_cannot_be_the_event_time_is_refused(self, source: Source) -> None:
        """A column that cannot be the event time is refused, on a stream and on a batch."""
        source.put(("a", SECOND, 1))
        nested = F.struct(F.col("ts").alias("time"))
        for frame in (source.stream(), source.batch()):
            frame = frame.withColumn("local", F.col("ts").cast("timestamp_ntz"))  # noqa: PLW2901
            for column, facts in {
                "at": ["missing", "id, ts, "],
                "TS": ["missing", "`ts`"],
                "nested.time": ['withColumn("time", col("nested.time"))'],
                "local": ["timestamp_ntz", '.cast("timestamp_ltz")'],
                "value": ["bigint", "timestamp_millis(col)"],
            }.items():
                text = refusal(
                    declare_watermark, frame.withColumn("nested", nested), column, "10 seconds"
                )
                assert says(text, f"`{column}`", *facts)

    @pytest.mark.parametrize(
        ("delay", "fact"),
        [
            ("-1 second", "longer than zero"),
            ("500 microseconds", "whole milliseconds"),
            ("0 seconds", "zero_delay='drops_ties'"),
        ],
    )
    def test_a_delay_that_spark_would_misread_is_refused(
        self, source: Source, delay: str, fact: str
    ) -> None:
        """A delay that Spark would misread, or that drops rows unexpectedly, is refused."""
        text = refusal(declare_watermark, source.stream(), "ts", delay)

        assert says(text, "`watermark_delay`", f"'{delay}'", fact)

    @pytest.mark.parametrize(
        ("delay", "options", "values"),
        [("0 seconds", {"zero_delay": "drops_ties"}, [1]), ("1 millisecond", {}, [1, 2])],
    )
    def test_with_no_delay_a_row_that_ties_with_the_newest_is_dropped_a_batch_later(
        self, source: Source, tmp_path: Path, delay: str, options: Options, values: list[int]
    ) -> None:
        """With a delay of zero, a row that shares the newest event time is dropped one batch on."""
        source.put(("a", 100 * SECOND, 1))
        declared = declare_watermark(source.stream(), "ts", delay, **options)
        with running(declared.dropDuplicates(["id"]), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("b", 100 * SECOND, 2))
            steps.run()

            assert values == steps.values

    @pytest.mark.parametrize("column", ["ts", "again"])
    def test_a_second_watermark_is_refused(self, source: Source, column: str) -> None:
        """A second watermark is refused, which Spark does only once the first one moves."""
        frame = source.stream().withColumn("again", F.col("ts"))
        declared = declare_watermark(frame, "ts", "10 seconds")

        text = refusal(declare_watermark, declared, column, "5 seconds")

        assert says(text, "already declared", "`ts`", "10 seconds")


@pytest.fixture(name="policy_max")
def _policy_max(spark: SparkSession) -> Iterator[None]:
    with changed(spark, {POLICY_SETTING: "max"}):
        yield


class TestSeveral:
    """Streams that come together in one query."""

    def test_streams_that_each_have_a_watermark_are_accepted(self, source: Source) -> None:
        """Streams that each have a watermark pass, and batches among them need none."""
        source.put(("a", SECOND, 1))
        declared = declare_watermark(source.stream(), "ts", "10 seconds")

        check_watermarks(declared, source.batch(), declared)

    def test_a_policy_that_the_session_does_not_have_is_refused(self, source: Source) -> None:
        """A policy that the session does not have is refused, and the hint says how to set it."""
        declared = declare_watermark(source.stream(), "ts", "10 seconds")

        text = refusal(check_watermarks, declared, declared, policy="max")

        assert says(text, "'max'", "'min'", f'spark.conf.set("{POLICY_SETTING}", "max")')

    @pytest.mark.usefixtures("policy_max")
    def test_the_policy_that_the_session_has_is_accepted(self, source: Source) -> None:
        """The policy that the session has passes; one stream alone passes any."""
        declared = declare_watermark(source.stream(), "ts", "10 seconds")

        check_watermarks(declared, declared, policy="max")
        check_watermarks(declared, policy="min")
        assert says(refusal(check_watermarks, declared, declared), "'min'", "'max'")

    def test_a_stream_without_a_watermark_is_refused(self, source: Source, tmp_path: Path) -> None:
        """A stream without a watermark is refused: Spark judges its rows by that of the others."""
        other = Source(source.spark, tmp_path / "other")
        declared = declare_watermark(source.stream(), "ts", "10 seconds")

        assert says(refusal(check_watermarks, declared, other.stream()), "stream 2 of 2")
        source.put(("a", 100 * SECOND, 1))
        union = declared.union(other.stream()).dropDuplicates(["id"])
        with running(union, tmp_path / "checkpoint") as steps:
            steps.run()
            other.put(("b", 50 * SECOND, 2))
            steps.run()

            assert [1] == steps.values
            assert 1 == steps.dropped()


class TestGuard:
    """`guard_future`, and what happens without it."""

    def test_a_time_from_the_future_does_not_move_the_watermark(
        self, source: Source, tmp_path: Path
    ) -> None:
        """A time from the future goes to its own column and does not move the watermark."""
        source.put(("a", 100 * SECOND, 1), ("b", YEAR_2999, 2), ("c", None, 3))
        guarded = guard_future(source.stream(), "ts")
        declared = declare_watermark(guarded, "ts", "10 seconds")
        with running(declared.dropDuplicates(["id"]), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("d", 95 * SECOND, 4))
            steps.run()

            assert instant(90 * SECOND) == explain_watermark(steps.query).watermark
            assert [1, 2, 3, 4] == steps.values
            times = {row["value"]: (row["ts"], row["quarantined_time"]) for row in steps.rows}
            assert (100 * SECOND, None) == times[1]
            assert (None, YEAR_2999) == times[2]
            assert (None, None) == times[3]

    def test_without_the_guard_a_time_from_the_future_moves_the_watermark(
        self, source: Source, tmp_path: Path
    ) -> None:
        """Without the guard that time is where the watermark stays, and the report says so."""
        source.put(("b", YEAR_2999, 2))
        declared = declare_watermark(source.stream(), "ts", "10 seconds")
        with running(declared.dropDuplicates(["id"]), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("d", 95 * SECOND, 4), ("e", 96 * SECOND, 5))
            steps.run()
            report = explain_watermark(steps.query)

        assert [2] == steps.values
        assert "ahead_of_clock" == report.state
        assert instant(YEAR_2999 - 10 * SECOND) == report.watermark
        assert 2 == report.dropped

    def test_a_time_beyond_the_year_9999_is_reported(self, source: Source, tmp_path: Path) -> None:
        """A time beyond the year 9999, such as milliseconds read as seconds, is reported too."""
        source.put(("b", 1_767_225_600_000, 1))
        seconds = F.timestamp_seconds(F.unix_millis("ts"))
        frame = declare_watermark(source.stream().withColumn("ts", seconds), "ts", "10 seconds")
        with running(frame.dropDuplicates(["id"]).drop("ts"), tmp_path / "checkpoint") as steps:
            steps.run()

            report = explain_watermark(steps.query)
            assert datetime.max.replace(microsecond=0, tzinfo=UTC) == report.watermark
            assert "ahead_of_clock" == report.state

    def test_a_time_exactly_the_skew_ahead_is_accepted(self, spark: SparkSession) -> None:
        """On a batch, exactly the skew ahead of the clock is fine, a microsecond more is not."""
        ahead = F.make_dt_interval(F.lit(1), F.lit(0), F.lit(0), F.col("value") / F.lit(1e6))
        frame = spark.range(2).selectExpr("id value")
        frame = frame.withColumn("ts", F.current_timestamp() + ahead)

        guarded = guard_future(frame, "ts", "1 day", into="later").orderBy("value").collect()

        assert [False, True] == [row["ts"] is None for row in guarded]
        assert [True, False] == [row["later"] is None for row in guarded]

    @pytest.mark.parametrize(
        ("change", "options", "facts"),
        [
            (lambda f: f, {"into": "value"}, ["`value`", "into="]),
            (lambda f: f.drop("ts"), {}, ["`ts`", "missing"]),
            (lambda f: f.withWatermark("ts", "1 day"), {}, ["already declared", "guard_future"]),
            (lambda f: f, {"max_future_skew": "1 month"}, ["`max_future_skew`", "in days"]),
        ],
    )
    def test_what_cannot_be_guarded_is_refused(
        self, source: Source, change: Any, options: Options, facts: list[str]
    ) -> None:
        """What cannot be guarded is refused on the driver."""
        assert says(refusal(guard_future, change(source.stream()), "ts", **options), *facts)


class TestQuery:
    """What a real query reports."""

    def test_a_report_follows_a_query_from_its_start_to_its_idle_end(
        self, source: Source, tmp_path: Path
    ) -> None:
        """From nothing to a watermark that waits for newer events."""
        declared = declare_watermark(source.stream(), "ts", "10 seconds")
        with running(declared.dropDuplicates(["id"]), tmp_path / "checkpoint") as steps:
            steps.run()
            assert "no_batch" == explain_watermark(steps.query).state
            assert explain_watermark(steps.query).watermark is None

            source.put(("a", None, 1))
            steps.run()
            assert "waiting" == explain_watermark(steps.query).state
            assert explain_watermark(steps.query).watermark is None

            source.put(("b", 100 * SECOND, 2))
            steps.run()
            report = explain_watermark(steps.query)
            assert "idle" == report.state
            assert instant(90 * SECOND) == report.watermark

            for value in (3, 4):
                source.put((f"c{value}", 95 * SECOND, value))
                steps.run()
            assert "stalled" == explain_watermark(steps.query).state

    def test_a_silent_source_holds_the_watermark_and_is_named(
        self, source: Source, tmp_path: Path
    ) -> None:
        """A source of a union that sends nothing holds the watermark at 1970, and is named."""
        report = silent_source(source, tmp_path)

        assert "held_back" == report.state
        assert report.watermark is None
        (silent,) = report.silent
        assert silent.endswith("/silent]")

    @pytest.mark.usefixtures("policy_max")
    def test_a_silent_source_holds_nothing_under_the_policy_max(
        self, source: Source, tmp_path: Path
    ) -> None:
        """Under the policy max it holds nothing."""
        report = silent_source(source, tmp_path)

        assert instant(390 * SECOND) == report.watermark
        assert "idle" == report.state
        assert () == report.silent


def silent_source(source: Source, folder: Path) -> Any:
    """Run a union of a source that sends and one that does not; return the report."""
    silent = Source(source.spark, folder / "silent")
    one = declare_watermark(source.stream(), "ts", "10 seconds")
    other = declare_watermark(silent.stream(), "ts", "20 seconds")
    source.put(("a", 100 * SECOND, 1))
    with running(one.union(other).dropDuplicates(["id"]), folder / "checkpoint") as steps:
        steps.run()
        source.put(("b", 400 * SECOND, 2))
        steps.run()
        return explain_watermark(steps.query)


def batch(number: int, watermark: str, **rows: int) -> dict[str, Any]:
    """Return the progress of a micro-batch that took so many rows from each source."""
    return {
        "batchId": number,
        "timestamp": f"2026-03-08T12:00:{number:02}.000Z",
        "durationMs": {"addBatch": 1},
        "numInputRows": sum(rows.values()),
        "eventTime": {"watermark": f"{watermark}:00.000Z"},
        "stateOperators": [],
        "sources": [{"description": name, "numInputRows": n} for name, n in rows.items()],
    }


class TestReport:
    """What follows from progress, without a query."""

    @pytest.mark.parametrize(
        ("by_slowest", "state", "silent"), [(True, "held_back", ("b",)), (False, "stalled", ())]
    )
    def test_a_source_that_fell_silent_is_named(
        self, by_slowest: bool, state: str, silent: tuple[str, ...]
    ) -> None:
        """It holds the watermark under `min`, where each source has one of its own."""
        batches = [
            batch(4, "2026-03-08T11:00", a=1, b=1),
            batch(5, "2026-03-08T11:01", a=1, b=0),
            batch(6, "2026-03-08T11:01", a=1, b=0),
        ]

        report = _report(batches, by_slowest=by_slowest)

        assert state == report.state
        assert silent == report.silent
        assert datetime(2026, 3, 8, 12, 0, 5, tzinfo=UTC) == report.since

    def test_a_source_that_sends_old_times_is_named(self) -> None:
        """Progress cannot tell which source does."""
        batches = [batch(n, "2026-03-08T11:01", a=1, b=1) for n in (5, 6)]

        assert "stalled" == _report(batches, by_slowest=True).state

    def test_a_bucket_ahead_of_the_watermark_of_spark_is_reported(self) -> None:
        """Under `close_idle_after` the watermark in force follows the clock."""
        silent = batch(7, "2026-03-08T11:01", a=0)
        ahead_us = 1_773_000_000_000_000  # 2026-03-08 20:00:00Z
        ahead_us -= 8 * 3_600_000_000 + 60_000_000
        said = f"64|3:1:0:900:5:{ahead_us},5:1:0:900:5:"
        silent["observedMetrics"] = {"sessionkit": {"buckets": said}}

        report = _report([silent], by_slowest=False)

        assert datetime(2026, 3, 8, 11, 59, tzinfo=UTC) == report.watermark
        assert "idle" == report.state

    def test_rows_of_the_last_micro_batch_move_it_next(self) -> None:
        """So it's moving as long as they are the only ones."""
        assert "moving" == _report([batch(5, "2026-03-08T11:01", a=1)], by_slowest=False).state
