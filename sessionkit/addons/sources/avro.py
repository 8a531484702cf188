"""
Payloads of Avro as columns, by fastavro, and why one can't be read.

Not by Spark's own `from_avro`: its package isn't published for each release of Spark, and it turns
a payload that it can't read into nulls, without a reason.

A payload is checked before fastavro decodes it. fastavro is recursive, so a deep payload ends the
process by a segmentation fault; it makes as many items of no bytes as a payload says; and its time
for a decimal grows with the square of the bytes. The check builds nothing, and isn't recursive.

A short payload can do none of this, so it's decoded first. But fastavro takes -1 for the last type
of a union or symbol of an enum, any byte for a boolean, and cuts numbers to 64 bits. So what it has
decoded is written again: where that gives other bytes, the check looks at the payload after all.
"""

import io
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import attrs
import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionkit import SpecError
from sessionkit._for_addons import quoted
from sessionkit.addons.sources.values import PAYLOAD, SHOWN, UNREADABLE, Avro, ddl, shown

Kind: TypeAlias = Literal[
    "fixed", "boolean", "number", "bytes", "union", "record", "pair", "array", "map"
]
TAKEN: Final[dict[pa.DataType, set[type]]] = {
    pa.int64(): {int, time},
    pa.float64(): {float, int},
    pa.bool_(): {bool},
    pa.string(): {str, bytes},
    pa.binary(): {bytes, str},
    pa.timestamp("us", tz="UTC"): {datetime},
    pa.date32(): {date},
    pa.duration("us"): {int},
}
"""The classes of which fastavro may return a value for a type."""
SIZES: Final = {"null": 0, "float": 4, "double": 8}
TIMES: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""How many of their units a day has."""
MOST_DIGITS: Final = 10
BITS: Final = 64
MOST_DECIMAL_BYTES: Final = 10_000
"""A decimal of as many bytes takes fastavro 20 ms, and one of ten times as many a hundred times."""
FRAME_BYTES: Final = 5
UNFIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
NOT_OF_SCHEMA: Final = "its payload isn't Avro of this schema"


class LimitError(ValueError):
    """A payload is beyond a limit, or isn't of the schema; the message is the whole reason."""


@attrs.define(eq=False)
class Node:
    """A type of the schema; one that contains itself is among its own parts."""

    kind: Kind
    size: int = 0
    is_decimal: bool = False
    # Of an enum or a time of day: what it is, and the number from which on there is none.
    name: str = ""
    end: int | None = None
    parts: list["Node"] = attrs.field(factory=list, repr=False)
    is_recursive: bool = False


@attrs.frozen
class Checker:
    """
    Raises a LimitError for a payload that is beyond a limit or isn't of the schema.

    A payload of at most as many bytes as are `harmless` is within all limits, whatever they are.
    """

    limits: Avro
    root: Node
    harmless: int

    @classmethod
    def of(cls, limits: Avro, schema: Any) -> "Checker":
        nodes: list[Node] = []
        root = _node(schema, {}, nodes)
        return cls(limits, root, _harmless_bytes(limits, nodes))

    def __call__(self, data: bytes, start: int) -> None:
        """Check a payload, read from a place on."""
        _Walk(data, self.limits, start).over(self.root)


