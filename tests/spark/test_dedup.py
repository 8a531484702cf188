"""Deduplication: what is refused, when a stream forgets, and that a batch keeps the same rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    KeyState,
    KeyTimes,
    NoTimeout,
    SchemaError,
    SessionSpec,
    SpecError,
    StatefulSpec,
)
from sessionkit.spark import MemoryTable, apply_with_state, sessionize, start_query
from sessionkit.spark.dedup import (
    Deduplication,
    drop_duplicates_by_key,
    drop_duplicates_by_key_and_time,
    drop_duplicates_within,
)
from sessionkit.spark.watermarks import Watermark, declare_watermark, declared_watermarks
from tests.support.steps import Source, TimedRow, running
from tests.support.streams import write_files

SECOND = 1_000
DELAY_MS = 10 * SECOND
BY_KEY = drop_duplicates_by_key("id", on="ts", unbounded_state=True)
BY_KEY_AND_TIME = drop_duplicates_by_key_and_time("id", on="ts", delay="10 seconds")
WITHIN = drop_duplicates_within("10 seconds", by="id", on="ts")
EVERY = pytest.mark.parametrize(
    "rule", [BY_KEY, BY_KEY_AND_TIME, WITHIN], ids=["key", "key and time", "within"]
)


@pytest.fixture(name="source")
def _source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "in")


class TestRefused:
    """Each mistake has its own words, before anything starts."""

    @pytest.mark.parametrize(
        ("make", "found", "hint"),
        [
            (
                lambda: drop_duplicates_by_key("id"),
                "must keep one row for each key, forever: about 220 bytes",
                "confirm with unbounded_state=True",
            ),
            (
                lambda: drop_duplicates_by_key((), unbounded_state=True),
                "`by` names no column",
                "by='id' or by=('id', 'source')",
            ),
            (
                lambda: drop_duplicates_within("0 seconds", by="id", on="ts"),
                "`delay` must be longer than zero, found '0 seconds'",
                "30 minutes",
            ),
            (
                lambda: drop_duplicates_by_key_and_time("id", on="ts", delay="1500us"),
                "`delay` must be whole milliseconds, found '1500us'",
                "round it up",
            ),
        ],
    )
    def test_definition(self, make: Any, found: str, hint: str) -> None:
        """A definition that cannot work, or that would keep state forever, does not exist."""
        with pytest.raises(SpecError) as caught:
            make()

        assert found in str(caught.value)
        assert hint in str(caught.value).partition("Hint: ")[2]

    @EVERY
    @pytest.mark.parametrize(
        ("change", "found", "hint"),
        [
            (lambda f: f.drop("id"), "the key `id` is missing; the frame has ", "rename a column"),
            (lambda f: f.drop("ts"), "the event time `ts` is missing", "rename a column"),
            (
                lambda f: f.withColumn("id", F.lit(1.5)),
                "the key `id` is a double: equal values may differ",
                "cast it to decimal or string",
            ),
        ],
    )
    @pytest.mark.parametrize("kind", ["stream", "batch"])
    def test_columns(
        self, source: Source, rule: Deduplication, *, kind: str, change: Any, found: str, hint: str
    ) -> None:
        """Columns that do not fit are refused, on a stream and on a batch."""
        source.put(("a", SECOND, 1))
        frame = source.stream() if kind == "stream" else source.batch()

        with pytest.raises(SchemaError) as caught:
            rule.apply(change(frame))

        assert found in str(caught.value)
        assert hint in str(caught.value).partition("Hint: ")[2]

    @pytest.mark.parametrize("rule", [BY_KEY_AND_TIME, WITHIN], ids=["key and time", "within"])
    @pytest.mark.parametrize(("column", "delay"), [("ts", "11 seconds"), ("again", "10 seconds")])
    def test_other_watermark(
        self, source: Source, rule: Deduplication, column: str, delay: str
    ) -> None:
        """A watermark of another column or delay than the definition's is refused."""
        frame = source.stream().withColumn("again", F.col("ts"))

        with pytest.raises(SchemaError) as caught:
            rule.apply(declare_watermark(frame, column, delay))

        found = f"a watermark on `{column}` with {delay}, but this is defined on `ts` with 10 seco"
        assert found in str(caught.value)
        assert "Hint: remove declare_watermark, or use" in str(caught.value)


