"""`start_query` refuses what cannot work before Spark starts, and starts what can."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit import EventTimeGap, SpecError, Storage
from sessionkit.errors import StateError
from sessionkit.spark.jobs.run import sessionize
from sessionkit.spark.query import Temporary, Trigger, _timing, start_query
from sessionkit.spark.sinks.values import (
    AtLeastOnce,
    AtLeastOncePerRow,
    Console,
    ExactlyOnce,
    Files,
    Kafka,
    MemoryTable,
)
from tests.support.queries import Events, windowed, with_state
from tests.support.session_specs import collecting

GAP, DELAY = timedelta(minutes=10), timedelta(minutes=20)
EVENT_TIME = GroupStateTimeout.EventTimeTimeout
PROCESSING_TIME = GroupStateTimeout.ProcessingTimeTimeout


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Events:
    return Events(spark, tmp_path_factory.mktemp("start")).write()


@pytest.fixture
def stream(events: Events) -> DataFrame:
    return events.stream()


def ignore(batch: DataFrame, batch_id: int) -> None:
    """Take a batch, and do nothing."""


def run(frame: DataFrame, **arguments: Any) -> StreamingQuery:
    """Start a query over all that there is, and wait for its end."""
    query = start_query(frame, trigger="availableNow", **arguments)
    query.awaitTermination()
    return query


def refusal(frame: DataFrame, **arguments: Any) -> tuple[str, str]:
    """Return the message and the hint with which a start is refused."""
    active = [query.id for query in frame.sparkSession.streams.active]
    with pytest.raises((SpecError, StateError)) as refused:
        start_query(frame, **{"trigger": "availableNow", "sink": Console(), **arguments})
    assert active == [query.id for query in frame.sparkSession.streams.active]
    message, _, hint = str(refused.value).partition("\n\nHint: ")
    return message, hint


# ---------------------------------------------------------------------------------- what is started


def test_files_are_written_once_over_restarts(stream: DataFrame, tmp_path: Path) -> None:
    """A query over files goes on from its checkpoint: a second start adds nothing."""
    out = tmp_path / "out"
    sink = Files("json", out, partition_by="key")
    for _ in range(2):
        run(stream, sink=sink, checkpoint=tmp_path / "checkpoint")

    assert [("a", 1)] == [
        (row.key, row.value) for row in stream.sparkSession.read.json(str(out)).collect()
    ]
    assert (out / "key=a").is_dir()


def test_a_name_that_a_query_of_the_session_has_is_refused(stream: DataFrame) -> None:
    """Spark itself ends with an error of Java."""
    query = start_query(stream, sink=MemoryTable("taken"), trigger="1 hour")
    message, hint = refusal(stream, sink=MemoryTable("taken"))
    query.stop()

    assert "a query with the name 'taken' runs already in this session of Spark" == message
    assert "stop it first, or pass another name=..." == hint


def test_other_sources_than_before_are_refused(events: Events, tmp_path: Path) -> None:
    """Spark ends the query with their numbers alone."""
    one, both = events.stream(), events.stream().union(events.stream())
    sink = Files("parquet", tmp_path / "out")
    run(one, sink=sink, checkpoint=tmp_path / "one")
    message, hint = refusal(both, sink=sink, checkpoint=str(tmp_path / "one"))

    assert f"{tmp_path / 'one'} is of a query with 1 sources" in message
    assert message.endswith("and the frame has 2")
    assert hint.startswith("a seed, a clock and erasures are sources too")


@pytest.mark.parametrize("name", ["/data/visits", "", None])
def test_a_format_is_a_name(name: Any) -> None:
    """The folder in its place is the second argument."""
    with pytest.raises(SpecError, match="Hint: it comes first"):
        Files(name, "parquet")


def test_a_temporary_checkpoint_begins_anew(stream: DataFrame, tmp_path: Path) -> None:
    """Each start with a temporary checkpoint sees the first row again."""
    seen = tmp_path / "seen"

    def write(batch: DataFrame, batch_id: int) -> None:
        with seen.open("a") as file:
            file.write(f"{batch_id}: {batch.count()}\n")

    for _ in range(2):
        run(stream, sink=AtLeastOnce(write), checkpoint=Temporary())

    assert "0: 1\n0: 1\n" == seen.read_text()


def test_foreach_gets_each_row(stream: DataFrame, tmp_path: Path) -> None:
    """The function is called on an executor with a row."""
    path = tmp_path / "rows"

    def write(row: Any) -> None:
        path.write_text(row.key)

    run(stream, sink=AtLeastOncePerRow(write), checkpoint=tmp_path / "checkpoint")

    assert path.read_text() == "a"


@pytest.mark.parametrize("writer", [3, None, "print", object()])
def test_a_sink_for_rows_takes_a_function_or_an_object_with_process(writer: Any) -> None:
    """It refuses anything else at once, not in Spark's words when the query starts."""
    with pytest.raises(SpecError, match="`writer` must be a function or an object with `process`"):
        AtLeastOncePerRow(writer)


