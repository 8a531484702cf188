"""Rows that cannot be events, functions that fail, and the counts that account for each."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit import Counts, EventTimeGap, Functions, Inputs, SchemaError, SessionSpec, Storage
from sessionkit._instants import micros_of
from sessionkit.errors import NotPicklableError
from sessionkit.spark import check_checkpoint, sessionize
from sessionkit.spark.dedup import drop_duplicates_within
from sessionkit.testing import SessionDriver
from tests.support.refusals import says
from tests.support.stateful_specs import ignore, summing
from tests.support.steps import finished, running
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@attrs.define
class Tick:
    """An event: a number that must be there, and one that may be missing."""

    amount: float
    note: str | None


@attrs.define
class Sum:
    amount: float
    notes: int


def create(key: Any, event: Tick) -> Sum:
    return Sum(event.amount, int(event.note is not None))


def update(state: Sum, event: Tick) -> Sum:
    state.amount += event.amount
    state.notes += int(event.note is not None)
    return state


def merge(left: Sum, right: Sum) -> Sum:
    return Sum(left.amount + right.amount, left.notes + right.notes)


def finish(session: Any, state: Sum) -> Sum:
    return state


def fail_on_unlucky(state: Sum, event: Tick) -> Sum:
    if event.amount == 13:
        message = "unlucky"
        raise ValueError(message)
    return update(state, event)


SUMS = SessionSpec(
    keys={"key": str},
    event_time="at",
    logic=Functions(
        event=Tick, state=Sum, result=Sum, create=create, update=update, merge=merge, finish=finish
    ),
    timeout=EventTimeGap("10 minutes"),
    watermark_delay="5 minutes",
    storage=Storage(bucket_count=2),
    inputs=Inputs(passthrough={"offset": int}),
)


def sums(**functions: Any) -> SessionSpec[Tick, Sum, Sum]:
    """Return the spec with some of its functions changed."""
    return attrs.evolve(SUMS, logic=attrs.evolve(SUMS.logic, **functions))


def ticks(*rows: tuple[str | None, datetime | int | None, float | None]) -> pa.Table:
    """Return rows as a file's table, numbered by `offset`; a time may be in microseconds."""
    keys, times, amounts = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
            "amount": pa.array(amounts, pa.float64()),
            "note": pa.array([None] * len(rows), pa.string()),
            "offset": pa.array(range(len(rows)), pa.int64()),
        }
    )


# No `datetime` is as early.
BEFORE_THE_YEAR_1 = micros_of(datetime.min.replace(tzinfo=UTC)) - 1
BAD = ticks(
    ("a", NOON, 1.0),
    (None, NOON, 2.0),
    ("a", None, 3.0),
    ("a", NOON, None),
    ("a", BEFORE_THE_YEAR_1, 5.0),
    ("a", datetime(2900, 1, 1, tzinfo=UTC), 6.0),
    ("b", NOON, float("nan")),
    (None, NOON + 30 * MINUTE, 8.0),
    ("a", NOON + 30 * MINUTE, None),
)
REASONS = [
    (1, "`key` is null"),
    (2, "its event time is null"),
    (3, "`event.amount` is null"),
    (4, "its event time is before the year 1"),
    (5, "its event time is too far in the future"),
    (7, "`key` is null"),
    (8, "`event.amount` is null"),
]


def test_a_stream_quarantines_and_counts_what_is_no_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """
    Bad rows are handed out with reason and passthrough columns, and move no watermark.

    So is an event over which a function fails; its session, which is stored by then, goes on.
    """
    spec = attrs.evolve(sums(update=fail_on_unlucky), on_error="reject")
    stream = FileStream(spark, spec, tmp_path, with_rejected=True)
    stream.put(
        pa.concat_tables([BAD, ticks(("e", NOON, 1.0))]),
        ticks(("c", NOON + 30 * MINUTE, 1.0), ("e", NOON + MINUTE, 13.0)),
        ticks(("d", NOON - MINUTE, 1.0)),
    )

    first, second, third, *_ = stream.run()

    assert Counts(events=10, processed=3, quarantined=7) == first
    assert Counts(events=2, processed=1, failed=1) == second
    assert Counts(events=1, late=1, sessions=3, rows=3) == third
    rejected = [row for row in stream.rows() if row.kind == "quarantined"]
    assert REASONS == sorted((row.offset, row.reason) for row in rejected)
    late = [row for row in stream.rows() if row.kind == "late"]
    assert [("d", 0, 1.0)] == [(row.key, row.offset, row.event.amount) for row in late]
    assert [id_on_the_driver("d", NOON - MINUTE, 1.0)] == [row.event_id for row in late]
    sessions = {row.key: row for row in stream.rows() if row.kind == "session"}
    assert (1.0, 0) == (sessions["a"].amount, sessions["a"].notes)
    assert sessions["b"].amount != sessions["b"].amount, "a NaN is a value, no null"
    assert 1.0 == sessions["e"].amount
    (failed,) = (row for row in stream.rows() if row.kind == "failed")
    assert ("e", NOON + MINUTE) == (failed.key, failed.event_time.astimezone(UTC))
    assert "raise ValueError(message)" in failed.traceback


