"""The input of a driver as Spark passes it to the worker: events, rows and erasures."""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa

from sessionkit._arrays import INSTANT
from sessionkit._engine.shell.erasing import ErasurePacker
from sessionkit._engine.wire.inbound import FUTURE_COLUMN, TIME_COLUMN
from sessionkit._engine.wire.packing import EVENTS_COLUMN, WATERMARK_COLUMN, Packer
from sessionkit._instants import micros_of
from sessionkit.errors import DriverError, SpecError, StateValueError
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import WireColumn
from sessionkit.spec.functions import wrong_class
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
)
from sessionkit.state._derived import SecondsType
from sessionkit.state._scalars import FloatType, IntType, StrType
from sessionkit.state._types import FieldType

Row: TypeAlias = dict[str, Any]

GROUP: Final = "_group"
A_ROW: Final = 'write a row as {"user": "ann", "ts": at("10:00"), "page": "/"}'
PAIR: Final = 2
PLAIN: Final[Mapping[pa.DataType, FieldType]] = {
    kind.arrow: kind for kind in (StrType(), IntType(), FloatType())
}
"""The types of the columns that are read as several types of field, such as text as a UUID."""


class Erasure(Row):
    """A key to erase in the next micro-batch: a row of key columns."""

    @classmethod
    def of(cls, spec: AnySpec, key: Any) -> "Erasure":
        row = named_key(spec, key)
        for column in spec.wire_columns:
            if column.role == "key" and _wire_value(column, row) is None:
                found = f"a key that is to be erased can't have a null, found {key!r}"
                raise DriverError(found, "no event without a key is ever remembered")
        return cls(row)


def event_row(
    spec: AnySpec, key: Any, event_time: Any, event: Any, passthrough: Mapping[str, Any]
) -> Row:
    """Return an event as a row; the time is `attrs.NOTHING` if it's a field of the event."""
    unknown = sorted(passthrough.keys() - spec.read_columns.keys())
    if unknown:
        found = f"the spec reads no column `{unknown[0]}`"
        hint = f"it reads {', '.join(sorted(spec.read_columns))}"
        if unknown[0] in {"key", "event_time", "event"}:
            hint = (
                'pass the key, the time and the event without names: add("ann", at("10:00"), event)'
            )
        raise DriverError(found, hint)
    if not isinstance(event, spec.event):
        hint = "use add_row for a row with nulls"
        if isinstance(event, datetime) or isinstance(event_time, spec.event):
            hint = 'the time comes before the event: add("ann", at("10:00"), event)'
        raise DriverError(wrong_class("the event must be a", spec.event, event, hint))
    name = spec.event_time
    fields = codec_of(spec.event).type.fields
    _check_event(spec, event)
    row = {field.name: _none_for_na(getattr(event, field.name)) for field in fields}
    for field in fields:
        _check_exact(field, row[field.name])
    _add(row, named_key(spec, key), event, "in the key")
    if name is not None and event_time is not attrs.NOTHING:
        _add(row, {name: event_time}, event, "as the event time")
    _add(row, passthrough, event, "in the passthrough columns")
    if name not in {None, *row}:
        found = f"no event time is given, and {spec.event.__name__} has no field `{name}`"
        raise DriverError(found, 'pass it before the event: add(key, at("10:00"), event)')
    return row


def _check_event(spec: AnySpec, event: Any) -> None:
    """Refuse an event with a value that no column has: it wouldn't reach the spec."""
    try:
        kind = codec_of(type(event)).type
    except SpecError as error:
        raise DriverError(str(error)) from error
    known = [field.name for field in codec_of(spec.event).type.fields]
    for field in kind.fields:
        if field.name not in known:
            found = f"the spec reads a {spec.event.__name__}, which has no field `{field.name}`"
            hint = f"pass a {spec.event.__name__}, or write the spec for {type(event).__name__}"
            raise DriverError(f"{found}, and the event is a {type(event).__name__}", hint)
    if kind.beside is not None and kind.beside.found_in([event]):
        try:
            kind.coerce(event, type(event).__name__)
        except StateValueError as error:
            raise DriverError(str(error)) from error


def _check_exact(field: Field, value: Any) -> None:
    """Check that a field of an event is of its type, not only of a column that has it."""
    try:
        _or_null(field.type).coerce(value, field.name)
    except StateValueError as error:
        raise DriverError(str(error)) from error


def named_key(spec: AnySpec, key: Any) -> Row:
    """Return the key columns of a key as `add` takes it: a value, or a tuple of values."""
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.keys):
        found = f"the key must have one value for each of {list(spec.keys)}, found {key!r}"
        hint = "pass the value, or a tuple of values if there are several columns"
        raise DriverError(found, hint)
    return dict(zip(spec.keys, map(_none_for_na, values), strict=True))


