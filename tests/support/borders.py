"""
The types that a spec takes, with odd values of each, and what becomes of them at each border.

A border is where a value goes from one form to another: a payload, a frame, stored state, a sink.
Behind it a value is equal to what it was, or it is refused with a reason: there is no third answer.
Tests take the cells from here, and `docs/reference/values.md` has them as a table.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum, IntFlag
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit.state import DecimalType


class Device(Enum):
    """Its values are neither its names nor in their order."""

    PHONE = "the phone"
    DESK = ""


class Rights(IntFlag):
    READ = 1
    WRITE = 2


Email = NewType("Email", str)


@attrs.frozen
class Item:
    sku: str
    price: Decimal
    seen: datetime | None


Seconds = Annotated[timedelta, "seconds"]
READ_CSV: Final = {"escape": '"', "multiLine": "true", "nullValue": r"\N"}
"""How the page says to read what `Files("csv", ..)` writes."""
LONGEST: Final = timedelta(microseconds=2**63 - 1)
WIDE: Final = Context(prec=50)
MICROSECOND: Final = timedelta(microseconds=1)
MOST: Final = Decimal("99999999999999999999.999999999999999999")


@attrs.frozen
class Kind:
    """
    A type of field, in a column of its own.

    Attributes:
        shown: Its name on the page.
        sql: The type of its column on Spark.
        values: Odd values by name.
    """

    shown: str
    annotation: Any
    sql: str
    values: Mapping[str, Any]


def instant(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


KINDS: Final[dict[str, Kind]] = {
    "whole": Kind(
        "`int`",
        int,
        "bigint",
        {"smallest": -(2**63), "largest": 2**63 - 1, "17 digits": 12345678901234567},
    ),
    "real": Kind(
        "`float`",
        float,
        "double",
        {
            "NaN": float("nan"),
            "infinity": float("inf"),
            "-infinity": float("-inf"),
            "-0.0": -0.0,
            "smallest": 5e-324,
            "largest": 1.7976931348623157e308,
            "17 digits": 0.1 + 0.2,
        },
    ),
    "yes": Kind("`bool`", bool, "boolean", {"true": True, "false": False}),
    "text": Kind(
        "`str`",
        str,
        "string",
        {
            "empty": "",
            "blanks": " \ta ",
            "NUL": "a\0b",
            "line breaks": "a\r\nb\n",
            "only a line break": "\n",
            "quotes": '"a""',
            "backslashes": 'a,"\\',
            "a null's name": "null",
            r"\N": r"\N",
            "a number's name": "NaN",
            "beyond 16 bits": "a\U0001f600\u2028\ufeff",
            "1 MB": "\u00e9" * 500_000,
        },
    ),
    "raw": Kind("`bytes`", bytes, "binary", {"empty": b"", "no text": b"\x00\xff"}),
    "at": Kind(
        "`datetime`",
        datetime,
        "timestamp",
        {
            "first": instant(1, 1, 1),
            "last": instant(9999, 12, 31, 23, 59, 59, 999_999),
            "before 1970": instant(1969, 12, 31, 23, 59, 59, 999_999),
            "an offset with seconds": instant(1883, 1, 1, 12, 0, 0, 500_000),
            "an hour that clocks repeat": instant(2026, 11, 1, 5, 30, 0, 1),
            "its repetition": instant(2026, 11, 1, 6, 30, 0, 1),
        },
    ),
    "day": Kind(
        "`date`",
        date,
        "date",
        {"first": date.min, "last": date.max, "left out in 1582": date(1582, 10, 10)},
    ),
    "span": Kind(
        "`timedelta`",
        timedelta,
        "interval day to second",
        {"shortest": -LONGEST, "longest": LONGEST, "-1 µs": -MICROSECOND, "none": timedelta(0)},
    ),
    "wait": Kind(
        '`Annotated[timedelta, "seconds"]`',
        Seconds,
        "double",
        {"longest": timedelta(seconds=2**33), "-1 µs": -MICROSECOND, "7 digits": 3 * MICROSECOND},
    ),
    "clock": Kind("`time`", time, "bigint", {"first": time(0), "last": time.max}),
    "money": Kind(
        "`Decimal`",
        Decimal,
        "decimal(38,18)",
        {"smallest": MOST.copy_negate(), "largest": MOST, "next to none": Decimal("1E-18")},
    ),
    "cents": Kind(
        "`Annotated[Decimal, DecimalType(p, s)]`",
        Annotated[Decimal, DecimalType(12, 2)],
        "decimal(12,2)",
        {"largest": Decimal("9999999999.99"), "trailing zero": Decimal("1.10")},
    ),
    "visit": Kind("`UUID`", UUID, "string", {"none": UUID(int=0), "all": UUID(int=2**128 - 1)}),
    "side": Kind("`Literal`", Literal["left", ""], "string", {"left": "left", "empty": ""}),
    "device": Kind("`Enum`", Device, "string", {one.name: one for one in Device}),
    "rights": Kind("`Flag`", Rights, "bigint", {"none": Rights(0), "both": Rights(3)}),
    "email": Kind("`NewType`", Email, "string", {"some": Email("a@b")}),
    "numbers": Kind(
        "`list[int | None]`",
        list[int | None],
        "array<bigint>",
        {"empty": [], "null": [2**53 + 1, None]},
    ),
    "reals": Kind(
        "`tuple[float, ...]`",
        tuple[float, ...],
        "array<double>",
        {"NaN": (float("nan"),), "-infinity": (float("-inf"), -0.0)},
    ),
    "pair": Kind(
        "`tuple[int, str]`",
        tuple[int, str],
        "struct<_0:bigint,_1:string>",
        {"empty text": (2**63 - 1, "")},
    ),
    "tags": Kind(
        "`dict[str, int | None]`",
        dict[str, int | None],
        "map<string,bigint>",
        {"empty": {}, "null": {"": None, 'a."': 2**53 + 1}},
    ),
    "days": Kind(
        "`dict[date, timedelta]`",
        dict[date, timedelta],
        "map<date,interval day to second>",
        {"empty": {}, "some": {date(1969, 12, 31): -MICROSECOND}},
    ),
    "item": Kind(
        "an attrs class",
        Item,
        "struct<sku:string,price:decimal(38,18),seen:timestamp>",
        {
            "null": Item("", Decimal("1E-18"), None),
            "µs": Item("a", MOST, instant(1969, 12, 31, 23, 59, 59, 999_999)),
        },
    ),
    "items": Kind(
        "`list` of a class",
        list[Item],
        "array<struct<sku:string,price:decimal(38,18),seen:timestamp>>",
        {"empty": [], "null": [Item("\n", Decimal(0), None)]},
    ),
}
"""The columns, each of another type."""


@attrs.frozen
class Value:
    """An odd value, in a row of its own, in which all other columns are null."""

    kind: str
    name: str

    @property
    def row(self) -> str:
        return f"{self.kind}: {self.name}"

    @property
    def python(self) -> Any:
        return KINDS[self.kind].values[self.name]

    @property
    def stored(self) -> Any:
        """The value in the column on Spark."""
        return stored(self.python, KINDS[self.kind].annotation)


VALUES: Final = tuple(Value(kind, name) for kind, one in KINDS.items() for name in one.values)


def stored(value: Any, annotation: Any = None) -> Any:
    """Return what a column of Spark has of a value, as Arrow gives it back."""
    if annotation is Seconds:
        return value / timedelta(seconds=1)
    match value:
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case time():
            since = instant(1, 1, 1).combine(date.min, value, UTC) - instant(1, 1, 1)
            return since // MICROSECOND
        case Item():
            return {name: stored(part) for name, part in attrs.asdict(value, recurse=False).items()}
        case dict():
            return {stored(key): stored(part) for key, part in value.items()}
        case tuple() if annotation == tuple[int, str]:
            return {f"_{place}": part for place, part in enumerate(value)}
        case list() | tuple():
            return [*map(stored, value)]
    return value


def plain(value: Any) -> Any:
    """Return a value that equals another only if both are the same: NaN, and not the two zeros."""
    match value:
        case float():
            return repr(value)
        case Decimal():
            return format(value.normalize(WIDE), "f") if value else "0"
        case dict():
            return {key: plain(part) for key, part in value.items()}
        case tuple() | list():
            return [*map(plain, value)]
        case bytearray():
            return bytes(value)
        case datetime():
            return value.astimezone(UTC)
    return value


def frame_of(spark: SparkSession, kinds: Iterable[str], values: Iterable[Value]) -> DataFrame:
    """Return a row for each value, with a column `row` that names it."""
    names = [*kinds]
    columns = ", ".join(f"{name} {KINDS[name].sql}" for name in names)
    rows = [
        (value.row, *(value.stored if value.kind == name else None for name in names))
        for value in values
        if value.kind in names
    ]
    return spark.createDataFrame(rows, f"row string, {columns}")


def read_back(frame: DataFrame) -> dict[str, Any]:
    """Return the value of each row, without its nulls, by the row's name."""
    return dict(_read_back(arrow_of(frame)))


