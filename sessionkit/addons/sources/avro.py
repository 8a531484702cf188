"""
Decode Avro payloads into columns by fastavro, with the reason if a payload can't be read.

Spark's `from_avro` won't do: its package isn't published for each Spark release, and it turns an
unreadable payload into nulls without a reason.

A payload is checked before fastavro decodes it. fastavro is recursive, so a deep payload crashes
the process; it creates as many zero-byte items as a payload claims; and its time for a decimal
grows with the square of the bytes. The check builds no values, and isn't recursive.

A short payload is harmless, so it's decoded first. But fastavro takes -1 for the last type of a
union or symbol of an enum, any byte for a boolean, cuts numbers to 64 bits, and keeps the last of
equal names of a map. So the record is encoded again: if the bytes differ, the payload is checked
after all.
"""

import io
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import attrs
import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionkit import SpecError
from sessionkit._for_addons import quoted
from sessionkit.addons.sources.values import PAYLOAD, SHOWN, UNREADABLE, Avro, ddl, spark_type_name

Kind: TypeAlias = Literal[
    "fixed", "boolean", "number", "bytes", "union", "record", "pair", "array", "map"
]
TAKEN: Final[dict[pa.DataType, set[type]]] = {
    pa.int64(): {int, time},
    pa.float64(): {float, int},
    pa.bool_(): {bool},
    pa.string(): {str, bytes, UUID},
    pa.binary(): {bytes, str},
    pa.timestamp("us", tz="UTC"): {datetime},
    pa.date32(): {date},
    pa.duration("us"): {int},
}
"""The Python classes of fastavro's values for a type."""
SIZES: Final = {"null": 0, "float": 4, "double": 8}
TIMES: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""The number of units in a day."""
MOST_DIGITS: Final = 10
BITS: Final = 64
MOST_DECIMAL_BYTES: Final = 10_000
"""The most bytes of a decimal: fastavro takes 20 ms, and 2 s for ten times as many."""
FRAME_BYTES: Final = 5
UNFIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
NOT_OF_SCHEMA: Final = "its payload isn't Avro of this schema"


class LimitError(ValueError):
    """A payload exceeds a limit, or doesn't match the schema; the message is the whole reason."""


@attrs.define(eq=False)
class Node:
    """A type of the schema; a recursive type is among its own parts."""

    kind: Kind
    size: int = 0
    is_decimal: bool = False
    # For an enum or a time of day: its name in messages, and the first invalid number.
    name: str = ""
    end: int | None = None
    parts: list["Node"] = attrs.field(factory=list, repr=False)
    is_recursive: bool = False


@attrs.frozen
class Checker:
    """The check of payloads, which raises a LimitError; at most `harmless` bytes need none."""

    limits: Avro
    root: Node
    harmless: int
    has_maps: bool

    @classmethod
    def of(cls, limits: Avro, schema: Any) -> "Checker":
        nodes: list[Node] = []
        root = _node(schema, {}, nodes)
        has_maps = any(node.kind == "map" for node in nodes)
        return cls(limits, root, _harmless_bytes(limits, nodes), has_maps)

    def __call__(self, data: bytes, start: int) -> int:
        """Return how many entries the maps of a payload have."""
        walk = _Walk(data, self.limits, start)
        walk.over(self.root)
        return walk.entries


