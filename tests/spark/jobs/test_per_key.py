"""`layout="per_key"`: a group and a row of state for each key, of any type and under any name."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit import DecimalType, EventTimeGap, KeyState, KeyTimes, NoTimeout, StatefulSpec
from sessionkit._engine.shell.payload import FORMAT_VERSION
from sessionkit._instants import micros_of
from sessionkit.spark import stored_keys
from tests.support.options import grouped
from tests.support.streams import FileStream

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
NAN: Final = float("nan")


class Device(Enum):
    """A device, by its name in the data."""

    PHONE = "phone"
    DESK = "desk"


@attrs.frozen
class Ping:
    value: float


@attrs.define
class Kept:
    """A state with a column of every kind."""

    count: int
    total: float
    lowest: float | None
    seen: datetime
    day: date
    span: timedelta
    money: Annotated[Decimal, DecimalType(12, 2)]
    device: Device
    raw: bytes
    yes: bool
    values: list[float]
    note: str | None


@attrs.frozen
class Count:
    """How many events a key has had, and their values."""

    count: int
    values: list[float]


def keep(key: Any, events: list[Ping], state: KeyState[Kept], times: KeyTimes) -> Count:
    """Add the values to those that are there."""
    values = [*(state.get().values if state.exists else []), *(event.value for event in events)]
    state.set(
        Kept(
            count=len(values),
            total=sum(values),
            lowest=None if len(values) == 1 else min(values),
            seen=NOON + timedelta(microseconds=len(values)),
            day=date(1969, 12, 31),
            span=timedelta(microseconds=-1),
            money=Decimal("-0.01"),
            device=Device.DESK,
            raw=b"\x00\xff",
            yes=True,
            values=values,
            note="'\u00fc\n" if len(values) == 1 else None,
        )
    )
    return Count(len(values), values)


KEYS: Final[dict[str, Any]] = {
    "time": str,
    "key_0": int,
    "future": bool,
    "watermark": bytes,
    "bucket": date,
    "events": datetime,
    "key": Annotated[Decimal, DecimalType(10, 3)],
}
"""A key of every type; each is named as a column that crosses to Python, or as Spark's own."""