def _read_back(table: pa.Table) -> Iterator[tuple[str, Any]]:
    for row in table.to_pylist(maps_as_pydicts="strict"):
        name = row["row"]
        column = name.partition(":")[0]
        assert {"row", column} >= {other for other, value in row.items() if value is not None}
        yield name, plain(row[column])


def arrow_of(frame: DataFrame) -> pa.Table:
    """Return a frame as Arrow has it, with instants in UTC, in which every one has a `datetime`."""
    table = frame.toArrow()
    return table.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in table.schema]))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    return kind


def expected(values: Iterable[Value]) -> dict[str, Any]:
    return {value.row: plain(value.stored) for value in values}


# ------------------------------------------------------------------------------------- the cells


@attrs.frozen
class Border:
    """
    What becomes of values at a border: each is equal behind it, but for those that are named.

    Attributes:
        kinds: The types that are refused, or whose values all are quarantined.
        values: Single values that are, by `Value.row`.
    """

    kinds: Mapping[str, str] = attrs.field(factory=dict)
    values: Mapping[str, str] = attrs.field(factory=dict)

    def of(self, value: Value) -> str:
        return self.kinds.get(value.kind) or self.values.get(value.row, EQUAL)

    def equal(self) -> list[Value]:
        return [value for value in VALUES if self.of(value) == EQUAL]

    def cell(self, kind: str) -> str:
        """Return the text of a cell of the page."""
        if kind in self.kinds:
            return self.kinds[kind]
        odd = [value for value in VALUES if value.kind == kind and value.row in self.values]
        others = [f"`{value.name}` {self.values[value.row]}" for value in odd]
        return "; ".join([EQUAL, *others])


EQUAL, REFUSED, ENDS = "equal", "refused", "ends the query"
NESTED: Final = ("numbers", "reals", "pair", "tags", "days", "item", "items")

OUT: Final[dict[str, Border]] = {
    "Parquet": Border(),
    "JSON, Kafka": Border({"days": REFUSED}),
    "CSV": Border(dict.fromkeys(("raw", *NESTED), REFUSED), {r"text: \N": ENDS}),
}
"""The sinks."""


def table_of(borders: Mapping[str, Border]) -> str:
    """Return the table of a page: a row for the types that have the same cells."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, one in KINDS.items():
        rows.setdefault(tuple(border.cell(name) for border in borders.values()), []).append(
            one.shown.replace("|", r"\|")
        )
    lines = [("type", *borders), ("---",) * (len(borders) + 1)]
    lines += [(", ".join(names), *cells) for cells, names in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