def test_the_console_shows_rows(stream: DataFrame) -> None:
    """The console needs neither a name nor a checkpoint; options go to the sink."""
    query = run(stream, sink=Console(rows=3, truncate=False), name="shown", options={"x": 1})

    assert query.name == "shown"
    assert [1] == [progress.numInputRows for progress in query.recentProgress]


@pytest.mark.parametrize(
    ("trigger", "pause"),
    [
        ("30m", "1800000 milliseconds"),
        ("1 hour 30 minutes", "5400000 milliseconds"),
        (timedelta(seconds=90), "90000 milliseconds"),
        ("0 seconds", "0 milliseconds"),
    ],
)
def test_a_duration_is_read_before_spark_reads_it(trigger: Trigger, pause: str) -> None:
    """Spark gets milliseconds, which it cannot misread."""
    assert {"processingTime": pause} == _timing(trigger)


def test_the_conf_of_the_session_gives_a_checkpoint(stream: DataFrame, tmp_path: Path) -> None:
    """Where Spark's own conf names a folder, a name is enough to go on from."""
    spark = stream.sparkSession
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        run(stream, sink=AtLeastOnce(ignore), name="visits")
        message, _ = refusal(stream, sink=AtLeastOnce(ignore))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert (tmp_path / "visits" / "commits" / "0").exists()
    assert "AtLeastOnce needs a checkpoint" in message


def test_sessions_go_on_with_the_same_spec(events: Events, tmp_path: Path) -> None:
    """A restart with the spec of the checkpoint is started; one with another rule is not."""
    checkpoint = tmp_path / "checkpoint"
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(bucket_count=1))
    arguments = {"sink": Files("json", tmp_path / "out"), "checkpoint": checkpoint}
    frame = with_columns_of(spec, events)
    for _ in range(2):
        run(sessionize(frame, spec), spec=spec, **arguments)
    other = collecting(
        EventTimeGap(GAP * 2), watermark_delay=DELAY, storage=Storage(bucket_count=1)
    )
    message, hint = refusal(sessionize(frame, other), spec=other, **arguments)

    assert "was written under other rules" in message
    assert "gap" in message
    assert "seed = migrate(checkpoint, old_spec, new_spec, folder)" in hint


def with_columns_of(spec: Any, events: Events) -> DataFrame:
    """Return the events with the columns that a spec of the tests wants."""
    return events.stream().selectExpr(
        "key", "at", "value", "INTERVAL '0 00:10:00' DAY TO SECOND AS gap"
    )


# ---------------------------------------------------------------------------------- what is refused


def test_available_now_with_a_processing_time_timeout_is_refused(events: Events) -> None:
    """Such a query would never end."""
    message, hint = refusal(with_state(events.stream(), "append", PROCESSING_TIME))

    assert "the query would never end" in message
    assert "never end, with availableNow: with a processing-time timeout, Spark always" in message
    assert "use a trigger such as '1 minute'" in hint