def _add(row: Row, columns: Mapping[str, Any], event: Any, where: str) -> None:
    """Add columns to a row; a value that is there already must be equal."""
    for name, raw in columns.items():
        value = _none_for_na(raw)
        known = row.setdefault(name, value)
        if known is not value and known != value:
            found = f"`{name}` is {row[name]} in the {type(event).__name__}, and {value} {where}"
            raise DriverError(found, "give both the same value")


def _none_for_na(value: Any) -> Any:
    return None if value is pd.NaT or value is pd.NA else value


def nulls_of_pandas(value: Any) -> Any:
    """
    Replace NaN, NaT and NA of pandas by None, also inside lists and dicts.

    Spark does the same where it converts a frame of pandas, with Arrow.
    """
    if hasattr(value, "asDict"):  # a Row of Spark, which is a tuple too
        value = value.asDict()
    match value:
        case Mapping():
            return {key: nulls_of_pandas(part) for key, part in value.items()}
        case np.ndarray() | list():
            return [nulls_of_pandas(part) for part in value]
        case tuple():
            return tuple(map(nulls_of_pandas, value))
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def rows_in(history: object) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a history; a DriverError for anything else, such as a frame."""
    if hasattr(history, "to_dict"):
        found = f"`history` takes rows, found a {type(history).__name__}"
        raise DriverError(found, 'write history.to_dict("records")')
    if not isinstance(history, Iterable) or isinstance(history, str | bytes | Mapping):
        raise DriverError(f"`history` takes a list of rows, found {history!r}", A_ROW)
    return history


def read_row(spec: AnySpec, row: Mapping[str, Any]) -> Row:
    """Return the columns of a row that the spec reads, with checked values."""
    if not isinstance(row, Mapping):
        found = f"a row must be a dict of columns, found {row!r} ({type(row).__name__})"
        raise DriverError(found, A_ROW)
    read = spec.read_columns.keys()
    unknown, missing = sorted(row.keys() - read), sorted(read - row.keys())
    if unknown and missing:
        found = f"the spec reads no column `{unknown[0]}`, and the row has no `{missing[0]}`"
        raise DriverError(found, f"it reads {', '.join(sorted(read))}")
    read_values = {name: value for name, value in row.items() if name in read}
    if spec.event_time is not None:
        aware(read_values.get(spec.event_time), spec.event_time)
    for column in spec.wire_columns:
        _wire_value(column, read_values)
    return read_values


def aware(instant: object, name: str) -> datetime | None:
    """Check that a time has a zone; None passes."""
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        found = f"`{name}` must be a datetime with a time zone, found {instant!r}"
        raise DriverError(found, "write datetime(..., tzinfo=UTC)")
    return instant


def packed_frames(
    spec: AnySpec, rows: Sequence[Row], *, future_us: int | None
) -> tuple[dict[int, pd.DataFrame], int | None]:
    """
    Return rows as Spark passes them to the worker: packed, a frame for each group.

    Also return the latest event time that moves the watermark, in microseconds. An event time after
    `future_us` is too far ahead.
    """
    packed = _packed(spec, rows, [bucket_of(spec, row) for row in rows], future_us)
    latest = [micros_of(row[WATERMARK_COLUMN]) for row in packed if row[WATERMARK_COLUMN]]
    return _frames(packed), max(latest, default=None)


def erasing_frames(spec: AnySpec, erasures: Sequence[Erasure]) -> dict[int, pd.DataFrame]:
    """Return erasures as Spark passes them to the worker, a frame for each group."""
    keys = [column for column in spec.wire_columns if column.role == "key"]
    columns = _columns(keys, erasures, [bucket_of(spec, row) for row in erasures])
    packed = ErasurePacker(spec, (GROUP,))(pa.table(columns).to_batches())
    return _frames([{EVENTS_COLUMN: None, **row} for batch in packed for row in batch.to_pylist()])


def input_frame(spec: AnySpec, rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows of one group as Spark passes them to the worker."""
    return _frames(_packed(spec, rows, [0] * len(rows)))[0]


def _frames(packed: Sequence[Row]) -> dict[int, pd.DataFrame]:
    """Return packed rows as a frame for each group, without marker rows."""
    groups = dict.fromkeys(row[GROUP] for row in packed if row[GROUP] is not None)
    return {
        group: pd.DataFrame([row for row in packed if row[GROUP] == group], dtype=object)
        for group in groups
    }


def _packed(
    spec: AnySpec, rows: Sequence[Row], groups: Sequence[int], future_us: int | None = None
) -> list[Row]:
    """Project and pack rows as Spark does."""
    columns = _columns(spec.wire_columns, rows, groups)
    if spec.event_time is not None:
        times = [row.get(spec.event_time) for row in rows]
        times_us = [None if time is None else micros_of(time) for time in times]
        columns[TIME_COLUMN] = pa.array(times_us, INSTANT)
        limit = math.inf if future_us is None else future_us
        is_future = [us is not None and us > limit for us in times_us]
        columns[FUTURE_COLUMN] = pa.array(is_future, pa.bool_())
    packer = Packer(spec, (GROUP,), moves_watermark=True)
    return [row for batch in packer(pa.table(columns).to_batches()) for row in batch.to_pylist()]


