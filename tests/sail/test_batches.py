"""What a batch on Sail gives: types, aggregates, options of specs, and what is refused there."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    KeyState,
    KeyTimes,
    Memory,
    NoTimeout,
    Session,
    SessionRules,
    SessionSpec,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit._engine.wire.packing import FIRST_COLUMN
from sessionkit.addons import presets
from sessionkit.addons.report import report
from sessionkit.errors import NotPicklableError, SessionkitError, UnsupportedError
from sessionkit.spark import (
    MemoryTable,
    apply_with_state,
    bootstrap,
    read_state,
    sessionize,
    sessions,
    start_query,
)
from sessionkit.spark._grouping import BUCKET
from sessionkit.spark._sail import is_sail
from sessionkit.spark.dedup import drop_duplicates_by_key, drop_duplicates_within
from sessionkit.spark.jobs.frames import COUNTS, output_columns, packed
from sessionkit.spark.jobs.run import BUCKETS_OF_A_BATCH
from sessionkit.spark.watermarks import declare_watermark, guard_future
from sessionkit.spark.windows import tumbling
from tests.support.batches import frame_of, told_by_driver, told_by_engine
from tests.support.every_type import (
    EVERYTHING,
    SINGLE,
    every_type,
    expected,
    expected_single,
    shown,
)
from tests.support.fragile_specs import Fragile, Page, fragile
from tests.support.spark_settings import changed

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCHEMA = pa.schema(
    {"user": pa.string(), "ts": pa.timestamp("us", "UTC"), "page": pa.string(), "n": pa.int64()}
)


def rows(number: int = 200) -> list[dict[str, Any]]:
    """Make views of a few users, within two days, each in a minute of its own."""
    random = Random(7)
    return [
        {
            "user": random.choice("abcde"),
            "ts": NOON + minute * MINUTE,
            "page": random.choice(["/", "/shoes", "/thanks"]),
            "n": place,
        }
        for place, minute in enumerate(random.sample(range(2_001), number))
    ]


@pytest.fixture(name="frame", scope="module")
def _frame(spark: SparkSession) -> DataFrame:
    return frame_of(spark, pa.Table.from_pylist(rows(), SCHEMA))


def test_the_engine_is_told_from_spark(spark: SparkSession) -> None:
    """By what it says of itself, since `spark.version` is that of a Spark."""
    assert spark.version >= "3.5"
    assert is_sail(spark)


# -- what is right --------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_every_type_comes_back_as_it_was(spark: SparkSession, zone: str) -> None:
    """Nulls in nested values, decimals, durations and instants too, in any zone of the session."""
    with changed(spark, {"spark.sql.session.timeZone": zone}):
        frame = frame_of(spark, every_type())
        assert expected() == shown(sessionize(frame, EVERYTHING).collect())
        assert expected_single() == shown(sessionize(frame, SINGLE).collect(), SINGLE.result)


@pytest.mark.parametrize("with_rejected", [False, True])
def test_times_of_rows_are_in_the_zone_of_the_session(
    spark: SparkSession, *, with_rejected: bool
) -> None:
    """So functions of Spark and `show` see the local time, whatever zone the events came in."""
    with changed(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}):
        frame = frame_of(spark, pa.Table.from_pylist(rows(1), SCHEMA))
        of = sessions(
            frame, keys="user", event_time="ts", gap="1 hour", with_rejected=with_rejected
        )
        found = of.agg(at=agg.first("ts"), all=agg.collect("ts"))
        hours = [F.hour(name) for name in ("session_start", "last_event_time", "at")]

        wanted = (rows(1)[0]["ts"] + timedelta(hours=5, minutes=30)).hour

        assert (wanted,) * 4 == tuple(found.select(*hours, F.hour(F.col("all")[0])).collect()[0])


PRESETS = {
    "ga4": presets.ga4(),
    "posthog": presets.posthog(),
    "snowplow": presets.snowplow(),
    "snowplow unified": presets.snowplow_unified(),
    "amplitude": presets.amplitude("mobile"),
    "cut": SessionRules("1 hour", max_duration="2 hours", midnight="America/New_York"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_rules_cut_as_on_the_driver(frame: DataFrame, name: str) -> None:
    """Those of products, and rules of one's own."""
    rules = PRESETS[name]
    order: Any = "event_time" if rules.in_order else "arrival"
    spec = SessionSpec.aggregate(
        Page,
        {"pages": agg.count(), "last": agg.last("page"), "numbers": agg.collect("n")},
        keys={"user": str},
        event_time="ts",
        timeout=rules,
        watermark_delay="1 hour",
        order=order,
    )
    values = ["pages", "last", "numbers"]

    assert told_by_driver(rows(), spec, values) == told_by_engine(frame, spec, values)


