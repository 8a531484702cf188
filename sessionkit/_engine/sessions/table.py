"""
The Arrow table of the open sessions of a bucket, and how a bucket is stored.

    sessions   key.*, start, end, events, state.*      a row an open session, in no order

Instants are timestamps of microseconds in UTC; `end` is exclusive.
"""

import json
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import INSTANT, events_schema, key_schema, micros
from sessionkit._instants import span_us
from sessionkit.session import SessionSpec
from sessionkit.state import codec_of, pack, type_text, unpack

__all__ = [
    "BucketState",
    "empty_state",
    "identity",
    "load_state",
    "sessions_schema",
    "store_state",
]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]


@attrs.frozen
class BucketState:
    """
    What a bucket remembers between micro-batches.

    Attributes:
        sessions: The open sessions.
        buffered: The events that wait for their turn, under `order="event_time"`.
    """

    sessions: pa.Table
    buffered: pa.Table

    @property
    def is_empty(self) -> bool:
        """Whether nothing need be stored."""
        return not (self.sessions.num_rows or self.buffered.num_rows)

    @property
    def due_us(self) -> int:
        """The first instant that the watermark must reach for something to happen here."""
        instants_us = np.concatenate([micros(self.sessions["end"]), micros(self.buffered["time"])])
        return int(instants_us.min())


def sessions_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the table of open sessions."""
    own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
    state = [field.with_name(f"state.{field.name}") for field in codec_of(spec.state).schema]
    return pa.schema([*key_schema(spec), *own, *state])


def empty_state(spec: AnySpec) -> BucketState:
    """Return the state of a bucket that remembers nothing."""
    return BucketState(sessions_schema(spec).empty_table(), events_schema(spec).empty_table())


def identity(spec: AnySpec) -> bytes:
    """Return what must not change while a checkpoint lives, as JSON."""
    gap = spec.timeout.gap
    entries = {
        "keys": [[field.name, type_text(field.type)] for field in spec.key_fields],
        "bucket_count": spec.bucket_count,
        "gap_us": None if callable(gap) else span_us(spec.timeout.longest),
        "longest_gap_us": span_us(spec.timeout.longest),
        "gap_inclusive": spec.timeout.gap_inclusive,
        "watermark_delay_ms": spec.delay_ms,
        "retention_ms": spec.retention_ms,
        "order": spec.order,
        "state": {field.name: type_text(field.type) for field in codec_of(spec.state).type.fields},
        "state_version": spec.state_version,
    }
    if spec.order == "event_time":
        fields = (*codec_of(spec.event).type.fields, *spec.passthrough_fields)
        entries["buffered"] = {field.name: type_text(field.type) for field in fields}
    return json.dumps(entries, sort_keys=True).encode()


def store_state(spec: AnySpec, state: BucketState) -> bytes:
    """Return the bytes of a bucket; events only where any are buffered."""
    tables = [state.sessions, state.buffered] if state.buffered.num_rows else [state.sessions]
    return pack(identity(spec), tables)


def load_state(spec: AnySpec, payload: bytes) -> BucketState:
    """
    Return a bucket from its bytes.

    Raises:
        StateCorruptedError: The bytes are damaged.
        StateMismatchError: They were written under other rules than those of the spec.
    """
    sessions, *buffered = unpack(payload, identity(spec))
    # By name: the fields of a class may have been put in another order.
    return BucketState(
        sessions.select(sessions_schema(spec).names),
        buffered[0].select(events_schema(spec).names)
        if buffered
        else events_schema(spec).empty_table(),
    )