def _columns(
    wire: Iterable[WireColumn], rows: Sequence[Row], groups: Sequence[int]
) -> dict[str, pa.Array]:
    values = {
        column.name: pa.array([_wire_value(column, row) for row in rows], column.kind.arrow)
        for column in wire
    }
    return {GROUP: pa.array(groups, pa.int64()), **values}


def bucket_of(spec: AnySpec, row: Mapping[str, Any]) -> int:
    """Choose the bucket of a row. It needn't be Spark's, as no result depends on it."""
    keys = [column for column in spec.wire_columns if column.role == "key"]
    key = repr([_same_for_equal(column.kind, _wire_value(column, row)) for column in keys])
    return zlib.crc32(key.encode()) % spec.storage.buckets


def _same_for_equal(kind: FieldType, stored: Any) -> Any:
    """Return a key in the only form of its value: a UUID for its text, in any case."""
    try:
        return None if stored is None else kind.load(stored)
    except (StateValueError, ValueError):
        return stored


def _nullable(kind: FieldType) -> FieldType:
    """Make all parts of a type Optional, since the worker checks nulls."""
    match kind:
        case OptionalType(inner):
            return _nullable(inner)
        case ListType(item):
            return attrs.evolve(kind, item=_or_null(item))
        case TupleType(items):
            return TupleType(tuple(map(_or_null, items)))
        case DictType(key, value):
            return DictType(key, _or_null(value))
        case AttrsType(_, fields):
            parts = (attrs.evolve(field, type=_or_null(field.type)) for field in fields)
            return attrs.evolve(kind, fields=tuple(parts))
    return kind


def _or_null(kind: FieldType) -> FieldType:
    return OptionalType(_nullable(kind))


def _wire_value(column: WireColumn, row: Mapping[str, Any]) -> Any:
    name = column.field.name
    try:
        return _stored(column.kind, row.get(name), name)
    except StateValueError as error:
        if column.kind.arrow == pa.int64() and _is_whole_float(row[name]):
            found = f"`{name}` must be an int, found {row[name]!r}, which is a double on Spark"
            hint = "a column of pandas that misses values has floats: frame.convert_dtypes()"
            raise DriverError(found, hint) from error
        raise DriverError(str(error)) from error


def _is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _stored(kind: FieldType, value: Any, path: str) -> Any:
    """
    Return the storage form of a value as users write it, or as a column of Spark has it.

    The worker judges what is in it, as on Spark: a null, or a text that no `Enum` has.
    """
    if value is None:
        return None
    match kind:
        case OptionalType(inner):
            return _stored(inner, value, path)
        case ListType(item) if isinstance(value, list | tuple | np.ndarray):
            return [_stored(item, one, f"{path}[{n}]") for n, one in enumerate(value)]
        case DictType() if isinstance(value, Mapping) or _is_pairs(value):
            pairs = value.items() if isinstance(value, Mapping) else value
            return [
                (_stored_key(kind.key, key, path), _stored(kind.value, one, f"{path}[{key!r}]"))
                for key, one in pairs
            ]
        case TupleType(items) if isinstance(value, Mapping):
            return {f"_{n}": _stored(one, value.get(f"_{n}"), path) for n, one in enumerate(items)}
        case TupleType(items) if isinstance(value, tuple) and len(value) == len(items):
            several = zip(items, value, strict=True)
            return {f"_{n}": _stored(*one, f"{path}[{n}]") for n, one in enumerate(several)}
        case AttrsType(cls, fields) if isinstance(value, Mapping) or type(value) is cls:
            parts = value if isinstance(value, Mapping) else _Attributes(value)
            return {f.name: _stored(f.type, parts.get(f.name), f"{path}.{f.name}") for f in fields}
    return _stored_scalar(kind, value, path)


def _stored_key(kind: FieldType, key: Any, path: str) -> Any:
    return kind.coerce(key, f"{path} key") if key is None else _stored(kind, key, f"{path} key")


def _is_pairs(value: object) -> bool:
    """Return whether a value is a map as Arrow lists it."""
    return isinstance(value, list) and all(
        isinstance(pair, tuple) and len(pair) == PAIR for pair in value
    )


def _stored_scalar(kind: FieldType, value: Any, path: str) -> Any:
    """Take the member of an `Enum` and its value, a UUID and its text, a time and its number."""
    try:
        return kind.dump(kind.coerce(value, path))
    except StateValueError:
        plain = PLAIN.get(kind.arrow) if kind.facts is not None else None
        if isinstance(kind, SecondsType) and isinstance(value, Decimal):
            value = float(value)
        if plain is None or isinstance(value, Enum):
            raise
        with suppress(StateValueError):
            return plain.coerce(value, path)
        raise


@attrs.frozen
class _Attributes:
    """The fields of an object by name, as of a dict."""

    of: object

    def get(self, name: str) -> Any:
        return getattr(self.of, name)