@attrs.define
class Past:
    visits: int = 0


@attrs.define
class Visit:
    pages: list[str] = attrs.field(factory=list)
    before: int = 0

    def update(self, view: Page) -> None:
        self.pages.append(view.page)

    def finish(self, session: Session[Any, Past]) -> "Visit":
        return Visit(self.pages, session.memory.visits if session.memory else 0)


def remember(session: Session[Any, Past], visit: Visit) -> Past:
    return Past((session.memory or Past()).visits + 1)


def test_sessions_remember_those_before_them(frame: DataFrame) -> None:
    """In order of time, functions find what the last session left."""
    spec = SessionSpec.of(
        Visit,
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="1 hour",
        order="event_time",
        memory=Memory(time_to_live="30 days", remember=remember),
    )
    values = ["pages", "before"]

    found = told_by_engine(frame, spec, values)

    assert told_by_driver(rows(), spec, values) == found
    assert any("('before', 5)" in row for row in found)


def test_each_event_gets_its_session(frame: DataFrame) -> None:
    """With its number, beginning at 1, in order of time."""
    found = sessions(frame, keys="user", event_time="ts", gap="30 minutes").events().collect()

    assert 200 == len(found)
    assert {*range(200)} == {row.n for row in found}
    by_session: dict[str, list[tuple[int, datetime]]] = {}
    for row in found:
        by_session.setdefault(row.session_id, []).append((row.number, row.ts))
    for own in by_session.values():
        assert [*range(1, len(own) + 1)] == [number for number, _ in sorted(own)]
        assert sorted(time for _, time in own) == [time for _, time in sorted(own)]


def total(key: object, events: list[Page], state: KeyState[Any], times: KeyTimes) -> Page:
    return Page(max(event.page for event in events), sum(event.n for event in events))


def test_state_per_key_runs_as_a_batch(frame: DataFrame) -> None:
    """Once for each key, with all of its events."""
    spec = StatefulSpec(
        keys={"user": str}, event=Page, state=Page, result=Page, process=total, timeout=NoTimeout()
    )

    found = apply_with_state(frame, spec).collect()

    assert {row.user: row.n for row in found} == {
        user: sum(row["n"] for row in rows() if row["user"] == user) for user in "abcde"
    }


def test_windows_and_duplicates_of_a_batch(frame: DataFrame) -> None:
    """Those of Spark's own operators, checked and named by us."""
    windows = tumbling("1 day", keys="user", event_time="ts").agg(n=F.count("*")).apply(frame)
    found = {(row.user, row.window_start.date()): row.n for row in windows.collect()}
    wanted: dict[Any, int] = {}
    for row in rows():
        place = row["user"], row["ts"].date()
        wanted[place] = wanted.get(place, 0) + 1
    assert wanted == found

    by_key = drop_duplicates_by_key("user", event_time="ts", unbounded_state=True).apply(frame)
    first = {user: min(r["ts"] for r in rows() if r["user"] == user) for user in "abcde"}
    assert first == {row.user: row.ts.replace(tzinfo=UTC) for row in by_key.collect()}

    within = drop_duplicates_within("1 hour", keys="user", event_time="ts").apply(frame)
    kept: dict[str, list[datetime]] = {}
    for row in sorted(rows(), key=lambda row: row["ts"]):
        own = kept.setdefault(row["user"], [])
        if not own or row["ts"] - own[-1] > timedelta(hours=1):
            own.append(row["ts"])
    assert sum(map(len, kept.values())) == within.count()


