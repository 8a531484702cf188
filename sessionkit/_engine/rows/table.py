"""
The table of events, which every fold reads, and the rows that no fold processes.

    events     key.*, time, event.*, passthrough.*           a row an event

Numbers are timestamps of microseconds in UTC. The names of the user's columns carry a prefix, so
that no two can collide. A spec without an event time has 1970-01-01 for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Final, TypeVar
from weakref import ref

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, whole
from sessionkit.spec.base import AnySpec
from sessionkit.spec.functions import Failure
from sessionkit.state._codec import codec_of

BEHIND: Final = pa.field("behind", pa.int64())

V = TypeVar("V")
T = TypeVar("T")

INSTANT = pa.timestamp("us", tz="UTC")


@attrs.frozen
class Rejected:
    """
    Rows of other kinds than results: those that became no part of one, and others.

    Attributes:
        kind: `late`, `duplicate`, `quarantined` or `failed` for events, `failed_output` for a
            session or a timer whose function failed, `event` for one of a closed session, `erased`
            for a key that was erased.
        reasons: Why, one for each row; None for `event`.
        rows: The events or sessions. Keys, times and carried columns of events may be null here.
        tracebacks: Of functions that raised, one for each row; None where no function did.
    """

    kind: str
    reasons: Sequence[str | None]
    rows: pa.Table
    tracebacks: Sequence[str | None] | None = None

    @classmethod
    def chosen(cls, kind: str, reason: str, rows: pa.Table, mask: Mask) -> "list[Rejected]":
        """Return the rows that a mask chooses, all for one reason; nothing where there is none."""
        if not mask.any():
            return []
        found = rows.filter(pa.array(mask))
        return [cls(kind, [reason] * found.num_rows, found)]

    @classmethod
    def with_reasons(cls, kind: str, reasons: dict[int, str], rows: pa.Table) -> "list[Rejected]":
        """Return the rows at some places, each for its reason; nothing where there is none."""
        if not reasons:
            return []
        places = sorted(reasons)
        return [cls(kind, [reasons[place] for place in places], rows.take(places))]

    @classmethod
    def with_failures(
        cls, kind: str, failures: Mapping[int, Failure], rows: pa.Table
    ) -> "list[Rejected]":
        """Return the rows at some places, each with why a function failed."""
        if not failures:
            return []
        places = sorted(failures)
        found = [failures[place] for place in places]
        reasons, tracebacks = [one.reason for one in found], [one.traceback for one in found]
        return [cls(kind, reasons, rows.take(places), tracebacks)]


def remembered(make: Callable[[V], T]) -> Callable[[V], T]:
    """
    Make a function remember what it returned for each value.

    A spec holds dicts, so it has no hash, and `functools.cache` can't be used. Values are told
    apart by identity: a copy, such as one from a pickle, is another value.
    """
    made: dict[int, tuple[ref[Any], T]] = {}

    def found(value: V) -> T:
        place = id(value)
        try:
            return made[place][1]
        except KeyError:
            result = make(value)
            # The number of an object is free for another one when it's gone; so is the entry then.
            made[place] = (ref(value, lambda _: made.pop(place, None)), result)
            return result

    return update_wrapper(found, make)


@remembered
def events_schema(spec: AnySpec) -> pa.Schema:
    event = [field.with_name(f"event.{field.name}") for field in codec_of(spec.event).schema]
    passthrough = [
        pa.field(f"passthrough.{field.name}", field.type.arrow) for field in spec.passthrough_fields
    ]
    return pa.schema([*key_schema(spec), pa.field("time", INSTANT), *event, *passthrough])


def key_schema(spec: AnySpec) -> list[pa.Field]:
    return [pa.field(f"key.{field.name}", field.type.arrow) for field in spec.key_fields]


@remembered
def no_events(spec: AnySpec) -> pa.Table:
    return events_schema(spec).empty_table()


@remembered
def result_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the result rows, under the names that users see."""
    return pa.schema([pa.field(field.name, field.type.arrow) for field in spec.result_fields])


