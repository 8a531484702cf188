"""Deduplication: what is refused, when a stream forgets, and that a batch keeps the same rows."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    KeyState,
    KeyTimes,
    NoTimeout,
    SessionSpec,
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
from tests.support.refusals import refusal, says
from tests.support.steps import Source, TimedRow, running

SECOND = 1_000
DELAY_MS = 10 * SECOND
NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
BY_KEY = drop_duplicates_by_key("id", event_time="ts", unbounded_state=True)
BY_KEY_AND_TIME = drop_duplicates_by_key_and_time(
    "id", event_time="ts", watermark_delay="10 seconds"
)
WITHIN = drop_duplicates_within("10 seconds", keys="id", event_time="ts")
RULES = {"key": BY_KEY, "key and time": BY_KEY_AND_TIME, "within": WITHIN}


@pytest.fixture(name="source")
def _source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "in")


class TestRefused:
    """Each mistake has its own words, before anything starts."""

    @pytest.mark.parametrize(
        ("make", "facts"),
        [
            (lambda: drop_duplicates_by_key("id"), ["forever", "220 bytes", "unbounded_state"]),
            (lambda: drop_duplicates_by_key((), unbounded_state=True), ["`keys`", "no column"]),
            (
                lambda: drop_duplicates_within("0 seconds", keys="id", event_time="ts"),
                ["`watermark_delay`", "'0 seconds'"],
            ),
            (
                lambda: drop_duplicates_by_key_and_time(
                    "id", event_time="ts", watermark_delay="1500us"
                ),
                ["`watermark_delay`", "whole milliseconds", "'1500us'"],
            ),
        ],
    )
    def test_a_deduplication_that_cannot_work_is_refused(self, make: Any, facts: list[str]) -> None:
        """A definition that cannot work, or that would keep state forever, does not exist."""
        assert says(refusal(make), *facts)

    def test_columns_that_do_not_fit_are_refused(self, source: Source) -> None:
        """Columns that do not fit are refused, on a stream and on a batch."""
        source.put(("a", SECOND, 1))
        for frame, rule in product((source.stream(), source.batch()), RULES.values()):
            for changed, facts in (
                (frame.drop("id"), ["`id`", "missing"]),
                (frame.drop("ts"), ["`ts`", "missing"]),
                (frame.withColumn("id", F.lit(1.5)), ["`id`", "double"]),
                (frame.withColumn("id", F.struct(F.array(F.lit(1.5)))), ["`id`", "double"]),
            ):
                assert says(refusal(rule.apply, changed), *facts)

    @pytest.mark.parametrize("rule", [BY_KEY_AND_TIME, WITHIN], ids=["key and time", "within"])
    @pytest.mark.parametrize(("column", "delay"), [("ts", "11 seconds"), ("again", "10 seconds")])
    def test_a_watermark_other_than_that_of_the_definition_is_refused(
        self, source: Source, rule: Deduplication, column: str, delay: str
    ) -> None:
        """A watermark of another column or delay than the definition's is refused."""
        frame = source.stream().withColumn("again", F.col("ts"))

        text = refusal(rule.apply, declare_watermark(frame, column, delay))

        assert says(text, f"`{column}` with {delay}", "`ts` with 10 seconds")


