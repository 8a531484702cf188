"""What is written as text is read back as what it was, or it is refused."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sessionkit.spark import Files, Kafka, Routes, start_query
from sessionkit.spark.sinks.texts import check_messages, check_texts, rows_for
from tests.support.borders import (
    KINDS,
    OUT,
    READ_CSV,
    VALUES,
    expected,
    frame_of,
    read_back,
)
from tests.support.refusals import refusal, says

pytestmark = pytest.mark.since_spark("4.0", "Arrow tables are since 4.0")
CSV_NULL = r"\N"


def stream_of(spark: SparkSession, frame: DataFrame, folder: Path) -> DataFrame:
    """Return rows as a stream of one micro-batch."""
    frame.coalesce(1).write.parquet(str(folder / "in"))
    return spark.readStream.schema(frame.schema).parquet(str(folder / "in"))


def written(stream: DataFrame, sink: Any, folder: Path) -> None:
    query = start_query(stream, sink=sink, trigger="availableNow", checkpoint=folder / "checkpoint")
    query.awaitTermination()


def test_json_is_read_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Every type but a map whose keys aren't texts, which is refused."""
    border = OUT["JSON, Kafka"]
    kinds, values = KINDS.keys() - border.kinds, border.equal()
    frame = frame_of(spark, kinds, values)
    written(stream_of(spark, frame, tmp_path), Files("json", tmp_path / "out"), tmp_path)

    assert expected(values) == read_back(
        spark.read.schema(frame.schema).json(str(tmp_path / "out"))
    )
    days = frame_of(spark, ["days"], VALUES)
    text = refusal(check_texts, days.schema, Files("json", "/out"))
    assert says(text, "format json can't hold `days`, a map<date,", "keys of JSON are texts")


def test_csv_is_read_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """With the options of the page: blanks, quotes, line breaks, and a null that isn't empty."""
    border = OUT["CSV"]
    kinds, values = KINDS.keys() - border.kinds, border.equal()
    frame = frame_of(spark, kinds, values)
    written(stream_of(spark, frame, tmp_path), Files("csv", tmp_path / "out"), tmp_path)

    reader = spark.read.schema(frame.schema).options(**READ_CSV)
    assert expected(values) == read_back(reader.csv(str(tmp_path / "out")))
    for name in border.kinds:
        text = refusal(check_texts, frame_of(spark, [name], VALUES).schema, Files("csv", "/out"))
        assert says(text, f"format csv can't hold `{name}`", "write parquet")


def test_messages_are_read_back_as_they_were(spark: SparkSession) -> None:
    """The rows of a frame with ids are JSON as in files."""
    border = OUT["JSON, Kafka"]
    kinds, values = KINDS.keys() - border.kinds, border.equal()
    frame = frame_of(spark, kinds, values)
    sink = Kafka("localhost:9092", "rows")
    messages = rows_for(sink, frame.withColumn("event_id", F.lit("an id")))
    parsed = F.from_json("value", frame.schema, {"mode": "FAILFAST"})

    assert expected(values) == read_back(messages.select(parsed.alias("of")).select("of.*"))
    days = frame_of(spark, ["days"], VALUES)
    assert says(
        refusal(check_texts, days.withColumn("session_id", F.lit("")).schema, sink),
        "JSON can't hold `days`",
    )
    check_texts(days.schema, sink)


def test_several_sinks_write_the_same_texts(spark: SparkSession, tmp_path: Path) -> None:
    """Also in folders, whose names are a text and a day."""
    kinds = ["at", "span", "text", "email", "day"]
    values = [value for value in VALUES if value.kind in {"at", "span", "text"}]
    values = [value for value in values if value.python != CSV_NULL]
    frame = frame_of(spark, kinds, values).withColumns(
        {
            "kind": F.expr("if(text is null, 'late', 'session')"),
            "reason": F.lit("some"),
            "session_id": F.lit("one"),
        }
    )
    sinks = {
        "session": Files("csv", tmp_path / "csv", partition_by=["email", "day"]),
        "rejected": Files("json", tmp_path / "json", partition_by="day"),
    }
    written(stream_of(spark, frame, tmp_path), Routes(**sinks), tmp_path)

    schema = frame.drop("email", "day", "kind", "reason").schema
    texts = spark.read.schema(schema).options(**READ_CSV).csv(str(tmp_path / "csv"))
    others = spark.read.schema(frame.schema).json(str(tmp_path / "json"))
    marked = sinks["session"].read(spark, schema=schema, **READ_CSV)
    others_marked = sinks["rejected"].read(spark, schema=frame.schema)
    found, again = (
        [read_back(frame.select("row", "at", "span", "text")) for frame in frames]
        for frames in ((texts, others), (marked, others_marked))
    )
    assert any(value.kind == "at" and value.python.microsecond % 1000 for value in values)
    assert expected(values) == found[0] | found[1]
    assert {"text"} == {row.partition(":")[0] for row in found[0]}
    assert found == again


