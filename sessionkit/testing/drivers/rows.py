"""What goes into a driver, as Spark hands it to the worker: events, rows, and a seed."""

import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import INSTANT, whole_batch
from sessionkit._engine.shell.seed import HELD_COLUMN, KEPT_COLUMN, SeedFormat
from sessionkit._engine.wire.inbound import FUTURE_COLUMN, TIME_COLUMN, WireColumn, wire_columns
from sessionkit._engine.wire.packing import (
    EVENTS_COLUMN,
    REJECTED_COLUMN,
    WATERMARK_COLUMN,
    Packer,
    packs_of,
)
from sessionkit._instants import micros_of
from sessionkit.errors import ScriptError, StateValueError, with_hint
from sessionkit.spec.functions import wrong_class
from sessionkit.spec.shared import AnySpec
from sessionkit.state._codec import codec_of
from sessionkit.state._types import key_form

Row: TypeAlias = dict[str, Any]
Group: TypeAlias = Hashable
"""The number of a bucket, or a key."""

GROUP: Final = "_group"


def event_row(
    spec: AnySpec, key: Any, event_time: Any, event: Any, passthrough: Mapping[str, Any]
) -> Row:
    """Return an event as a row; no time is `attrs.NOTHING`, where the event has it as a field."""
    if not isinstance(event, spec.event):
        hint = "use add_row for a row with nulls"
        raise ScriptError(wrong_class("the event must be a", spec.event, event, hint))
    name = spec.event_time
    fields = codec_of(spec.event).type.fields
    row = {field.name: getattr(event, field.name) for field in fields}
    _add(row, _key_columns(spec, key), event, "in the key")
    if name is not None and event_time is not attrs.NOTHING:
        _add(row, {name: event_time}, event, "as the event time")
    _add(row, passthrough, event, "in the passthrough columns")
    if name not in {None, *row}:
        found = f"no event time is given, and {spec.event.__name__} has no field `{name}`"
        hint = 'pass it before the event: add(key, at("10:00"), event)'
        raise ScriptError(with_hint(found, hint))
    return row


def _key_columns(spec: AnySpec, key: Any) -> Row:
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.keys):
        found = f"the key must have one value for each of {list(spec.keys)}, found {key!r}"
        hint = "pass the value, or a tuple of values if there are several columns"
        raise ScriptError(with_hint(found, hint))
    return dict(zip(spec.keys, values, strict=True))


def _add(row: Row, columns: Mapping[str, Any], event: Any, where: str) -> None:
    """Add columns to a row; one that is there already must have the same value."""
    for name, value in columns.items():
        if row.setdefault(name, value) != value:
            found = f"`{name}` is {row[name]} in the {type(event).__name__}, and {value} {where}"
            raise ScriptError(with_hint(found, "give both the same value"))


def plain_key(key: Any) -> Any:
    """Return the key as `add` takes it: the value of its only column, else a plain tuple."""
    if not isinstance(key, tuple):
        return key
    return key[0] if len(key) == 1 else tuple(key)


def check_row(spec: AnySpec, row: Mapping[str, Any]) -> None:
    """Check that the values of a row fit their columns."""
    for column in wire_columns(spec):
        _wire_value(column, row.get(column.field.name))


def packed_frames(
    spec: AnySpec,
    rows: Sequence[Mapping[str, Any]],
    is_future: Sequence[bool],
    groups: Sequence[Group],
) -> tuple[dict[Group, pd.DataFrame], int | None]:
    """
    Return rows as Spark hands them to the worker: packed, a frame for each of their groups.

    The latest event time that moves the watermark, in microseconds, comes with them.
    """
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    numbers = pa.array([places[group] for group in groups], pa.int64())
    table = _input_table(spec, rows, is_future).append_column(GROUP, numbers)
    packer = Packer(spec, (GROUP,), moves_watermark=True)
    packed = [row for batch in packer(table.to_batches()) for row in batch.to_pylist()]
    latest = [micros_of(row[WATERMARK_COLUMN]) for row in packed if row[WATERMARK_COLUMN]]
    frames = {
        group: pd.DataFrame([row for row in packed if row[GROUP] == place], dtype=object)
        for group, place in places.items()
    }
    return frames, max(latest, default=None)


def input_frame(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pd.DataFrame:
    """Return rows of one group as Spark hands them to the worker."""
    frames, _ = packed_frames(spec, rows, is_future, [0] * len(rows))
    return frames[0]


def _input_table(
    spec: AnySpec, rows: Sequence[Mapping[str, Any]], is_future: Sequence[bool]
) -> pa.Table:
    """Return rows as Spark's projection hands them to the packer."""
    columns: dict[str, pa.Array] = {}
    if spec.event_time is not None:
        times = [row.get(spec.event_time) for row in rows]
        columns[TIME_COLUMN] = pa.array(
            [None if time is None else micros_of(time) for time in times], INSTANT
        )
        columns[FUTURE_COLUMN] = pa.array(is_future, pa.bool_())
    for column in wire_columns(spec):
        values = [_wire_value(column, row.get(column.field.name)) for row in rows]
        columns[column.name] = pa.array(values, column.kind.arrow)
    return pa.table(columns)


def group_of(spec: AnySpec, row: Mapping[str, Any]) -> Group:
    """Choose the group of a row; no result depends on the bucket, so it needn't be Spark's."""
    if spec.storage.layout == "per_key":
        columns = [column for column in wire_columns(spec) if column.role == "key"]
        return tuple(_as_grouped(column, row.get(column.field.name)) for column in columns)
    key = repr([row.get(name) for name in spec.keys])
    return zlib.crc32(key.encode()) % spec.storage.buckets


def _as_grouped(column: WireColumn, value: Any) -> Any:
    """Return a value of a key column as Spark groups by it."""
    form, value = key_form(column.field.type), _wire_value(column, value)
    if value is None:
        return form.null
    return value if form.of is None else form.of(value)


def _wire_value(column: WireColumn, value: Any) -> Any:
    if value is None:
        return None
    try:
        return column.kind.dump(column.kind.coerce(value, column.field.name))
    except StateValueError as error:
        raise ScriptError(str(error)) from error


@attrs.frozen
class Seed:
    """What a query begins with; the rows, by group, until the first micro-batch has run."""

    format: SeedFormat
    frames: Mapping[Any, pd.DataFrame] = attrs.field(repr=False)


def seed_of(spec: AnySpec, memories: Iterable[Memory], form: SeedFormat) -> Seed:
    """Return what groups remember as a seed under the rules of a spec."""
    rows: dict[Group, list[dict[str, Any]]] = {}
    for memory in memories:
        for name, table in ((KEPT_COLUMN, memory.kept), (HELD_COLUMN, memory.buffered)):
            places: dict[Group, list[int]] = {}
            for place, key in enumerate(decode_keys(spec, table)):
                places.setdefault(group_of(spec, key._asdict()), []).append(place)
            for group, found in places.items():
                packs = packs_of(whole_batch(table.take(pa.array(found))))
                rows.setdefault(group, []).extend({name: pack} for pack in packs)
    columns = [EVENTS_COLUMN, REJECTED_COLUMN, KEPT_COLUMN, HELD_COLUMN]
    made = {g: pd.DataFrame(found, columns=columns, dtype=object) for g, found in rows.items()}
    return Seed(form, made)
