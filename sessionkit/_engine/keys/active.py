"""The keys of a bucket that a micro-batch touches: found, called, and put back into the table."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from sessionkit._engine.keys.calls import Calls, KeyRun
from sessionkit._engine.keys.frames import event_frame
from sessionkit._engine.keys.table import age_clock, keys_schema, read_timers, timer_columns
from sessionkit._engine.rows.objects import decode_keys, decode_states, encode_states
from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import INSTANT, instants, key_columns, key_schema, micros
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US, LAST_INSTANT_US, instant_of
from sessionkit._key_view import MISSING, BatchTimes, Held
from sessionkit.state import codec_of
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import has_passed

__all__ = ["ActiveKeys", "BatchClocks", "runs_of_rows"]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class BatchClocks:
    """The clocks of a micro-batch, in microseconds."""

    watermark_us: int
    processing_us: int

    @property
    def shown(self) -> BatchTimes:
        """The same as the functions of the user see them."""
        watermark = None
        if self.watermark_us != BEGINNING_US:
            watermark = instant_of(min(self.watermark_us, LAST_INSTANT_US))
        return BatchTimes(watermark, instant_of(self.processing_us))


def runs_of_rows(spec: AnySpec, rows: pa.Table) -> list[KeyRun]:
    """Return the stored keys, ready for calls."""
    if not rows.num_rows:
        return []
    keys, timers = decode_keys(spec, rows), read_timers(rows["timers"])
    return [
        KeyRun(Held(key, value, armed), partial(_stored, spec, rows, place))
        for place, (key, value, armed) in enumerate(
            zip(keys, _values(spec, rows), timers, strict=True)
        )
    ]


def _values(spec: AnySpec, rows: pa.Table) -> list[Any]:
    """Return the states of rows as objects, `MISSING` where there is none."""
    exists = rows["exists"].to_numpy()
    if exists.all():
        return list(decode_states(spec.state, rows))
    states = iter(decode_states(spec.state, rows.filter(pa.array(exists))))
    return [next(states) if there else MISSING for there in exists.tolist()]


def _stored(spec: AnySpec, rows: pa.Table, place: int) -> Any:
    return _values(spec, rows.slice(place, 1))[0]


@attrs.define(eq=False)
class ActiveKeys:
    """
    The keys with events or due timers, and all others.

    Attributes:
        spec: The rules and functions.
        untouched: The rows of all other keys.
        touched: The rows of those that are stored.
        events: The events, in the order of key, time and content.
        order: The places that they had.
        starts: For each key, where its events begin among them; one more at the end.
        first: For each key, its first place in `touched` or, behind these, in `events`.
        runs: The keys, ready for calls.
        failed: The places of the keys whose events failed.
    """

    spec: AnySpec
    untouched: pa.Table
    touched: pa.Table
    events: pa.Table
    order: Numbers
    starts: Numbers
    first: Numbers
    runs: list[KeyRun]
    failed: list[int] = attrs.field(factory=list, init=False)

    @classmethod
    def of(
        cls, spec: AnySpec, keys: pa.Table, events: pa.Table, clocks: BatchClocks
    ) -> "ActiveKeys":
        """Find out which keys are active, and put their events in order."""
        row_codes, event_codes = key_codes([key_columns(keys), key_columns(events)])
        due = has_passed(_earliest(keys, "event_timer"), clocks.watermark_us)
        due |= has_passed(_earliest(keys, "processing_timer"), clocks.processing_us)
        if events.num_rows:
            due |= np.isin(row_codes, event_codes)
        touched = keys.filter(pa.array(due))
        order = in_total_order(event_codes, micros(events["time"]), events, 0)
        events = events.take(pa.array(order))
        codes = np.concatenate([row_codes[due], event_codes[order]])
        active, first = np.unique(codes, return_index=True)
        starts = np.append(np.searchsorted(event_codes[order], active), events.num_rows)
        stored = runs_of_rows(spec, touched)
        fresh = first >= len(stored)
        named = decode_keys(spec, events.take(pa.array(first[fresh] - len(stored))))
        new = iter(KeyRun(Held(key, MISSING, {}), lambda: MISSING) for key in named)
        runs = [next(new) if place >= len(stored) else stored[place] for place in first.tolist()]
        untouched = keys.filter(pa.array(~due))
        return cls(spec, untouched, touched, events, order, starts, first, runs)

    def process(self, calls: Calls, objects: list[Any]) -> dict[int, str]:
        """Hand each key its events; return the reasons of those that failed, by their place."""
        failures: dict[int, str] = {}
        part = self._parts(objects)
        starts = self.starts.tolist()
        for place, run in enumerate(self.runs):
            start, stop = starts[place], starts[place + 1]
            if start == stop:
                continue
            reason = calls.process(run, part(start, stop))
            if reason is not None:
                self.failed.append(place)
                failures |= dict.fromkeys(self.order[start:stop].tolist(), reason)
        return failures

    def _parts(self, objects: list[Any]) -> Callable[[int, int], Any]:
        """Return what gives the events between two places as the function wants them."""
        if self.spec.handler == "frame":
            frame = event_frame(self.spec, self.events)
            return lambda start, stop: _part_of_frame(frame, start, stop)
        ordered = [objects[place] for place in self.order.tolist()]
        return lambda start, stop: ordered[start:stop]

    def table(self, clocks: BatchClocks) -> pa.Table:
        """Return the table of keys from now on."""
        if not self.runs:
            return self.untouched
        kept = np.array(
            [run.held.value is not MISSING or bool(run.held.armed) for run in self.runs], np.bool_
        )
        rows = self._rows(clocks).filter(pa.array(kept))
        return pa.concat_tables([self.untouched, rows])

    def _rows(self, clocks: BatchClocks) -> pa.Table:
        spec, held = self.spec, [run.held for run in self.runs]
        both = pa.concat_tables([self.touched.select(_key_names(spec)), self._event_keys()])
        exists = np.array([one.value is not MISSING for one in held], np.bool_)
        seen, heard = self._seen(), self._heard(clocks.processing_us)
        created, updated = self._stamps(exists, seen, clocks.processing_us)
        return pa.Table.from_arrays(
            [
                *both.take(pa.array(self.first)).columns,
                pa.array(exists),
                instants(seen),
                instants(heard),
                _stamped(created, exists),
                _stamped(updated, exists),
                *timer_columns([one.armed for one in held]),
                *self._states(),
            ],
            schema=keys_schema(spec),
        )

    def _event_keys(self) -> pa.Table:
        return self.events.select(_key_names(self.spec))

    def _has_events(self) -> Mask:
        """Tell which keys have events that count: a failed call leaves no trace."""
        has: Mask = np.diff(self.starts) > 0
        has[self.failed] = False
        return has

    def _of_stored(self, name: str) -> Numbers:
        """Return a column of instants for each key; 0 where the key is new."""
        stored = micros(self.touched[name].cast(pa.int64()).fill_null(0))
        is_stored = self.first < len(stored)
        values = np.zeros(len(self.first), np.int64)
        values[is_stored] = stored[self.first[is_stored]]
        return values

    def _seen(self) -> Numbers:
        seen, has = self._of_stored("last_event_time"), self._has_events()
        is_new = self.first >= self.touched.num_rows
        latest = micros(self.events["time"])[self.starts[1:][has] - 1]
        seen[has] = np.where(is_new[has], latest, np.maximum(seen[has], latest))
        return seen

    def _heard(self, now_us: int) -> Numbers:
        heard = self._of_stored("last_processing_time")
        heard[self._has_events()] = now_us
        return heard

    def _stamps(self, exists: Mask, seen: Numbers, now_us: int) -> tuple[Numbers, Numbers]:
        """Return when each state was made and last set, on the clock of the time to live."""
        by_event_time = age_clock(self.spec) == "event_time"
        now = seen if by_event_time else np.full(len(seen), now_us, np.int64)
        was_set = np.array([run.held.was_set for run in self.runs], np.bool_)
        was_made = was_set & ~self._existed()
        was_made |= np.array([run.held.was_removed for run in self.runs], np.bool_) & exists
        created = np.where(was_made, now, self._of_stored("created"))
        return created, np.where(was_set, now, self._of_stored("updated"))

    def _existed(self) -> Mask:
        existed = np.zeros(len(self.first), np.bool_)
        is_stored = self.first < self.touched.num_rows
        existed[is_stored] = self.touched["exists"].to_numpy()[self.first[is_stored]]
        return existed

    def _states(self) -> list[pa.ChunkedArray]:
        """Return the columns of the state: as stored where none was set, null where none is."""
        codec = codec_of(self.spec.state)
        names = [f"state.{field.name}" for field in codec.type.fields]
        new = [run.held for run in self.runs if run.held.was_set and run.held.value is not MISSING]
        values = [held.value for held in new]
        columns = encode_states(self.spec.state, values, lambda place: new[place].key)
        sources: list[int | None] = []
        number = self.touched.num_rows
        for place, run in zip(self.first.tolist(), self.runs, strict=True):
            if run.held.value is MISSING:
                sources.append(None)
            elif run.held.was_set:
                sources.append(number)
                number += 1
            else:
                sources.append(place)
        chosen = pa.array(sources, pa.int64())
        return [
            pa.chunked_array([*self.touched[name].chunks, column], column.type).take(chosen)
            for name, column in zip(names, columns, strict=True)
        ]


def _earliest(keys: pa.Table, name: str) -> Numbers:
    return micros(keys[name].cast(pa.int64()).fill_null(END_OF_TIME_US))


def _key_names(spec: AnySpec) -> list[str]:
    return [field.name for field in key_schema(spec)]


def _part_of_frame(frame: pd.DataFrame, start: int, stop: int) -> pd.DataFrame:
    return frame.iloc[start:stop].reset_index(drop=True)


def _stamped(stamps: Numbers, exists: Mask) -> pa.Array:
    return pa.array(stamps, mask=~exists).cast(INSTANT)
