"""Every type of field crosses to Python and back unchanged, on a batch and on a stream."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    DecimalType,
    EventTimeGap,
    Functions,
    NoTimeout,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit._engine.wire.outbound import crosses_as_rows
from sessionkit.spark import apply_with_state, sessionize
from sessionkit.spec.session import AnySessionSpec


class Device(Enum):
    """A device, by its name in the data."""

    PHONE = "phone"
    DESK = "desk"


@attrs.define
class Item:
    sku: str
    price: Decimal
    seen: datetime | None


@attrs.define
class Everything:
    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    at: datetime
    day: date
    span: timedelta
    money: Annotated[Decimal, DecimalType(12, 2)]
    device: Device
    maybe: int | None
    items: list[Item]
    tags: dict[str, int]
    days: dict[date, timedelta]
    item: Item
    numbers: tuple[int | None, ...]
    opens: time
    hours: list[time]


@attrs.define
class Kept:
    event: Everything


@attrs.frozen
class Shown:
    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    at: datetime
    day: date
    span: timedelta
    money: Annotated[Decimal, DecimalType(12, 2)]
    device: Device
    maybe: int | None
    items: list[Item]
    tags: dict[str, int]
    days: dict[date, timedelta]
    item: Item
    numbers: tuple[int | None, ...]
    opens: time
    hours: list[time]


def create(key: Any, event: Everything) -> Kept:
    return Kept(event)


def update(state: Kept, event: Everything) -> Kept:
    return state


def finish(session: Any, state: Kept) -> Shown:
    return Shown(*(getattr(state.event, field.name) for field in attrs.fields(Everything)))


EVERYTHING = SessionSpec(
    keys={
        "user": int,
        "day_of": date,
        "since": datetime,
        "amount": Decimal,
        "ok": bool,
        "shift": time,
    },
    event_time="ts",
    logic=Functions(
        event=Everything, state=Kept, result=Shown, create=create, update=update, finish=finish
    ),
    timeout=EventTimeGap("10 minutes"),
    watermark_delay="0 seconds",
    order="event_time",
    storage=Storage(bucket_count=2),
)


@attrs.frozen
class Single:
    """What `Everything` has that pandas hands to Spark as it is, so that nothing is packed."""

    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    at: datetime
    day: date
    device: Device
    maybe: int | None
    opens: time
    texts: list[str]
    later: datetime | None
    nothing: list[str] | None


def finish_single(session: Any, state: Kept) -> Single:
    event = state.event
    own: dict[str, Any] = {
        field.name: getattr(event, field.name, None) for field in attrs.fields(Single)
    }
    return Single(**{**own, "texts": list(event.tags), "later": event.item.seen})


SINGLE: AnySessionSpec = SessionSpec(
    keys={name: kind for name, kind in EVERYTHING.keys.items() if name != "amount"},
    event_time="ts",
    logic=Functions(
        event=Everything,
        state=Kept,
        result=Single,
        create=create,
        update=update,
        finish=finish_single,
    ),
    timeout=EVERYTHING.timeout,
    watermark_delay="0 seconds",
    order="event_time",
    storage=EVERYTHING.storage,
)

ROWS = """
SELECT * FROM VALUES
  (1152921504606846977, timestamp'2026-03-08 06:59:59.999999Z', 9007199254740993, 'NaN', true,
   'grüße', X'00FF', timestamp'2026-11-01 05:30:00.000001Z', date'1969-12-31',
   interval '-400 01:02:03.000004' day to second, 10.25, 'phone', null,
   array(named_struct('sku', 'a', 'price', 0.000000000000000001,
                      'seen', timestamp'2026-11-01 06:30:00Z')),
   map('x', 9007199254740993), map(date'2026-01-01', interval '1' second),
   named_struct('sku', 'b', 'price', -2.5, 'seen', null), array(9007199254740993, null),
   34200000001, array(0)),
  (2, timestamp'2026-03-08 07:00:00Z', -1, '-Infinity', false, '', X'',
   timestamp'1960-01-01 00:00:00Z', date'2026-02-28', interval '0' second, -0.01, 'desk', 7,
   array(), map(), map(),
   named_struct('sku', '', 'price', 3, 'seen', timestamp'2026-01-01 00:00:00.000001Z'), array(),
   86399999999, array())
AS t(user, ts, whole, real, yes, text, raw, at, day, span, money, device, maybe, items, tags, days,
     item, numbers, opens, hours)
