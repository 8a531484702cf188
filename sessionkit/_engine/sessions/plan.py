"""Which sessions and events of a group go together, for all keys at once."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, Numbers, lists_of, numbers_in, whole
from sessionkit._engine.boundaries import is_over
from sessionkit._engine.rows.objects import decode_keys, encode_states
from sessionkit._engine.rows.order import taken
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.cuts import Cuts
from sessionkit._engine.sessions.ids import salt_of
from sessionkit._engine.sessions.intervals import Members, Unions
from sessionkit._engine.sessions.lateness import Horizon
from sessionkit._engine.sessions.sequence import salts_in_turn
from sessionkit.spec.functions import Failure


@attrs.frozen(slots=False)
class Plan(Members):
    """
    Which sessions and events go together.

    Attributes:
        untouched: The rows of sessions without events, and those that remember forgotten ones.
        marks: The salts of all sessions.
        unions: The sessions that the members make.
        horizon: What the watermark has passed.
        cuts: What ends sessions.
        failures: Why events fail, by their places, where that showed while it was planned.
        is_event: Which members, in order, are events.
        opened: The places, in order, of the open sessions.
        joined: The number of the session that each open one joined, in order.
        counts: How many events each session has.
        active: Which sessions have events.
    """

    untouched: pa.Table
    salts: Numbers
    unions: Unions
    horizon: Horizon
    cuts: Cuts
    failures: Mapping[int, Failure] = attrs.field(factory=dict)
    is_event: Mask = attrs.field(init=False)
    opened: Numbers = attrs.field(init=False)
    joined: Numbers = attrs.field(init=False)
    counts: Numbers = attrs.field(init=False)
    active: Mask = attrs.field(init=False)

    def only(self, chosen: Mask) -> "Plan":
        """Return the plan of some of the sessions, unchanged."""
        unions, sizes = self.unions, self.unions.sizes[chosen]
        others = Unions(
            np.cumsum(sizes) - sizes,
            sizes,
            unions.start[chosen],
            unions.end[chosen],
            unions.closes[chosen],
            unions.closed_by[chosen],
            None if unions.nth is None else unions.nth[chosen],
        )
        return self.with_unions(others, self.order[unions.spread(chosen)])

    def with_unions(self, unions: Unions, numbers: Numbers) -> "Plan":
        """Return a plan of some of the members, given by their numbers, in order."""
        # Members get numbers anew, in their old order: of [4, 0, 2], `left` is [0, 2, 4], and the
        # new order is [2, 0, 1].
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

    def __attrs_post_init__(self) -> None:
        # Of intervals [open, event, event | event], two sessions: the first is at place 0, and of
        # session 0, which has two events; session 1 has one.
        is_event = self.order >= len(self.places)
        opened = np.flatnonzero(~is_event)
        joined = np.searchsorted(self.unions.first, opened, side="right") - 1
        counts = self.unions.sizes - np.bincount(joined, minlength=len(self.unions.first))
        vars(self).update(is_event=is_event, opened=opened, joined=joined)
        vars(self).update(counts=counts, active=counts > 0)

    @cached_property
    def event_places(self) -> Numbers:
        """The places of all events, by session, time and content."""
        places: Numbers = self.order[self.is_event] - len(self.places)
        return places

    @cached_property
    def owners(self) -> Numbers:
        """The number of the session of each interval, by the interval's own number."""
        # With the order [2, 0, 1], and sessions [0, 0, 1] in order: [0, 1, 0] by their numbers.
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.unions.numbers
        return owners

    @cached_property
    def had(self) -> Numbers:
        """How many events the open sessions have, by their numbers."""
        return numbers_in(self.sessions, "events")[self.places]

    def of_opened(self, ufunc: np.ufunc, values: Numbers, none: int = 0) -> Numbers:
        """Fold the values of the open sessions that joined each session into one."""
        # Of three open sessions, the first two of which joined session 0, and the last session 2:
        # the sum of [5, 6, 7] is [11, none, 7].
        folded = np.full(len(self.counts), none)
        ufunc.at(folded, self.joined, values[self.order[self.opened]])
        return folded

    def places_of(self, chosen: Mask) -> Numbers:
        """Return the places of the events of the chosen sessions, in order."""
        return self.event_places[np.repeat(chosen, self.counts)]

    def opened_of(self, chosen: Mask) -> pa.Table:
        """Return the rows of the open sessions that joined the chosen ones, in order."""
        members = self.order[self.unions.spread(chosen) & ~self.is_event]
        return self.touched.take(pa.array(members))

    def salts_of(self, chosen: Mask) -> Numbers:
        """Return the salts of the chosen sessions: of the open one that begins each, or new."""
        first, starts, horizon = self.unions.first[chosen], self.unions.start[chosen], self.horizon
        salts = np.zeros(len(starts), np.int64)
        passed = is_over(starts + horizon.lasts_us, horizon.gone_us)
        if passed.any():
            salts[passed] = salt_of(*horizon.salted)
        if self.unions.nth is not None:
            salts = salts_in_turn(self.unions.nth[chosen], salts)
        # At one start, an open session goes before the events.
        goes_on = ~self.is_event[first]
        salts[goes_on] = self.salts[self.places[self.order[first[goes_on]]]]
        return salts

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
        # Sessions with [2, 0, 1] events have their first one at [0, 2, 2] among all.
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
        # The sessions of kept values and of those that came, [0, 1 | 1, 0], put them in the order
        # [0, 3, 1, 2]: session by session, kept ones first.
        order = pa.array(np.argsort(owners, kind="stable"))
        values = pa.concat_arrays([kept.flatten(), came]).take(order)
        sizes = np.bincount(owners, minlength=len(chosen))
        return lists_of(values, sizes).filter(pa.array(chosen))


@attrs.frozen
class Folded:
    """
    The states of sessions, and the events that are part of none.

    Attributes:
        plan: The plan that was folded; None where what is left of it needs another one.
        good: Which of its sessions have events and a new state.
        states: The columns of these states.
        rejected: The events that failed or were refused.
        gone: Their places, in the plan that was to be folded.
        late: The places of events that are late without these.
    """

    plan: Plan | None
    good: Mask
    states: Sequence[pa.Array]
    rejected: Sequence[Rejected] = ()
    gone: Collection[int] = ()
    late: Collection[int] = ()
