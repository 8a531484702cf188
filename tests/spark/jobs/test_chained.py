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

from sessionkit import Counts, Results, SchemaError, SessionkitError, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.errors import StateError, UnsupportedError
from sessionkit.spark import (
    Files,
    MemoryTable,
    batch_counts,
    bootstrap,
    check_checkpoint,
    erase_key,
    migrate,
    read_erasures,
    read_state,
    sessionize,
    start_query,
    state_changes,
)
from sessionkit.spark.checkpoints.inspecting import inspected
from sessionkit.spark.dedup import drop_duplicates_within
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
SINCE = pytest.mark.since_spark("4.0.2", "carries_watermark=True needs Spark 4.0.2 or later")


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
    results=Results(carries_watermark=True),
)
PLAIN: Any = attrs.evolve(VIEWS, results=Results())


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
LATE = table_of(["too late"], [NOON - timedelta(hours=1)])


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
            if not self.spec.results.carries_watermark:
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
        """What the same operators give for a batch of the files, without what is late or last."""
        events = self.spark.read.schema(COLUMNS).parquet(f"{self.folder}/in")
        events = events.where("user NOT IN ('too late', 'the end')")
        return sorted(self.follow(sessionize(events, self.spec)).collect())


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


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """A query with a window and a deduplication, stopped after a file."""
    query = Query(spark, tmp_path_factory.mktemp("begun"), in_windows)
    query.put(views(0))
    query.run()
    return query


@SINCE
@pytest.mark.long
def test_what_is_stored_is_checked(begun: Query) -> None:
    """Behind the state of the operators that follow, too; a spec of another kind is refused."""
    spark, checkpoint = begun.spark, begun.folder / "checkpoint"

    told = [*inspected(str(checkpoint), VIEWS, spark=spark)]

    assert "the spec    may go on from here" == told[-1]
    assert any("open sessions" in line for line in told)
    with pytest.raises(StateError, match="`carries_watermark` is"):
        check_checkpoint(checkpoint, PLAIN, spark=spark)
    with pytest.raises(UnsupportedError, match="`carries_watermark` lets others follow"):
        check_checkpoint(checkpoint, VIEWS, deep=True, spark=spark)
    with pytest.raises(UnsupportedError, match="`carries_watermark` lets others follow"):
        state_changes(checkpoint, VIEWS, since=-1, spark=spark)


@pytest.mark.nightly
@SINCE
def test_a_window_and_a_deduplication_follow(begun: Query) -> None:
    """
    Their rows are those of the batch, and none is dropped.

    The state of sessions is read behind theirs. After a restart a micro-batch runs again, and an
    event is late: it's counted, and in no row.
    """
    checkpoint = begun.folder / "checkpoint"
    last = max(int(commit.name) for commit in (checkpoint / "commits").glob("[0-9]*"))
    stored = read_state(checkpoint, VIEWS, spark=begun.spark)
    for commit in (checkpoint / "commits").glob(f"*{last}*"):
        commit.unlink()
    begun.put(pa.concat_tables([views(1), LATE]), END)
    progress = begun.run()
    counts = sum(map(batch_counts, progress[1:]), Counts())

    assert {one.key.user for one in stored} <= {f"u{number}" for number in range(6)}
    assert stored
    assert begun.of_batch == begun.rows
    assert last == progress[0]["batchId"]
    assert 0 == dropped(progress)
    assert (14, 13, 1) == (counts.events, counts.processed, counts.late)


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
        PLAIN,
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
    results=Results(carries_watermark=True),
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
    keys, batch = events.select("user"), spark.range(0)
    with changed(spark, {PROVIDER: ROCKSDB}):
        joined = sessionize(events, VIEWS).join(keys, "user")
        rows = sessionize(events, VIEWS)
        timed = rows.withWatermark("session_end", "1 hour")
        windows = tumbling("1 minute", event_time="session_end").agg(n="count(*)").apply(rows)
        once = drop_duplicates_within("1 minute", keys="n", event_time="window_end")
        refused: dict[str, Callable[..., Any]] = {
            "the spec's own goes on": partial(
                start_query, timed, sink=TABLE, trigger="availableNow"
            ),
            "add .with_window_time() to the windows": partial(once.apply, windows),
            "call .with_window_time() on windows": partial(
                start_query,
                windows.dropDuplicatesWithinWatermark(["n"]),
                sink=TABLE,
                trigger="availableNow",
            ),
            "a join of two streams": partial(
                start_query, joined, sink=TABLE, trigger="availableNow"
            ),
            "`with_rejected`": partial(sessionize, events, VIEWS, with_rejected=True),
            "`erase`": partial(sessionize, events, VIEWS, erase=keys),
            "`lengths`": partial(sessionize, events, LISTED),
            "`seed`": partial(bootstrap, batch, VIEWS, NOON, "no seed"),
        }
        for name, make in refused.items():
            assert says(refusal(make), name)
            assert len(refusal(make)) <= 300
        again = sessionize(events, VIEWS).selectExpr("user", "session_end AS ts", "landing AS page")
        with pytest.raises(SchemaError, match="a watermark is already declared"):
            sessionize(again, VIEWS)
    with pytest.raises(
        SessionkitError, match="carries_watermark=True needs RocksDB as the state store"
    ):
        sessionize(events, VIEWS)


@pytest.mark.parametrize("ask", [read_erasures, partial(erase_key, key="u1")])
def test_a_key_that_no_query_would_erase_is_refused(ask: Callable[..., Any]) -> None:
    """Or else a request would be kept that nothing reads."""
    assert says(refusal(ask, "checkpoint", VIEWS), "`erase` doesn't go with `carries_watermark`")


@pytest.mark.parametrize(("old", "new"), [(PLAIN, VIEWS), (VIEWS, PLAIN)])
def test_no_state_goes_to_or_from_the_default_operator(old: Any, new: Any) -> None:
    """What follows would miss the sessions that have closed before."""
    with pytest.raises(StateError, match="`carries_watermark` is"):
        migrate("checkpoint", old, new, "no seed")


@attrs.frozen
class Session:
    """A session of Spark, as far as the check looks at it."""

    version: str


class RemoteSession(Session):
    """A session of Spark Connect, as far as the check looks at it."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("older", "needed"),
    [
        (Session("4.0.1"), "Spark 4.0.2 or later, and"),
        (RemoteSession("4.0.5"), "Spark 4.1 or later on Connect"),
    ],
)
def test_an_older_spark_is_refused(older: Any, needed: str) -> None:
    """It lacks the operator, or loses bytes of large state."""
    with pytest.raises(UnsupportedError, match=f"carries_watermark=True needs {needed}") as refused:
        check_operator(older, VIEWS)
    assert "in a second query" in str(refused.value)