"""


def events(spark: SparkSession) -> DataFrame:
    """Return two events, with every type and its hard cases."""
    return spark.sql(ROWS).selectExpr(
        "cast(user as bigint) user",
        "date'2026-03-08' day_of",
        "timestamp'2026-03-08 07:00:00.000001Z' since",
        "cast(1.5 as decimal(5,2)) amount",
        "true ok",
        "34200000000 shift",
        "ts",
        "cast(whole as bigint) whole",
        "cast(real as double) real",
        "yes",
        "text",
        "raw",
        "at",
        "day",
        "span",
        "cast(money as decimal(12,2)) money",
        "device",
        "cast(maybe as int) maybe",
        "items",
        "cast(tags as map<string,bigint>) tags",
        "cast(days as map<date,interval day to second>) days",
        "item",
        "numbers",
        "cast(opens as bigint) opens",
        "cast(hours as array<bigint>) hours",
    )


def expected() -> list[tuple[Any, ...]]:
    """Return what the two events are in Python."""
    seen = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    return [
        (
            2**53 + 1,
            "nan",
            True,
            "grüße",
            b"\x00\xff",
            datetime(2026, 11, 1, 5, 30, 0, 1, tzinfo=UTC),
            date(1969, 12, 31),
            -timedelta(days=400, hours=1, minutes=2, seconds=3, microseconds=4),
            Decimal("10.25"),
            "phone",
            None,
            [("a", Decimal("1E-18"), seen)],
            {"x": 2**53 + 1},
            {date(2026, 1, 1): timedelta(seconds=1)},
            ("b", Decimal("-2.5"), None),
            [2**53 + 1, None],
            34_200_000_001,
            [0],
        ),
        (
            -1,
            "-inf",
            False,
            "",
            b"",
            datetime(1960, 1, 1, tzinfo=UTC),
            date(2026, 2, 28),
            timedelta(0),
            Decimal("-0.01"),
            "desk",
            7,
            [],
            {},
            {},
            ("", Decimal(3), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
            [],
            86_399_999_999,
            [],
        ),
    ]


def in_utc(value: Any) -> Any:
    """Give what `collect` returns its zone back; it is naive, in the zone of the machine."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, dict):
        return {in_utc(key): in_utc(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(in_utc(item) for item in value)
    return [in_utc(item) for item in value] if isinstance(value, list) else value


def expected_single() -> list[tuple[Any, ...]]:
    """Return the same as rows of `Single`."""
    names = [field.name for field in attrs.fields(Shown)]
    single = [field.name for field in attrs.fields(Single)]
    rows = [dict(zip(names, row, strict=True)) for row in expected()]
    others = [{"texts": [*row["tags"]], "later": row["item"][2], "nothing": None} for row in rows]
    return [
        tuple({**row, **other}[name] for name in single)
        for row, other in zip(rows, others, strict=True)
    ]


def shown(rows: list[Any], result: type[Any] = Shown) -> list[tuple[Any, ...]]:
    names = [field.name for field in attrs.fields(result)]
    rows = sorted(rows, key=lambda row: -row.user)
    return [tuple(in_utc(row[name]) for name in names) for row in rows]


def test_types_survive_a_batch(spark: SparkSession) -> None:
    """Integers beyond 2**53, NaN beside null, folded hours and microseconds come back as sent."""
    rows = sessionize(events(spark), EVERYTHING).collect()

    assert expected() == shown(rows)
    assert [2**60 + 1, 2] == sorted((row.user for row in rows), reverse=True)
    assert {date(2026, 3, 8)} == {row.day_of for row in rows}
    assert {Decimal("1.5")} == {row.amount for row in rows}
    assert {34_200_000_000} == {row.shift for row in rows}
    since = datetime(2026, 3, 8, 7, 0, 0, 1, tzinfo=UTC)
    assert {since} == {in_utc(row.since) for row in rows}


@pytest.mark.parametrize(
    ("zone", "spec"),
    [
        ("America/New_York", EVERYTHING),
        ("America/New_York", SINGLE),
        pytest.param("Asia/Kolkata", EVERYTHING, marks=pytest.mark.long),
        pytest.param("Asia/Kolkata", SINGLE, marks=pytest.mark.long),
    ],
)
def test_types_survive_a_stream(
    spark: SparkSession, tmp_path: Path, zone: str, spec: AnySessionSpec
) -> None:
    """The same through stored state, in any zone, with rows that are packed and as they are."""
    assert crosses_as_rows(spec, with_rejected=False) is (spec is SINGLE)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        user, hour = F.lit(3).cast("bigint"), F.expr("interval 1 hour")
        later = (
            events(spark).where("user = 2").withColumns({"user": user, "ts": F.col("ts") + hour})
        )
        events(spark).coalesce(1).write.parquet(str(tmp_path / "in"))
        stream = (
            spark.readStream.schema(events(spark).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        for _ in range(2):
            query = (
                sessionize(stream, spec)
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .option("path", str(tmp_path / "out"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            later.write.mode("append").parquet(str(tmp_path / "in"))

        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert (expected_single() if spec is SINGLE else expected()) == shown(rows, spec.result)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@attrs.frozen
class Spanned:
    """An event and a result with a duration alone."""

    span: timedelta


def longest(key: object, events: list[Spanned], state: object, times: object) -> Spanned:
    return max(events, key=lambda event: event.span)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("interval '90' minute", timedelta(minutes=90)),
        ("interval '3' day", timedelta(days=3)),
        ("interval '1:30' minute to second", timedelta(seconds=90)),
    ],
)
def test_an_interval_of_any_fields_crosses(
    spark: SparkSession, interval: str, expected: timedelta
) -> None:
    """Spark has a type for each pair of fields, and cannot take out a day where there is none."""
    spec = StatefulSpec(
        keys={"key": str},
        event=Spanned,
        state=Spanned,
        result=Spanned,
        process=longest,
        timeout=NoTimeout(),
    )
    frame = spark.sql(f"SELECT 'a' AS key, {interval} AS span")

    assert [expected] == [row.span for row in apply_with_state(frame, spec).collect()]
