"""
The Arrow table of the keys of a bucket, under a `StatefulSpec`, and how it is stored.

    keys   key.*, exists, seen, heard, created, updated, timers, event_timer, processing_timer,
           state.*                                            a row a key, in no order

exists            whether the key has a state; without one, state.* are null
seen              the latest event time of the key; 1970-01-01 without an event time
heard             the processing time of the last micro-batch with events of the key
created, updated  when the state was first and last set, on the clock of a `TimeToLive`
timers            the named timers: name, is_event (which clock), at
event_timer, processing_timer    the earliest of them on either clock

Instants are timestamps of microseconds in UTC.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import INSTANT, key_schema, micros
from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit._key_view import Armed
from sessionkit.state import codec_of, pack, type_text, unpack
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import Clock, Deadline, deadlines_of

__all__ = [
    "TIMERS",
    "age_clock",
    "due_us",
    "empty_keys",
    "keyed_identity",
    "keys_schema",
    "load_keys",
    "policy_ends",
    "read_timers",
    "store_keys",
    "timer_columns",
]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]
Instants: TypeAlias = npt.NDArray[np.int64]

TIMERS: Final = pa.list_(
    pa.struct(
        [
            pa.field("name", pa.string()),
            pa.field("is_event", pa.bool_()),
            pa.field("at", pa.int64()),
        ]
    )
)
EARLIEST: Final[dict[Clock, str]] = {
    "event_time": "event_timer",
    "processing_time": "processing_timer",
}


def keys_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the table of keys."""
    own = [
        pa.field("exists", pa.bool_()),
        *(
            pa.field(name, INSTANT)
            for name in ("last_event_time", "last_processing_time", "created", "updated")
        ),
        pa.field("timers", TIMERS),
        pa.field("event_timer", INSTANT),
        pa.field("processing_timer", INSTANT),
    ]
    state = [field.with_name(f"state.{field.name}") for field in codec_of(spec.state).schema]
    return pa.schema([*key_schema(spec), *own, *state])


def empty_keys(spec: AnySpec) -> pa.Table:
    """Return the table of a bucket that remembers nothing."""
    return keys_schema(spec).empty_table()


def policy_ends(keys: pa.Table, deadline: Deadline) -> Instants:
    """Return when a policy ends each key; never where what it counts from is missing."""
    since = keys[deadline.since].cast(pa.int64())
    ends = pc.add(since, span_us(deadline.span)).fill_null(END_OF_TIME_US + 1)
    result: Instants = ends.to_numpy()
    return result


def age_clock(spec: AnySpec) -> Clock | None:
    """Return the clock on which the age of a state is counted; None where none is."""
    ages = (d.clock for d in deadlines_of(spec.timeout) if d.since in ("created", "updated"))
    return next(ages, None)


def due_us(spec: AnySpec, keys: pa.Table, clock: Clock) -> int | None:
    """
    Return the instant that a clock must pass, strictly, for something to happen to a key.

    A key that a policy ends is over when the clock reaches the end: a microsecond earlier.
    """
    timers = micros(keys[EARLIEST[clock]].cast(pa.int64()).fill_null(END_OF_TIME_US))
    ends = [
        policy_ends(keys, deadline) - 1
        for deadline in deadlines_of(spec.timeout)
        if deadline.clock == clock
    ]
    earliest = min((int(times.min()) for times in (timers, *ends) if len(times)), default=None)
    return None if earliest is None or earliest >= END_OF_TIME_US - 1 else earliest


def read_timers(column: pa.ChunkedArray) -> list[dict[str, Armed]]:
    """Return the timers of each key, by name."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(lists) or not pc.sum(pc.list_value_length(lists)).as_py():
        return [{} for _ in range(len(lists))]
    clocks: dict[bool, Clock] = {True: "event_time", False: "processing_time"}
    return [
        {one["name"]: Armed(clocks[one["is_event"]], one["at"]) for one in timers}
        for timers in lists.to_pylist()
    ]


def timer_columns(timers: Sequence[dict[str, Armed]]) -> list[pa.Array]:
    """Return the columns `timers`, `event_timer` and `processing_timer`."""
    if not any(timers):
        nothing = pa.nulls(len(timers), INSTANT)
        return [pa.array([[]] * len(timers), TIMERS), nothing, nothing]
    stored = [
        [
            {"name": name, "is_event": one.clock == "event_time", "at": one.at_us}
            for name, one in named.items()
        ]
        for named in timers
    ]
    return [
        pa.array(stored, TIMERS),
        *(
            pa.array([_earliest(named, clock) for named in timers], pa.int64()).cast(INSTANT)
            for clock in EARLIEST
        ),
    ]


def _earliest(timers: dict[str, Armed], clock: Clock) -> int | None:
    return min((one.at_us for one in timers.values() if one.clock == clock), default=None)


def keyed_identity(spec: AnySpec) -> bytes:
    """Return what must not change while a checkpoint lives, as JSON."""
    clock = age_clock(spec)
    entries: dict[str, Any] = {
        "kind": "stateful",
        "layout": spec.layout,
        "keys": [[field.name, type_text(field.type)] for field in spec.key_fields],
        "bucket_count": spec.bucket_count,
        "clock": spec.clock,
        "time_to_live_clock": [] if clock is None else [clock],
        "watermark_delay_ms": spec.delay_ms,
        "retention_ms": spec.retention_ms,
        "state": {field.name: type_text(field.type) for field in codec_of(spec.state).type.fields},
        "state_version": spec.state_version,
        # It sets no timers, and would leave those that are stored for ever.
        "by_bucket": spec.handler == "bucket",
    }
    if spec.layout == "per_key":
        # Spark stores the fields of a row by their places, whatever they are called.
        entries["state_order"] = [field.name for field in codec_of(spec.state).type.fields]
    return json.dumps(entries, sort_keys=True).encode()


def store_keys(spec: AnySpec, keys: pa.Table) -> bytes:
    """Return the bytes of a bucket."""
    return pack(keyed_identity(spec), [keys])


def load_keys(spec: AnySpec, payload: bytes) -> pa.Table:
    """
    Return the table of keys from its bytes.

    Raises:
        StateCorruptedError: The bytes are damaged.
        StateMismatchError: They were written under other rules than those of the spec.
    """
    (keys,) = unpack(payload, keyed_identity(spec))
    # By name: the fields of a class may have been put in another order.
    return keys.select(keys_schema(spec).names)
