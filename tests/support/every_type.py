"""A spec with every type of a field, events with the hard cases of each, and what comes back."""

import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, Functions, SessionSpec, Storage
from sessionkit.spark import sessionize
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import DecimalType
from sessionkit.state._codec import codec_of
from tests.support.streams import run_to_files


class Device(Enum):
    """A device, by its name in the data; a new one is another."""

    PHONE = "phone"
    DESK = "desk"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "Device":
        return cls.OTHER


class Rights(IntFlag):
    READ = 1
    WRITE = 2


Email = NewType("Email", str)


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
    visit: UUID
    visits: list[UUID]
    side: Literal["left", "right"]
    email: Email
    rights: Rights
    wait: Annotated[timedelta, "seconds"]
    waits: dict[str, Annotated[timedelta, "seconds"]]


@attrs.define
class Kept:
    event: Everything


def create(key: Any, event: Everything) -> Kept:
    return Kept(event)


def update(state: Kept, event: Everything) -> Kept:
    return state


def finish(session: Any, state: Kept) -> Everything:
    return state.event


EVERYTHING = SessionSpec(
    keys={
        "user": int,
        "day_of": date,
        "since": datetime,
        "amount": Decimal,
        "ok": bool,
        "shift": time,
        "visitor": UUID,
        "plan": Literal["free", "paid"],
        "team": Email,
    },
    event_time="ts",
    logic=Functions(
        event=Everything, state=Kept, result=Everything, create=create, update=update, finish=finish
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
    visit: UUID
    side: Literal["left", "right"]
    email: Email
    rights: Rights
    wait: Annotated[timedelta, "seconds"]
    texts: list[str]
    later: datetime | None
    nothing: list[str] | None


def finish_single(session: Any, state: Kept) -> Single:
    event = state.event
    fields: dict[str, Any] = {
        field.name: getattr(event, field.name, None) for field in attrs.fields(Single)
    }
    return Single(**{**fields, "texts": list(event.tags), "later": event.item.seen})


LOGIC: Any = EVERYTHING.logic
SINGLE: AnySessionSpec = attrs.evolve(
    EVERYTHING,
    keys={name: kind for name, kind in EVERYTHING.keys.items() if name != "amount"},
    logic=attrs.evolve(LOGIC, result=Single, finish=finish_single),
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
   34200000001, array(0),
   '0F8FAD5B-D9CB-469F-A165-70867728950E', array('7C9E6679-7425-40DE-944B-E07FC1F90AE7'), 'left',
   'ann@example.org', 3, 0.3000001, map('x', 0.1)),
  (2, timestamp'2026-03-08 07:00:00Z', -1, '-Infinity', false, '', X'',
   timestamp'1960-01-01 00:00:00Z', date'2026-02-28', interval '0' second, -0.01, 'watch', 7,
   array(), map(), map(),
   named_struct('sku', '', 'price', 3, 'seen', timestamp'2026-01-01 00:00:00.000001Z'), array(),
   86399999999, array(), '00000000-0000-0000-0000-000000000000', array(), 'right', '', 0, -90,
   map())
AS t(user, ts, whole, real, yes, text, raw, at, day, span, money, device, maybe, items, tags, days,
     item, numbers, opens, hours, visit, visits, side, email, rights, wait, waits)
"""


def events(spark: SparkSession) -> DataFrame:
    """Return two events, with every type and its hard cases."""
    columns = {
        "user": "cast(user as bigint)",
        "day_of": "date'2026-03-08'",
        "since": "timestamp'2026-03-08 07:00:00.000001Z'",
        "amount": "cast(1.5 as decimal(5,2))",
        "ok": "true",
        "shift": "34200000000",
        "visitor": "'C9BF9E57-1685-4C89-BAFB-FF5AF830BE8A'",
        "plan": "'paid'",
        "team": "'a@example.org'",
        "whole": "cast(whole as bigint)",
        "real": "cast(real as double)",
        "money": "cast(money as decimal(12,2))",
        "maybe": "cast(maybe as int)",
        "tags": "cast(tags as map<string,bigint>)",
        "days": "cast(days as map<date,interval day to second>)",
        "opens": "cast(opens as bigint)",
        "hours": "cast(hours as array<bigint>)",
        "wait": "cast(wait as double)",
        "waits": "cast(waits as map<string,double>)",
    }
    return spark.sql(ROWS).withColumns({name: F.expr(text) for name, text in columns.items()})


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
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            ["7c9e6679-7425-40de-944b-e07fc1f90ae7"],
            "left",
            "ann@example.org",
            3,
            "0.3",
            {"x": "0.1"},
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
            "other",
            7,
            [],
            {},
            {},
            ("", Decimal(3), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
            [],
            86_399_999_999,
            [],
            "00000000-0000-0000-0000-000000000000",
            [],
            "right",
            "",
            0,
            "-90.0",
            {},
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
    names = [field.name for field in attrs.fields(Everything)]
    single = [field.name for field in attrs.fields(Single)]
    rows = [dict(zip(names, row, strict=True)) for row in expected()]
    others = [{"texts": [*row["tags"]], "later": row["item"][2], "nothing": None} for row in rows]
    return [
        tuple({**row, **other}[name] for name in single)
        for row, other in zip(rows, others, strict=True)
    ]


def shown(rows: list[Any], result: type[Any] = Everything) -> list[tuple[Any, ...]]:
    names = [field.name for field in attrs.fields(result)]
    rows = sorted(rows, key=lambda row: -row.user)
    return [tuple(in_utc(row[name]) for name in names) for row in rows]


def stored_by_a_stream(
    spark: SparkSession, folder: Path, spec: AnySessionSpec
) -> list[tuple[Any, ...]]:
    """Return what a stream writes, which is stopped and started again before the sessions end."""
    user, hour = F.lit(3).cast("bigint"), F.expr("interval 1 hour")
    later = events(spark).where("user = 2").withColumns({"user": user, "ts": F.col("ts") + hour})
    events(spark).coalesce(1).write.parquet(str(folder / "in"))
    stream = (
        spark.readStream.schema(events(spark).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
    )
    for _ in range(2):
        run_to_files(sessionize(stream, spec), folder)
        later.write.mode("append").parquet(str(folder / "in"))
    return shown(spark.read.parquet(str(folder / "out")).collect(), spec.result)


def main(folder: str, *settings: str) -> None:
    """Run batch and stream in a session with settings, each `name=value`, and compare the rows."""
    builder = SparkSession.builder.master("local[2]")
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert expected() == shown(sessionize(events(spark), EVERYTHING).collect())
    assert expected_single() == stored_by_a_stream(spark, Path(folder), SINGLE)


if __name__ == "__main__":
    main(*sys.argv[1:])


def every_type() -> pa.Table:
    """Return the two events of `every_type`, as a table."""
    arrow = codec_of(EVERYTHING.event).type.arrow
    item = [field.name for field in arrow.field("item").type]
    users = (
        (2**60 + 1, datetime(2026, 3, 8, 6, 59, 59, 999_999, UTC)),
        (2, datetime(2026, 3, 8, 12, tzinfo=UTC)),
    )
    table = []
    for row, (user, at) in zip(expected(), users, strict=True):
        named = dict(zip([field.name for field in arrow], row, strict=True))
        named |= {
            "real": float(named["real"]),
            "wait": float(named["wait"]),
            "waits": [(name, float(wait)) for name, wait in named["waits"].items()],
            "items": [dict(zip(item, one, strict=True)) for one in named["items"]],
            "item": dict(zip(item, named["item"], strict=True)),
            "tags": [*named["tags"].items()],
            "days": [*named["days"].items()],
        }
        keys = {
            "user": user,
            "day_of": date(2026, 3, 8),
            "since": datetime(2026, 3, 8, 12, tzinfo=UTC),
            "ts": at,
        }
        keys |= {"visitor": str(UUID(int=1)), "plan": "paid", "team": "a@example.org"}
        table.append({**keys, "amount": Decimal("1.50"), "ok": True, "shift": 1, **named})
    instant = pa.timestamp("us", "UTC")
    kinds = {"user": pa.int64(), "day_of": pa.date32(), "since": instant, "ts": instant}
    kinds |= {"amount": pa.decimal128(5, 2), "ok": pa.bool_(), "shift": pa.int64()}
    kinds |= dict.fromkeys(("visitor", "plan", "team"), pa.string())
    kinds |= {field.name: field.type for field in arrow}
    return pa.Table.from_pylist(table, pa.schema(kinds))
