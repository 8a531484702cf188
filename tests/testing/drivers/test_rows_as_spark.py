"""A driver takes a row's values as columns of Spark have them, and as users write them."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from sessionkit import SessionSpec
from sessionkit.errors import DriverError
from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver, at

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Device(Enum):
    PHONE = "phone"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "Device | None":
        return cls.OTHER if value == "tablet" else None


class Level(Enum):
    LOW = 1
    HIGH = 2


class Rights(IntFlag):
    READ = 1
    WRITE = 2


Team = NewType("Team", str)


@attrs.frozen
class Part:
    device: Device
    visitor: UUID | None = None
    wait: Annotated[timedelta, "seconds"] | None = None


VISITOR: Final = UUID("c9bf9e57-1685-4c89-bafb-ff5af830be8a")
UPPER: Final = str(VISITOR).upper()
PART: Final = Part(Device.PHONE, VISITOR, timedelta(seconds=1.5))
PART_ROW: Final = {"device": "phone", "visitor": UPPER, "wait": 1.5}

SAME: Final[Mapping[str, tuple[Any, Any, list[Any]]]] = {
    "enum": (Device, Device.PHONE, ["phone"]),
    "made": (Device, Device.OTHER, ["tablet"]),
    "int_enum": (Level, Level.HIGH, [2, np.int64(2)]),
    "flags": (Rights, Rights.READ | Rights.WRITE, [3]),
    "uuid": (UUID, VISITOR, [str(VISITOR), UPPER]),
    "seconds": (Annotated[timedelta, "seconds"], timedelta(seconds=90), [90.0, 90, Decimal(90)]),
    "time": (time, time(0, 0, 1), [1_000_000, np.int32(1_000_000)]),
    "literal": (Literal["a", "b"], "a", ["a"]),
    "new": (Team, Team("a"), ["a"]),
    "nested": (Part, PART, [PART_ROW, Row(**PART_ROW), {**PART_ROW, "more": 1}]),
    "list": (list[Device], [Device.PHONE], [["phone"], ("phone",), np.array(["phone"])]),
    "endless": (tuple[UUID, ...], (VISITOR,), [[UPPER], (UPPER,)]),
    "parts": (list[Part], [PART], [[PART_ROW], [Row(**PART_ROW)]]),
    "tuple": (
        tuple[time, Device],
        (time(0, 0, 1), Device.PHONE),
        [(1_000_000, "phone"), {"_0": 1_000_000, "_1": "phone"}, Row(_1="phone", _0=1_000_000)],
    ),
    "dict": (
        dict[UUID, time],
        {VISITOR: time(0, 0, 1)},
        [{UPPER: 1_000_000}, [(UPPER, 1_000_000)]],
    ),
    "dict_of_parts": (dict[str, Part], {"a": PART}, [{"a": PART_ROW}, [("a", PART_ROW)]]),
    "maybe": (Device | None, Device.PHONE, ["phone"]),
}
"""By names: the type, a value of it, and what columns have for it."""
BAD: Final[Mapping[str, tuple[Any, Any]]] = {
    "enum": (Device, "fridge"),
    "int_enum": (Level, 7),
    "uuid": (UUID, "no uuid"),
    "time": (time, -1),
    "seconds": (Annotated[timedelta, "seconds"], 1e300),
    "literal": (Literal["a", "b"], "c"),
    "nested": (Part, {"device": "fridge"}),
    "list": (list[Device], ["fridge"]),
    "missing": (Part, {"visitor": UPPER}),
}
"""Values of columns that Spark has and that aren't of the type."""


def spec_of(kind: Any, key: Any = str) -> SessionSpec[Any, Any, Any]:
    event: Any = attrs.make_class("Event", {"value": attrs.field(type=kind)}, frozen=True)
    return SessionSpec.per_event(
        event, keys={"user": key}, event_time="ts", gap="30m", watermark_delay="10m"
    )


def told(kind: Any, values: list[Any], *, key: Any = str, keys: Any = None) -> tuple[Any, Any]:
    """Return the results of rows with these values, and the rejected rows."""
    driver = SessionDriver(spec_of(kind, key))
    for place, value in enumerate(values):
        user = keys[place] if keys else "ann"
        driver.add_row({"user": user, "ts": NOON, "value": value, "unread": 1})
    driver.run_batch()
    driver.advance_watermark_to(at("23:00"))
    driver.run_until_idle()
    rejected = driver.take_rejections()
    return driver.take_results(), rejected


