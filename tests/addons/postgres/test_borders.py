"""The odd values of each type in a table of PostgreSQL: as they were, or the query ends."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.embedded_postgres import Postgres as Server
from sessionkit.addons.postgres import Postgres
from tests.support.borders import ENDS, KINDS, OUT, VALUES, Value, frame_of, plain
from tests.support.table_sinks import write, writer_of

BORDER = OUT["PostgreSQL"]
JSONB = ("pair", "tags", "days", "item", "items")


def in_json(value: Any) -> Any:
    """Return what JSON has of a value: times in ISO 8601, decimals as text, seconds."""
    match value:
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return f"{value:.18f}"
        case dict():
            return {in_json(key): in_json(part) for key, part in value.items()}
        case list():
            return [*map(in_json, value)]
    return value


def shown(kind: str) -> str:
    """Return SQL for a column in a form that psycopg reads whatever the value."""
    match kind:
        case "at":
            return f"(extract(epoch FROM {kind}) * 1000000)::bigint"
        case "day":
            return f"{kind} - date '1970-01-01'"
        case "span":
            return f"(extract(epoch FROM {kind}) * 1000000)::numeric(30,0)::text"
    return kind


def test_every_value_is_read_back_from_a_table_as_it_was(
    postgres: Server, spark: SparkSession
) -> None:
    """In one micro-batch, in the columns that the sink makes."""
    frame = frame_of(spark, KINDS, BORDER.equal())
    write(writer_of(Postgres(postgres.dsn, "borders"), frame.schema), frame)
    columns = ", ".join(["row", *map(shown, KINDS)])
    found = {
        row: dict(zip(KINDS, values, strict=True))
        for row, *values in postgres.rows(f"SELECT {columns} FROM borders")  # noqa: S608 (names of tests)
    }

    for value in BORDER.equal():
        assert comparable(value) == plain(found[value.row][value.kind]), value.row
    assert {value.row for value in BORDER.equal()} == found.keys()


def comparable(value: Value) -> Any:
    stored = value.stored
    match stored:
        case datetime():
            return (stored - datetime(1970, 1, 1, tzinfo=stored.tzinfo)) // timedelta(
                microseconds=1
            )
        case date():
            return (stored - date(1970, 1, 1)).days
        case timedelta():
            return f"{stored // timedelta(microseconds=1)}"
    return plain(in_json(stored) if value.kind in JSONB else stored)


@pytest.mark.parametrize("row", [value.row for value in VALUES if BORDER.of(value) == ENDS])
def test_a_value_that_no_column_holds_ends_the_query(
    postgres: Server, spark: SparkSession, row: str
) -> None:
    """With the name of the column: in text, in arrays, and in JSON."""
    (value,) = (value for value in VALUES if value.row == row)
    frame = frame_of(spark, [value.kind], [value])
    refused(postgres, frame, f"`{value.kind}` has a NUL")
    refused(postgres, frame.select(F.array(value.kind).alias("v")), "`v` has a NUL")
    refused(postgres, frame.select(F.struct(value.kind).alias("v")), "`v` has a NUL")
    refused(postgres, frame.select(F.create_map(value.kind, F.lit(1)).alias("v")), "`v` has a NUL")


def test_a_long_duration_within_json_ends_the_query(postgres: Server, spark: SparkSession) -> None:
    """A float of seconds would round it."""
    frame = spark.sql("SELECT array(struct(make_dt_interval(99999, 0, 0, 0.000001))) AS v")
    refused(postgres, frame, "`v` has a duration of more than 272 years")


def refused(postgres: Server, frame: DataFrame, found: str) -> None:
    sink = Postgres(postgres.dsn, f"refused_{abs(hash(str(frame.schema)))}")
    with pytest.raises(Exception, match=found):
        write(writer_of(sink, frame.schema), frame)


def test_a_negative_zero_within_json_is_a_text(postgres: Server, spark: SparkSession) -> None:
    """As NaN is: the numbers of JSON have neither in PostgreSQL."""
    frame = spark.sql("SELECT struct(-0.0D AS a, double('NaN') AS b, 0.0D AS c) AS v")
    write(writer_of(Postgres(postgres.dsn, "zeros"), frame.schema), frame)
    ((found,),) = postgres.rows("SELECT v FROM zeros")

    assert {"a": "-0.0", "b": "nan", "c": 0.0} == found
