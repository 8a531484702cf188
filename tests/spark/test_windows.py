"""Windowed aggregation: what the builder refuses, and what Spark does then; stream and batch."""

import random
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark.windows import (
    UnboundedStateWarning,
    WindowedAggregation,
    Windows,
    session,
    sliding,
    tumbling,
)
from tests.support.kept import Kept
from tests.support.streams import write_files

DAY = datetime(2024, 3, 10, tzinfo=UTC)
Event: TypeAlias = tuple[Any, ...]
Files: TypeAlias = Sequence[Sequence[Event]]


def at(clock: str) -> datetime:
    """Return an instant of the day of the tests, in UTC, such as `12:04`."""
    hour, _, minute = clock.partition(":")
    return DAY + timedelta(hours=int(hour), minutes=float(minute))


def table(events: Sequence[Event]) -> pa.Table:
    """Return events of clock, word, and for some a gap."""
    rows = [(*event, None)[:3] for event in events]
    return pa.table(
        {
            "ts": pa.array(
                [None if row[0] is None else at(row[0]) for row in rows], pa.timestamp("us", "UTC")
            ),
            "word": pa.array([row[1] for row in rows], pa.string()),
            "gap": pa.array([row[2] for row in rows], pa.string()),
        }
    )


@attrs.frozen
class Run:
    """What a query has written, a list for each micro-batch, and its progress."""

    batches: list[list[Row]]
    progress: list[Any]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows that were written, sorted, their times in UTC."""
        return plain([row for batch in self.batches for row in batch])

    def of_operator(self, counter: str, place: int = 0) -> list[int]:
        """Return a counter of a stateful operator for each micro-batch."""
        return [progress["stateOperators"][place][counter] for progress in self.progress]

    @property
    def watermark(self) -> str:
        return str(self.progress[-1]["eventTime"]["watermark"])


def plain(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return rows as sorted tuples, times as clocks of the day in UTC."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=str)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        # PySpark collects timestamps in the zone of this machine, without saying so.
        instant = value.astimezone(UTC)
        return f"{instant:%H:%M}" if not instant.second else f"{instant:%H:%M:%S.%f}"
    return [*map(_plain, value)] if isinstance(value, Row) else value


@attrs.frozen
class Source:
    """Files that are read as a stream, a file a micro-batch, or as a batch."""

    spark: SparkSession
    folder: Path
    files: Files

    @property
    def path(self) -> str:
        """The folder of the files, written when first asked for."""
        if not (self.folder / "in").exists():
            write_files(self.folder / "in", [table(events) for events in self.files])
        return str(self.folder / "in")

    def batch(self) -> DataFrame:
        return self.spark.read.parquet(self.path)

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.batch().schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(self.path)

    def run(self, frame: DataFrame, mode: str = "append") -> Run:
        """Run a query over all files, and over the batch without data after them."""
        kept = Kept()
        writer = kept.writer(frame, mode)
        # The folder is new for every query.
        writer = writer.option("checkpointLocation", f"{kept.folder}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return Run(list(kept.batches(self.spark).values()), list(query.recentProgress))


Sourced: TypeAlias = Callable[[Files], Source]


@pytest.fixture(name="source")
def _source(spark: SparkSession, tmp_path: Path) -> Sourced:
    return lambda files: Source(spark, tmp_path, files)


@pytest.fixture(name="events")
def _events(source: Sourced) -> Source:
    """Two words over an hour, the second file half an hour after the first."""
    return source(
        [
            [("12:01", "dog"), ("12:04", "dog"), ("12:07", "owl")],
            [("12:41", "dog")],
            [("12:02", "dog"), ("13:30", "dog")],
        ]
    )


def counted(windows: Windows) -> WindowedAggregation:
    """Return the number of rows of each word and window."""
    return windows.by("word").agg(n="count(*)")


ONE: Any = 1
TEN = tumbling("10 minutes", on="ts")
LATE = TEN.watermark("5 minutes")


class TestDefinition:
    """What can be checked before there is a frame, or a session."""

    def test_frozen(self) -> None:
        """Each method returns a new value and leaves the one that it was called on."""
        counts = counted(TEN)
        changed = counts.output_mode("update").with_window_time()

        assert ("word", "window_start", "window_end", "n") == counts.columns
        assert ("word", "window_start", "window_end", "window_time", "n") == changed.columns
        assert ("append", "update") == (counts.mode, changed.mode)

    def test_short_durations(self) -> None:
        """A duration means what it says in short too, in words to Spark."""
        assert timedelta(minutes=30) == session("30m", on="ts").shape.length
        assert timedelta(minutes=90) == tumbling("1h30m", on="ts").shape.every

    @pytest.mark.parametrize(
        ("make", "rule", "hint"),
        [
            (lambda: tumbling("1 month", on="ts"), "`length` must have a fixed length", "in days"),
            (lambda: session("0s", on="ts"), "`gap` must be longer than zero", "30 minutes"),
            (
                lambda: sliding("5 minutes", every="10 minutes", on="ts"),
                "`every` must be at most the length, found 10 minutes for windows of 5 minutes",
                "make the windows longer",
            ),
            (
                lambda: tumbling("5 minutes", on="ts", start_time="5 minutes"),
                "`start_time` must be less than `length`, found 5 minutes",
                "windows repeat every 5 minutes",
            ),
            (
                lambda: sliding("1 hour", every="5m", on="ts", start_time="6m"),
                "`start_time` must be less than `every`",
                "windows repeat every 5 minutes",
            ),
            (
                lambda: TEN.watermark("0 seconds"),
                "a watermark delay of zero: the latest event time is the watermark itself",
                '"1 millisecond"',
            ),
            (
                lambda: TEN.watermark("500 us"),
                "`delay` must be whole milliseconds, found '500 us'",
                "round it up",
            ),
            (
                lambda: LATE.watermark("1 hour"),
                "a second watermark of '1 hour'; there is one of 5 minutes",
                "declare it once",
            ),
            (lambda: session(on="ts"), "takes either a gap or a dynamic_gap", "session("),
            (
                lambda: session("5 minutes", on="ts", dynamic_gap="gap"),
                "takes either a gap or a dynamic_gap",
                "fixed gap",
            ),
            (lambda: session(on="ts", dynamic_gap=" "), "`dynamic_gap` must be SQL text", "CASE"),
            (lambda: TEN.by(ONE), "`by` takes column names, found 1 (int)", "withColumn"),
            (lambda: TEN.by("a", "A"), "two columns of the result would have the name `A`", "once"),
            (lambda: TEN.by("window"), "`window` is reserved for a column of", "rename"),
            (TEN.agg, "`agg` has no aggregate", 'n="count(*)"'),
            (lambda: TEN.agg(n=ONE), "`n` must be SQL text or a Column, found 1", "F.count"),
            (
                lambda: TEN.by("n").agg(n="count(*)"),
                "two columns of the result would have the name `n`",
                "once",
            ),
            (lambda: TEN.agg(window_end="max(ts)"), "`window_end` is reserved for", "rename"),
        ],
    )
    def test_refused(self, make: Callable[[], object], rule: str, hint: str) -> None:
        """What cannot work is refused where it is written, with the rule and what to change."""
        with pytest.raises(SpecError) as caught:
            make()

        found, _, hinted = str(caught.value).partition("\n\nHint: ")
        assert rule in found
        assert hint in hinted


SHAPES: dict[str, Windows] = {
    "tumbling": tumbling("10 minutes", on="ts", start_time="3 minutes"),
    "sliding": sliding("10 minutes", every="5 minutes", on="ts"),
    "uneven": sliding("10 minutes", every="3 minutes", on="ts"),
    "session": session("4 minutes", on="ts"),
    "dynamic": session(on="ts", dynamic_gap="CASE word WHEN 'owl' THEN '2 minutes' ELSE gap END"),
}


def shuffled(seed: int) -> list[list[Event]]:
    """Return three files of events at most 18 minutes out of order, and two that end all."""
    chance = random.Random(seed)
    files = [
        [
            (
                f"12:{start + chance.randrange(180) / 10}",
                chance.choice(["dog", "owl"]),
                chance.choice(["1 minute", "5 minutes"]),
            )
            for _ in range(16)
        ]
        for start in range(0, 54, 18)
    ]
    return [*files, [("18:00", "end", "1 minute")], [("18:30", "end", "1 minute")]]


class TestStreamEqualsBatch:
    """The same definition over a stream and over a batch."""

    @pytest.mark.parametrize("kind", SHAPES)
    def test_append(self, source: Sourced, kind: str) -> None:
        """The windows that a stream appends are those of the batch that its watermark is past."""
        events = source(shuffled(7))
        counts = SHAPES[kind].by("word").watermark("20 minutes").agg(n="count(*)", last="max(ts)")
        run = events.run(counts.apply(events.stream()))
        batch = counts.apply(events.batch()).where("window_end <= '2024-03-10 14:10:00'")

        assert plain(batch.collect()) == run.rows
        assert 8 < len(run.rows)
        assert "2024-03-10T18:10:00.000Z" == run.watermark

    def test_update(self, source: Sourced) -> None:
        """In update mode the last row of each window and key is that of the batch."""
        events = source(shuffled(8))
        counts = counted(SHAPES["sliding"].watermark("20 minutes")).output_mode("update")
        run = events.run(counts.apply(events.stream()), counts.mode)
        last = {row[:3]: row for batch in run.batches for row in batch}

        assert plain(counts.apply(events.batch()).collect()) == plain([*last.values()])

    def test_complete(self, source: Sourced) -> None:
        """In complete mode the last micro-batch writes all windows of the batch, sorted."""
        events = source(shuffled(9)[:3])
        counts = counted(SHAPES["session"]).order_by("window_start", "word", descending=True)
        counts = counts.output_mode("complete")
        with pytest.warns(UnboundedStateWarning):
            run = events.run(counts.apply(events.stream()), counts.mode)
        batch = counts.apply(events.batch()).collect()

        assert batch == run.batches[-1]
        assert batch == sorted(batch, key=lambda row: (row[1], row[0]), reverse=True)

    def test_columns(self, events: Source) -> None:
        """Keys, window and aggregates are columns of the top level, in both."""
        counts = counted(LATE).with_window_time()
        kinds = ["string", "timestamp", "timestamp", "timestamp", "bigint"]

        for frame in (counts.apply(events.stream()), counts.apply(events.batch())):
            assert list(zip(counts.columns, kinds, strict=True)) == frame.dtypes

    def test_odd_names(self, events: Source) -> None:
        """A name may hold what Spark takes for syntax."""
        stream = events.stream().withColumnsRenamed({"ts": "event.time", "word": "a`b"})
        odd = tumbling("10 minutes", on="event.time").watermark("5 minutes").by("a`b")
        run = events.run(odd.agg(**{"count (all)": "count(*)"}).apply(stream))

        assert ("dog", "12:00", "12:10", 3) == run.rows[0]


class TestDynamicGap:
    """Sessions whose rows bring their own gaps."""

    FILES: Files = (
        [
            ("12:00", "grows", "5 minutes"),
            ("12:04", "grows", "1 minute"),
            ("12:00", "null", None),
            ("12:00", "zero", "0 seconds"),
            ("12:00", "negative", "-1 minutes"),
            ("12:00", "short", "5m"),
            (None, "untimed", "5 minutes"),
        ],
        [("18:00", "end", "1 minute")],
    )
    COUNTS = session(on="ts", dynamic_gap="gap").by("word").watermark("5 minutes").agg(n="count(*)")

    def test_what_spark_leaves_out(self, source: Sourced) -> None:
        """Rows without a positive gap are in no session, and no counter shows them."""
        events = source(self.FILES)
        run = events.run(self.COUNTS.apply(events.stream()))

        assert [("grows", "12:00", "12:05", 2)] == run.rows
        assert 0 == sum(run.of_operator("numRowsDroppedByWatermark"))

    REJECTED = (
        ("negative", "the gap is zero or negative"),
        ("null", "the gap is null, or an interval that Spark can't parse"),
        ("short", "the gap is null, or an interval that Spark can't parse"),
        ("untimed", "`ts` is null"),
        ("zero", "the gap is zero or negative"),
    )

    def test_rejected(self, source: Sourced) -> None:
        """`rejected` returns those rows with the reason, of a batch and of a stream."""
        events = source(self.FILES)
        batch = self.COUNTS.rejected(events.batch()).select("word", "reason")
        stream = self.COUNTS.rejected(events.stream()).select("word", "reason")

        assert [*self.REJECTED] == plain(batch.collect())
        assert [*self.REJECTED] == events.run(stream).rows

    def test_rejected_without_gap(self, events: Source) -> None:
        """Of fixed windows, only rows without an event time are rejected."""
        frame = events.batch().withColumn("ts", F.expr("CASE WHEN word = 'dog' THEN ts END"))

        assert [("owl", "`ts` is null")] == plain(
            counted(TEN).rejected(frame).select("word", "reason").collect()
        )


def refused(definition: WindowedAggregation, frame: DataFrame) -> str:
    """Return the text of the refusal of a definition over a frame, on one line."""
    with pytest.raises(SpecError) as caught:
        definition.apply(frame)
    return str(caught.value).replace("\n", " ")


class TestWatermark:
    """The watermark must be on the column of the windows, once, and before the aggregation."""

    def test_two(self, events: Source) -> None:
        """A delay other than that of the frame, or another column, is refused."""
        stream = events.stream().withColumn("seen", F.col("ts"))
        for column, declared in (("ts", "on `ts` with a delay of 1 hour"), ("seen", "on `seen`")):
            with pytest.raises(SchemaError, match=f"already declared, {declared}"):
                counted(LATE).apply(stream.withWatermark(column, "1 hour"))

    @pytest.mark.parametrize("windows", [TEN, LATE], ids=["none", "the same"])
    def test_recognised(self, events: Source, windows: Windows) -> None:
        """A watermark that the frame has on the column is used; the definition may repeat it."""
        run = events.run(counted(windows).apply(events.stream().withWatermark("ts", "5 minutes")))

        assert [("dog", "12:00", "12:10", 3), ("dog", "12:40", "12:50", 1)] == run.rows[:2]
        assert [2, 3, 2, 1] == run.of_operator("numRowsTotal")


class TestState:
    """State that grows forever is warned of."""

    @pytest.mark.parametrize(
        ("definition", "reason"),
        [
            (counted(LATE).output_mode("complete"), "mode 'complete' drops no window"),
            (counted(TEN).output_mode("update"), "no watermark is declared on `ts`"),
        ],
        ids=["complete", "update without watermark"],
    )
    def test_warning(self, events: Source, definition: WindowedAggregation, reason: str) -> None:
        """The warning names the reason, the growth and what to change, and is right."""
        with pytest.warns(UnboundedStateWarning) as caught:
            frame = definition.apply(events.stream())
        run = events.run(frame, definition.mode)
        [warned] = [each for each in caught if each.category is UnboundedStateWarning]
        text = str(warned.message)

        assert reason in text
        assert "the state grows by one row for each key and window, forever" in text
        assert "Hint: use mode 'append' or 'update' with a watermark" in text
        assert __file__ == warned.filename
        assert [2, 3, 4] == run.of_operator("numRowsTotal")

    def test_complete_takes_late_rows(self, source: Sourced) -> None:
        """In complete mode the watermark drops no row, however late."""
        events = source([[("12:30", "dog")], [("12:31", "dog")], [("12:01", "dog")]])
        with pytest.warns(UnboundedStateWarning):
            frame = counted(LATE).output_mode("complete").apply(events.stream())
        run = events.run(frame, "complete")

        assert ("dog", "12:00", "12:10", 1) == plain(run.batches[-1])[0]

    @pytest.mark.parametrize("mode", ["append", "update"])
    def test_no_warning(self, events: Source, mode: Any) -> None:
        """With a watermark nothing is warned of, and windows leave the state."""
        definition = counted(LATE).output_mode(mode)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            frame = definition.apply(events.stream())

        assert [2, 3, 2, 1] == events.run(frame, mode).of_operator("numRowsTotal")


class TestColumns:
    """The time column must be a timestamp, and what is named must be there."""

    def test_missing(self, events: Source) -> None:
        """A column that is missing is named, with those that are there."""
        with pytest.raises(
            SchemaError, match="the key `Word` is missing; the frame has ts, word, gap"
        ) as one:
            TEN.by("Word").agg(n="count(*)").apply(events.batch())
        with pytest.raises(SchemaError, match="`at` is missing"):
            counted(tumbling("1 hour", on="at")).rejected(events.batch())
        assert str(one.value).endswith("Hint: write it `word`")


class TestWindowsOverWindows:
    """A second aggregation on the windows of the first one."""

    FIRST = counted(LATE).with_window_time()
    SECOND = (
        tumbling("30 minutes", on="window_time").by("word").agg(total="sum(n)", windows="max(n)")
    )

    @pytest.fixture(name="long")
    def _long(self, source: Sourced) -> Source:
        ends = [[("18:00", "end")], [("19:00", "end")]]
        files = [[("12:01", "dog"), ("12:12", "dog")], [("12:25", "owl"), ("12:41", "dog")], *ends]
        return source(files)

    def test_stream_equals_batch(self, long: Source) -> None:
        """In append mode the windows over windows of a stream are those of a batch."""
        run = long.run(self.SECOND.apply(self.FIRST.apply(long.stream())))
        batch = self.SECOND.apply(self.FIRST.apply(long.batch()))

        assert [
            ("dog", "12:00", "12:30", 2, 1),
            ("dog", "12:30", "13:00", 1, 1),
            ("end", "18:00", "18:30", 1, 1),
            ("owl", "12:00", "12:30", 1, 1),
        ] == run.rows
        assert plain(batch.where("window_end < '2024-03-10 15:00:00'").collect()) == run.rows

    def test_sessions_of_windows(self, long: Source) -> None:
        """Sessions may follow windows, and windows may follow sessions."""
        of_windows = session("20 minutes", on="window_time").by("word").agg(total="sum(n)")
        sessions = session("5m", on="ts").watermark("5m").by("word").agg(n="count(*)")

        first = long.run(of_windows.apply(self.FIRST.apply(long.stream())))
        second = long.run(self.SECOND.apply(sessions.with_window_time().apply(long.stream())))

        assert ("dog", "12:09:59.999999", "12:39:59.999999", 2) == first.rows[0]
        assert ("dog", "12:00", "12:30", 2, 1) == second.rows[0]

    def test_watermark_after_aggregation(self, long: Source) -> None:
        """A watermark on the result of an aggregation is refused, of the frame or declared here."""
        first = counted(LATE).apply(long.stream())
        hour = tumbling("1 hour", on="window_end")
        for text in (
            refused(counted(hour.watermark("5 minutes")), first),
            refused(counted(hour), first.withWatermark("window_end", "5 minutes")),
            refused(
                counted(LATE),
                self.FIRST.apply(long.stream())
                .withColumnRenamed("window_time", "ts")
                .withWatermark("ts", "1 hour"),
            ),
        ):
            assert "a watermark is declared after an aggregation, for the windows over" in text
            assert "its watermark stays at 1970 and no window ever closes" in text
            assert "Hint: declare it only before the first aggregation" in text

    def test_table_joined(self, events: Source) -> None:
        """A table that is an aggregation itself makes no chain of what it is joined to."""
        totals = events.batch().groupBy("word").agg(F.count("*").alias("total"))
        joined = events.stream().join(totals, "word").withWatermark("ts", "5 minutes")
        run = events.run(counted(TEN).apply(joined))

        assert ("dog", "12:00", "12:10", 3) == run.rows[0]