class TestStream:
    """When a stream forgets a key, to the millisecond."""

    def test_by_key(self, source: Source, tmp_path: Path) -> None:
        """It never does: state grows with every key."""
        source.put(("a", SECOND, 1), ("b", SECOND, 2))
        with running(BY_KEY.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("a", 10**9, 3), ("c", 10**9, 4))
            steps.run()

            assert [1, 2, 4] == steps.values
            assert 3 == steps.state_rows()

    def test_by_key_and_time(self, source: Source, tmp_path: Path) -> None:
        """A key is forgotten when the watermark reaches its event time."""
        time_ms = 100 * SECOND
        source.put(("a", time_ms, 1), ("a", time_ms, 1), ("a", time_ms + 1, 2))
        with running(BY_KEY_AND_TIME.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            for behind_ms in (-1, 0, 1):
                source.put((f"mover {behind_ms}", time_ms + behind_ms + DELAY_MS, 9))
                steps.run()
                # The first one comes, then one goes for each that comes.
                assert 3 == steps.state_rows()

            assert [1, 2, 9, 9, 9] == steps.values

    def test_within(self, source: Source, tmp_path: Path) -> None:
        """A key is forgotten when the watermark reaches its first event time + delay."""
        first = 100 * SECOND
        keys = {"a": first - 1, "b": first, "c": first + 1}
        source.put(*((key, time, 1) for key, time in keys.items()))
        with running(WITHIN.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("a", first + DELAY_MS, 3))  # moves no expiry
            steps.run()
            source.put(("mover", first + 2 * DELAY_MS, 9))
            steps.run()
            source.put(*((key, first + 2 * DELAY_MS, 4) for key in keys))
            steps.run()

            kept = sorted((row["id"], row["value"]) for row in steps.rows if row["value"] == 4)
            assert [("a", 4), ("b", 4)] == kept
            assert [1, 1, 1, 4, 4, 9] == steps.values

    def test_within_is_at_least(self, source: Source, tmp_path: Path) -> None:
        """A repeat up to the delay after the first is never kept: it is a repeat, or late."""
        first = 100 * SECOND
        source.put(("a", first, 1))
        with running(WITHIN.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("mover", first + 2 * DELAY_MS, 9))
            steps.run()
            source.put(("a", first + DELAY_MS, 3), ("a", first + DELAY_MS + 1, 4))
            steps.run()

            assert [1, 4, 9] == steps.values
            assert 1 == steps.dropped()

    def test_nulls(self, source: Source, tmp_path: Path) -> None:
        """Rows without a key are one key; a row without a time is forgotten at once."""
        source.put((None, 100 * SECOND, 1), ("a", None, 2))
        with running(WITHIN.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put((None, 101 * SECOND, 3), ("a", None, 4))
            steps.run()

            assert [1, 2, 4] == steps.values

    def test_null_time_in_a_key(self, source: Source, tmp_path: Path) -> None:
        """Under key and time, a row without a time stays in state forever."""
        source.put(("a", None, 1), ("b", 100 * SECOND, 2))
        with running(BY_KEY_AND_TIME.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("c", 10**9, 3))
            steps.run()
            source.put(("a", None, 4))
            steps.run()

            assert [1, 2, 3] == steps.values
            assert 2 == steps.state_rows()

    def test_own_watermark(self, source: Source) -> None:
        """The definition declares the watermark, and takes an equal one that is there."""
        expected = (Watermark("ts", timedelta(seconds=10)),)
        declared = declare_watermark(source.stream(), "ts", "10s")

        assert expected == declared_watermarks(WITHIN.apply(source.stream()))
        assert expected == declared_watermarks(WITHIN.apply(declared))
        assert () == declared_watermarks(BY_KEY.apply(source.stream()))


def random_rows(seed: int) -> list[TimedRow]:
    """Return rows of many keys whose repeats are some seconds apart; some have no time or key."""
    random = Random(seed)
    rows: list[TimedRow] = []
    for number in range(150):
        time = random.randrange(60 * SECOND)
        for _ in range(random.randrange(1, 9)):
            time += random.choice([0, 1, SECOND, 5 * SECOND, DELAY_MS, DELAY_MS + 1])
            shown = None if random.random() < 0.05 else time
            rows.append((f"k{number}" if number else None, shown, random.randrange(4)))
    random.shuffle(rows)
    return rows


def naive(rows: list[TimedRow]) -> list[TimedRow]:
    """Return what a batch keeps within ten seconds, by the rule as it is written."""
    kept: dict[Any, TimedRow] = {}
    found = []
    for row in sorted(rows, key=lambda r: (r[1] is None, r[1] or 0, r[2])):
        key, time = row[0], row[1]
        last = kept.get((key, time is None))
        if last is None or (time is not None and time > (last[1] or 0) + DELAY_MS):
            kept[key, time is None] = row
            found.append(row)
    return found


def shown(rows: list[Row] | list[dict[str, Any]]) -> list[str]:
    """Return rows with times in milliseconds as sorted texts: nulls have no order."""
    return sorted(repr((row["id"], row["ts"], row["value"])) for row in rows)


def collected(frame: DataFrame) -> list[str]:
    """Return the rows of a batch as `shown` does."""
    return shown(frame.withColumn("ts", F.unix_millis("ts")).collect())


class TestBatch:
    """The row that a batch keeps is a matter of content alone."""

    @pytest.mark.parametrize("seed", range(2))
    def test_within(self, source: Source, seed: int) -> None:
        """A row is kept where it is the first, or more than the delay after the last one kept."""
        rows = random_rows(seed)
        source.put(*rows[:300])
        source.put(*rows[300:])
        expected = sorted(repr(row) for row in naive(rows))

        found = collected(WITHIN.apply(source.batch().repartition(3)))

        assert expected == found
        assert len(found) > 200, "some keys come again later than the delay"

    @pytest.mark.parametrize(
        ("rule", "group"),
        [
            (BY_KEY, lambda row: row[0]),
            (BY_KEY_AND_TIME, lambda row: row[:2]),
        ],
        ids=["key", "key and time"],
    )
    def test_earliest(self, source: Source, rule: Deduplication, group: Any) -> None:
        """The earliest row of a key is kept, of these the smallest by content."""
        rows = random_rows(7)
        source.put(*rows)
        first: dict[Any, TimedRow] = {}
        for row in sorted(rows, key=lambda r: (r[1] is None, r[1] or 0, r[2])):
            first.setdefault(group(row), row)

        found = collected(rule.apply(source.batch().repartition(3)))

        assert sorted(map(repr, first.values())) == found

    def test_without_time(self, source: Source) -> None:
        """Where no event time is named, the smallest row by content is kept."""
        source.put(("a", 2 * SECOND, 1), ("a", SECOND, 2), ("a", SECOND, 1))
        rule = drop_duplicates_by_key("id", unbounded_state=True)

        assert [repr(("a", SECOND, 1))] == collected(rule.apply(source.batch()))

    @EVERY
    def test_columns(self, source: Source, rule: Deduplication) -> None:
        """Columns of any name and type go through as they are, those without an order too."""
        source.put(("a", SECOND, 1), ("a", SECOND, 2))
        frame = source.batch().select(
            F.create_map(F.lit("value"), "value").alias("a map"),
            F.array(F.struct("value")).alias("dotted.name"),
            *("id", "ts"),
        )

        found = rule.apply(frame)

        assert frame.columns == found.columns
        assert frame.dtypes == found.dtypes
        assert [{"value": 1}] == [row["a map"] for row in found.collect()]


def repeated_within(seed: int, *, later_ms: int) -> list[TimedRow]:
    """Return rows in an order in which none is late; repeats of a key lie within the delay."""
    random = Random(seed)
    arriving = []
    for number in range(120):
        time = random.randrange(1, 60 * SECOND)
        for copy in range(random.randrange(1, 5)):
            own = min(time + copy * later_ms, time + DELAY_MS)
            jitter = random.randrange(DELAY_MS) if later_ms == 0 else 0
            arriving.append((own + jitter, (f"k{number}", own, number)))
    return [row for _, row in sorted(arriving)]


class TestStreamAndBatch:
    """One definition on both."""

    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
    @pytest.mark.parametrize(
        ("rule", "later_ms"),
        [(BY_KEY, 0), (BY_KEY_AND_TIME, 0), (WITHIN, 0), (WITHIN, 3 * SECOND)],
        ids=["key", "key and time", "within, equal", "within, later"],
    )
    def test_equal(
        self, source: Source, tmp_path: Path, rule: Deduplication, later_ms: int, seed: int
    ) -> None:
        """Where the repeats of a key lie within the delay, both keep the same rows."""
        rows = repeated_within(seed, later_ms=later_ms)
        borders = sorted(Random(seed).sample(range(1, len(rows)), 3))
        for start, end in zip([0, *borders], [*borders, len(rows)], strict=True):
            source.put(*rows[start:end])
        with running(rule.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()

            assert 0 == steps.dropped()
            assert 120 == len(steps.rows)
            by_key = {row["id"]: row["value"] for row in steps.rows}
        in_batch = {row["id"]: row["value"] for row in rule.apply(source.batch()).collect()}
        assert in_batch == by_key
        if later_ms == 0:
            assert collected(rule.apply(source.batch())) == shown(steps.rows)


# -- before a spec -------------------------------------------------------------------------------


@attrs.frozen
class Sent:
    id: str


@attrs.define
class Kept:
    ids: list[str] = attrs.field(factory=list)

    def update(self, event: Sent) -> None:
        self.ids.append(event.id)


def keep(key: Any, events: list[Sent], state: KeyState[Kept], times: KeyTimes) -> Iterator[Kept]:
    kept = state.get(Kept())
    state.set(Kept(kept.ids + [event.id for event in events]))
    yield state.get()


def last_rows(frame: DataFrame, table: str) -> list[Row]:
    """Return the rows of a query over all that there is."""
    query = start_query(frame, sink=MemoryTable(table), trigger="availableNow")
    query.awaitTermination()
    return frame.sparkSession.table(table).collect()


def unique_events(spark: SparkSession, folder: Path, rule: Deduplication) -> DataFrame:
    """Return a stream of three events, of which two are the same, in a micro-batch each."""
    at = datetime(2026, 3, 8, 12, tzinfo=UTC)
    rows = [("x", at), ("x", at), ("y", at + timedelta(hours=2))]
    columns = {"id": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "user": pa.string()}
    tables = [pa.table([[one], [when], ["ann"]], schema=pa.schema(columns)) for one, when in rows]
    write_files(folder, tables)
    reader = spark.readStream.schema("id string, ts timestamp, user string")
    return rule.apply(reader.option("maxFilesPerTrigger", 1).parquet(str(folder)))


def test_one_without_a_watermark_may_come_before_sessions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The watermark is then that of the spec alone."""
    spec = SessionSpec.of(
        Kept,
        keys={"user": str},
        event_time="ts",
        gap="1 minute",
        watermark_delay="1 minute",
        order="event_time",
    )
    rows = last_rows(sessionize(unique_events(spark, tmp_path, BY_KEY), spec), "unique_sessions")

    assert [["x"]] == [row.ids for row in rows]


@pytest.mark.parametrize("rule", [BY_KEY_AND_TIME, WITHIN], ids=["key and time", "within"])
def test_one_with_a_watermark_may_come_before_a_spec_without_one(
    spark: SparkSession, tmp_path: Path, rule: Deduplication
) -> None:
    """Spark refuses a second watermark in a query, and this spec declares none."""
    spec = StatefulSpec(process=keep, keys={"user": str}, timeout=NoTimeout())
    frame = apply_with_state(unique_events(spark, tmp_path, rule), spec)
    rows = last_rows(frame, f"unique_{rule.expiry}")

    assert [["x"], ["x", "y"]] == sorted(row.ids for row in rows)
