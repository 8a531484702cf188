"""The events of one micro-batch in one bucket: as objects, with their windows, in order."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._functions import name_of
from sessionkit._instants import span_us
from sessionkit._tables import Rejected, event_columns, micros
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.state import codec_of, decode_column
from sessionkit.timeouts import window_end

__all__ = ["Events", "in_total_order", "key_codes", "read_events"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Events:
    """
    Events to be folded.

    Attributes:
        table: Their rows, as they came.
        objects: The same as objects of the user's class.
        starts: Their times, in microseconds.
        ends: The ends of their own windows, in microseconds.
    """

    table: pa.Table
    objects: list[Any]
    starts: Instants
    ends: Instants

    def only(self, chosen: Mask) -> "Events":
        """Return the events that a mask chooses."""
        if chosen.all():
            return self
        objects = [self.objects[place] for place in np.flatnonzero(chosen).tolist()]
        table = self.table.filter(pa.array(chosen))
        return Events(table, objects, self.starts[chosen], self.ends[chosen])


def read_events(spec: AnySpec, table: pa.Table) -> tuple[Events, list[Rejected]]:
    """
    Build the events of a table, and their windows.

    An event that its own class refuses (a validator, a converter), or whose gap is not positive or
    longer than declared, is quarantined. One for which the gap's function raises has failed.
    """
    starts = micros(table["time"])
    objects, refused = _objects(spec, table)
    failed: dict[int, str] = {}
    if callable(spec.timeout.gap):
        gaps = _gaps(spec, spec.timeout.gap, objects, refused, failed)
        ends = window_end(starts, gaps)
    else:
        ends = window_end(starts, span_us(spec.timeout.longest))
    events = Events(table, objects, starts, ends)
    rejected = [
        Rejected(kind, [found[place] for place in sorted(found)], table.take(sorted(found)))
        for kind, found in (("quarantined", refused), ("failed", failed))
        if found
    ]
    good = np.ones(len(starts), np.bool_)
    good[[*refused, *failed]] = False
    return events.only(good), rejected


def key_codes(tables: Sequence[Sequence[pa.ChunkedArray]]) -> list[Instants]:
    """
    Give equal keys of several tables equal numbers, from 0 without holes.

    Args:
        tables: The key columns of each table, in the same order.
    """
    lengths = [len(columns[0]) for columns in tables]
    codes = np.zeros(sum(lengths), np.int64)
    for columns in zip(*tables, strict=True):
        chunks = [chunk for column in columns for chunk in column.chunks]
        whole = pa.chunked_array(chunks, type=columns[0].type).combine_chunks()
        values = whole.dictionary_encode()
        own = values.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = own if len(tables[0]) == 1 else _renumbered(codes * len(values.dictionary) + own)
    return np.split(codes, np.cumsum(lengths)[:-1])


def in_total_order(
    keys: Instants, starts: Instants, events: pa.Table, first_event: int
) -> Instants:
    """
    Return the numbers of intervals by (key, start), and events that tie there by their content.

    Times alone leave equal ones in whatever order Spark delivered them, and a re-run may deliver
    them otherwise.

    Args:
        keys: The number of the key of each interval.
        starts: The start of each.
        events: The rows of the events, whose intervals have the numbers from `first_event` on.
        first_event: How many intervals are open sessions; at one start they go first.
    """
    order = np.lexsort((starts, keys)).astype(np.int64)
    same = (np.diff(keys[order]) == 0) & (np.diff(starts[order]) == 0)
    same &= order[:-1] >= first_event
    if not same.any():
        return order
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    numbers = order[tied]
    ranks = _ranks_by_content(events.take(pa.array(numbers - first_event)))
    order[tied] = numbers[np.lexsort((ranks, starts[numbers], keys[numbers]))]
    return order


def _ranks_by_content(rows: pa.Table) -> Instants:
    columns = [_sortable(column) for column in event_columns(rows)]
    ranks = np.zeros(rows.num_rows, np.int64)
    if not columns:
        return ranks
    names = [str(place) for place in range(len(columns))]
    content = pa.table(dict(zip(names, columns, strict=True)))
    order = pc.sort_indices(content, sort_keys=[(name, "ascending") for name in names])
    ranks[order.to_numpy()] = np.arange(rows.num_rows)
    return ranks


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column


def _renumbered(codes: Instants) -> Instants:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _objects(spec: AnySpec, table: pa.Table) -> tuple[list[Any], dict[int, str]]:
    codec = codec_of(spec.event)
    columns = event_columns(table)
    if not columns:
        return [codec.type.build() for _ in range(table.num_rows)], {}
    values = [
        decode_column(field.type, column)
        for field, column in zip(codec.type.fields, columns, strict=True)
    ]
    try:
        return list(map(codec.type.build, *values)), {}
    except Exception:  # noqa: BLE001 (the user's own validators and converters)
        return _objects_one_by_one(codec.type.build, values, spec.event.__name__)


def _objects_one_by_one(
    build: Callable[..., Any], values: list[list[Any]], name: str
) -> tuple[list[Any], dict[int, str]]:
    objects: list[Any] = []
    refused: dict[int, str] = {}
    for place, row in enumerate(zip(*values, strict=True)):
        try:
            objects.append(build(*row))
        except Exception as error:  # noqa: BLE001 (the user's own validators and converters)
            objects.append(None)
            refused[place] = f"{name} refused it: {type(error).__name__}: {error}"
    return objects, refused


def _gaps(
    spec: AnySpec,
    gap: Callable[[Any], timedelta],
    objects: list[Any],
    refused: dict[int, str],
    failed: dict[int, str],
) -> Instants:
    longest = span_us(spec.timeout.longest)
    gaps = np.ones(len(objects), np.int64)
    for place, event in enumerate(objects):
        if place in refused:
            continue
        try:
            found = _gap(gap, event)
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failed[place] = str(error)
            continue
        if 0 < found <= longest:
            gaps[place] = found
        elif found <= 0:
            refused[place] = "the gap is not positive"
        else:
            refused[place] = f"the gap is longer than at_most={spec.timeout.longest}"
    return gaps


def _gap(gap: Callable[[Any], timedelta], event: Any) -> int:
    try:
        found = gap(event)
    except Exception as error:
        what = f"`gap` ({name_of(gap)}) raised {type(error).__name__}: {error}"
        hint = "return timedelta(0) for an event that is to be quarantined"
        raise UserFunctionError(with_hint(what, hint)) from error
    if not isinstance(found, timedelta):
        what = f"`gap` ({name_of(gap)}) must return a timedelta, found {type(found).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    return span_us(found)