def test_an_event_from_the_future_is_quarantined(spark: SparkSession) -> None:
    """By the clock of the batch, and a guard moves its time aside."""
    far = {"user": "z", "ts": datetime(2200, 1, 1, tzinfo=UTC), "page": "/", "n": 1}
    frame = frame_of(spark, pa.Table.from_pylist([*rows(3), far], SCHEMA))
    of = sessions(frame, keys="user", event_time="ts", gap="1 hour", with_rejected=True)

    (row,) = of.agg(n=agg.count()).where("kind = 'quarantined'").collect()

    assert "too far in the future" in row.reason
    assert 1 == guard_future(frame, "ts").where("quarantined_time IS NOT NULL").count()
    assert 4 == declare_watermark(frame, "ts", "1 hour").count()


def test_a_frame_without_rows_has_no_sessions(frame: DataFrame, spark: SparkSession) -> None:
    """Nor has one whose partitions are nearly all empty any more than its rows say."""
    of: dict[str, Any] = {"keys": "user", "event_time": "ts", "gap": "30 minutes"}
    whole = sessions(frame, **of).agg(n=agg.count())

    assert [] == sessions(frame.where("n < 0"), **of).agg(n=agg.count()).collect()
    spread = sessions(frame.repartition(64), **of).agg(n=agg.count())
    assert sorted(map(tuple, whole.collect())) == sorted(map(tuple, spread.collect()))


def test_names_of_columns_may_have_dots(frame: DataFrame) -> None:
    """The event time, and columns that nobody reads; a key or a field may not, on any engine."""
    odd = frame.select("user", "n", F.col("ts").alias("at.time"), F.col("page").alias("page.url"))
    wanted = sessions(frame, keys="user", event_time="ts", gap="30 minutes").agg(n=agg.sum("n"))
    found = sessions(odd, keys="user", event_time="at.time", gap="30 minutes").agg(n=agg.sum("n"))

    assert sorted(map(tuple, wanted.collect())) == sorted(map(tuple, found.collect()))