class TestStream:
    """When a stream forgets a key, to the millisecond."""

    def test_a_key_without_a_time_is_never_forgotten(self, source: Source, tmp_path: Path) -> None:
        """It never does: state grows with every key."""
        source.put(("a", SECOND, 1), ("b", SECOND, 2))
        with running(BY_KEY.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            source.put(("a", 10**9, 3), ("c", 10**9, 4))
            steps.run()

            assert [1, 2, 4] == steps.values
            assert 3 == steps.state_rows()

    def test_a_key_is_forgotten_when_the_watermark_reaches_its_time(
        self, source: Source, tmp_path: Path
    ) -> None:
        """A key is forgotten when the watermark reaches its event time; without one, never."""
        time_ms = 100 * SECOND
        source.put(("a", time_ms, 1), ("a", time_ms, 1), ("a", time_ms + 1, 2), ("n", None, 3))
        with running(BY_KEY_AND_TIME.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            for behind_ms in (-1, 0, 1):
                source.put((f"mover {behind_ms}", time_ms + behind_ms + DELAY_MS, 9))
                steps.run()
                # The first one comes, then one goes for each that comes.
                assert 4 == steps.state_rows()
            source.put(("n", None, 4))
            steps.run()

            assert [1, 2, 3, 9, 9, 9] == steps.values

    def test_a_key_is_forgotten_when_the_watermark_is_a_delay_past_it(
        self, source: Source, tmp_path: Path
    ) -> None:
        """
        A key is forgotten when the watermark reaches its first event time + delay.

        A repeat up to the delay after the first is never kept: it is a repeat, or late. Rows
        without a key are one key; a row without a time is forgotten at once.
        """
        first = 100 * SECOND
        second = first + 2 * DELAY_MS
        firsts = {"a": first - 1, "b": first, "c": first + 1, "d": first, None: first}
        source.put(*((key, time, 1) for key, time in firsts.items()), ("untimed", None, 1))
        with running(WITHIN.apply(source.stream()), tmp_path / "checkpoint") as steps:
            steps.run()
            moves_no_expiry = ("a", first + DELAY_MS, 2)
            source.put(moves_no_expiry, (None, first + SECOND, 2), ("untimed", None, 2))
            steps.run()
            source.put(("mover", second, 3))
            steps.run()
            late = ("d", first + DELAY_MS, 4)
            source.put(*((key, second, 4) for key in "abc"), late, ("d", late[1] + 1, 5))
            steps.run()

            assert 1 == steps.dropped()
            kept = [(row["id"], row["value"]) for row in steps.rows if row["value"] > 1]
            assert {("untimed", 2), ("mover", 3), ("a", 4), ("b", 4), ("d", 5)} == {*kept}
            assert [1] * 6 + [2, 3, 4, 4, 5] == steps.values

    def test_the_definition_declares_the_watermark_and_takes_an_equal_one(
        self, source: Source
    ) -> None:
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

    def test_a_row_is_kept_more_than_the_delay_after_the_last_one_kept(
        self, source: Source
    ) -> None:
        """A row is kept where it is the first, or more than the delay after the last one kept."""
        rows = random_rows(0)
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
    def test_the_earliest_row_of_a_key_is_kept(
        self, source: Source, rule: Deduplication, group: Any
    ) -> None:
        """The earliest row of a key is kept, of these the smallest by content."""
        rows = random_rows(7)
        source.put(*rows)
        first: dict[Any, TimedRow] = {}
        for row in sorted(rows, key=lambda r: (r[1] is None, r[1] or 0, r[2])):
            first.setdefault(group(row), row)

        found = collected(rule.apply(source.batch().repartition(3)))

        assert sorted(map(repr, first.values())) == found

    def test_the_smallest_row_is_kept_where_no_event_time_is_named(self, source: Source) -> None:
        """Where no event time is named, the smallest row by content is kept."""
        source.put(("a", 2 * SECOND, 1), ("a", SECOND, 2), ("a", SECOND, 1))
        rule = drop_duplicates_by_key("id", unbounded_state=True)

        assert [repr(("a", SECOND, 1))] == collected(rule.apply(source.batch()))

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_columns_of_any_name_and_type_go_through(
        self, source: Source, rule: Deduplication
    ) -> None:
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


def repeated_within(seed: int) -> list[TimedRow]:
    """
    Return rows in an order in which none is late; repeats of a key lie within the delay.

    Those of `equal` keys have one event time and come later, those of `later` ones do not.
    """
    random = Random(seed)
    arriving = []
    for kind, number in product(("equal", "later"), range(120)):
        time = random.randrange(1, 60 * SECOND)
        for copy in range(random.randrange(1, 5)):
            own = time if kind == "equal" else min(time + 3 * SECOND * copy, time + DELAY_MS)
            jitter = random.randrange(DELAY_MS) if kind == "equal" else 0
            arriving.append((own + jitter, (f"{kind} {number}", own, number)))
    return [row for _, row in sorted(arriving)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_stream_and_a_batch_keep_the_same_rows(source: Source, tmp_path: Path, seed: int) -> None:
    """Where the repeats of a key lie within the delay; all of `later` ones need `within`."""
    rows = repeated_within(seed)
    borders = sorted(Random(seed).sample(range(1, len(rows)), 3))
    for start, end in zip([0, *borders], [*borders, len(rows)], strict=True):
        source.put(*rows[start:end])

    def together(frame: DataFrame) -> DataFrame:
        equal = frame.where("id LIKE 'equal %'")
        found = {name: rule.apply(equal) for name, rule in RULES.items()}
        found["later"] = WITHIN.apply(frame.where("id LIKE 'later %'"))
        named = (rows.withColumn("rule", F.lit(name)) for name, rows in found.items())
        return reduce(DataFrame.unionByName, named)

    with running(together(source.stream()), tmp_path / "checkpoint") as steps:
        steps.run()

        assert 0 == steps.dropped()
        found = [(row["rule"], row["id"], row["value"], row["ts"]) for row in steps.rows]
    assert {**dict.fromkeys(RULES, 120), "later": 120} == Counter(rule for rule, *_ in found)
    batch = together(source.batch()).withColumn("ts", F.unix_millis("ts")).collect()
    in_batch = [(row["rule"], row["id"], row["value"], row["ts"]) for row in batch]
    # Which of several times a stream keeps depends on the order within a micro-batch.
    assert {row[: 3 if row[0] == "later" else 4] for row in in_batch} == {
        row[: 3 if row[0] == "later" else 4] for row in found
    }


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


def sent(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of three events, of which two are the same, in a micro-batch each."""
    source = Source(spark, folder)
    noon, later = int(NOON.timestamp()) * SECOND, 2 * 3_600 * SECOND
    for row in (("x", noon, 1), ("x", noon, 1), ("y", noon + later, 2)):
        source.put(row)
    return source.stream()


@pytest.mark.nightly
def test_a_deduplication_without_a_watermark_may_come_before_sessions(
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
    events = BY_KEY.apply(sent(spark, tmp_path)).withColumn("user", F.lit("ann"))
    rows = last_rows(sessionize(events, spec), "unique_sessions")

    assert [["x"]] == [row.ids for row in rows]


def test_a_deduplication_with_a_watermark_may_come_before_a_spec_without_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark refuses a second watermark in a query, and this spec declares none."""
    spec = StatefulSpec(process=keep, keys={"user": str}, timeout=NoTimeout())
    stream = sent(spark, tmp_path)
    unique = BY_KEY_AND_TIME.apply(stream).withColumn("user", F.lit("ann"))
    unique = unique.union(WITHIN.apply(stream).withColumn("user", F.lit("bob")))
    rows = last_rows(apply_with_state(unique, spec), "unique_events")

    expected = [(user, ids) for user in ("ann", "bob") for ids in (["x"], ["x", "y"])]
    assert expected == sorted((row.user, row.ids) for row in rows)