def test_no_pause_with_a_processing_time_timeout_is_refused(events: Events) -> None:
    """Such a query would run batch after batch without rest; with a pause it is started."""
    frame = with_state(events.stream(), "append", PROCESSING_TIME)
    message, hint = refusal(frame, trigger="0 seconds")

    assert "the query would never rest" in message
    assert "use a trigger such as '1 minute'" in hint
    query = start_query(frame, sink=Console(), trigger="1 minute")
    query.stop()


@pytest.mark.parametrize(
    ("trigger", "said", "hinted"),
    [
        ("once", "or 'availableNow', found 'once'", "write trigger='availableNow'"),
        (
            "available_now",
            "or 'availableNow', found 'available_now'",
            "write trigger='availableNow'",
        ),
        ("soon", "`trigger` isn't a duration: 'soon'", "30 minutes"),
        ("1 month", "`trigger` must have a fixed length", "count in days"),
        ("500 us", "`trigger` must be whole milliseconds", "round it up"),
        (timedelta(0) - GAP, "`trigger` must be zero or longer than zero", "30 minutes"),
    ],
)
def test_a_trigger_that_is_none_is_refused(
    stream: DataFrame, trigger: Any, said: str, hinted: str
) -> None:
    """What Spark would misread, cut or not read at all is named."""
    message, hint = refusal(stream, trigger=trigger)

    assert said in message
    assert hinted in hint


@pytest.mark.parametrize("trigger", [{"realTime": "1 second"}, {}, 5])
def test_a_trigger_in_a_form_of_its_own_is_a_duration_or_nothing(trigger: Any) -> None:
    """What Spark's own trigger takes is none."""
    with pytest.raises(SpecError, match="`trigger` must be a timedelta or text"):
        _timing(trigger)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (Files("json", "/nowhere"), "Files needs a checkpoint"),
        (Kafka("127.0.0.1:1", "topic"), "Kafka needs a checkpoint"),
        (AtLeastOnce(ignore), "AtLeastOnce needs a checkpoint"),
        (AtLeastOncePerRow(print), "AtLeastOncePerRow needs a checkpoint"),
    ],
)
def test_a_sink_that_survives_a_restart_needs_a_checkpoint(
    stream: DataFrame, sink: Any, said: str
) -> None:
    """Without a checkpoint a restart would write every row again."""
    message, hint = refusal(stream.selectExpr("key AS value"), sink=sink)

    assert said in message
    assert "a restart writes every row again" in message
    assert "pass checkpoint=" in hint
    assert isinstance(sink, AtLeastOnce | AtLeastOncePerRow) == ("Temporary()" in hint)


def test_files_take_no_temporary_checkpoint(stream: DataFrame, tmp_path: Path) -> None:
    """Spark refuses such a query too, so the hint does not offer it."""
    sink = Files("json", tmp_path / "out")
    message, hint = refusal(stream, sink=sink, checkpoint=Temporary())

    assert "Files can't use a temporary checkpoint" in message
    assert "pass checkpoint=" in hint
    with pytest.raises(AnalysisException, match="checkpointLocation must be specified"):
        stream.writeStream.format("json").start(str(tmp_path / "out"))


def test_a_memory_table_of_complete_mode_goes_on(events: Events, tmp_path: Path) -> None:
    """It has the name of its query, and is written anew, so it can begin with an empty one."""
    arguments = {
        "sink": MemoryTable("whole"),
        "mode": "complete",
        "checkpoint": tmp_path / "checkpoint",
    }
    query = run(windowed(events.stream()), **arguments)

    assert query.name == "whole"
    assert [1] == [row["count"] for row in events.spark.table("whole").collect()]
    assert run(windowed(events.stream()), **arguments).exception() is None