@pytest.mark.parametrize(
    ("columns", "sink", "facts"),
    [
        ("text string", Files("text", "/out"), ["format text", "nulls nor line breaks"]),
        ("text string", Files("csv", "/out"), ["only column", "`text`", "empty lines"]),
        ("a int, text string", Files("csv", "/o", "a"), ["only column", "`text`"]),
        ("a int, at timestamp", Files("orc", "/o", "at"), ["`at`, a timestamp", "F.to_date"]),
        ("a int, raw binary", Files("json", "/o", "raw"), ["`raw`, a binary"]),
        ("a int, v array<map<int,int>>", Files("json", "/o"), ["`v`, a array<map<int", "keys"]),
        ("a int, v struct<b: map<date,int>>", Files("JSON", "/o"), ["`v`, a struct<b:", "keys"]),
        ("a int, v map<string,map<int,int>>", Files("json", "/o"), ["`v`, a map<string,map"]),
        ("a int, v variant", Files("json", "/o"), ["`v`, a variant", "JSON has no variant"]),
        ("a int, v binary", Files("csv", "/o"), ["`v`, a binary", "single value"]),
    ],
)
def test_what_would_be_another_value_is_refused_before_the_start(
    spark: SparkSession, columns: str, sink: Files, facts: list[str]
) -> None:
    """In one message, with what to write instead."""
    schema = spark.createDataFrame([], columns).schema

    assert says(refusal(check_texts, schema, sink), *facts)


@pytest.mark.parametrize(
    ("text", "format_", "folders"),
    [(CSV_NULL, "csv", ()), ("", "json", ("text",)), ("__HIVE_DEFAULT_PARTITION__", "orc", "text")],
)
def test_a_text_that_readers_take_for_null_ends_the_query(
    spark: SparkSession, tmp_path: Path, text: str, format_: str, folders: Any
) -> None:
    """A null of the same column is written, and is null."""
    frame = spark.createDataFrame([(1, "a"), (2, None), (3, text)], "n int, text string")
    sink = Files(format_, tmp_path / "out", partition_by=folders)
    stream = stream_of(spark, frame, tmp_path)
    with pytest.raises(Exception, match="`text` is .* which readers of the files take for null"):
        written(stream, sink, tmp_path)
    again = tmp_path / "again"
    written(stream.where("n < 3"), attrs.evolve(sink, path=again / "out"), again)
    reader = spark.read.schema(frame.schema).options(**READ_CSV)

    found = reader.format(format_).load(str(again / "out")).orderBy("n").collect()
    assert [(1, "a"), (2, None)] == [(row.n, row.text) for row in found]


@pytest.mark.parametrize(
    ("columns", "topic", "facts"),
    [
        (["user", "pages"], "t", ["needs a column `value`", "the columns are user, pages"]),
        (["value"], None, ["has no `topic`", "no column `topic`"]),
        (["session_id", "user"], None, ["has no `topic`", 'Kafka(servers, "visits")']),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(
    columns: list[str], topic: str | None, facts: list[str]
) -> None:
    """Before the query starts, where Spark names an attribute of its own."""
    schema = StructType([StructField(name, StringType()) for name in columns])
    assert says(refusal(check_messages, schema, Kafka("h:1", topic)), *facts)
    check_messages(schema.add("value", "string"), Kafka("h:1", "t"))
    check_messages(schema.add("topic", "string"), Kafka("h:1"))