@pytest.mark.parametrize("name", SAME)
def test_a_column_of_spark_feeds_a_driver(name: str) -> None:
    """Text, numbers, dicts, rows and pairs, for each type that has another form there."""
    kind, value, columns = SAME[name]
    results, rejected = told(kind, [value, *columns])

    assert [] == rejected
    assert [value] * (1 + len(columns)) == [one.value for one in results]


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_spark_quarantines_is_quarantined(name: str) -> None:
    """Not refused: a test may show what becomes of it."""
    kind, value = BAD[name]
    results, rejected = told(kind, [value])

    assert [] == results
    assert ["quarantined"] == [one.kind for one in rejected]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (UUID, 5),
        (Device, 5),
        (Device, Level.LOW),
        (Level, "high"),
        (Level, True),
        (time, "12:00"),
        (timedelta, 1.5),
        (Annotated[timedelta, "seconds"], "1.5"),
        (Part, "phone"),
        (Part, ("phone",)),
        (list[Device], "phone"),
        (dict[str, time], ["a"]),
        (date, NOON),
    ],
)
def test_a_value_of_a_column_that_spark_refuses_is_refused(kind: Any, value: Any) -> None:
    """By a DriverError that names the field."""
    with pytest.raises(DriverError, match="`value"):
        told(kind, [value])


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Device, "phone"), (UUID, UPPER), (time, 1), (Part, PART_ROW), (list[Device], ["phone"])],
)
def test_an_event_of_your_own_has_the_types_that_its_class_says(kind: Any, value: Any) -> None:
    """`add` takes an object, so a text in place of an `Enum` is a mistake there."""
    spec = spec_of(kind)
    driver = SessionDriver(spec)
    with pytest.raises(DriverError, match="`value"):
        driver.add("ann", NOON, spec.event(value))


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (UUID, [VISITOR, str(VISITOR), UPPER]),
        (time, [time(0, 0, 1), 1_000_000, np.int64(1_000_000)]),
        (int, [1, np.int64(1), np.int16(1)]),
        (Decimal, [Decimal("1.50"), Decimal("1.5")]),
        (datetime, [NOON, NOON.astimezone(at("12:00").tzinfo)]),
    ],
)
def test_equal_keys_are_one_key(kind: Any, keys: list[Any]) -> None:
    """In whichever form a row has them."""
    results, rejected = told(Device, ["phone"] * len(keys), key=kind, keys=keys)

    assert [] == rejected
    assert [*range(1, len(keys) + 1)] == sorted(one.number for one in results)


@attrs.frozen
class Everything:
    device: Device
    level: Level
    visitor: UUID
    wait: Annotated[timedelta, "seconds"]
    shift: time
    part: Part
    parts: list[Part]
    named: dict[str, Part]


def test_the_rows_of_a_frame_of_spark_feed_a_driver(spark: SparkSession) -> None:
    """As they feed Spark: `collect`, and `toArrow` or pandas where it's there."""
    part = pa.struct({"device": pa.string(), "visitor": pa.string(), "wait": pa.float64()})
    kinds = {
        "user": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "device": pa.string(),
        "level": pa.int64(),
        "visitor": pa.string(),
        "wait": pa.float64(),
        "shift": pa.int64(),
        "part": part,
        "parts": pa.list_(part),
        "named": pa.map_(pa.string(), part),
    }
    row: dict[str, Any] = {"user": "ann", "ts": NOON, "device": "phone", "level": 2, "wait": 1.5}
    row |= {"visitor": UPPER, "shift": 1, "part": PART_ROW, "parts": [PART_ROW]}
    table = pa.Table.from_pylist([{**row, "named": [("a", PART_ROW)]}], pa.schema(kinds))
    schema = "user string, ts timestamp, device string, level bigint, wait double, visitor string, "
    inner = "struct<device: string, visitor: string, wait: double>"
    schema += f"shift bigint, part {inner}, parts array<{inner}>, named map<string, {inner}>"
    frame = spark.createDataFrame([tuple({**row, "named": {"a": PART_ROW}}.values())], schema)
    spec = SessionSpec.per_event(
        Everything, keys={"user": str}, event_time="ts", gap="30m", watermark_delay="10m"
    )
    (collected,) = frame.collect()
    fed = []
    for one in (*table.to_pylist(), *table.to_pandas().to_dict("records"), collected):
        driver = SessionDriver(spec)
        given = one.asDict() if isinstance(one, Row) else one
        driver.add_row({**given, "ts": NOON})
        driver.run_batch()
        driver.advance_watermark_to(at("23:00"))
        driver.run_until_idle()
        fed += [attrs.astuple(found, recurse=False)[-8:] for found in driver.take_results()]

    parts = (PART, [PART], {"a": PART})
    expected = (Device.PHONE, Level.HIGH, VISITOR, timedelta(seconds=1.5), time(0, 0, 0, 1), *parts)
    assert [expected] * 3 == fed
    (by_spark,) = sessionize(frame, spec).collect()
    assert ("phone", 2, str(VISITOR), 1.5, 1) == tuple(by_spark)[-8:-3]
