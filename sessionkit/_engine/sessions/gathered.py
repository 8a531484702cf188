"""
What a session keeps of each of its events: its id, to find duplicates, and the event itself.

    events     each.ids, each.held    what's kept of one
    sessions   ids, held              lists of these, in no order

`held` is the event as it came, without its key.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import events_schema, whole
from sessionkit._engine.sessions.aggregates.values import lists_of
from sessionkit._engine.wire.event_ids import ID, event_digests
from sessionkit.spec.session import AnySessionSpec

__all__ = [
    "each_of",
    "each_of_sessions",
    "gathered",
    "gathered_fields",
    "gathered_lists",
    "with_each",
]

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]


def gathered_fields(spec: AnySessionSpec) -> list[pa.Field]:
    """Return the fields of a session that gather something of each event."""
    ids = [] if spec.drop_duplicates_for is None else [pa.field("ids", pa.list_(ID))]
    return ids if spec.per != "both" else [*ids, pa.field("held", pa.list_(_held_type(spec)))]


def _held_type(spec: AnySessionSpec) -> pa.StructType:
    return pa.struct([field for field in events_schema(spec) if not field.name.startswith("key.")])


def with_each(spec: AnySessionSpec, events: pa.Table) -> pa.Table:
    """Return events with what is kept of each."""
    for field in gathered_fields(spec):
        kind = field.type.value_type
        if field.name == "ids":
            column = pa.array(event_digests(spec, events), kind)
        else:
            parts = [whole(events[part.name]) for part in kind]
            column = pa.StructArray.from_arrays(parts, fields=list(kind))
        events = events.append_column(f"each.{field.name}", column)
    return events


def gathered(
    spec: AnySessionSpec, touched: pa.Table, events: pa.Table, owners: Numbers, chosen: Mask
) -> list[pa.Array]:
    """
    Return what sessions keep of all of their events.

    Args:
        spec: The spec.
        touched: The open sessions that became part of them.
        events: The events that did.
        owners: The number of the session of each of both.
        chosen: Which sessions.
    """
    columns = []
    for field in gathered_fields(spec):
        before, came = whole(touched[field.name]), whole(events[f"each.{field.name}"])
        of_before, of_event = np.split(owners, [len(before)])
        of_each = np.concatenate([of_before[pc.list_parent_indices(before)], of_event])
        order = np.argsort(of_each, kind="stable")
        values = pa.concat_arrays([before.flatten(), came]).take(pa.array(order))
        lists = lists_of(values, np.bincount(of_each, minlength=len(chosen)))
        columns.append(lists.filter(pa.array(chosen)))
    return columns


def each_of(spec: AnySessionSpec, events: pa.Table) -> list[tuple[Any, ...]]:
    """Return what is kept of each event, a value for each field."""
    columns = [events[f"each.{field.name}"].to_pylist() for field in gathered_fields(spec)]
    return list(zip(*columns, strict=True)) if columns else [()] * events.num_rows


def each_of_sessions(spec: AnySessionSpec, sessions: pa.Table) -> list[list[tuple[Any, ...]]]:
    """Return the same of each event of each session."""
    columns = [sessions[field.name].to_pylist() for field in gathered_fields(spec)]
    if not columns:
        return [[]] * sessions.num_rows
    # Events from before a query had ids have none: the lists may differ in length.
    return [list(zip_longest(*lists)) for lists in zip(*columns, strict=True)]


def gathered_lists(spec: AnySessionSpec, kept: Sequence[Sequence[Sequence[Any]]]) -> list[pa.Array]:
    """Return what sessions keep, from a value of each field for each event of each session."""
    return [
        pa.array(
            [[each[place] for each in session if each[place] is not None] for session in kept],
            field.type,
        )
        for place, field in enumerate(gathered_fields(spec))
    ]