def _harmless_bytes(payload: Avro, nodes: list[Node]) -> int:
    """Return the most bytes that can't exceed a limit, -1 for none."""
    if any(node.kind == "array" and _takes_none(node.parts[0]) for node in nodes):
        return -1
    # An item takes at least a byte, and may be a record of a union, which counts again.
    most = payload.max_items // 2
    if any(node.is_decimal for node in nodes):
        most = min(most, MOST_DECIMAL_BYTES)
    if any(node.is_recursive for node in nodes):
        # A recursion takes at least a byte, and passes each other record at most once.
        records = sum(node.kind == "record" for node in nodes)
        most = min(most, payload.max_depth // (records + 1))
    return most


def _takes_none(node: Node) -> bool:
    """Return whether a value may take no byte; recursive types pass a union or an array."""
    if node.kind == "record":
        return all(map(_takes_none, node.parts))
    return node.kind == "fixed" and not node.size


def _node(schema: Any, by_name: dict[str, Node], nodes: list[Node]) -> Node:
    """Return the node of a parsed schema, where a name refers to an earlier type."""
    while isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        schema = schema["type"]
    if isinstance(schema, str):
        schema = {"type": schema}
    if isinstance(schema, Mapping) and schema["type"] in by_name:
        earlier = by_name[schema["type"]]
        # A type gets its parts last: without parts, it contains itself.
        earlier.is_recursive |= not earlier.parts
        return earlier
    node, parts = (Node("union"), schema) if isinstance(schema, list) else _typed(schema)
    nodes.append(node)
    if isinstance(schema, Mapping) and "name" in schema:
        by_name[schema["name"]] = node
    node.parts = [_node(part, by_name, nodes) for part in parts]
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
    entries: int = 0

    def over(self, root: Node) -> None:
        """Pass all values, by a stack of pending types with their depths and repetitions."""
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
                    self.entries += node.kind == "pair"
                    inner = depth + (node.kind == "record")
                    todo += [(part, inner, 1) for part in reversed(node.parts)]
                case _:
                    todo += self.block(node, depth)

    def number(self) -> int:
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
        """Pass the index of a union's type, and return the type."""
        place = self.number()
        if not 0 <= place < len(union.parts):
            raise LimitError(f"{NOT_OF_SCHEMA}: a union has no type {place}")
        self.count(union.parts[place].kind == "record")
        return union.parts[place]

    def block(self, node: Node, depth: int) -> list[tuple[Node, int, int]]:
        """Pass the head of a block, and return its items and the next block; nothing at the end."""
        count = self.number()
        if count < 0:
            # The size in bytes follows, for readers that skip the items.
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
    """Add the fields of the payloads as columns, and the reasons for unreadable payloads."""
    _check(payload, fields)
    present = [f"{quoted(field.name)} {field.dataType.simpleString()}" for field in raw.schema]
    columns = [*filter(None, [ddl(fields)]), *present]
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
        """Yield the batches with the columns of the payloads first, and the reasons."""
        read = self._reader()
        for batch in batches:
            results = [_called(read, value) for value in batch.column(PAYLOAD).to_pylist()]
            records = [record for record, _ in results]
            earlier = batch.column(UNREADABLE).to_pylist()
            reasons = [first or reason for first, (_, reason) in zip(earlier, results, strict=True)]
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
            if is_checked and not check.has_maps:
                return record
            written = _written(record, schema)
            if written != value[start:]:
                entries = check(value, start)
                if check.has_maps and written is not None and check(written, 0) != entries:
                    raise LimitError(f"{NOT_OF_SCHEMA}: a map has a name twice")
            return record

        return read


def _written(record: Any, schema: Any) -> bytes | None:
    """Return a record as fastavro writes it, if it can; other bytes may be valid too."""
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema, record)
    except Exception:  # noqa: BLE001 (any class of error)
        return None
    return out.getvalue()


def _called(read: Callable[[bytes], Any], value: bytes | None) -> tuple[Any, str | None]:
    """Return the record of a payload, or an empty record and the reason."""
    if value is None:
        return {}, "its payload is null"
    try:
        return read(value), None
    except LimitError as error:
        return {}, str(error)
    except Exception as error:  # noqa: BLE001 (any class of error)
        return {}, f"{NOT_OF_SCHEMA}: {type(error).__name__}: {error}"


def _column(field: pa.Field, records: list[Any], reasons: list[str | None]) -> pa.Array:
    kind = field.type
    values = [record.get(field.name) for record in records]
    try:
        return pa.array(_all_shaped(kind, values), kind)
    except UNFIT:
        return pa.array(
            [_fitting(field, *numbered, reasons) for numbered in enumerate(values)], kind
        )


def _fitting(field: pa.Field, place: int, value: Any, reasons: list[str | None]) -> Any:
    try:
        (shaped,) = _all_shaped(field.type, [value])
        pa.array([shaped], field.type)
    except UNFIT:
        # `str` of a nested value may exceed the memory or the recursion limit.
        text = reprlib.repr(value) if isinstance(value, dict | list) else str(value)
        why = f"`{field.name}` isn't a {spark_type_name(field.type)}: {text[:SHOWN]}"
        reasons[place] = reasons[place] or why
        return None
    return shaped


def _all_shaped(kind: pa.DataType, values: list[Any]) -> list[Any]:
    """Return values as Arrow takes them: a map as pairs, at any depth."""
    if pa.types.is_nested(kind):
        return [None if value is None else _shaped(kind, value) for value in values]
    classes = {int, Decimal} if pa.types.is_decimal(kind) else TAKEN[kind]
    found = {*map(type, values)}
    if not found <= classes | {type(None)}:
        raise TypeError
    if time in found:
        return [_micros(value) if isinstance(value, time) else value for value in values]
    if UUID in found:
        return [str(value) if isinstance(value, UUID) else value for value in values]
    if datetime in found and any(value and value.tzinfo is None for value in values):
        # A local timestamp is no instant; Arrow would take it for one in UTC.
        raise TypeError
    return values


def _micros(value: time) -> int:
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
