"""
The compiled form of a stateful spec, and the Arrow table of a group's keys.

    keys   key.*, exists, last_event_time, last_processing_time, created, updated,
           timers, event_timer, processing_timer, state.*             a row per key, unordered

exists                whether the key has a state; without a state, state.* are null
last_event_time       the latest event time of the key; 1970-01-01 without an event time
last_processing_time  the processing time of the key's last micro-batch with events
created, updated      when the state was first and last set, on the clock of a `TimeToLive`
timers                the named timers: name, is_event (which clock), at
event_timer, processing_timer    the earliest timer on each clock

Instants are timestamps in microseconds and UTC.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Generic

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arguments import explained
from sessionkit._arrays import INSTANT, Mask, Numbers, instants, micros, whole
from sessionkit._engine.boundaries import has_passed, is_over
from sessionkit._engine.micro_batch import (
    CLOCKS,
    NEVER_US,
    BatchClocks,
    GroupState,
    shared_identity,
)
from sessionkit._engine.rows.objects import (
    as_struct,
    decode_keys,
    decode_states,
    encode_keys,
    encode_states,
    key_struct,
)
from sessionkit._instants import END_OF_TIME_US, instant_of, micros_of, span_us
from sessionkit.spec.base import S
from sessionkit.spec.stateful import AnyStatefulSpec, StatefulSpec
from sessionkit.spec.views import StoredTimer, Timer, TimerRules
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType, Field
from sessionkit.timeouts._policies import Clock, deadlines_of

STAMPS: Final = ("last_event_time", "last_processing_time", "created", "updated")
"""The instants of a key from which its timeout policy counts."""
EARLIEST: Final[dict[Clock, str]] = {
    "event_time": "event_timer",
    "processing_time": "processing_timer",
}
TIMER: Final = {"name": pa.string(), "is_event": pa.bool_(), "at": pa.int64()}
TIMERS: Final = pa.list_(pa.struct(TIMER))
SHOWN_TIMERS: Final = pa.map_(pa.string(), pa.struct({"clock": pa.string(), "at": INSTANT}))


def clock_times(clocks: BatchClocks) -> dict[Clock, int]:
    """Return the instant of each clock, in microseconds."""
    return {"event_time": clocks.watermark_us, "processing_time": clocks.processing_us}


@attrs.frozen
class LiveSpan:
    """A named part of a timeout policy: a span on a clock after one of the `STAMPS`."""

    name: str
    clock: Clock
    since: str
    length_us: int

    def ends(self, keys: pa.Table) -> Numbers:
        """Return when each key ends, in microseconds; never if its stamp is null."""
        since = keys[self.since].cast(pa.int64())
        # A batch run ends at the end of time, so a key that never ends must end after it.
        ends: Numbers = pc.add(since, self.length_us).fill_null(END_OF_TIME_US + 1).to_numpy()
        return ends


@attrs.frozen(eq=False, kw_only=True)
class KeyProgram:
    """
    A compiled stateful spec.

    With `rejects`, a failed call changes nothing, instead of stopping the query. `age_clock` is the
    clock of a `TimeToLive`; None without one.
    """

    spec: AnyStatefulSpec
    function: Any
    on_timer: Any
    spans: Sequence[LiveSpan]
    age_clock: Clock | None
    in_time_order: bool
    rejects: bool
    timer_rules: TimerRules
    state: AttrsType
    state_fields: Sequence[Field]
    schema: pa.Schema
    no_rows: pa.Table

    @classmethod
    def of(cls, spec: AnyStatefulSpec) -> "KeyProgram":
        codec = codec_of(spec.state)
        columns = [
            pa.field("exists", pa.bool_()),
            *(pa.field(name, INSTANT) for name in STAMPS),
            pa.field("timers", TIMERS),
            *(pa.field(name, INSTANT) for name in EARLIEST.values()),
        ]
        state = [field.with_name(f"state.{field.name}") for field in codec.schema]
        deadlines = deadlines_of(spec.timeout)
        ages = (d.clock for d in deadlines if d.since in ("created", "updated"))
        return cls(
            spec=spec,
            function=spec.function,
            on_timer=spec.timer_function,
            spans=[LiveSpan(d.name, d.clock, d.since, span_us(d.span)) for d in deadlines],
            age_clock=next(ages, None),
            in_time_order=spec.order == "event_time",
            rejects=spec.on_error == "reject",
            timer_rules=spec.timer_rules,
            state=codec.type,
            state_fields=codec.type.fields,
            schema=pa.schema([*spec.key_schema, *columns, *state]),
            no_rows=spec.result_schema.empty_table(),
        )

    @cached_property
    def identity(self) -> bytes:
        """The settings and types under which keys are stored, as JSON."""
        entries: dict[str, Any] = {
            **shared_identity(self.spec, self.state_fields),
            "kind": "stateful",
            "clock": self.spec.clock,
            "time_to_live_clock": [] if self.age_clock is None else [self.age_clock],
            # A bucket function can't handle timers: stored timers would stay forever.
            "by_bucket": self.spec.takes_buckets,
        }
        return json.dumps(entries, sort_keys=True).encode()

    def completed(self, kept: pa.Table) -> pa.Table:
        return kept  # Every spec stores the same of a key.

    def incompatibilities(self, _: Any) -> list[str]:
        return []  # The identity covers every difference.

    def migrated(self, _: Any, kept: pa.Table) -> pa.Table:
        return kept  # All stateful specs store keys in the same columns.

    def due(self, keys: pa.Table) -> dict[Clock, Numbers]:
        """
        Return the instant at which each clock makes each key due.

        A timer fires once its clock has passed it: a microsecond later.
        """
        # Timers at 10, none, 30 are due at 11, never, 31.
        due = {clock: _earliest_of(keys, clock) + 1 for clock in CLOCKS}
        for span in self.spans:
            due[span.clock] = np.minimum(due[span.clock], span.ends(keys))
        return {clock: np.minimum(at_us, NEVER_US) for clock, at_us in due.items()}

    def is_due(self, keys: pa.Table, clocks: BatchClocks) -> Mask:
        """Mark the keys that a micro-batch calls even if they have no events."""
        due: Mask = has_passed(_earliest_of(keys, "event_time"), clocks.watermark_us)
        due |= has_passed(_earliest_of(keys, "processing_time"), clocks.processing_us)
        return due | self.is_over(keys, clocks, CLOCKS[:1]) if self.in_time_order else due

    def is_over(self, keys: pa.Table, clocks: BatchClocks, by: Collection[Clock]) -> Mask:
        """Mark the keys that the policy ends on one of the clocks `by`."""
        now, over = clock_times(clocks), np.zeros(keys.num_rows, np.bool_)
        for span in self.spans:
            if span.clock in by:
                over |= is_over(span.ends(keys), now[span.clock])
        return over


def _earliest_of(keys: pa.Table, clock: Clock) -> Numbers:
    # No clock passes the end of time, so a timer there never fires.
    return micros(keys[EARLIEST[clock]].cast(pa.int64()).fill_null(END_OF_TIME_US))


def read_timers(column: pa.ChunkedArray) -> list[dict[str, StoredTimer]]:
    """Return the timers of each key, by name."""
    lists = whole(column)
    if not len(lists) or not pc.sum(pc.list_value_length(lists)).as_py():
        return [{} for _ in range(len(lists))]
    clocks: dict[bool, Clock] = {True: "event_time", False: "processing_time"}
    return [
        {entry["name"]: StoredTimer(clocks[entry["is_event"]], entry["at"]) for entry in entries}
        for entries in lists.to_pylist()
    ]


def timer_columns(timers: Sequence[dict[str, StoredTimer]]) -> list[pa.Array]:
    """Return the columns `timers`, `event_timer` and `processing_timer`."""
    if not any(timers):
        no_timers = pa.nulls(len(timers), INSTANT)
        return [pa.array([[]] * len(timers), TIMERS), no_timers, no_timers]
    stored = [
        [
            {"name": name, "is_event": timer.clock == "event_time", "at": timer.at_us}
            for name, timer in of_key.items()
        ]
        for of_key in timers
    ]
    # The timers {a: 5, b: 3} and {}, all in event time, give 3, null in event time, and null, null
    # in processing time.
    earliest = ([_earliest(of_key, clock) for of_key in timers] for clock in EARLIEST)
    columns = [pa.array(instants, pa.int64()).cast(INSTANT) for instants in earliest]
    return [pa.array(stored, TIMERS), *columns]


def _earliest(timers: dict[str, StoredTimer], clock: Clock) -> int | None:
    return min((timer.at_us for timer in timers.values() if timer.clock == clock), default=None)


@explained(shows_call=False)
@attrs.frozen
class StoredKey(Generic[S]):
    """
    A key with a stored state or timers.

    `stored_keys()` of a `StatefulDriver` and `read_state` return them, and a `StatefulDriver` can
    start with some.

    Attributes:
        key: The key: a named tuple with the columns of `StatefulSpec.keys`. If you make one: the
            value of the key column, or a tuple of values.
        state: A copy of its state; None if it has only timers.
        timers: Its timers, by name: `Timer` objects with `clock` and `at`.
        last_event_time: Its latest event time, in UTC; None without one.
    """

    key: Any
    state: S | None
    timers: Mapping[str, Timer] = attrs.field(factory=dict)
    last_event_time: datetime | None = attrs.field(default=None, eq=False)


def stored_keys_of(spec: StatefulSpec[Any, S, Any], memory: GroupState) -> list[StoredKey[S]]:
    """Return the keys of a group that have a state or timers."""
    rows = memory.kept
    exists = rows["exists"].to_pylist()
    # With `exists` [True, False, True], only the first and the third key take a decoded state.
    states = iter(decode_states(spec.state, rows.filter(rows["exists"])))
    timers = [
        {name: Timer(timer.clock, instant_of(timer.at_us)) for name, timer in stored.items()}
        for stored in read_timers(rows["timers"])
    ]
    keys, times = decode_keys(spec, rows), last_event_times(spec, rows).to_pylist()
    return [
        StoredKey(key, next(states) if has_state else None, of_key, at)
        for key, has_state, of_key, at in zip(keys, exists, timers, times, strict=True)
    ]


def last_event_times(spec: AnyStatefulSpec, rows: pa.Table) -> pa.Array:
    """Return the latest event time of each key; null without one."""
    times = whole(rows["last_event_time"])
    return pa.nulls(len(times), INSTANT) if spec.event_time is None else times


def memory_of_keys(
    spec: StatefulSpec[Any, S, Any], keys: Sequence[StoredKey[S]], processing_us: int
) -> GroupState:
    """
    Return the memory of a group with these keys, which are tuples.

    Spans of a timeout policy count from the last event time, or from the given processing time.
    """
    program, number = KeyProgram.of(spec), len(keys)
    of_event = [micros_of(key.last_event_time) if key.last_event_time else 0 for key in keys]
    times = {
        "event_time": instants(np.array(of_event, np.int64)),
        "processing_time": instants(np.full(number, processing_us)),
    }
    timers = [
        {name: StoredTimer(timer.clock, micros_of(timer.at)) for name, timer in key.timers.items()}
        for key in keys
    ]
    stored = [place for place, key in enumerate(keys) if key.state is not None]
    states = encode_states(
        spec.state, [keys[place].state for place in stored], lambda n: keys[stored[n]].key
    )
    # Of keys with the states a, none, b, the places are 0, null, 1.
    places = np.full(number, -1)
    places[stored] = np.arange(len(stored))
    at = pa.array(places, mask=places < 0)
    columns = [
        *encode_keys(spec, [key.key for key in keys]).values(),
        pa.array(places >= 0),
        times["event_time"],
        times["processing_time"],
        *[times[program.age_clock or "processing_time"]] * 2,
        *timer_columns(timers),
        *(column.take(at) for column in states),
    ]
    kept = pa.Table.from_arrays(columns, schema=program.schema)
    return GroupState(kept, spec.events_schema.empty_table())


def stored_key_rows(spec: AnyStatefulSpec, memory: GroupState) -> pa.Table:
    """Return the keys of a group as rows, with the columns of `StoredKey`."""
    rows = memory.kept
    timers = [
        [(name, {"clock": timer.clock, "at": timer.at_us}) for name, timer in stored.items()]
        for stored in read_timers(rows["timers"])
    ]
    states = [rows[name] for name in rows.column_names if name.startswith("state.")]
    fields = codec_of(spec.state).type.fields
    columns = {
        "key": key_struct(spec, rows),
        "state": as_struct(fields, states, pc.invert(whole(rows["exists"]))),
        "timers": pa.array(timers, SHOWN_TIMERS),
        "last_event_time": last_event_times(spec, rows),
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})
