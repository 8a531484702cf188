"""Which sessions and events of a group go together, for all keys at once."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, Numbers, lists_of, whole
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.objects import decode_keys, encode_states
from sessionkit._engine.rows.order import taken
from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.features.sequence import marks_in_turn
from sessionkit._engine.sessions.ids import mark_of
from sessionkit._engine.sessions.intervals import Members, Unions
from sessionkit._instants import BEGINNING_US
from sessionkit.spec.functions import Failure


@attrs.frozen
class Horizon:
    """
    What the watermark has passed in a micro-batch. All in microseconds.

    Events are late by `late_us`, unless that is None. Sessions that were over by `gone_us` may be
    forgotten; one lasts for `lasts_us` at least. A session that gets its start where one may have
    been forgotten has a mark, made of `marked`.
    """

    late_us: int | None
    gone_us: int = BEGINNING_US
    lasts_us: int = 0
    marked: tuple[int, ...] = (0, 0, 0)


@attrs.frozen
class Plan(Members):
    """
    Which sessions and events go together.

    Attributes:
        untouched: The rows of sessions without events, and of what remembers closed ones.
        marks: The marks of all sessions.
        unions: The sessions that the members make.
        horizon: What the watermark has passed.
        failures: Why events fail, by their places, where that showed while it was planned.
    """

    untouched: pa.Table
    marks: Numbers
    unions: Unions
    horizon: Horizon
    failures: Mapping[int, Failure] = attrs.field(factory=dict)

    def with_unions(self, unions: Unions, numbers: Numbers) -> "Plan":
        """Return a plan of some of the members, given by their numbers, in order."""
        left = np.sort(numbers)
        opened, came = np.split(left, [np.searchsorted(left, len(self.places))])
        return attrs.evolve(
            self,
            events=self.events.at(came - len(self.places)),
            places=self.places[opened],
            order=np.searchsorted(left, numbers),
            keys=self.keys[left],
            starts=self.starts[left],
            ends=self.ends[left],
            unions=unions,
            failures={},
        )

    @cached_property
    def is_event(self) -> Mask:
        """Mark the members, in order, that are events."""
        is_event: Mask = self.order >= len(self.places)
        return is_event

    @cached_property
    def counts(self) -> Numbers:
        """How many events each session has."""
        counts: Numbers = self.unions.sizes - np.bincount(self.joined, minlength=len(self.unions))
        return counts

    @cached_property
    def opened(self) -> Numbers:
        """The places, in order, of the open sessions."""
        return np.flatnonzero(~self.is_event)

    @cached_property
    def joined(self) -> Numbers:
        """The number of the session that each open one joined, in order."""
        numbers: Numbers = np.searchsorted(self.unions.first, self.opened, side="right") - 1
        return numbers

    @cached_property
    def active(self) -> Mask:
        """Mark the sessions that have events."""
        active: Mask = self.counts > 0
        return active

    @cached_property
    def event_places(self) -> Numbers:
        """The places of all events, by session, time and content."""
        places: Numbers = self.order[self.is_event] - len(self.places)
        return places

    @cached_property
    def owners(self) -> Numbers:
        """The number of the session of each interval, by the interval's own number."""
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.unions.numbers
        return owners

    def of_opened(self, ufunc: np.ufunc, values: Numbers, none: int = 0) -> Numbers:
        """Fold the values of the open sessions that joined each session into one."""
        found = np.full(len(self.unions), none)
        ufunc.at(found, self.joined, values[self.order[self.opened]])
        return found

    def places_of(self, chosen: Mask) -> Numbers:
        """Return the places of the events of the chosen sessions, in order."""
        return self.event_places[np.repeat(chosen, self.counts)]

    def opened_of(self, chosen: Mask) -> pa.Table:
        """Return the rows of the open sessions that joined the chosen ones, in order."""
        members = self.order[self.unions.spread(chosen) & ~self.is_event]
        return self.touched.take(pa.array(members))

    def marks_of(self, chosen: Mask) -> Numbers:
        """Return the marks of the chosen sessions: of the open one that begins each, or new."""
        first, starts, horizon = self.unions.first[chosen], self.unions.start[chosen], self.horizon
        marks = np.zeros(len(starts), np.int64)
        passed = is_over(starts + horizon.lasts_us, horizon.gone_us)
        if passed.any():
            marks[passed] = mark_of(*horizon.marked)
        if self.unions.nth is not None:
            marks = marks_in_turn(self.unions.nth[chosen], marks)
        # At one start, an open session goes before the events.
        goes_on = ~self.is_event[first]
        marks[goes_on] = self.marks[self.places[self.order[first[goes_on]]]]
        return marks

    def states_of(self, chosen: Mask) -> tuple[Numbers, Numbers]:
        """Return which sessions joined the chosen ones, by their places, and how many each."""
        joined = self.unions.spread(chosen) & ~self.is_event
        return self.places[self.order[joined]], (self.unions.sizes - self.counts)[chosen]

    def keys_of(self, chosen: Mask) -> pa.Table:
        """Return the keys of the chosen sessions as a table."""
        names = self.events.table.column_names[: len(self.spec.keys)]
        return pa.Table.from_arrays(self.key_columns_of(chosen), names)

    def key_columns_of(self, chosen: Mask) -> list[pa.Array]:
        """Return the keys of the chosen sessions, each of which has events."""
        first_event = np.cumsum(self.counts) - self.counts
        places = self.event_places[first_event[chosen]]
        columns = map(self.events.table.column, range(len(self.spec.keys)))
        return list(map(taken, columns, repeat(places)))

    def encoded(self, chosen: Mask, states: list[Any]) -> list[pa.Array]:
        """Return states of chosen sessions as columns; a `StateValueError` names a misfit."""

        def key_at(place: int) -> Any:
            return decode_keys(self.spec, self.keys_of(chosen).slice(place, 1))[0]

        return encode_states(self.spec.state, states, key_at)

    def lists_of(self, name: str, chosen: Mask) -> pa.Array:
        """
        Return what the chosen sessions store of their events, as unordered lists.

            events     each.NAME    what is kept of one
            sessions   NAME         the list of these
        """
        kept, came = whole(self.touched[name]), whole(self.events.table[f"each.{name}"])
        of_kept, of_event = np.split(self.owners, [len(kept)])
        owners = np.concatenate([of_kept[pc.list_parent_indices(kept)], of_event])
        order = pa.array(np.argsort(owners, kind="stable"))
        values = pa.concat_arrays([kept.flatten(), came]).take(order)
        sizes = np.bincount(owners, minlength=len(chosen))
        return lists_of(values, sizes).filter(pa.array(chosen))


Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@attrs.frozen
class Closed:
    """
    What became of sessions that are over.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        failed_output: Those whose `finish` failed.
        sessions: How many closed, without those.
        places: For each result row, the place of its session.
        failed: The places of the sessions whose `finish` failed.
        events: Their events, where these are handed out.
        remembered: What `remember` left for the next session of each, as it's stored.
        recalled: The sessions with what is remembered after each, where something is.
        out_of_order: How many of them began before the one before them was over.
    """

    rows: pa.Table
    failed_output: list[Rejected]
    sessions: int
    places: Places = range(0)
    failed: Collection[int] = ()
    events: Sequence[Rejected] = ()
    remembered: pa.Array | None = None
    recalled: pa.Table | None = None
    out_of_order: int = 0


@attrs.frozen
class Folded:
    """
    The sessions after a plan is folded, how many of its events are part of one, and the others.

    `gone` are the places of events that failed or were refused. The sessions are None where those
    that are left need another plan.
    """

    sessions: pa.Table | None
    events: int
    rejected: list[Rejected]
    gone: Collection[int] = ()


@attrs.frozen
class Joined:
    """The open sessions after events have joined them, how many did, and those that did not."""

    sessions: pa.Table
    events: int
    rejected: list[Rejected]