@remembered
def no_results(spec: AnySpec) -> pa.Table:
    return result_schema(spec).empty_table()


def key_columns(table: pa.Table) -> list[pa.ChunkedArray]:
    return prefixed_columns(table, "key.")


def prefixed_columns(table: pa.Table, prefix: str) -> list[pa.ChunkedArray]:
    names = table.schema.names
    return [table.column(place) for place, name in enumerate(names) if name.startswith(prefix)]


def left_over(table: pa.Table, places: Numbers) -> pa.Table:
    """Return the rows but for those at some places, in ascending order."""
    left = np.ones(table.num_rows, np.bool_)
    left[places] = False
    others = np.flatnonzero(left)
    if len(others) and others[-1] - others[0] >= len(others):
        return table.filter(pa.array(left))
    # A few rows are seldom apart, and Arrow takes long to begin with a filter.
    return table.slice(others[0] if len(others) else 0, len(others))


def split(table: pa.Table, chosen: Mask) -> tuple[pa.Table, pa.Table]:
    """Return the rows that a mask chooses, and the others; a whole table as it is."""
    if not chosen.any():
        return table.slice(0, 0), table
    if chosen.all():
        return table, table.slice(0, 0)
    return table.filter(pa.array(chosen)), table.filter(pa.array(~chosen))


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; where only one has rows, that as it is."""
    filled = list(filter(len, tables))
    return pa.concat_tables(filled) if len(filled) > 1 else (filled or tables)[0]


def filled(schema: pa.Schema, columns: Mapping[str, pa.Array], number: int) -> pa.Table:
    """Return a number of rows of a schema with these columns, and nulls in the others."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def with_column(table: pa.Table, field: pa.Field, column: pa.Array) -> pa.Table:
    """Return a table with a column in place of the one of this name, or after the others."""
    if field.name not in table.column_names:
        return table.append_column(field, column)
    return table.set_column(table.schema.get_field_index(field.name), field, column)


def replaced(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with others in place of some of its columns."""
    if not columns:
        return table
    arrays = dict(zip(table.column_names, table.columns, strict=True)) | {**columns}
    return pa.Table.from_arrays(list(arrays.values()), schema=table.schema)


def whole_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return rows, at most some hundred megabytes, as one record batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def numbers_in(table: pa.Table, name: str) -> Numbers:
    """Return a column of whole numbers; 0 for a null."""
    column = whole(table[name])
    numbers: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def instants(instants_us: Numbers) -> pa.Array:
    """Return microseconds since the epoch as a column of instants."""
    return pa.array(instants_us, type=pa.int64()).view(INSTANT)


def marks_of(sessions: pa.Table) -> Numbers:
    """Return the marks of sessions; 0 for rows that only remember ids."""
    return numbers_in(sessions, BEHIND.name)


def has_state(rows: pa.Table) -> Mask:
    """Mark the rows with a state: those of sessions that are remembered as such, or of keys."""
    if "exists" not in rows.schema.names:
        return np.ones(rows.num_rows, np.bool_)
    mask: Mask = whole(rows["exists"]).to_numpy(zero_copy_only=False)
    return mask


def has_closed(sessions: pa.Table) -> Mask:
    """Mark the sessions that are over, and only wait for late events."""
    if "closed" not in sessions.schema.names:
        return np.zeros(sessions.num_rows, np.bool_)
    closed = whole(sessions["closed"])
    if closed.null_count:
        closed = closed.fill_null(fill_value=False)
    mask: Mask = closed.to_numpy(zero_copy_only=False)
    return mask


def unmarked(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return rows without their marks, and these."""
    place = rows.schema.get_field_index(BEHIND.name)
    if place < 0:
        return rows, np.zeros(rows.num_rows, np.int64)
    return rows.remove_column(place), marks_of(rows)
