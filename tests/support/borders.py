"""
The types that a spec takes, with odd values of each, and what becomes of them at each border.

A border is where a value goes from one form to another: a payload, a frame, stored state, a sink.
Behind it a value is equal to what it was, or it is refused with a reason: there is no third answer.
Tests take the cells from here, and `docs/reference/values.md` has them as a table.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum, IntFlag
from math import isfinite
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit import EventTimeGap, Functions, SessionSpec, Storage
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


ABSENT: Final = object()
"""What a form of a value is where there is none."""


@attrs.frozen
class Misfit:
    """
    A value that a type doesn't hold: refused or quarantined at every border that has a form of it.

    Attributes:
        python: The value that `add` gets.
        column: What a column of Spark has of it, of the type `sql`.
        text: What JSON has of it.
    """

    kind: str
    name: str
    python: Any = ABSENT
    column: Any = ABSENT
    sql: str = ""
    text: str | None = None

    @property
    def row(self) -> str:
        return f"{self.kind}: {self.name}"


MISFITS: Final = (
    Misfit("whole", "beyond 64 bits", 2**63, text=str(2**63)),
    Misfit("whole", "a fraction", 1.5, text="1.5"),
    Misfit("real", "beyond 64 bits", text="1e400"),
    Misfit("real", "an int with more digits", 2**53 + 1),
    Misfit("real", "a text", "NaN", text='"1.5"'),
    Misfit("text", "a lone surrogate", "\ud800", text='"\\ud800"'),
    Misfit("raw", "a text", "a", text='"%"'),
    Misfit("at", "no zone", datetime(2026, 3, 1)),  # noqa: DTZ001 (which is refused)
    Misfit("at", "the year 10000", column=253402300800, sql="long_instant", text='"10000-01-01"'),
    Misfit("day", "a datetime", instant(2026, 3, 1), text='"2026-03-01 x"'),
    Misfit("span", "beyond 64 bits", timedelta.max),
    Misfit("wait", "beyond 272 years", timedelta(days=365 * 300), column=1e11, text="1e11"),
    Misfit("wait", "NaN", column=float("nan")),
    Misfit("clock", "a day", column=86_400_000_000, text="86400000000"),
    Misfit("clock", "a zone", time(tzinfo=UTC)),
    Misfit("money", "21 digits", Decimal(10**20), text=str(10**20)),
    Misfit("money", "NaN", Decimal("NaN"), text='"NaN"'),
    Misfit("cents", "a third decimal", Decimal("1.101"), Decimal("1.101"), text="1.101"),
    Misfit("visit", "no hyphens", column="0" * 32, text=f'"{"0" * 32}"'),
    Misfit("side", "another", "right", "right", text='"right"'),
    Misfit("device", "another", column="PHONE", text='"PHONE"'),
    Misfit("numbers", "a text", ["1"], text='["x"]'),
    Misfit("pair", "a null", (None, ""), text='{"_0": null, "_1": ""}'),
    Misfit("tags", "beyond 64 bits", {"a": 2**63}, text=f'{{"a": {2**63}}}'),
    Misfit("item", "a null", text='{"sku": null, "price": 1}'),
    Misfit("items", "a null", [None], text="[null]"),
)


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


def json_of(value: Value) -> str:
    """Return the JSON of a value, as a producer would write it for Spark's parser."""
    return _json_of(value.stored)


