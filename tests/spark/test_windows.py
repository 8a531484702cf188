"""Windowed aggregation: what the builder refuses, and what Spark does then; stream and batch."""

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit.spark.windows import (
    WindowedAggregation,
    Windows,
    session,
    sliding,
    tumbling,
)
from tests.support.refusals import refusal, says
from tests.support.steps import Steps, finished
from tests.support.streams import FileStream

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


def plain(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return rows as sorted tuples, times as clocks of the day in UTC."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=str)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        # PySpark collects timestamps in the zone of this machine, without saying so.
        instant = value.astimezone(UTC)
        return f"{instant:%H:%M}" if not instant.second else f"{instant:%H:%M:%S.%f}"
    return [*map(_plain, value)] if isinstance(value, Row) else value


def rows(run: Steps) -> list[tuple[Any, ...]]:
    """Return all rows that a query has written, as `plain` does."""
    return plain([row for batch in run.batches for row in batch])


Sourced: TypeAlias = Callable[[Files], FileStream]


@pytest.fixture(scope="module", name="source")
def _source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sourced:
    """Give what makes files of events; each is a micro-batch."""

    def source(files: Files) -> FileStream:
        stream = FileStream(spark, None, tmp_path_factory.mktemp("windows"))
        stream.put(*map(table, files))
        return stream

    return source


@pytest.fixture(scope="module", name="events")
def _events(source: Sourced) -> FileStream:
    """Two words over an hour, the second file half an hour after the first."""
    return source(
        [
            [("12:01", "dog"), ("12:04", "dog"), ("12:07", "owl")],
            [("12:41", "dog")],
            [("12:02", "dog"), ("13:30", "dog")],
        ]
    )


def union(frames: Iterable[tuple[str, DataFrame]]) -> DataFrame:
    """Return what several definitions give in one query, each row with a name before it."""
    named = [frame.select(F.lit(name).alias("name"), "*") for name, frame in frames]
    return reduce(DataFrame.unionByName, named)


def counted(windows: Windows) -> WindowedAggregation:
    """Return the number of rows of each word and window."""
    return attrs.evolve(windows, keys=("word",)).agg(n="count(*)")


ONE: Any = 1
TEN = tumbling("10 minutes", event_time="ts")
LATE = tumbling("10 minutes", event_time="ts", watermark_delay="5 minutes")
LATE_OR_NONE = {"none": TEN, "the same": LATE}


class TestDefinition:
    """What can be checked before there is a frame, or a session."""

    def test_each_method_returns_a_new_value(self) -> None:
        """Each method returns a new value and leaves the one that it was called on."""
        counts = counted(TEN)
        changed = counts.output_mode("update").with_window_time()

        assert ("word", "window_start", "window_end", "n") == counts.columns
        assert ("word", "window_start", "window_end", "window_time", "n") == changed.columns
        assert ("append", "update") == (counts.mode, changed.mode)

    def test_a_duration_may_be_written_in_short(self) -> None:
        """A duration means what it says in short too, in words to Spark."""
        assert timedelta(minutes=30) == session("30m", event_time="ts").shape.length
        assert timedelta(minutes=90) == tumbling("1h30m", event_time="ts").shape.every

    @pytest.mark.parametrize(
        ("make", "facts"),
        [
            (lambda: tumbling("1 month", event_time="ts"), ["`length`", "fixed length"]),
            (lambda: session("0s", event_time="ts"), ["`gap`", "zero"]),
            (
                lambda: sliding("5m", every="10m", event_time="ts"),
                ["`every`", "10 minutes", "5 minutes"],
            ),
            (
                lambda: tumbling("5 minutes", event_time="ts", start_time="5 minutes"),
                ["`start_time`", "`length`", "5 minutes"],
            ),
            (
                lambda: sliding("1 hour", every="5m", event_time="ts", start_time="6m"),
                ["`start_time`", "`every`", "6 minutes"],
            ),
            (
                lambda: tumbling("10 minutes", event_time="ts", watermark_delay="0 seconds"),
                ["`watermark_delay` is zero", '"1 millisecond"'],
            ),
            (
                lambda: tumbling("10 minutes", event_time="ts", watermark_delay="500 us"),
                ["`watermark_delay`", "whole milliseconds", "'500 us'"],
            ),
            (lambda: session(event_time="ts"), ["gap", "dynamic_gap"]),
            (lambda: session("5m", event_time="ts", dynamic_gap="gap"), ["gap", "dynamic_gap"]),
            (lambda: session(event_time="ts", dynamic_gap=" "), ["`dynamic_gap`", "SQL"]),
            (
                lambda: tumbling("10 minutes", event_time="ts", keys=(ONE,)),
                ["`keys`", "found 1"],
            ),
            (
                lambda: tumbling("10 minutes", event_time="ts", keys=("a", "A")),
                ["two columns", "`A`"],
            ),
            (
                lambda: tumbling("10 minutes", event_time="ts", keys="window"),
                ["`window`", "reserved"],
            ),
            (TEN.agg, ["`agg`", 'n="count(*)"']),
            (lambda: TEN.agg(n=ONE), ["`n`", "SQL", "found 1"]),
            (
                lambda: tumbling("10 minutes", event_time="ts", keys="n").agg(n="count(*)"),
                ["two columns", "`n`"],
            ),
            (lambda: TEN.agg(window_end="max(ts)"), ["`window_end`", "reserved"]),
        ],
    )
    def test_a_definition_that_cannot_work_is_refused(
        self, make: Callable[[], object], facts: list[str]
    ) -> None:
        """What cannot work is refused where it is written."""
        assert says(refusal(make), *facts)


SHAPES: dict[str, Windows] = {
    "tumbling": tumbling("10 minutes", event_time="ts", start_time="3 minutes"),
    "sliding": sliding("10 minutes", every="5 minutes", event_time="ts"),
    "uneven": sliding("10 minutes", every="3 minutes", event_time="ts"),
    "session": session("4 minutes", event_time="ts"),
    "dynamic": session(
        event_time="ts", dynamic_gap="CASE word WHEN 'owl' THEN '2 minutes' ELSE gap END"
    ),
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

    def test_append_mode_writes_the_windows_that_are_over(self, source: Sourced) -> None:
        """The windows that a stream appends are those of the batch that its watermark is past."""
        events = source(shuffled(7))

        def together(frame: DataFrame) -> DataFrame:
            delay = timedelta(minutes=20)
            delayed = {
                kind: attrs.evolve(shape, keys=("word",), watermark_delay=delay)
                for kind, shape in SHAPES.items()
            }
            return union(
                (kind, each.agg(n="count(*)", last="max(ts)").apply(frame))
                for kind, each in delayed.items()
            )

        run = finished(together(events.events()))
        batch = together(events.batch()).where("window_end <= '2024-03-10 14:10:00'")

        assert plain(batch.collect()) == rows(run)
        assert 8 < min(Counter(row[0] for row in rows(run)).values())
        assert "2024-03-10T18:10:00.000Z" == run.query.recentProgress[-1]["eventTime"]["watermark"]

    def test_update_mode_writes_the_windows_of_the_batch_last(self, source: Sourced) -> None:
        """In update mode the last row of each window and key is that of the batch."""
        events = source(shuffled(8))
        delay = timedelta(minutes=20)
        windows = attrs.evolve(SHAPES["sliding"], watermark_delay=delay)
        counts = counted(windows).output_mode("update")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            frame = counts.apply(events.events())
        run = finished(frame, counts.mode)
        last = {row[:3]: row for batch in run.batches for row in batch}

        assert plain(counts.apply(events.batch()).collect()) == plain([*last.values()])
        assert 2 == run.of_operator("numRowsTotal")[-1], "windows leave the state"

    def test_complete_mode_writes_all_windows_of_the_batch_in_the_end(
        self, source: Sourced
    ) -> None:
        """In complete mode the last micro-batch writes all windows of the batch."""
        events = source(shuffled(9)[:3])
        counts = counted(SHAPES["session"]).output_mode("complete")
        with pytest.warns(UserWarning, match="for each key and window, forever"):
            run = finished(counts.apply(events.events()), counts.mode)

        assert sorted(counts.apply(events.batch()).collect()) == sorted(run.batches[-1])

    def test_keys_window_and_aggregates_are_columns_of_the_top_level(
        self, events: FileStream
    ) -> None:
        """Keys, window and aggregates are columns of the top level, in both."""
        counts = counted(LATE).with_window_time()
        kinds = ["string", "timestamp", "timestamp", "timestamp", "bigint"]

        for frame in (counts.apply(events.events()), counts.apply(events.batch())):
            assert list(zip(counts.columns, kinds, strict=True)) == frame.dtypes

    def test_a_name_may_hold_what_spark_takes_for_syntax(self, events: FileStream) -> None:
        """A name may hold what Spark takes for syntax."""
        names = {"ts": "event.time", "word": "a`b"}
        odd = tumbling(
            "10 minutes", event_time="event.time", watermark_delay="5 minutes", keys="a`b"
        )
        counts = odd.agg(**{"count (all)": "count(*)"})

        assert counts.apply(events.events().withColumnsRenamed(names)).isStreaming
        found = counts.apply(events.batch().withColumnsRenamed(names)).collect()
        assert ("dog", "12:00", "12:10", 3) == plain(found)[0]


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
    COUNTS = session(
        event_time="ts", dynamic_gap="gap", keys="word", watermark_delay="5 minutes"
    ).agg(n="count(*)")

    def test_rows_without_a_positive_gap_are_in_no_session(self, source: Sourced) -> None:
        """Rows without a positive gap are in no session, and no counter shows them."""
        events = source(self.FILES)
        run = finished(self.COUNTS.apply(events.events()))

        assert [("grows", "12:00", "12:05", 2)] == rows(run)
        assert 0 == sum(run.of_operator("numRowsDroppedByWatermark"))

    REJECTED = (
        ("negative", "the gap is zero or negative"),
        ("null", "the gap is null, or an interval that Spark can't parse"),
        ("short", "the gap is null, or an interval that Spark can't parse"),
        ("untimed", "`ts` is null"),
        ("zero", "the gap is zero or negative"),
    )

    def test_rows_without_a_positive_gap_are_returned_with_the_reason(
        self, source: Sourced
    ) -> None:
        """`rejected` returns those rows with the reason, of a batch and of a stream."""
        events = source(self.FILES)
        batch = self.COUNTS.rejected(events.batch()).select("word", "reason")
        stream = self.COUNTS.rejected(events.events()).select("word", "reason")

        assert [*self.REJECTED] == plain(batch.collect())
        assert [*self.REJECTED] == rows(finished(stream))

    def test_fixed_windows_reject_only_rows_without_an_event_time(self, events: FileStream) -> None:
        """Of fixed windows, only rows without an event time are rejected."""
        frame = events.batch().withColumn("ts", F.expr("CASE WHEN word = 'dog' THEN ts END"))

        assert [("owl", "`ts` is null")] == plain(
            counted(TEN).rejected(frame).select("word", "reason").collect()
        )


class TestWatermark:
    """The watermark must be on the column of the windows, once, and before the aggregation."""

    def test_a_watermark_other_than_that_of_the_frame_is_refused(self, events: FileStream) -> None:
        """A delay other than that of the frame, or another column, is refused."""
        stream = events.events().withColumn("seen", F.col("ts"))
        for column, declared in (("ts", "on `ts` with a delay of 1 hour"), ("seen", "on `seen`")):
            text = refusal(counted(LATE).apply, stream.withWatermark(column, "1 hour"))
            assert says(text, "already declared", declared)

    def test_a_watermark_that_the_frame_has_is_used(self, events: FileStream) -> None:
        """A watermark that the frame has on the column is used; the definition may repeat it."""
        declared = events.events().withWatermark("ts", "5 minutes")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = finished(
                union((name, counted(each).apply(declared)) for name, each in LATE_OR_NONE.items())
            )

        for name in LATE_OR_NONE:
            own = [row[1:] for row in rows(run) if row[0] == name]
            assert [("dog", "12:00", "12:10", 3), ("dog", "12:40", "12:50", 1)] == own[:2]
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
    def test_a_state_that_grows_forever_is_warned_of(
        self, source: Sourced, definition: WindowedAggregation, reason: str
    ) -> None:
        """The warning names the reason, the growth and what to change; no late row is dropped."""
        events = source([[("12:30", "dog")], [("12:31", "dog")], [("12:01", "dog")]])
        with pytest.warns(UserWarning, match="for each key and window, forever") as caught:
            frame = definition.apply(events.events())
        run = finished(frame, definition.mode)
        [warned] = [each for each in caught if each.category is UserWarning]
        text = str(warned.message)

        assert says(text, reason, "one row for each key and window, forever", "Hint: ")
        assert __file__ == warned.filename
        assert [1, 1, 2] == run.of_operator("numRowsTotal")
        assert ("dog", "12:00", "12:10", 1) == plain(run.batches[-1])[0]


class TestColumns:
    """The time column must be a timestamp, and what is named must be there."""

    def test_a_missing_column_is_named_with_those_that_are_there(self, events: FileStream) -> None:
        """A column that is missing is named, with those that are there."""
        text = refusal(attrs.evolve(TEN, keys=("Word",)).agg(n="count(*)").apply, events.batch())
        assert says(text, "`Word`", "ts, word, gap", "`word`")
        at = counted(tumbling("1 hour", event_time="at"))
        assert says(refusal(at.rejected, events.batch()), "`at`", "ts, word, gap")


class TestWindowsOverWindows:
    """A second aggregation on the windows of the first one."""

    FIRST = counted(LATE).with_window_time()
    SECOND = tumbling("30 minutes", event_time="window_time", keys="word").agg(total="sum(n)")

    @pytest.fixture(name="long")
    def _long(self, source: Sourced) -> FileStream:
        ends = [[("18:00", "end")], [("19:00", "end")]]
        files = [[("12:01", "dog"), ("12:12", "dog")], [("12:25", "owl"), ("12:41", "dog")], *ends]
        return source(files)

    @pytest.mark.nightly
    def test_windows_of_windows_on_a_stream_are_those_of_a_batch(self, long: FileStream) -> None:
        """Windows or sessions of windows, and windows of sessions, are those of a batch."""
        of_windows = session("20 minutes", event_time="window_time", keys="word").agg(
            total="sum(n)"
        )
        sessions = session("5m", event_time="ts", watermark_delay="5m", keys="word").agg(
            n="count(*)"
        )

        def together(frame: DataFrame) -> DataFrame:
            counts = self.FIRST.apply(frame)
            second = self.SECOND.apply(sessions.with_window_time().apply(frame))
            return union(
                (kind, found.select("word", "window_start", "window_end", "total"))
                for kind, found in (
                    ("windows", self.SECOND.apply(counts)),
                    ("sessions of windows", of_windows.apply(counts)),
                    ("windows of sessions", second),
                )
            )

        run = finished(together(long.events()))

        assert [
            ("sessions of windows", "dog", "12:09:59.999999", "12:39:59.999999", 2),
            ("sessions of windows", "dog", "12:49:59.999999", "13:09:59.999999", 1),
            ("sessions of windows", "end", "18:09:59.999999", "18:29:59.999999", 1),
            ("sessions of windows", "owl", "12:29:59.999999", "12:49:59.999999", 1),
            *(
                (kind, *row)
                for kind in ("windows of sessions", "windows")
                for row in (
                    ("dog", "12:00", "12:30", 2),
                    ("dog", "12:30", "13:00", 1),
                    ("end", "18:00", "18:30", 1),
                    ("owl", "12:00", "12:30", 1),
                )
            ),
        ] == rows(run)
        batch = together(long.batch()).where("window_end < '2024-03-10 15:00:00'")
        assert plain(batch.collect()) == rows(run)

    def test_a_watermark_on_the_result_of_an_aggregation_is_refused(self, long: FileStream) -> None:
        """A watermark on the result of an aggregation is refused, of the frame or declared here."""
        first = counted(LATE).apply(long.events())
        hour = tumbling("1 hour", event_time="window_end")
        renamed = self.FIRST.apply(long.events()).withColumnRenamed("window_time", "ts")
        for counts, frame in (
            (counted(attrs.evolve(hour, watermark_delay=timedelta(minutes=5))), first),
            (counted(hour), first.withWatermark("window_end", "5 minutes")),
            (counted(LATE), renamed.withWatermark("ts", "1 hour")),
        ):
            assert says(refusal(counts.apply, frame), "watermark", "after an aggregation", "1970")

    def test_a_stream_may_be_joined_to_a_table_that_is_an_aggregation(
        self, events: FileStream
    ) -> None:
        """A table that is an aggregation itself makes no chain of what it is joined to."""
        totals = events.batch().groupBy("word").agg(F.count("*").alias("total"))
        joined = events.events().join(totals, "word").withWatermark("ts", "5 minutes")

        assert counted(TEN).apply(joined).isStreaming