@pytest.mark.parametrize(
    ("arguments", "said", "hinted"),
    [
        (
            {"sink": MemoryTable("a"), "name": "b"},
            "has the name of its query: 'a', not 'b'",
            "omit `name`",
        ),
        (
            {"sink": "console"},
            "`sink` must be a sink, found a str",
            "Files, Kafka, AtLeastOnce",
        ),
        ({"sink": Files("json", "/out", ["day"])}, "partition_by names `day`", "a column of the"),
        ({"options": {"Path": "/x"}}, "the option `Path` has an argument", "Files(path=...)"),
        ({"options": {"checkpointLocation": "/x"}}, "has an argument of its own", "checkpoint="),
        (
            {"sink": ExactlyOnce(print, print), "options": {"header": True}},
            "would ignore `header`",
            "Kafka(options=...)",
        ),
    ],
)
def test_a_sink_that_cannot_work_is_refused(
    stream: DataFrame, arguments: dict[str, Any], said: str, hinted: str
) -> None:
    """Each message names what is wrong with the sink, and its hint what to write."""
    message, hint = refusal(stream, **arguments)

    assert said in message
    assert hinted in hint


@pytest.mark.parametrize(
    ("make", "arguments", "facts"),
    [
        (lambda one: one.batch(), {}, ("`frame` is a batch", "readStream")),
        (lambda one: one.stream(), {"mode": "appnd"}, ("found 'appnd'", "leave it out")),
        (lambda one: one.stream(), {"mode": "complete"}, ("only an aggregation", "leave `mode`")),
        (
            lambda one: with_state(one.watermarked(), "append", EVENT_TIME),
            {"mode": "update"},
            ("mode='update' doesn't fit the frame: the rows of a spec", "leave `mode` out"),
        ),
        (
            lambda one: one.stream(),
            {"options": {"outputMode": "append"}},
            ("`outputMode` has an argument", "mode="),
        ),
        (
            lambda one: one.stream().union(one.watermarked()).withWatermark("at", "1 hour"),
            {},
            ("a watermark is declared on a frame that has one", "one that it is a union of"),
        ),
        (
            lambda one: (
                with_state(one.watermarked(), "append", EVENT_TIME)
                .withColumn("at", F.current_timestamp())
                .withWatermark("at", "1 hour")
            ),
            {},
            ("no row would ever come", "write the rows of each spec to a table"),
        ),
        (
            lambda one: (
                windowed(one.watermarked())
                .select(F.col("window.end").alias("at"))
                .withWatermark("at", "1 hour")
            ),
            {},
            ("no row would ever come", ".with_window_time()"),
        ),
        (
            lambda one: one.stream().dropDuplicatesWithinWatermark(["key"]),
            {},
            ("dropDuplicatesWithinWatermark reads rows without a watermark", ".with_window_time()"),
        ),
        (
            lambda one: windowed(one.stream()),
            {},
            ("an aggregation reads rows without a watermark", "declare_watermark"),
        ),
        (lambda one: one.stream(), {"checkpoint": "C:\\cp"}, ("is a path of Windows", "'/data")),
        (lambda one: one.stream(), {"sink": Files("parqet", "/o")}, ("'parqet'", "'parquet'")),
        (lambda one: one.stream(), {"sink": Files("delta", "/o")}, ("'delta'", "packages")),
        (
            lambda one: one.stream(),
            {"sink": Files("text", "/o")},
            ("text keeps neither nulls nor", "another"),
        ),
        (
            lambda one: windowed(one.watermarked()),
            {"sink": Files("csv", "/o")},
            ("csv can't hold `window`, a struct<", "write parquet"),
        ),
        (
            lambda one: one.stream().select("key", F.lit(1).alias("KEY")),
            {"sink": Files("parquet", "/o")},
            ("2 columns of the frame are called `key` or `KEY`", "drop one"),
        ),
    ],
)
def test_what_spark_finds_late_or_says_at_length_is_refused(
    events: Events,
    tmp_path: Path,
    make: Callable[[Events], DataFrame],
    arguments: dict[str, Any],
    facts: tuple[str, str],
) -> None:
    """In a few words, the cause first."""
    given = {"checkpoint": tmp_path / "checkpoint", "sink": MemoryTable("refused"), **arguments}
    message, hint = refusal(make(events), **given)

    assert facts[0] in message
    assert facts[1] in hint
    assert len(f"{message}\n\nHint: {hint}") <= 300


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("in", "in", "cp"), "would read its own rows in the folder"),
        (("in", "in/out", "cp"), "would read its own rows in the folder"),
        (("in", "file:in/../in/out/", "cp"), "would read its own rows in the folder"),
        (("i*", "in/out", "cp"), "would read its own rows in the folder"),
        (("in", "link/out", "cp"), "would read its own rows in the folder"),
        (("in", "out", "in/cp"), "which the query reads: it would take its files for events"),
        (
            ("in", "out", "out/cp"),
            "to which the query writes: readers would take its files for rows",
        ),
        (("in", "out", "out"), "to which the query writes"),
    ],
)
def test_a_folder_within_another_one_is_refused(
    events: Events, tmp_path: Path, folders: tuple[str, str, str], said: str
) -> None:
    """However the two are written; the query would read what it writes, or readers its logs."""
    source, out, checkpoint = folders
    folder = tmp_path / "a folder"
    schema = events.batch().schema
    events.batch().write.parquet(f"{folder}/in")
    (folder / "link").symlink_to(folder / "in")
    frame = events.spark.readStream.schema(schema).parquet(f"{folder}/{source}")
    start, _, rest = out.rpartition("file:")
    sink = Files("parquet", f"{start and 'file:'}{folder}/{rest}")
    message, hint = refusal(frame, sink=sink, checkpoint=folder / checkpoint)

    assert said in message
    assert "a folder outside of it" in hint