def id_on_the_driver(key: str, time: datetime, amount: float) -> str | None:
    """Return by what the test driver knows an event, which it rejects."""
    driver = SessionDriver(attrs.evolve(sums(update=fail_on_unlucky), on_error="reject"))
    driver.add(key, time + 60 * MINUTE, Tick(amount, None))
    driver.run_batch()
    driver.add(key, time, Tick(amount, None))
    driver.run_batch()
    (rejection,) = driver.take_rejections("late")
    return rejection.event_id


@pytest.mark.since_spark("4.0", "Spark 3.5 reports no counts of a micro-batch without data")
def test_a_session_before_1970_closes_once_the_watermark_is_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its events are events; Spark's watermark stays at 0 for so long."""
    moon = datetime(1969, 7, 20, 20, 17, tzinfo=UTC)
    stream = FileStream(spark, SUMS, tmp_path, with_rejected=True)
    stream.put(
        ticks(("a", moon + 5 * MINUTE, 1.0)), ticks(("a", moon, 2.0)), ticks(("b", NOON, 3.0))
    )

    first, second, *rest = stream.run()

    assert [Counts(events=1, processed=1)] * 2 == [first, second]
    (session,) = [row for row in stream.rows() if row.kind == "session"]
    assert ("a", 3.0) == (session.key, session.amount)
    assert moon == session.session_start.astimezone(UTC)
    assert 1 == sum(one.sessions for one in rest)