def _harmless_bytes(payload: Avro, nodes: list[Node]) -> int:
    """Return the most bytes that are within all limits, whatever they are."""
    if any(node.kind == "array" and _takes_none(node.parts[0]) for node in nodes):
        return -1
    # An item takes a byte, and a record of a union may be one of them.
    most = payload.max_items // 2
    if any(node.is_decimal for node in nodes):
        most = min(most, MOST_DECIMAL_BYTES)
    if any(node.is_recursive for node in nodes):
        # From a record into itself it's a byte at least, with every other record between.
        records = sum(node.kind == "record" for node in nodes)
        most = min(most, payload.max_depth // (records + 1))
    return most


def _takes_none(node: Node) -> bool:
    """Return whether a value may take no byte; recursion passes a union or an array."""
    if node.kind == "record":
        return all(map(_takes_none, node.parts))
    return node.kind == "fixed" and not node.size


def _node(schema: Any, named: dict[str, Node], nodes: list[Node]) -> Node:
    """Return the node of a parsed schema, in which a name refers to an earlier type."""
    while isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        schema = schema["type"]
    if isinstance(schema, str):
        schema = {"type": schema}
    if isinstance(schema, Mapping) and schema["type"] in named:
        earlier = named[schema["type"]]
        # It has no parts until all of them are known.
        earlier.is_recursive |= not earlier.parts
        return earlier
    node, parts = (Node("union"), schema) if isinstance(schema, list) else _typed(schema)
    nodes.append(node)
    if isinstance(schema, Mapping) and "name" in schema:
        named[schema["name"]] = node
    node.parts = [_node(part, named, nodes) for part in parts]
    if node.kind == "map":
        node.parts = [Node("pair", parts=[Node("bytes"), *node.parts])]
    return node


def _typed(schema: Mapping[str, Any]) -> tuple[Node, list[Any]]:
    match schema["type"]:
        case "record" | "error":
            return Node("record"), [field["type"] for field in schema["fields"]]
        case "array":
            return Node("array"), [schema["items"]]
        case "map":
            return Node("map"), [schema["values"]]
        case "fixed":
            return Node("fixed", schema["size"]), []
        case "bytes" | "string":
            return Node("bytes", is_decimal=schema.get("logicalType") == "decimal"), []
        case "boolean":
            return Node("boolean"), []
        case "enum":
            return Node("number", name="an enum", end=len(schema["symbols"])), []
        case str(name) if name in SIZES:
            return Node("fixed", SIZES[name]), []
        case _:
            name = str(schema.get("logicalType"))
            return Node("number", name=f"a {name}", end=TIMES.get(name)), []


@attrs.define
class _Walk:
    """A walk over the bytes of a payload, from value to value."""

    data: bytes
    limits: Avro
    at: int
    items: int = 0

    def over(self, root: Node) -> None:
        """Pass all values: a stack has those to come, each with its depth and how often."""
        todo: list[tuple[Node, int, int]] = [(root, 1, 1)]
        while todo:
            node, depth, times = todo.pop()
            if depth > self.limits.max_depth:
                raise LimitError(
                    f"its payload is deeper than the {self.limits.max_depth} of `max_depth`"
                )
            if times > 1:
                todo.append((node, depth, times - 1))
            match node.kind:
                case "fixed":
                    self.skip(node.size)
                case "boolean":
                    self.boolean()
                case "number":
                    self.within(node)
                case "bytes":
                    self.text(node)
                case "union":
                    todo.append((self.chosen(node), depth, 1))
                case "record" | "pair":
                    inner = depth + (node.kind == "record")
                    todo += [(part, inner, 1) for part in reversed(node.parts)]
                case _:
                    todo += self.block(node, depth)

    def number(self) -> int:
        """Pass a number, and return it."""
        bits = 0
        for place in range(MOST_DIGITS):
            self.skip(1)
            digit = self.data[self.at - 1]
            bits |= (digit & 0x7F) << 7 * place
            if digit < 0x80:  # noqa: PLR2004 (the highest bit says that more follow)
                if bits >> BITS:
                    raise LimitError(f"{NOT_OF_SCHEMA}: a number has more than {BITS} bits")
                return (bits >> 1) ^ -(bits & 1)
        raise LimitError(f"{NOT_OF_SCHEMA}: a number has more than ten bytes")

    def within(self, node: Node) -> None:
        number = self.number()
        if node.end is not None and not 0 <= number < node.end:
            raise LimitError(f"{NOT_OF_SCHEMA}: {node.name} has no value {number}")

    def boolean(self) -> None:
        self.skip(1)
        if self.data[self.at - 1] > 1:
            raise LimitError(f"{NOT_OF_SCHEMA}: a boolean has the byte {self.data[self.at - 1]}")

    def skip(self, size: int) -> None:
        self.at += size
        if size < 0 or self.at > len(self.data):
            raise LimitError(f"{NOT_OF_SCHEMA}: it ends within a value")

    def text(self, node: Node) -> None:
        size = self.number()
        self.skip(size)
        if node.is_decimal and size > MOST_DECIMAL_BYTES:
            raise LimitError(
                f"its payload has a decimal of {size} bytes, more than {MOST_DECIMAL_BYTES}"
            )

    def chosen(self, union: Node) -> Node:
        """Return which of its types the value of a union has."""
        place = self.number()
        if not 0 <= place < len(union.parts):
            raise LimitError(f"{NOT_OF_SCHEMA}: a union has no type {place}")
        self.count(union.parts[place].kind == "record")
        return union.parts[place]

    def block(self, node: Node, depth: int) -> list[tuple[Node, int, int]]:
        """Return what follows in an array or a map: nothing, or items and another block."""
        count = self.number()
        if count < 0:
            # The bytes of its items follow, for readers that skip them.
            size = self.number()
            self.skip(size)
            self.at -= size
        self.count(abs(count))
        (item,) = node.parts
        if item.kind != "fixed":
            return [(node, depth, 1), (item, depth + 1, abs(count))] if count else []
        self.skip(abs(count) * item.size)
        return [(node, depth, 1)] if count else []

    def count(self, items: int) -> None:
        self.items += items
        if self.items > self.limits.max_items:
            raise LimitError(
                f"its payload has more items than the {self.limits.max_items} of `max_items`"
            )


def with_avro(raw: DataFrame, payload: Avro, fields: Collection[pa.Field]) -> DataFrame:
    """Return rows with the fields of their payload, and the reason why it can't be read."""
    _check(payload, fields)
    own = [f"{quoted(one.name)} {one.dataType.simpleString()}" for one in raw.schema.fields]
    columns = [*filter(None, [ddl(fields)]), *own]
    return raw.mapInArrow(AvroDecoder(payload, tuple(fields)).decode, ", ".join(columns))


def _check(payload: Avro, fields: Collection[pa.Field]) -> None:
    try:
        fastavro.parse_schema(json.loads(payload.schema))
    except Exception as error:
        found = f"fastavro can't read the schema: {type(error).__name__}: {error}"
        raise SpecError(found, "pass the schema with which the records are written") from error
    for field in fields:
        if field.name not in payload.field_names and not field.nullable:
            found = f"the schema of Avro has no field `{field.name}`, which the spec reads"
            raise SpecError(found, f"it has {', '.join(payload.field_names)}")


@attrs.frozen
class AvroDecoder:
    """Decodes the payloads of a map task."""

    payload: Avro
    fields: tuple[pa.Field, ...]

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the columns of the payloads before the others, and add to the reasons."""
        read = self._reader()
        for batch in batches:
            results = [_called(read, value) for value in batch.column(PAYLOAD).to_pylist()]
            records = [record for record, _ in results]
            earlier = batch.column(UNREADABLE).to_pylist()
            reasons = [own or reason for own, (_, reason) in zip(earlier, results, strict=True)]
            columns = {field.name: _column(field, records, reasons) for field in self.fields}
            columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            columns[UNREADABLE] = pa.array(reasons, pa.string())
            yield pa.RecordBatch.from_pydict(columns)

    def _reader(self) -> Callable[[bytes], Any]:
        schema = fastavro.parse_schema(json.loads(self.payload.schema))
        check = Checker.of(self.payload, schema)
        start = FRAME_BYTES if self.payload.is_framed else 0

        def read(value: bytes) -> Any:
            if start and (len(value) < start or value[0] != 0):
                raise ValueError("it has no frame of a zero byte and a schema id")
            is_checked = len(value) > check.harmless
            if is_checked:
                check(value, start)
            stream = io.BytesIO(value)
            stream.seek(start)
            record = fastavro.schemaless_reader(stream, schema, None)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes follow the record")
            if not (is_checked or _is_as_written(record, schema, value[start:])):
                check(value, start)
            return record

        return read


def _is_as_written(record: Any, schema: Any, data: bytes) -> bool:
    """Return whether fastavro writes a record as these bytes; others may be right too."""
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema, record)
    except Exception:  # noqa: BLE001 (it raises what the value leads to)
        return False
    return out.getvalue() == data


def _called(read: Callable[[bytes], Any], value: bytes | None) -> tuple[Any, str | None]:
    """Return the record of a payload, or an empty one and the reason."""
    if value is None:
        return {}, "its payload is null"
    try:
        return read(value), None
    except LimitError as error:
        return {}, str(error)
    except Exception as error:  # noqa: BLE001 (fastavro raises what the bytes lead to)
        return {}, f"{NOT_OF_SCHEMA}: {type(error).__name__}: {error}"


def _column(field: pa.Field, records: list[Any], reasons: list[str | None]) -> pa.Array:
    kind = field.type
    values = [record.get(field.name) for record in records]
    try:
        return pa.array(_all_shaped(kind, values), kind)
    except UNFIT:
        return pa.array([_fitting(field, *one, reasons) for one in enumerate(values)], kind)


def _fitting(field: pa.Field, place: int, value: Any, reasons: list[str | None]) -> Any:
    try:
        (shaped,) = _all_shaped(field.type, [value])
        pa.array([shaped], field.type)
    except UNFIT:
        # The whole text of a value with parts may exceed the memory or the depth.
        text = reprlib.repr(value) if isinstance(value, dict | list) else str(value)
        why = f"`{field.name}` isn't a {shown(field.type)}: {text[:SHOWN]}"
        reasons[place] = reasons[place] or why
        return None
    return shaped


def _all_shaped(kind: pa.DataType, values: list[Any]) -> list[Any]:
    """Return values as Arrow takes them: a dict as pairs, wherever it is."""
    if pa.types.is_nested(kind):
        return [None if value is None else _shaped(kind, value) for value in values]
    classes = {int, Decimal} if pa.types.is_decimal(kind) else TAKEN[kind]
    there = {*map(type, values)}
    if not there <= classes | {type(None)}:
        raise TypeError
    if time in there:
        return [_micros(value) if isinstance(value, time) else value for value in values]
    return values


def _micros(value: time) -> int:
    """Return the microseconds since midnight, as which a time of day is read."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _shaped(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_map(kind) and isinstance(value, dict):
        return list(zip(value, _all_shaped(kind.item_type, [*value.values()]), strict=True))
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {part.name: _all_shaped(part.type, [value.get(part.name)])[0] for part in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return _all_shaped(kind.value_type, value)
    raise TypeError
