"""A batch on Sail reads files of which statistics say that a column has one value."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit._instants import micros_of
from sessionkit.addons.gap import gaps
from sessionkit.spark import sessionize, sessions
from sessionkit.spark.dedup import drop_duplicates_by_key, drop_duplicates_within
from sessionkit.spark.windows import tumbling
from tests.support.batches import told_by_driver, told_by_engine
from tests.support.every_type import EVERYTHING, SINGLE, every_type

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
VARIED: Any = ["a", "b", "a"]


@attrs.define
class One:
    ts: datetime


def read(spark: SparkSession, folder: Path, *tables: dict[str, Any]) -> DataFrame:
    """Write each table of three rows to a file with statistics, and return all as a frame."""
    times = pa.array([NOON + place * MINUTE for place in range(3)], pa.timestamp("us", "UTC"))
    for place, table in enumerate(tables):
        pq.write_table(pa.table({**table, "ts": times}), folder / f"{place}.parquet")
    return spark.read.parquet(str(folder))


def counts(frame: DataFrame, *keys: str) -> list[tuple[Any, ...]]:
    of = sessions(frame, keys=keys, event_time="ts", gap="30 minutes").agg(n=agg.count())
    return sorted((*(row[key] for key in keys), row.n) for row in of.collect())


def test_three_rows_of_one_user_are_a_session(spark: SparkSession, tmp_path: Path) -> None:
    """They are one session, from a file too that says so of its column."""
    assert [("a", 3)] == counts(read(spark, tmp_path, {"user": ["a"] * 3}), "user")


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "text": (str, ["a"]),
    "empty text": (str, [""]),
    "int": (int, [2**60 + 1]),
    "short int": (int, pa.array([5], pa.int32())),
    "bool": (bool, [True]),
    "date": (date, [date(2026, 3, 8)]),
    "instant": (datetime, pa.array([NOON], pa.timestamp("us", "UTC"))),
    "decimal": (Decimal, [Decimal("1.50")]),
    "uuid": (UUID, [str(UUID(int=7))]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_each_type_may_have_one_value_in_a_file(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Its rows are one session: in both files the key has the same hash."""
    of, given = KEYS[kind]
    value = given if isinstance(given, pa.Array) else pa.array(given)
    nothing = pa.nulls(1, value.type)
    frame = read(
        spark,
        tmp_path,
        {"user": pa.concat_arrays([value] * 3)},
        {"user": pa.concat_arrays([nothing, value, nothing])},
    )
    spec: SessionSpec[Any, Any, Any] = SessionSpec.aggregate(
        One, {"n": agg.count()}, keys={"user": of}, event_time="ts", gap="30 minutes",
        watermark_delay="1 hour",
    )  # fmt: skip

    found = sessionize(frame, spec, with_rejected=True).collect()

    assert [4] == [row.n for row in found if row.kind == "session"]
    assert 2 == sum(row.kind == "quarantined" for row in found)


@pytest.mark.parametrize(
    ("team", "user"),
    [
        (["t"] * 3, VARIED),
        (VARIED, ["t"] * 3),
        (["t"] * 3, ["t"] * 3),
        (pa.array([5] * 3, pa.int32()), VARIED),
        (VARIED, pa.array([5] * 3, pa.int32())),
    ],
)
def test_each_of_several_keys_may_have_one_value_in_all_rows(
    spark: SparkSession, tmp_path: Path, team: Any, user: Any
) -> None:
    """Beside a file in which all of them vary, equal keys stay together."""
    here = {"team": pa.array(team), "user": pa.array(user)}
    other = {
        name: pa.array([values[0], None, values[2]], values.type) for name, values in here.items()
    }
    kinds = {
        name: int if isinstance(values[0].as_py(), int) else str for name, values in here.items()
    }
    of: SessionSpec[Any, Any, Any] = SessionSpec.aggregate(
        One, {"n": agg.count()}, keys=kinds, event_time="ts", gap="30 minutes",
        watermark_delay="1 hour",
    )  # fmt: skip
    frame = read(spark, tmp_path, here, other)
    rows = [
        {**row, "ts": NOON + place * MINUTE}
        for table in (here, other)
        for place, row in enumerate(pa.table(table).to_pylist())
    ]

    assert told_by_driver(rows, of, ["n"]) == told_by_engine(frame, of, ["n"])


def test_a_key_may_be_null_in_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Each of its rows is quarantined, as any row without a key."""
    frame = read(spark, tmp_path, {"user": pa.nulls(3, pa.string())})
    of = sessions(frame, keys="user", event_time="ts", gap="1 hour", with_rejected=True)

    found = of.agg(n=agg.count()).collect()

    assert ["quarantined"] * 3 == [row.kind for row in found]


def test_the_column_of_a_partition_may_be_the_only_key(spark: SparkSession, tmp_path: Path) -> None:
    """It has one value in each file, and none is written there."""
    for user in "ab":
        (tmp_path / f"user={user}").mkdir()
        read(spark, tmp_path / f"user={user}", {"n": [1, 2, 3]})

    assert [("a", 3), ("b", 3)] == counts(spark.read.parquet(str(tmp_path)), "user")


def test_a_column_of_each_type_may_have_one_value(spark: SparkSession, tmp_path: Path) -> None:
    """Keys, event time and fields are read as they are where each varies."""
    for place, of in enumerate([EVERYTHING, SINGLE]):
        for row in range(2):
            folder = tmp_path / f"{place}{row}"
            folder.mkdir()
            one = every_type().slice(row, 1)
            pq.write_table(pa.concat_tables([one] * 3).combine_chunks(), folder / "a.parquet")
            pq.write_table(every_type().slice(1 - row, 1), folder / "b.parquet")
            frame = spark.read.parquet(str(folder))
            rows = sessionize(frame, cast("Any", of), with_rejected=True).collect()
            assert 2 == len(rows)
            assert {"session"} == {row.kind for row in rows}


def test_windows_duplicates_and_gaps_count_columns_of_one_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each counts what is there, where every column but the time has one value."""
    frame = read(spark, tmp_path, {"user": ["a"] * 3, "page": ["/"] * 3, "n": [1] * 3})
    of: dict[str, Any] = {"keys": "user", "event_time": "ts"}

    windows = tumbling("1 day", **of).agg(n=F.count("*")).apply(frame)
    assert [3] == [row.n for row in windows.collect()]
    once = drop_duplicates_by_key("user", event_time="ts", unbounded_state=True).apply(frame)
    assert [micros_of(NOON)] == [micros_of(row.ts.replace(tzinfo=UTC)) for row in once.collect()]
    assert 1 == drop_duplicates_within("1 hour", **of).apply(frame).count()
    assert 3 == gaps(frame, **of).events
