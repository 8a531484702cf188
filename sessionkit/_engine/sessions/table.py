"""
The Arrow table of the open sessions of a group.

    sessions   key.*, start, end, events, state.*      a row an open session, in no order

Instants are timestamps of microseconds in UTC; `end` is exclusive.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from sessionkit._engine.rows.identity import shared_identity
from sessionkit._engine.rows.objects import decode_keys, encode_states
from sessionkit._engine.rows.table import INSTANT, key_schema, state_schema
from sessionkit._engine.sessions.aggregates.kernels import stored_fields
from sessionkit._instants import span_us
from sessionkit.session import AnySessionSpec
from sessionkit.state import type_text

__all__ = ["session_identity", "sessions_schema", "state_columns"]


def sessions_schema(spec: AnySessionSpec) -> pa.Schema:
    """Return the schema of the table of open sessions."""
    own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
    return pa.schema([*key_schema(spec), *own, *_stored_schema(spec)])


def _stored_schema(spec: AnySessionSpec) -> list[pa.Field]:
    """Return the fields of the columns of the state: the user's own, or those of aggregates."""
    if spec.aggregates is None:
        return state_schema(spec)
    return [pa.field(f"state.{field.name}", field.type.arrow) for field in stored_fields(spec)]


def state_columns(spec: AnySessionSpec, keys: pa.Table, states: Sequence[Any]) -> list[pa.Array]:
    """
    Return states as columns.

    Raises:
        StateValueError: A state does not fit its fields; key and path are named.
    """
    return encode_states(spec.state, states, partial(_key_at, spec, keys))


def _key_at(spec: AnySessionSpec, keys: pa.Table, place: int) -> Any:
    return decode_keys(spec, keys.slice(place, 1))[0]


def session_identity(spec: AnySessionSpec) -> bytes:
    """Return what must not change while a checkpoint lives, as JSON."""
    gap = spec.timeout.gap
    entries: dict[str, Any] = {
        **shared_identity(spec),
        "kind": "session",
        "gap_us": None if callable(gap) else span_us(spec.timeout.longest),
        "longest_gap_us": span_us(spec.timeout.longest),
        "gap_inclusive": spec.timeout.gap_inclusive,
    }
    if spec.aggregates is not None:
        entries["state"] = {field.name: type_text(field.type) for field in stored_fields(spec)}
        entries["aggregates"] = {one.name: one.text for one in spec.bound}
    return json.dumps(entries, sort_keys=True).encode()