def _json_of(value: Any) -> str:
    match value:
        case float() if not isfinite(value):
            names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
            return json.dumps(names[repr(value)])
        case Decimal():
            return format(value, "f")
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case date():  # or a datetime
            return json.dumps(value.isoformat())
        case timedelta():
            seconds, micros = divmod(abs(value) // MICROSECOND, 10**6)
            days, seconds = divmod(seconds, 86_400)
            sign = "-" if value < timedelta(0) else ""
            hours = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
            return json.dumps(f"INTERVAL '{sign}{days} {hours}' DAY TO SECOND")
        case dict():
            parts = (f"{json.dumps(name)}: {_json_of(part)}" for name, part in value.items())
            return f"{{{', '.join(parts)}}}"
        case list():
            return f"[{', '.join(map(_json_of, value))}]"
    return json.dumps(value)


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
        return self.values.get(value.row) or self.kinds.get(value.kind, EQUAL)

    def equal(self) -> list[Value]:
        return [value for value in VALUES if self.of(value) == EQUAL]

    def cell(self, kind: str) -> str:
        """Return the text of a cell of the page."""
        odd: dict[str, list[str]] = {}
        for value in VALUES:
            if value.kind == kind and value.row in self.values:
                odd.setdefault(self.values[value.row], []).append(f"`{value.name}`")
        others = [f"{', '.join(names)} {outcome}" for outcome, names in odd.items()]
        return "; ".join([self.kinds.get(kind, EQUAL), *others])


EQUAL, REFUSED, ENDS = "equal", "refused", "ends the query"
IN_MS, SAID = "in ms", "not counted, which it says"
NESTED: Final = ("numbers", "reals", "pair", "tags", "days", "item", "items")

QUARANTINED, NULL = "quarantined", "null"
NOT_FINITE: Final = {f"real: {name}": QUARANTINED for name in ("NaN", "infinity", "-infinity")}

IN: Final[dict[str, Border]] = {
    "Parquet, and state on Spark": Border(),
    "JSON": Border({"days": REFUSED, "reals": QUARANTINED}, NOT_FINITE),
    "Avro": Border({"days": REFUSED}),
    "a pandas frame on Spark": Border(
        {},
        {"real: NaN": NULL, "reals: NaN": QUARANTINED}
        | dict.fromkeys(("span: shortest", "span: longest"), REFUSED),
    ),
    "an Arrow table, such as of polars": Border(),
    "`add`, and state": Border(),
    "`add_row`": Border({}, {"real: NaN": NULL, "reals: NaN": QUARANTINED}),
    "passthrough": Border(
        dict.fromkeys(("span", "wait", "device", "rights", *NESTED), REFUSED),
    ),
    "key": Border(dict.fromkeys(("real", "span", "wait", "device", "rights", *NESTED), REFUSED)),
}
"""The ways in, and what keeps values on the way."""

OUT: Final[dict[str, Border]] = {
    "Parquet": Border(),
    "JSON, Kafka": Border({"days": REFUSED}),
    "CSV": Border(dict.fromkeys(("raw", *NESTED), REFUSED), {r"text: \N": ENDS}),
    "Delta, Iceberg": Border(dict.fromkeys(("span", "days"), REFUSED)),
    "PostgreSQL": Border({}, {"text: NUL": ENDS}),
}
"""The sinks."""
REPORT: Final = Border(
    dict.fromkeys(("raw", "at", "day", "clock", *NESTED), REFUSED) | {"span": IN_MS},
    dict.fromkeys(
        [
            *NOT_FINITE,
            *(f"whole: {name}" for name in KINDS["whole"].values),
            *(f"money: {name}" for name in ("smallest", "largest")),
            "real: largest",
            "span: shortest",
            "span: longest",
        ],
        SAID,
    ),
)
"""What a report does with a column, in the role that its type may have."""


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


# ------------------------------------------------------------------------------------- the specs


def event_of(kinds: Iterable[str]) -> Any:
    """Return an event, a state and a result with a field of each type."""
    fields = {name: attrs.field(type=KINDS[name].annotation | None, default=None) for name in kinds}
    made = attrs.make_class("Everything", fields, frozen=True)
    made.__module__ = __name__
    return made


Everything: Final = event_of(KINDS)
START: Final = instant(2026, 3, 8, 7)


RULES: Final[dict[str, Any]] = {
    "event_time": "ts",
    "timeout": EventTimeGap("10 minutes"),
    "watermark_delay": "0 seconds",
    "order": "event_time",
    "storage": Storage(bucket_count=2),
}


def spec_of(event: Any) -> Any:
    """Return a spec with a session for each value, under the name of its row."""

    def create(key: Any, one: Any) -> Any:
        return kept(one)

    def update(state: Any, one: Any) -> Any:
        return state

    def finish(session: Any, state: Any) -> Any:
        return state.event

    kept = attrs.make_class("Kept", {"event": attrs.field(type=event)})
    logic: Any = Functions(
        event=event, state=kept, result=event, create=create, update=update, finish=finish
    )
    return SessionSpec(keys={"row": str}, logic=logic, **RULES)


SPEC: Final = spec_of(Everything)


def without(*kinds: str) -> Any:
    return spec_of(event_of([name for name in KINDS if name not in kinds]))


CELLS: Final = [
    border.of(value) for border in (*IN.values(), *OUT.values(), REPORT) for value in VALUES
]
"""What becomes of each value at each border."""