@pytest.fixture(scope="module")
def bad(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FileStream:
    """The rows that cannot be events, in a file that no query reads."""
    stream = FileStream(spark, SUMS, tmp_path_factory.mktemp("bad"))
    stream.put(BAD)
    return stream


def test_a_function_that_raises_stops_the_query_with_its_name_key_and_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What reaches the driver names function and key, and keeps the user's traceback."""
    spec = sums(update=fail_on_unlucky)
    stream = FileStream(spark, spec, tmp_path)
    stream.put(ticks(("a", NOON, 1.0), ("a", NOON + MINUTE, 13.0)))

    with pytest.raises(StreamingQueryException) as caught:
        stream.run()

    text = str(caught.value)
    assert "`update` (" in text
    assert "fail_on_unlucky) raised ValueError: unlucky, for Key(key='a')" in text
    assert "raise ValueError(message)" in text
    assert "Hint: fix the function" in text
    lines = text.partition("Traceback (most recent call last):")[2].partition("`update` (")[0]
    assert 1 == lines.count("File ")


def test_the_output_can_be_shuffled(spark: SparkSession, tmp_path: Path) -> None:
    """A shuffle right after the stateful operator crashes on raw output, but not on ours."""
    stream = FileStream(spark, SUMS, tmp_path)
    stream.put(ticks(("a", NOON, 1.0), ("b", NOON, 1.0)), ticks(("a", NOON + 60 * MINUTE, 1.0)))
    sessions = stream.output().repartition(3).dropDuplicates(["session_id"])

    assert ["a", "b"] == sorted(row["key"] for row in finished(sessions).rows)


def twice(name: str) -> Any:
    """Join a frame to another one that has the column, too."""
    return lambda frame: frame.join(frame.sparkSession.range(1).selectExpr(f"id AS {name}"))


SCHEMA_CASES: list[tuple[Any, Any, str]] = [
    (twice("amount"), {}, "2 columns of the frame are called `amount`\n"),
    (twice("at"), {}, '.join(other, "at")'),
    (lambda f: f.select("*", F.lit("b").alias("KEY")), {}, "called `key` or `KEY`"),
    (lambda f: f.drop("amount"), {}, "the column `amount` (Tick.amount) is missing"),
    (lambda f: f.withColumnRenamed("at", "AT"), {}, "Hint: write it `AT`"),
    (
        lambda f: f.withColumn("amount", F.col("amount").cast("string")),
        {},
        "`Tick.amount` is declared float, but the column is string",
    ),
    (lambda f: f.withColumn("at", F.col("at").cast("timestamp_ntz")), {}, "timestamp_ntz"),
    (lambda f: f.withColumn("at", F.unix_micros("at")), {}, "must be a timestamp, found bigint"),
    (lambda f: f.withColumn("key", F.lit(1.5)), {}, "a float can't be a key"),
    (
        lambda f: f,
        {"inputs": Inputs(nulls="refuse")},
        "may be null, and the spec says nulls='refuse'",
    ),
]


@pytest.mark.parametrize(("change", "options", "text"), SCHEMA_CASES)
def test_columns_that_do_not_fit_are_refused_on_the_driver(
    bad: FileStream, change: Any, options: dict[str, Any], text: str
) -> None:
    """Each misfit has its own words, before any job starts."""
    with pytest.raises(SchemaError) as caught:
        sessionize(change(bad.batch()), attrs.evolve(SUMS, **options))

    assert text in str(caught.value)
    assert "Hint:" in str(caught.value)


def test_a_null_that_is_refused_says_what_may_be_done(bad: FileStream) -> None:
    """A field may be Optional; a key may be filled; an event time can only be there or not."""
    frame = bad.batch()
    filled = frame.withColumn("key", F.coalesce("key", F.lit("?")))
    strict = attrs.evolve(SUMS, inputs=Inputs(nulls="refuse"))

    with pytest.raises(SchemaError) as refused:
        sessionize(filled, strict)
    by_path = dict(
        line.strip().split(" may be null") for line in str(refused.value).splitlines()[1:3]
    )
    assert {"`at` (event_time)", "`amount` (Tick.amount)"} == {*by_path}
    assert "Optional" not in str(refused.value)
    assert "`... | None`" not in by_path["`at` (event_time)"]
    assert "declare the field `... | None`" in by_path["`amount` (Tick.amount)"]

    with pytest.raises(SchemaError, match=r'or fill it first, such as F.coalesce\("key", '):
        sessionize(frame, strict)


def test_all_misfits_are_named_at_once(bad: FileStream) -> None:
    """One error names every column."""
    frame = bad.batch().drop("amount", "note").withColumn("key", F.lit(1.5))

    with pytest.raises(SchemaError) as caught:
        sessionize(frame, SUMS)

    assert "3 columns don't fit" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (SUMS, "Inputs(drop_duplicates_for=...)"),
        (summing(event=Tick, process=ignore), "be a query of its own"),
        (
            summing(
                event=Tick, process=ignore, watermark_delay=None, storage=Storage(layout="pages")
            ),
            "be a query of its own",
        ),
    ],
)
def test_a_deduplication_before_says_what_to_write(bad: FileStream, spec: Any, hint: str) -> None:
    """It needs its watermark, so the hint isn't to remove it alone."""
    within = drop_duplicates_within("10 minutes", keys="key", event_time="at")

    with pytest.raises(SchemaError, match="a watermark is already declared, on `at`") as refused:
        attrs.evolve(bad, spec=spec, shape=within.apply).output()
    assert hint in str(refused.value)


def test_what_does_not_pickle_is_named(bad: FileStream, tmp_path: Path) -> None:
    """The message names the function's role and the variable that it closes over."""
    connection = (tmp_path / "log").open("w", encoding="utf-8")

    def log(session: Any, state: Sum) -> Sum:
        connection.write("closed")
        return state

    with connection, pytest.raises(NotPicklableError) as caught:
        sessionize(bad.batch(), sums(finish=log))

    assert "`finish`" in str(caught.value)
    assert "`connection`, a TextIOWrapper" in str(caught.value)


def test_a_frame_in_a_function_is_joined_before(bad: FileStream) -> None:
    """Also where a function that the function calls uses it; a session of Spark is no other."""
    frame, spark = bad.batch(), bad.spark

    def count() -> int:
        return frame.count()

    def finish(session: Any, state: Sum) -> Sum:
        return Sum(count(), 0)

    def look(session: Any, state: Sum) -> Sum:
        return Sum(spark.table("prices").count(), 0)

    for function, used in ((finish, "`frame`, a DataFrame"), (look, "`spark`, a SparkSession")):
        with pytest.raises(NotPicklableError) as caught:
            sessionize(bad.batch(), sums(finish=function))
        assert says(str(caught.value), "`finish` (", f"uses {used}", "Hint: join what it needs to")
        assert len(str(caught.value)) <= 300


@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_the_checkpoint_of_another_query_is_refused(bad: FileStream, tmp_path: Path) -> None:
    """A checkpoint that sessionkit did not write is named as such."""
    counts = bad.events().withWatermark("at", "1 hour").groupBy(F.window("at", "1 hour")).count()
    with running(counts, tmp_path) as steps:
        steps.run()

    with pytest.raises(Exception, match="was not written by sessionkit"):
        check_checkpoint(str(tmp_path), SUMS, spark=bad.spark)
