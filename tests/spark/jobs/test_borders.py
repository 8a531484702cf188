"""The odd values of each type in frames: through state, keys and passthrough, or refused."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit import Inputs, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.spark import Files, sessionize, start_query
from tests.support.borders import (
    ABSENT,
    EQUAL,
    IN,
    KINDS,
    MISFITS,
    NULL,
    QUARANTINED,
    REFUSED,
    RULES,
    SPEC,
    START,
    VALUES,
    Value,
    arrow_of,
    expected,
    frame_of,
    plain,
    read_back,
)
from tests.support.refusals import refusal

pytestmark = pytest.mark.since_spark("4.0", "Arrow tables are since 4.0")
DTYPES: Final = {
    "yes": "boolean",
    "at": "datetime64[us, UTC]",
    **dict.fromkeys(("whole", "clock", "rights"), "Int64"),
    **dict.fromkeys(("real", "wait"), "float64"),
}
PASSED: Final = {"string": "str", "bigint": "int", "double": "float"}
SPAN: Final = pa.duration("us")
SECONDS: Final = int(START.timestamp())


def with_time(frame: DataFrame) -> DataFrame:
    return frame.withColumn("ts", F.timestamp_seconds(F.lit(SECONDS)))


def outcomes(rows: DataFrame, values: Iterable[Value]) -> dict[str, str]:
    """Return what became of each value."""
    found = {row["row"]: row for row in arrow_of(rows).to_pylist(maps_as_pydicts="strict")}
    assert all((row["kind"] == QUARANTINED) == bool(row["reason"]) for row in found.values())
    return {value.row: _outcome(value, found[value.row]) for value in values}


def _outcome(value: Value, row: dict[str, Any]) -> str:
    if row["kind"] == QUARANTINED:
        return QUARANTINED
    if row[value.kind] is None:
        return NULL
    return EQUAL if plain(value.stored) == plain(row[value.kind]) else "another value"


def test_every_value_comes_out_of_a_stream_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """From Parquet, through state that a restart reads again, to Parquet."""
    frame = with_time(frame_of(spark, KINDS, VALUES))
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))

    def run() -> None:
        start_query(
            sessionize(stream, SPEC),
            sink=Files("parquet", tmp_path / "out"),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        ).awaitTermination()

    run()
    assert 0 == spark.read.parquet(str(tmp_path / "out")).count()
    end = frame.limit(1).withColumns({"row": F.lit("end"), "ts": F.expr("ts + interval 1 day")})
    end.write.mode("append").parquet(str(tmp_path / "in"))
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).select("row", *KINDS)

    assert expected(VALUES) == read_back(rows)
    assert [*VALUES] == IN["Parquet, and state on Spark"].equal()


def test_columns_that_a_type_does_not_hold_are_quarantined(spark: SparkSession) -> None:
    """Each row with the name of its field."""
    misfits = [one for one in MISFITS if one.column is not ABSENT]
    wide = {"cents": "decimal(38,18)", "at": "bigint"}
    kinds = {one.kind: wide.get(one.kind, KINDS[one.kind].sql) for one in misfits}
    rows = [
        (one.row, *(one.column if one.kind == name else None for name in kinds)) for one in misfits
    ]
    columns = ", ".join(f"{name} {sql}" for name, sql in kinds.items())
    frame = with_time(spark.createDataFrame(rows, f"row string, {columns}"))
    nothing = {name: F.lit(None).cast(KINDS[name].sql) for name in KINDS.keys() - kinds.keys()}
    frame = frame.withColumns({**nothing, "at": F.timestamp_seconds("at")})
    found = sessionize(frame, SPEC, with_rejected=True).select("row", "kind", "reason").collect()

    assert {one.row for one in misfits} == {row.row for row in found}
    assert {QUARANTINED} == {row.kind for row in found}
    assert all(f"event.{row.row.partition(':')[0]}" in row.reason for row in found)


def pandas_of(values: Iterable[Value], schema: T.StructType) -> pd.DataFrame:
    """Return the values as a frame of pandas, with its types for what may be missing."""
    rows = [{"row": value.row, value.kind: value.stored} for value in values]
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=DTYPES.get(name, object))
            for name in schema.names
        }
    )


@pytest.mark.since_spark("4.2", "instants in parts of a frame of pandas are an error of Spark")
def test_a_frame_of_pandas_comes_through_a_batch(spark: SparkSession) -> None:
    """A NaN of pandas is a missing value; its durations end before ours."""
    border = IN["a pandas frame on Spark"]
    schema = frame_of(spark, KINDS, []).schema
    values = [value for value in VALUES if border.of(value) != REFUSED]
    frame = spark.createDataFrame(pandas_of(values, schema), schema)
    found = outcomes(sessionize(with_time(frame), SPEC, with_rejected=True), values)

    assert {value.row: border.of(value) for value in values} == found
    for value in set(VALUES) - {*values}:
        with suppress(pa.ArrowInvalid):  # of some releases
            table = pa.Table.from_pandas(pandas_of([value], schema), pa.schema([("span", SPAN)]))
            assert [value.stored] == table["span"].to_pylist()


def test_a_table_of_arrow_comes_through_a_batch(spark: SparkSession) -> None:
    """With the long texts and lists that `to_arrow` of polars gives."""
    table = arrow_of(frame_of(spark, KINDS, VALUES))
    long = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    schema = [field.with_type(long.get(field.type, field.type)) for field in table.schema]
    schema[table.schema.names.index("numbers")] = pa.field("numbers", pa.large_list(pa.int64()))
    frame = spark.createDataFrame(table.cast(pa.schema(schema)))

    assert {value.row: EQUAL for value in VALUES} == outcomes(
        sessionize(with_time(frame), SPEC, with_rejected=True), VALUES
    )
    assert [*VALUES] == IN["an Arrow table, such as of polars"].equal()


def passing(*kinds: str) -> Any:
    """Return a spec that passes columns through, and quarantines each row."""
    required = attrs.make_class("Required", {"needed": attrs.field(type=int)})
    return SessionSpec.per_event(
        required,
        keys={"row": str},
        event_time="ts",
        gap="10m",
        watermark_delay="0s",
        inputs=Inputs(passthrough={name: KINDS[name].annotation for name in kinds}),
    )


def test_every_value_passes_through_to_the_rejected_rows(spark: SparkSession) -> None:
    """To the rejected rows; the hint for another type says how its value gets there."""
    border = IN["passthrough"]
    kinds = [name for name in KINDS if name not in border.kinds]
    frame = frame_of(spark, kinds, VALUES).withColumn("needed", F.lit(None).cast("bigint"))
    rows = sessionize(with_time(frame), passing(*kinds), with_rejected=True)
    rows = rows.where("kind = 'quarantined'").select("row", *kinds)
    assert expected(border.equal()) == read_back(rows)

    frame = frame_of(spark, border.kinds, VALUES)
    for name in border.kinds:
        hint = refusal(passing, name).partition("Hint: ")[2]
        if expression := re.search(r"pass it as text: (.*), and write str", hint):
            as_text = frame.where(F.col(name).isNotNull()).select(
                eval(expression[1], {"F": F})  # noqa: S307 (what the hint says to write)
            )
            texts = [row[0] for row in as_text.collect()]
            values = [value for value in VALUES if value.kind == name]
            assert len(texts) == len({*texts}) == len(values)
            micros = [value for value in values if "µs" in value.name and name == "item"]
            assert [".999999Z" in text for text in texts].count(True) in {0, len(micros)}
        else:
            assert f"write {PASSED[KINDS[name].sql]}, which is what its column has" == hint


def test_every_value_may_be_a_key(spark: SparkSession) -> None:
    """All types of keys at once: each value with some value of the others."""
    kinds = [name for name in KINDS if name not in IN["key"].kinds]
    event = attrs.make_class("Named", {"row": attrs.field(type=str)})
    rules: Any = {**RULES, "order": "arrival"}
    keys = {name: KINDS[name].annotation for name in kinds}
    spec: Any = SessionSpec.aggregate(event, {"row": agg.first("row")}, keys=keys, **rules)
    values = [value for value in VALUES if value.kind in kinds]
    others = {value.kind: value for value in values}
    default = frame_of(spark, kinds, others.values())
    default = default.groupBy().agg(*(F.max(name).alias(name) for name in kinds))
    frame = frame_of(spark, kinds, values).alias("own").crossJoin(default.alias("other"))
    columns = (F.coalesce(f"own.{name}", f"other.{name}").alias(name) for name in kinds)
    rows = sessionize(with_time(frame.select("row", *columns)), spec)
    found = {row["row"]: row for row in arrow_of(rows).to_pylist()}

    # The others of all types make one key together.
    assert {value.row for value in values if value != others[value.kind]} < found.keys()
    assert len(values) - len(others) + 1 == len(found)
    wanted = expected(value for value in values if value.row in found)
    assert wanted == {name: plain(row[name.partition(":")[0]]) for name, row in found.items()}
