"""Stateful operators of Spark after sessions, in the same query."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import Results, SessionSpec, UnsupportedError
from sessionkit import aggregates as agg
from sessionkit.errors import SchemaError, SessionkitError, StateMismatchError
from sessionkit.spark import (
    Files,
    MemoryTable,
    changed_sessions,
    check_checkpoint,
    open_sessions,
    sessionize,
    start_query,
)
from sessionkit.spark.jobs.transform_with_state import PROVIDER, ROCKSDB, check_operator
from sessionkit.spark.windows import tumbling
from tests.support.refusals import refusal, says
from tests.support.spark_settings import changed
from tests.support.streams import run_to_files, write_files

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
STEP, DELAY = timedelta(minutes=1), timedelta(seconds=30)
CHECK = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
COLUMNS = "user string, ts timestamp, page string"
SINCE = pytest.mark.since_spark("4.2", "chained=True needs Spark 4.2 or later")


@attrs.frozen
class View:
    """A page that a user has looked at."""

    page: str


VIEWS: Any = SessionSpec.aggregate(
    View,
    {"views": agg.count(), "landing": agg.first("page")},
    keys={"user": str},
    event_time="ts",
    gap="40 seconds",
    watermark_delay=DELAY,
    results=Results(chained=True),
)


def views(number: int) -> pa.Table:
    """Return the views of a minute: out of order by less than the delay, on whole seconds."""
    random = Random(number)
    seconds = [random.randrange(60) - random.randrange(30) for _ in range(12)]
    times = [NOON + number * STEP + timedelta(seconds=second) for second in seconds]
    users = [f"u{random.randrange(6)}" for _ in seconds]
    return table_of(users, times)


def table_of(users: Sequence[str], times: Sequence[datetime]) -> pa.Table:
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"user": users, "ts": at, "page": [f"/{user}" for user in users]})


END = table_of(["the end"], [NOON + timedelta(days=1)])
"""Closes all sessions and windows before it."""


@attrs.frozen
class Query:
    """A query whose rows operators follow; each run is a restart."""

    spark: SparkSession
    folder: Path
    follow: Callable[[DataFrame], DataFrame]
    spec: Any = VIEWS

    def put(self, *tables: pa.Table) -> None:
        there = len(list((self.folder / "in").glob("*.parquet")))
        write_files(self.folder / "in", tables, first=there)

    def run(self) -> Any:
        """Run all files, and the micro-batches without data; return their progress."""
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        with changed(self.spark, {PROVIDER: ROCKSDB}):
            frame = self.follow(sessionize(reader.parquet(f"{self.folder}/in"), self.spec))
            if not self.spec.results.chained:
                return run_to_files(frame, self.folder).recentProgress
            query = start_query(
                frame,
                sink=Files("parquet", f"{self.folder}/out"),
                trigger="availableNow",
                checkpoint=f"{self.folder}/checkpoint",
                spec=self.spec,
                tune=True,
            )
            query.awaitTermination()
            return query.recentProgress

    @property
    def rows(self) -> list[Row]:
        return sorted(self.spark.read.parquet(f"{self.folder}/out").collect())

    @property
    def of_batch(self) -> list[Row]:
        """What the same operators give for a batch of the files, without its last view."""
        events = self.spark.read.schema(COLUMNS).parquet(f"{self.folder}/in")
        return sorted(
            self.follow(sessionize(events.where("user <> 'the end'"), self.spec)).collect()
        )


def distinct(rows: DataFrame, *columns: str) -> DataFrame:
    """Drop duplicates; the state of a stream only remembers those of a while."""
    if rows.isStreaming:
        return rows.dropDuplicatesWithinWatermark([*columns])
    return rows.dropDuplicates([*columns])


def in_windows(rows: DataFrame) -> DataFrame:
    """Sum what sessions of a landing page have that end in a window, each sum of a window once."""
    window = F.window("session_end", "2 minutes")
    sums = rows.groupBy(window, "landing").agg(
        F.sum("views").alias("views"), F.count("*").alias("n")
    )
    return distinct(sums, "window", "views", "n").select("window.end", "views", "n")


def in_windows_of_windows(rows: DataFrame) -> DataFrame:
    """Count sessions in windows, and add up those in longer ones."""
    short = rows.groupBy(F.window("session_end", "1 minute")).agg(F.count("*").alias("n"))
    long = short.groupBy(F.window(F.window_time("window"), "5 minutes")).agg(F.sum("n").alias("n"))
    return long.select("window.end", "n")


def once_each(rows: DataFrame) -> DataFrame:
    """Leave sessions as they are: none is there twice."""
    return distinct(rows, "session_id")


@SINCE
def test_a_window_and_a_deduplication_follow(spark: SparkSession, tmp_path: Path) -> None:
    """In one query with a restart, their rows are those of the batch, and none is dropped."""
    query = Query(spark, tmp_path, in_windows)
    query.put(*map(views, range(2)))
    progress = query.run()
    query.put(views(2), END)
    progress += query.run()

    assert query.of_batch == query.rows
    assert 0 == dropped(progress)


def dropped(progress: Any) -> int:
    return sum(
        operator["numRowsDroppedByWatermark"]
        for one in progress
        for operator in one["stateOperators"]
    )


@SINCE
@pytest.mark.long
@pytest.mark.parametrize("follow", [in_windows, in_windows_of_windows, once_each])
def test_fifty_micro_batches_with_restarts_give_the_rows_of_the_batch(
    follow: Callable[[DataFrame], DataFrame], spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever follows: a window and a deduplication, a window of windows, a deduplication."""
    query, progress = Query(spark, tmp_path, follow), []
    for first in range(0, 50, 10):
        query.put(*map(views, range(first, first + 10)))
        progress += query.run()
    query.put(END)
    progress += query.run()

    assert query.of_batch == query.rows
    assert 0 == dropped(progress)