def test_a_checkpoint_that_readers_leave_out_is_taken(events: Events, tmp_path: Path) -> None:
    """Below a folder whose name begins with an underscore, as many keep it."""
    sink, checkpoint = Files("parquet", tmp_path / "out"), tmp_path / "out" / "_checkpoints" / "a"
    for _ in range(2):
        run(events.stream(), sink=sink, checkpoint=checkpoint)

    assert 1 == events.spark.read.parquet(str(tmp_path / "out")).count()


def test_a_checkpoint_in_use_by_another_session_is_refused(
    events: Events, stream: DataFrame, tmp_path: Path
) -> None:
    """Spark would stop the query that runs over the checkpoint and say nothing."""
    arguments: Any = {"sink": AtLeastOnce(ignore), "checkpoint": tmp_path / "checkpoint"}
    other = events.spark.newSession().readStream.schema(stream.schema).parquet(events.source)
    first = start_query(stream, trigger="0 seconds", **arguments)
    first.processAllAvailable()
    try:
        message, hint = refusal(other, **arguments)
        assert first.isActive
    finally:
        first.stop()

    assert "another session of this Spark is using the checkpoint" in message
    assert "stop that query first" in hint


def test_a_checkpoint_in_use_is_refused(stream: DataFrame, tmp_path: Path) -> None:
    """Spark would stop the query that runs over the checkpoint and say nothing."""
    arguments: dict[str, Any] = {
        "sink": AtLeastOnce(ignore),
        "checkpoint": tmp_path / "checkpoint",
    }
    first = start_query(stream, trigger="0 seconds", name="first", **arguments)
    first.processAllAvailable()
    try:
        message, hint = refusal(stream, **arguments)
        assert first.isActive
        writer = stream.writeStream.foreachBatch(ignore).trigger(availableNow=True)
        second = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        second.awaitTermination()
        assert not first.isActive
        assert first.exception() is None
    finally:
        first.stop()

    assert f"the query first is using the checkpoint {tmp_path}" in message
    assert "stop that query first" in hint
