"""
Payloads of Avro as columns, by fastavro, and why one can't be read.

Not by Spark's own `from_avro`: that comes in a package of its own, which isn't complete for each
release of Spark, and of a payload that it can't read it makes nulls, without a reason.
"""

import io
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import attrs
import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionkit._engine.wire.columns import UNREADABLE_COLUMN
from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark.sources.avro_limits import LimitError, checker
from sessionkit.spark.sources.payloads import PAYLOAD, SHOWN, Avro, ddl
from sessionkit.state import (
    AttrsType,
    DictType,
    Field,
    FieldType,
    ListType,
    OptionalType,
    TupleType,
    inner_type,
)

__all__ = ["AvroDecoder", "with_avro"]

FRAME_BYTES: Final = 5
UNFIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)


def with_avro(raw: DataFrame, payload: Avro, fields: Collection[Field]) -> DataFrame:
    """Return rows with the fields of their payload, and the reason why it can't be read."""
    _check(payload, fields)
    decoder = AvroDecoder(payload, tuple(fields))

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return decoder(batches)

    others = [f"{quoted(one.name)} {one.dataType.simpleString()}" for one in raw.schema.fields]
    columns = [*filter(None, [ddl(fields)]), *others]
    return raw.mapInArrow(decode, ", ".join(columns))


def _check(payload: Avro, fields: Collection[Field]) -> None:
    try:
        fastavro.parse_schema(json.loads(payload.schema))
    except Exception as error:
        found = f"fastavro can't read the schema: {type(error).__name__}: {error}"
        raise SpecError(
            with_hint(found, "pass the schema with which the records are written")
        ) from error
    for field in fields:
        if field.name not in payload.field_names and not isinstance(field.type, OptionalType):
            found = f"the schema of Avro has no field `{field.name}`, which the spec reads"
            raise SpecError(with_hint(found, f"it has {', '.join(payload.field_names)}"))


@attrs.frozen
class AvroDecoder:
    """
    Decodes the payloads of a map task; Spark calls it.

    Attributes:
        payload: How they are read.
        fields: The columns that they have.
    """

    payload: Avro
    fields: tuple[Field, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the columns of the payloads before the others, and add to the reasons."""
        read = self._reader()
        for batch in batches:
            reasons: list[str | None] = batch.column(UNREADABLE_COLUMN).to_pylist()
            records = [
                _called(read, value, place, reasons)
                for place, value in enumerate(batch.column(PAYLOAD).to_pylist())
            ]
            columns = {field.name: _column(field, records, reasons) for field in self.fields}
            columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            columns[UNREADABLE_COLUMN] = pa.array(reasons, pa.string())
            yield pa.RecordBatch.from_pydict(columns)

    def _reader(self) -> Callable[[bytes], Any]:
        schema = fastavro.parse_schema(json.loads(self.payload.schema))
        check = checker(self.payload, schema)
        start = FRAME_BYTES if self.payload.is_framed else 0

        def read(value: bytes) -> Any:
            if start and (len(value) < start or value[0] != 0):
                found = "it has no frame of a zero byte and a schema id"
                raise ValueError(found)
            check(value, start)
            stream = io.BytesIO(value)
            stream.seek(start)
            record = fastavro.schemaless_reader(stream, schema, None)
            if stream.tell() != len(value):
                found = f"{len(value) - stream.tell()} bytes follow the record"
                raise ValueError(found)
            return record

        return read


def _called(
    read: Callable[[bytes], Any], value: bytes | None, place: int, reasons: list[str | None]
) -> Any:
    if value is None:
        reasons[place] = reasons[place] or "its payload is null"
        return {}
    try:
        return read(value)
    except LimitError as error:
        reasons[place] = str(error)
    except Exception as error:  # noqa: BLE001 (fastavro raises what the bytes lead to)
        reasons[place] = f"its payload isn't Avro of this schema: {type(error).__name__}: {error}"
    return {}


def _column(field: Field, records: list[Any], reasons: list[str | None]) -> pa.Array:
    kind = field.type.arrow
    values = [record.get(field.name) for record in records]
    try:
        return pa.array(_all_shaped(field.type, values), kind)
    except UNFIT:
        return pa.array([_fitting(field, *one, reasons) for one in enumerate(values)], kind)


def _fitting(field: Field, place: int, value: Any, reasons: list[str | None]) -> Any:
    try:
        (shaped,) = _all_shaped(field.type, [value])
        pa.array([shaped], field.type.arrow)
    except UNFIT:
        reasons[place] = reasons[place] or (
            f"`{field.name}` isn't a {field.type.sql}: {_text(value)[:SHOWN]}"
        )
        return None
    return shaped


def _text(value: Any) -> str:
    # All of a value with parts may be more than there's memory or depth for.
    return reprlib.repr(value) if isinstance(value, dict | list) else str(value)


def _all_shaped(kind: FieldType, values: list[Any]) -> list[Any]:
    """Return values as Arrow takes them: a dict as pairs, wherever it is."""
    kind = inner_type(kind)
    if kind.facts is None:
        return [None if value is None else _shaped(kind, value) for value in values]
    if not {*map(type, values)} <= kind.facts.avro | {type(None)}:
        raise TypeError
    made = kind.facts.from_avro
    return values if made is None else [None if one is None else made(one) for one in values]


def _shaped(kind: FieldType, value: Any) -> Any:
    match kind:
        case DictType() if isinstance(value, dict):
            return list(zip(value, _all_shaped(kind.value, [*value.values()]), strict=True))
        case AttrsType() if isinstance(value, dict):
            return {
                field.name: _all_shaped(field.type, [value.get(field.name)])[0]
                for field in kind.fields
            }
        case TupleType() if isinstance(value, dict):
            names = [f"_{place}" for place in range(len(kind.items))]
            parts = zip(names, kind.items, strict=True)
            return {name: _all_shaped(item, [value.get(name)])[0] for name, item in parts}
        case ListType() if isinstance(value, list):
            return _all_shaped(kind.item, value)
    raise TypeError
