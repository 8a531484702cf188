"""
The Arrow table of the keys of a group, under a `StatefulSpec`.

    keys   key.*, exists, last_event_time, last_processing_time, created, updated,
           timers, event_timer, processing_timer, state.*             a row a key, in no order

exists                the key has a state; without one, state.* are null
last_event_time       the latest event time of the key; 1970-01-01 without an event time
last_processing_time  the processing time of the last micro-batch with events of the key
created, updated      when the state was first and last set, on the clock of a `TimeToLive`
timers                the named timers: name, is_event (which clock), at
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

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.logic import NEVER_US
from sessionkit._engine.rows.identity import shared_identity
from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.rows.table import INSTANT, key_schema, micros, state_schema, whole
from sessionkit._instants import END_OF_TIME_US, span_us
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.spec.views import Armed
from sessionkit.state import codec_of
from sessionkit.timeouts import Clock, Deadline, deadlines_of, has_passed, is_over

__all__ = [
    "STAMPS",
    "TIMERS",
    "age_clock",
    "due_us",
    "is_due_in",
    "key_identity",
    "keys_schema",
    "policy_ends",
    "read_timers",
    "timer_columns",
]

Instants: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

STAMPS: Final = ("last_event_time", "last_processing_time", "created", "updated")
"""The instants of a key from which its timeout policy counts."""
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


@remembered
def keys_schema(spec: AnyStatefulSpec) -> pa.Schema:
    """Return the schema of the table of keys."""
    own = [
        pa.field("exists", pa.bool_()),
        *(pa.field(name, INSTANT) for name in STAMPS),
        pa.field("timers", TIMERS),
        pa.field("event_timer", INSTANT),
        pa.field("processing_timer", INSTANT),
    ]
    return pa.schema([*key_schema(spec), *own, *state_schema(spec)])


def policy_ends(keys: pa.Table, deadline: Deadline) -> Instants:
    """Return when a policy ends each key; never where what it counts from is missing."""
    since = keys[deadline.since].cast(pa.int64())
    ends = pc.add(since, span_us(deadline.span)).fill_null(END_OF_TIME_US + 1)
    result: Instants = ends.to_numpy()
    return result


def age_clock(spec: AnyStatefulSpec) -> Clock | None:
    """Return the clock on which the age of a state is counted; None where none is."""
    ages = (d.clock for d in deadlines_of(spec.timeout) if d.since in ("created", "updated"))
    return next(ages, None)


def due_us(spec: AnyStatefulSpec, keys: pa.Table, clock: Clock) -> Instants:
    """
    Return the instant that a clock must reach for something to happen to each key.

    A timer goes off once its clock is past it: a microsecond later.
    """
    due = _earliest_of(keys, EARLIEST[clock]) + 1
    for deadline in deadlines_of(spec.timeout):
        if deadline.clock == clock:
            due = np.minimum(due, policy_ends(keys, deadline))
    return np.minimum(due, NEVER_US)


def is_due_in(spec: AnyStatefulSpec, keys: pa.Table, clocks: BatchClocks) -> Flags:
    """
    Mark the keys for which something is due beside the events of a micro-batch.

    Under `order="event_time"` that includes what a policy ends in event time.
    """
    due = has_passed(_earliest_of(keys, "event_timer"), clocks.watermark_us)
    due |= has_passed(_earliest_of(keys, "processing_timer"), clocks.processing_us)
    for deadline in deadlines_of(spec.timeout) if spec.order == "event_time" else ():
        if deadline.clock == "event_time":
            due |= is_over(policy_ends(keys, deadline), clocks.watermark_us)
    return due


def _earliest_of(keys: pa.Table, name: str) -> Instants:
    return micros(keys[name].cast(pa.int64()).fill_null(END_OF_TIME_US))


def read_timers(column: pa.ChunkedArray) -> list[dict[str, Armed]]:
    """Return the timers of each key, by name."""
    lists = whole(column)
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


def key_identity(spec: AnyStatefulSpec) -> bytes:
    """Return the rules and the types under which keys are stored, as JSON."""
    clock = age_clock(spec)
    entries: dict[str, Any] = {
        **shared_identity(spec, codec_of(spec.state).type.fields),
        "kind": "stateful",
        "clock": spec.clock,
        "time_to_live_clock": [] if clock is None else [clock],
        # It sets no timers, and would leave those that are stored forever.
        "by_bucket": spec.handler == "bucket",
    }
    return json.dumps(entries, sort_keys=True).encode()
