"""Convert input rows to events in their declared types, and quarantine all other rows."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, Mask, mask_of, whole_batch
from sessionkit._engine.boundaries import latest_before_jump
from sessionkit._instants import FIRST_INSTANT_US, span_us
from sessionkit.errors import StateValueError, with_hint
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import WireColumn
from sessionkit.state._scalars import DecimalType
from sessionkit.state._types import FieldType

TIME_COLUMN: Final = "_time"
FUTURE_COLUMN: Final = "_future"
UNREADABLE_COLUMN: Final = "_unreadable"
"""Why the source couldn't read a row as an event; null where it could."""

REASON: Final = "reason"
TOO_LATE: Final = "its event time, or an end counted from it, is after the year 9999"
LOOK: Final = "look at the rejected rows, which with_rejected=True returns"
HINTS: Final = {
    TOO_LATE: "read milliseconds with timestamp_millis(column): as seconds, they give such years"
}

ROWS_AT_ONCE: Final = 2**18
BYTES_AT_ONCE: Final = 2**26
LOG: Final = logging.getLogger("sessionkit")


@attrs.frozen
class Arrivals:
    """
    Some rows that a task has read: events, and quarantined rows with their reasons.

    `groups` has the group columns of each event, and `groups_of_rejected` those of the other rows.
    """

    groups: pa.Table
    events: pa.Table
    groups_of_rejected: pa.Table
    rejected: pa.Table


def arrivals(
    spec: AnySpec, group: Sequence[str], batches: Iterable[pa.RecordBatch], *, warns: bool
) -> Iterator[Arrivals]:
    """
    Yield the rows of record batches, under their wire names, as events and quarantined rows.

    Where it `warns`, and no row can be an event, a log says why.
    """
    why = Counter[str]() if warns else None
    for rows in _joined(batches):
        valid, events, reasons = validated(spec, rows)
        groups = pa.table(rows.select(group))
        if why is not None:
            # A single valid row is enough to say nothing.
            why = None if valid.any() else why + Counter(reasons.to_pylist())
        if valid.all():
            none = groups.slice(0, 0), events.slice(0, 0).append_column(REASON, reasons[:0])
            yield Arrivals(groups, events, *none)
            continue
        is_rejected, is_event = pa.array(~valid), pa.array(valid)
        rejected = events.append_column(REASON, reasons).filter(is_rejected)
        yield Arrivals(
            groups.filter(is_event), events.filter(is_event), groups.filter(is_rejected), rejected
        )
    if why:
        found = why_none("no row that a task has read is an event", why)
        LOG.warning("%s", with_hint(found, hint_for(why)))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small record batches, up to the row and byte limits."""
    joined, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        # `nbytes` follows the offsets of lists. If all lists of a batch are empty, the JVM sends no
        # offsets for lists nested in them, and `nbytes` would read past an empty buffer.
        batch_bytes = batch.get_total_buffer_size()
        if rows and size + batch_bytes > BYTES_AT_ONCE:
            yield whole_batch(pa.Table.from_batches(joined))
            joined, rows, size = [], 0, 0
        joined.append(batch)
        rows, size = rows + batch.num_rows, size + batch_bytes
        if rows >= ROWS_AT_ONCE:
            yield whole_batch(pa.Table.from_batches(joined))
            joined, rows, size = [], 0, 0
    if rows:
        yield whole_batch(pa.Table.from_batches(joined))


def rejected_schema(events: pa.Schema) -> pa.Schema:
    """Return the schema of quarantined rows: events with the reason."""
    return events.append(pa.field(REASON, pa.string()))


def validated(spec: AnySpec, rows: pa.RecordBatch) -> tuple[Mask, pa.Table, pa.Array]:
    """
    Check which rows, under their wire names, are valid events.

    The reasons for quarantine: the source couldn't read the row; the event time is null, outside
    the years 1 to 9999, or too far ahead; a key or a required field is null; a value doesn't fit
    its type; and among all other rows, an event time after a silence longer than `max_jump`.

    Returns:
        A mask of the valid rows, all rows as events, and the reasons, null for valid rows.
    """
    reasons = _Reasons.of(rows)
    if UNREADABLE_COLUMN in rows.schema.names:
        reasons.take(rows[UNREADABLE_COLUMN])
    time = _time(spec, rows, reasons)
    arrays = _values(spec.wire_columns, rows, reasons)
    if (max_jump := spec.inputs.max_jump) is not None and reasons.is_valid.any():
        times_us = time.cast(pa.int64()).fill_null(0).to_numpy()
        latest_us = latest_before_jump(times_us[reasons.is_valid], span_us(max_jump))
        text = f"its event time is after a silence of more than {max_jump}, see `max_jump`"
        reasons.add(times_us > latest_us, text)
    arrays.insert(len(spec.key_fields), time)
    events = pa.Table.from_arrays(arrays, schema=spec.events_schema)
    return reasons.is_valid, events, pa.array(reasons.texts, pa.string())


def why_none(found: str, reasons: Counter[str]) -> str:
    """Return the text for rows that are all quarantined, with the most frequent reason."""
    ((reason, number),) = reasons.most_common(1)
    return f"{found}: {reasons.total():,} quarantined, {number:,} because: {reason}"


def hint_for(reasons: Counter[str], otherwise: str = LOOK) -> str:
    """Return the hint for the most frequent reason."""
    ((reason, _),) = reasons.most_common(1)
    return HINTS.get(reason, otherwise)


def valid_keys(spec: AnySpec, rows: pa.RecordBatch) -> tuple[Mask, pa.Table, Sequence[str | None]]:
    """Check which rows have valid keys, as `validated` does for events."""
    columns = [column for column in spec.wire_columns if column.role == "key"]
    reasons = _Reasons.of(rows)
    keys = pa.Table.from_arrays(_values(columns, rows, reasons), schema=pa.schema(spec.key_schema))
    return reasons.is_valid, keys, reasons.texts.tolist()


def _values(
    columns: Sequence[WireColumn], rows: pa.RecordBatch, reasons: "_Reasons"
) -> list[pa.Array]:
    """Return columns in their declared types; add a reason for each row that doesn't fit."""
    arrays = []
    for column in columns:
        values = rows[column.name]
        if column.is_required and values.null_count:
            reasons.add(mask_of(values.is_null()), f"`{_path(column)}` is null")
        if not (column.is_unchecked and values.type == column.kind.arrow):
            values = _converted(column.kind, values, _path(column), reasons)
        arrays.append(values)
    return arrays