FIRST_KEY: Final = (
    "",
    2**60 + 1,
    False,
    b"\x00\xff",
    date(1969, 12, 31),
    datetime(2026, 11, 1, 5, 30, 0, 1, tzinfo=UTC),
    Decimal("1.500"),
)
SECOND_KEY: Final = (
    "gr\u00fc\u00dfe",
    -1,
    True,
    b"",
    date(2026, 3, 8),
    # The other half past one, on the night when the clocks of New York go back.
    datetime(2026, 11, 1, 6, 30, 0, 1, tzinfo=UTC),
    Decimal("-0.001"),
)
TYPES: Final = [
    pa.string(),
    pa.int64(),
    pa.bool_(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.decimal128(10, 3),
]
PINGS: Final = [
    [(FIRST_KEY, 0, 1.0), (SECOND_KEY, 0, NAN)],
    [(SECOND_KEY, 1, 4.0), (FIRST_KEY, 2, 2.0), (FIRST_KEY, 1, 3.0)],
]


def pings(rows: Iterable[tuple[Any, int, float]]) -> pa.Table:
    """Return pings as the rows of a file."""
    keys, seconds, values = zip(*rows, strict=True)
    columns = zip(*keys, strict=True)
    times = [NOON + timedelta(seconds=second) for second in seconds]
    return pa.table(
        {
            **{
                name: pa.array(column, kind)
                for name, column, kind in zip(KEYS, columns, TYPES, strict=True)
            },
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
            "value": pa.array(values, pa.float64()),
        }
    )


def spec_of(layout: Any, **options: Any) -> StatefulSpec[Ping, Kept, Count]:
    settings: dict[str, Any] = {"keys": KEYS, "timeout": NoTimeout(), **options}
    return StatefulSpec(
        **grouped(
            event=Ping,
            state=Kept,
            result=Count,
            process=keep,
            event_time="at",
            watermark_delay="1 minute",
            layout=layout,
            bucket_count=2,
            **settings,
        )
    )


@pytest.fixture(scope="module", params=["per_key", pytest.param("buckets", marks=pytest.mark.long)])
def ran(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> FileStream:
    """Two micro-batches over two keys, stopped and started again between."""
    stream = FileStream(spark, spec_of(request.param), tmp_path_factory.mktemp("per_key"))
    for batch in PINGS:
        stream.put(pings(batch))
        stream.run()
    return stream


def test_keys_of_every_type_find_their_state_again(ran: FileStream, spark: SparkSession) -> None:
    """Key columns come out as they went in, and the state of each key is its own."""
    times = F.unix_micros("events").alias("events")
    out = spark.read.parquet(str(ran.folder / "out"))
    names = [times if name == "events" else F.col(name) for name in KEYS]

    found = sorted(tuple(row) for row in out.select("count", *names).collect())

    keys = [(*key[:5], micros_of(key[5]), key[6]) for key in (FIRST_KEY, SECOND_KEY)]
    first, second = [tuple(bytes(v) if isinstance(v, bytes) else v for v in key) for key in keys]
    assert sorted([(1, *first), (1, *second), (2, *second), (3, *first)]) == found
    kinds = [kind for name, kind in out.dtypes if name in KEYS]
    assert ["string", "bigint", "boolean", "binary", "date", "timestamp", "decimal(10,3)"] == kinds


def test_the_state_comes_back_typed(ran: FileStream, spark: SparkSession) -> None:
    """Every field is what it was set to; NaN and null are kept apart."""
    assert isinstance(ran.spec, StatefulSpec)
    stored = {tuple(key.key): key.state for key in stored_keys(ran.checkpoint, ran.spec)}

    assert {FIRST_KEY, SECOND_KEY} == stored.keys()
    expected = Kept(
        count=3,
        total=6.0,
        lowest=1.0,
        seen=NOON + timedelta(microseconds=3),
        day=date(1969, 12, 31),
        span=timedelta(microseconds=-1),
        money=Decimal("-0.01"),
        device=Device.DESK,
        raw=b"\x00\xff",
        yes=True,
        values=[1.0, 3.0, 2.0],
        note=None,
    )
    assert expected == stored[FIRST_KEY]
    second: Any = stored[SECOND_KEY]
    assert ["nan", "nan", "[nan, 4.0]"] == [
        str(value) for value in (second.total, second.lowest, second.values)
    ]


PLAIN: Final = {"keys": {"time": str}, "timeout": EventTimeGap("10 minutes")}


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FileStream:
    """One micro-batch over two keys, one of which ends in the batch without data after it."""
    stream = FileStream(spark, spec_of("per_key", **PLAIN), tmp_path_factory.mktemp("plain"))
    stream.put(pings([(FIRST_KEY, 0, 1.0), (SECOND_KEY, 660, NAN)]))
    stream.run()
    return stream


@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_sparks_own_reader_shows_a_row_a_key(plain: FileStream, spark: SparkSession) -> None:
    """The key has the user's names, and next to the state is what can be seen without it."""
    stored = spark.read.format("statestore").load(plain.checkpoint)

    (row,) = stored.select("key.*", "value.groupState.*").collect()

    shown = (row.time, row.format, row.kept, row.buffered, row.event_due_us)
    end_us = micros_of(NOON) + 1_260_000_000
    assert ("gr\u00fc\u00dfe", FORMAT_VERSION, 1, 0, end_us) == shown
    assert b"SKB1" == bytes(row.payload[:4])


@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_a_key_that_ends_leaves_no_row(plain: FileStream, spark: SparkSession) -> None:
    """Spark counts one row of state; that of the key whose gap is over is gone."""
    assert ["", "gr\u00fc\u00dfe"] == sorted(row.time for row in plain.rows())
    assert 1 == spark.read.format("statestore").load(plain.checkpoint).count()


def test_a_decimal_key_that_is_null_or_does_not_fit_is_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It groups as null, and stops no query."""
    money: Final = {"keys": {"key": KEYS["key"]}, "timeout": NoTimeout()}
    stream = FileStream(spark, spec_of("per_key", **money), tmp_path, with_rejected=True)
    keys = pa.array([None, Decimal(10**25), Decimal("1.5")], pa.decimal128(38, 10))
    times = pa.array([NOON] * 3, pa.timestamp("us", tz="UTC"))
    stream.put(pa.table({"key": keys, "at": times, "value": [1.0, 2.0, 3.0]}))
    stream.run()

    rows = stream.rows()

    assert ["quarantined", "quarantined", "result"] == sorted(row.kind for row in rows)
    assert [Decimal("1.500")] == [row.key for row in rows if row.kind == "result"]