@SINCE
@pytest.mark.long
@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_a_session_that_ends_at_a_watermark_is_counted(
    edge: int, spark: SparkSession, tmp_path: Path
) -> None:
    """A millisecond before it, exactly then, and after it; a window may end just then too."""
    end = NOON + timedelta(minutes=2)
    first = end - timedelta(seconds=40) + timedelta(milliseconds=edge)
    query = Query(spark, tmp_path, in_windows)
    query.put(table_of(["a"], [first]), table_of(["b"], [end + DELAY]), END)
    query.run()

    assert query.of_batch == query.rows


@SINCE
def test_what_is_stored_is_read_and_checked(spark: SparkSession, tmp_path: Path) -> None:
    """Behind the state of the operators that follow, too; a spec of another kind is refused."""
    ends = tumbling("2 minutes", on="session_end").agg(n="count(*)").output_mode("append")
    query = Query(spark, tmp_path, ends.apply)
    query.put(views(0), views(1))
    query.run()
    checkpoint, plain = tmp_path / "checkpoint", attrs.evolve(VIEWS, results=Results())

    found = {one.key.user for one in open_sessions(checkpoint, VIEWS, spark=spark)}
    check_checkpoint(checkpoint, VIEWS, spark=spark)

    assert found
    assert found <= {f"u{number}" for number in range(6)}
    with pytest.raises(StateMismatchError, match="`chained` is"):
        check_checkpoint(checkpoint, plain, spark=spark)
    with pytest.raises(UnsupportedError, match="`chained` lets others follow"):
        check_checkpoint(checkpoint, VIEWS, deep=True, spark=spark)
    with pytest.raises(UnsupportedError, match="`chained` lets others follow"):
        changed_sessions(checkpoint, VIEWS, since=-1, spark=spark)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["min", "max"])
def test_the_default_operator_gives_a_window_its_rows_by_one_policy_alone(
    policy: str, spark: SparkSession, tmp_path: Path
) -> None:
    """With Spark's check off and a second watermark; under the policy that Spark has, none."""
    query = Query(
        spark,
        tmp_path,
        lambda rows: in_windows(rows.withWatermark("session_end", "0 seconds")),
        attrs.evolve(VIEWS, results=Results()),
    )
    query.put(*map(views, range(5)), END)
    with changed(spark, {CHECK: "false", POLICY: policy}):
        query.run()
    expected = query.of_batch if policy == "max" else []

    assert expected == query.rows


# -- what is refused --------------------------------------------------------------------------


@attrs.define
class Lengths:
    """A list of numbers, which crosses packed."""

    lengths: list[int] = attrs.field(factory=list)

    def update(self, view: View) -> None:
        self.lengths.append(len(view.page))


LISTED: Any = SessionSpec.of(
    Lengths,
    keys={"user": str},
    event_time="ts",
    gap="40 seconds",
    watermark_delay=DELAY,
    order="event_time",
    results=Results(chained=True),
)
TABLE = MemoryTable("after_sessions")


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> DataFrame:
    write_files(tmp_path / "in", [views(0)])
    return spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))


@SINCE
def test_what_would_drop_or_never_get_rows_is_refused(
    spark: SparkSession, events: DataFrame
) -> None:
    """A join of streams; and what gives other rows than final ones, or none of their times."""
    keys = events.select("user")
    with changed(spark, {PROVIDER: ROCKSDB}):
        joined = sessionize(events, VIEWS).join(keys, "user")
        refused: dict[str, Callable[..., Any]] = {
            "a join of two streams": partial(
                start_query, joined, sink=TABLE, trigger="availableNow"
            ),
            "`with_rejected`": partial(sessionize, events, VIEWS, with_rejected=True),
            "`erase`": partial(sessionize, events, VIEWS, erase=keys),
            "`lengths`": partial(sessionize, events, LISTED),
        }
        for name, make in refused.items():
            assert says(refusal(make), name)
        again = sessionize(events, VIEWS).selectExpr("user", "session_end AS ts", "landing AS page")
        with pytest.raises(SchemaError, match="a watermark is already declared"):
            sessionize(again, VIEWS)
    with pytest.raises(SessionkitError, match="chained=True needs RocksDB as the state store"):
        sessionize(events, VIEWS)


@attrs.frozen
class Session:
    """A session of Spark, as far as the check looks at it."""

    version: str


class RemoteSession(Session):
    """A session of Spark Connect, as far as the check looks at it."""

    __module__ = "pyspark.sql.connect.session"


def test_an_older_spark_is_refused() -> None:
    """It runs the operator, and nothing that follows was tried there; nor was it on Connect."""
    older: Any = Session("4.1.4")
    with pytest.raises(UnsupportedError, match=r"chained=True needs Spark 4.2 or later") as refused:
        check_operator(older, VIEWS)
    assert "in a second query" in str(refused.value)
    remote: Any = RemoteSession("4.3.0")
    with pytest.raises(UnsupportedError, match="on Spark Connect"):
        check_operator(remote, VIEWS)