def test_a_hot_key_comes_in_portions(spark: SparkSession) -> None:
    """1,200,000 events of one key, which the engine folds in two portions, are cut as ever."""
    number = 1_200_000
    times = F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("id") * 1_000_000)
    gap = F.when(F.col("id") >= number // 2, F.expr("interval 1 hour")).otherwise(
        F.expr("interval 0 hours")
    )
    frame = spark.range(number).select(
        F.lit("hot").alias("user"), (times + gap).alias("ts"), F.col("id").alias("n")
    )

    found = sessions(frame.orderBy(F.rand(1)), keys="user", event_time="ts", gap="30 minutes")

    assert [(number // 2, 0), (number // 2, number // 2)] == sorted(
        (row.events, row.first)
        for row in found.agg(events=agg.count(), first=agg.first("n")).collect()
    )


def test_rows_are_written_and_reported(frame: DataFrame, tmp_path: Path) -> None:
    """As Parquet, which the report reads, and from the frame itself."""
    found = sessions(frame, keys="user", event_time="ts", gap="30 minutes").agg(pages=agg.count())
    found.write.mode("overwrite").parquet(str(tmp_path / "visits"))

    report(found, out=tmp_path / "frame.html")
    report(str(tmp_path / "visits"), out=tmp_path / "files.html")

    written = pq.read_table(tmp_path / "visits")
    assert 200 == sum(written["pages"].to_pylist())
    assert (tmp_path / "frame.html").stat().st_size > 10_000
    assert (tmp_path / "files.html").stat().st_size > 10_000


def test_a_function_that_raises_says_where(frame: DataFrame) -> None:
    """The message of the function is in the error; under `reject`, its event is a row."""
    with pytest.raises(Exception, match="no thanks"):
        sessionize(frame, fragile()).collect()

    failed = sessionize(frame, fragile(on_error="reject"), with_rejected=True)
    assert (
        sum(row["page"] == "/thanks" for row in rows()) == failed.where("kind = 'failed'").count()
    )


def test_a_part_of_a_batch_ends_at_an_instant(frame: DataFrame) -> None:
    """`until` leaves out later events, and sessions that may go on."""
    until = NOON + 1_000 * MINUTE
    spec = SessionSpec.aggregate(
        Page, {"n": agg.count()}, keys={"user": str}, event_time="ts", gap="30 minutes",
        watermark_delay="1 hour",
    )  # fmt: skip

    found = sessionize(frame, spec, until=until).collect()

    assert found
    assert max(row.session_end.replace(tzinfo=UTC) for row in found) < until


def test_a_sort_that_the_engine_drops_is_noticed(frame: DataFrame) -> None:
    """Sail takes out a sort before `mapInArrow`: the wrong sessions would come without a word."""
    spec = fragile(on_error="reject")
    worker = Worker(logic_of(spec))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.packed_partition(batches, 0)

    packs = packed(
        frame.repartition(8), spec, spec.storage.buckets * BUCKETS_OF_A_BATCH
    ).repartition(BUCKET)
    ordered = packs.sortWithinPartitions(BUCKET, FIRST_COLUMN)
    with pytest.raises(Exception, match="the engine has dropped the sort by bucket"):
        ordered.mapInArrow(run, f"{output_columns(worker)}, {COUNTS}").collect()


# -- what is refused ------------------------------------------------------------------------------


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    pq.write_table(pa.Table.from_pylist(rows(3), SCHEMA), folder / "a.parquet")
    return spark.readStream.schema("user string, ts timestamp, page string, n long").parquet(
        str(folder)
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda stream: sessions(stream, keys="user", event_time="ts", gap="1h"),
        lambda stream: sessionize(stream, fragile()),
        lambda stream: start_query(stream, sink=MemoryTable("x"), trigger="availableNow"),
        lambda stream: drop_duplicates_within("1 hour", keys="user", event_time="ts").apply(stream),
        lambda stream: (
            tumbling("1 day", keys="user", event_time="ts").agg(n=F.count("*")).apply(stream)
        ),
        lambda stream: declare_watermark(stream, "ts", "1 hour"),
    ],
)
def test_a_stream_is_refused(
    spark: SparkSession, tmp_path: Path, call: Callable[[DataFrame], Any]
) -> None:
    """Before it starts, in our words: Sail has no state between micro-batches."""
    stream = stream_of(spark, tmp_path)
    with pytest.raises(UnsupportedError, match="is a stream, and Sail keeps no state") as refused:
        call(stream)
    assert "\n\nHint: read a batch" in str(refused.value)


def test_a_frame_in_a_function_is_joined_before(frame: DataFrame) -> None:
    """It has a session, which pickles there and which no worker has."""

    def finish(session: Any, state: Fragile) -> Fragile:
        return Fragile(frame.count())

    with pytest.raises(NotPicklableError, match="uses `frame`, a DataFrame") as refused:
        sessionize(frame, fragile(finish=finish))
    assert "\n\nHint: join what it needs to" in str(refused.value)


def test_counts_of_a_batch_are_refused(frame: DataFrame) -> None:
    """Sail observes no metrics, so there are none; rejected rows can be counted themselves."""
    with pytest.raises(UnsupportedError, match="Sail observes no metrics") as refused:
        sessionize(frame, fragile(), observation=Observation("counts"))
    assert "counted by `kind`" in str(refused.value)


def test_state_of_streams_is_refused(frame: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    """Neither a seed for a stream nor what a checkpoint holds can be had there."""
    with pytest.raises(SessionkitError, match="Sail"):
        bootstrap(frame, fragile(), NOON, tmp_path / "seed")
    with pytest.raises(SessionkitError, match="Sail"):
        read_state(tmp_path, fragile(), spark=spark)