def _path(column: WireColumn) -> str:
    return column.field.name if column.role != "event" else f"event.{column.field.name}"


@attrs.define
class _Reasons:
    """The first reason to quarantine each row, and a mask of the rows without one."""

    texts: npt.NDArray[np.object_]
    is_valid: Mask

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "_Reasons":
        return cls(np.full(rows.num_rows, None), np.ones(rows.num_rows, np.bool_))

    def add(self, rows: Mask, text: str) -> None:
        if rows.any():
            # A row keeps its first reason: with `rows` [True, True, False], and [False, True, True]
            # still valid, only the second row gets this text.
            self.texts[rows & self.is_valid] = text
            self.is_valid &= ~rows

    def take(self, texts: pa.Array) -> None:
        """Add the reasons of the source; null where it has none."""
        rows = mask_of(texts.is_valid())
        if rows.any():
            self.texts[rows] = texts.to_numpy(zero_copy_only=False)[rows]
            self.is_valid &= ~rows


def _time(spec: AnySpec, rows: pa.RecordBatch, reasons: _Reasons) -> pa.Array:
    if spec.event_time is None:
        return pa.array(np.zeros(rows.num_rows, np.int64)).cast(INSTANT)
    times = rows[TIME_COLUMN]
    missing = times.is_null().to_numpy(zero_copy_only=False)
    # NumPy would turn integers with nulls into floats. So nulls become 0, marked by `missing`.
    times_us = times.cast(pa.int64()).fill_null(0).to_numpy()
    before, after = times_us < FIRST_INSTANT_US, times_us > spec.latest_event_us
    invalid = missing | before | after
    reasons.add(missing, "its event time is null")
    reasons.add(before, "its event time is before the year 1")
    reasons.add(after, TOO_LATE)
    if FUTURE_COLUMN in rows.schema.names:
        future = rows[FUTURE_COLUMN].fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        reasons.add(future, "its event time is too far in the future")
    # The times 5 0 7 with the mask [False, True, False] are 5, null, 7.
    return pa.array(times_us, mask=invalid).cast(INSTANT)


def _converted(kind: FieldType, values: pa.Array, path: str, reasons: _Reasons) -> pa.Array:
    if kind.facts is None or (isinstance(kind, DecimalType) and not _fits(kind, values.type)):
        return _one_by_one(kind, values, path, reasons)
    values = values.cast(kind.arrow)
    fitted = kind.fitted(values)
    if fitted.null_count > values.null_count:
        is_unfit = pc.and_(values.is_valid(), fitted.is_null())
        reasons.add(mask_of(is_unfit), f"`{path}` {kind.misfit}")
    return fitted


def _fits(kind: DecimalType, source: pa.Decimal128Type) -> bool:
    """Return whether Arrow can cast all values; with too many digits, it overflows silently."""
    # A decimal(10, 2) has eight digits before the point.
    before_point: int = source.precision - source.scale
    return before_point <= kind.precision - kind.scale and bool(source.scale <= kind.scale)


def _one_by_one(kind: FieldType, values: pa.Array, path: str, reasons: _Reasons) -> pa.Array:
    stored: list[Any] = []
    for place, value in enumerate(values.cast(in_utc(values.type))):
        try:
            plain = value.as_py()
            if plain is not None:
                loaded = plain if isinstance(kind, DecimalType) else kind.load(plain)
                plain = kind.dump(kind.coerce(loaded, path))
            stored.append(plain)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (the user's own validators and converters)
            stored.append(None)
            is_misfit, first_line = isinstance(error, StateValueError), str(error).split("\n")[0]
            text = first_line if is_misfit else f"{type(error).__name__}: {error}"
            text = text if text.startswith(f"`{path}") else f"`{path}`: {text}"
            reasons.add(np.arange(len(values)) == place, text)
    return pa.array(stored, type=kind.arrow)


def in_utc(kind: pa.DataType) -> pa.DataType:
    """
    Return a type with its instants in UTC and all its parts nullable.

    A datetime in another zone may not exist. And Arrow refuses to cast a null struct whose fields
    aren't nullable.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_utc(kind.key_type), in_utc(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, in_utc(kind.value_type)))
    return kind
