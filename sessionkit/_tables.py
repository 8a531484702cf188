"""
The Arrow tables of a bucket: open sessions, events, and how they are stored.

    sessions   key.*, start, end, events, state.*      a row an open session, in no order
    events     key.*, time, event.*, carry.*           a row an event

Instants are timestamps of microseconds in UTC; `end` is exclusive. The names of the user's columns
carry a prefix, so that no two can collide.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._instants import span_us
from sessionkit.session import SessionSpec
from sessionkit.state import codec_of, pack, type_text, unpack

__all__ = [
    "BucketState",
    "Rejected",
    "empty_state",
    "event_columns",
    "events_schema",
    "identity",
    "instants",
    "key_columns",
    "load_state",
    "micros",
    "sessions_schema",
    "state_columns",
    "store_state",
]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]
Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

INSTANT = pa.timestamp("us", tz="UTC")


@attrs.frozen
class BucketState:
    """
    What a bucket remembers between micro-batches.

    Attributes:
        sessions: The open sessions.
        held: The events that wait for their turn, under `order="event_time"`.
    """

    sessions: pa.Table
    held: pa.Table

    @property
    def is_empty(self) -> bool:
        """Whether nothing need be stored."""
        return not (self.sessions.num_rows or self.held.num_rows)

    @property
    def due_us(self) -> int:
        """The first instant that the watermark must reach for something to happen here."""
        instants_us = np.concatenate([micros(self.sessions["end"]), micros(self.held["time"])])
        return int(instants_us.min())


@attrs.frozen
class Rejected:
    """
    Rows that became no part of a result, with the reason.

    Attributes:
        kind: `late`, `quarantined` or `failed` for events, `unfinished` for sessions.
        reasons: Why, one for each row.
        rows: The events or sessions. Keys, times and carried columns of events may be null here.
    """

    kind: str
    reasons: Sequence[str]
    rows: pa.Table

    @classmethod
    def chosen(cls, kind: str, reason: str, rows: pa.Table, mask: Mask) -> "list[Rejected]":
        """Return the rows that a mask chooses, all for one reason; nothing where there is none."""
        if not mask.any():
            return []
        found = rows.filter(pa.array(mask))
        return [cls(kind, [reason] * found.num_rows, found)]


def sessions_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the table of open sessions."""
    own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
    state = [field.with_name(f"state.{field.name}") for field in codec_of(spec.state).schema]
    return pa.schema([*_key_fields(spec), *own, *state])


def events_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the table of events."""
    event = [field.with_name(f"event.{field.name}") for field in codec_of(spec.event).schema]
    carry = [pa.field(f"carry.{field.name}", field.type.arrow) for field in spec.carry_fields]
    return pa.schema([*_key_fields(spec), pa.field("time", INSTANT), *event, *carry])


def empty_state(spec: AnySpec) -> BucketState:
    """Return the state of a bucket that remembers nothing."""
    return BucketState(sessions_schema(spec).empty_table(), events_schema(spec).empty_table())


def key_columns(table: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of the key."""
    return _columns(table, "key.")


def state_columns(table: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of the user's state."""
    return _columns(table, "state.")


def event_columns(table: pa.Table) -> list[pa.ChunkedArray]:
    """Return the columns of the user's event."""
    return _columns(table, "event.")


def micros(column: pa.Array | pa.ChunkedArray) -> Instants:
    """Return a column of instants as microseconds since the epoch."""
    numbers = column.cast(pa.int64())
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    result: Instants = numbers.to_numpy(zero_copy_only=False)
    return result


def instants(instants_us: Instants) -> pa.Array:
    """Return microseconds since the epoch as a column of instants."""
    return pa.array(instants_us, type=pa.int64()).cast(INSTANT)


def identity(spec: AnySpec) -> bytes:
    """Return what must not change while a checkpoint lives, as JSON."""
    gap = spec.timeout.gap
    entries = {
        "keys": [[field.name, type_text(field.type)] for field in spec.key_fields],
        "bucket_count": spec.bucket_count,
        "gap_us": None if callable(gap) else span_us(spec.timeout.longest),
        "longest_gap_us": span_us(spec.timeout.longest),
        "exact_gap": spec.timeout.exact_gap,
        "watermark_delay_ms": spec.delay_ms,
        "horizon_ms": spec.horizon_ms,
        "order": spec.order,
        "state": {field.name: type_text(field.type) for field in codec_of(spec.state).type.fields},
        "state_version": spec.state_version,
    }
    if spec.order == "event_time":
        fields = (*codec_of(spec.event).type.fields, *spec.carry_fields)
        entries["held"] = {field.name: type_text(field.type) for field in fields}
    return json.dumps(entries, sort_keys=True).encode()


def store_state(spec: AnySpec, state: BucketState) -> bytes:
    """Return the bytes of a bucket; events only where any are held."""
    tables = [state.sessions, state.held] if state.held.num_rows else [state.sessions]
    return pack(identity(spec), tables)


def load_state(spec: AnySpec, payload: bytes) -> BucketState:
    """
    Return a bucket from its bytes.

    Raises:
        StateCorruptedError: The bytes are damaged.
        StateMismatchError: They were written under other rules than those of the spec.
    """
    sessions, *held = unpack(payload, identity(spec))
    # By name: the fields of a class may have been put in another order.
    return BucketState(
        sessions.select(sessions_schema(spec).names),
        held[0].select(events_schema(spec).names) if held else events_schema(spec).empty_table(),
    )


def _key_fields(spec: AnySpec) -> list[pa.Field]:
    return [pa.field(f"key.{field.name}", field.type.arrow) for field in spec.key_fields]


def _columns(table: pa.Table, prefix: str) -> list[pa.ChunkedArray]:
    return [table[name] for name in table.column_names if name.startswith(prefix)]
