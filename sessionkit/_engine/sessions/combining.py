"""
Before the shuffle, a map task of a batch combines the events of hot buckets.

Events that belong together become a partial session, all but the first one, which goes on as an
event. In its bucket it joins the partial session, and all that overlap it, as an event joins open
sessions in a stream. So the fold of a bucket doesn't know which sessions are partial.

    read        10 20 30   60   200     events of one key, with a gap of 60
    goes on     10              200     the first of each; one event alone makes no partial session
    combined       20 30   60           a partial session, from 10 to 120

A partial session starts with its event, so both are in one portion of their bucket. Of two partial
sessions that overlap, the event of the later one is in the earlier one, and joins them.

A bucket is hot if a task reads many more events of it than of others, so that it's likely to have
few keys. In the others, events of one session seldom meet.
"""

from functools import cached_property
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, key_columns, micros, total_order
from sessionkit._engine.boundaries import window_end
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.sessions.plan import Horizon, Plan, Unions, WindowedEvents, unite
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.wire.packing import Combined
from sessionkit.errors import StateValueError
from sessionkit.spec.session import AnySessionSpec

HOT: Final = 4
"""A hot bucket has this many times the events of an average one."""
LEAST: Final = 1_000
"""Below this many events, a bucket isn't worth the fold."""


@attrs.frozen(slots=False)
class Combiner:
    """
    The function that combines the events of some rows that a map task has read.

    Attributes:
        spec: The spec, of aggregates.
        buckets: The number of buckets.
        least: How many events a hot bucket has at least.
        hot: How many times the events of an average bucket a hot one has.
    """

    spec: AnySessionSpec
    buckets: int
    least: int = LEAST
    hot: int = HOT

    @cached_property
    def program(self) -> Program:
        """The compiled spec, made at its first use: the driver only sends the spec."""
        return Program.of(self.spec)

    @cached_property
    def merges(self) -> bool:
        """
        Whether partial sessions give the rows that all events would.

        They do where a session is a union of intervals alone, and its aggregates merge exactly. A
        failing event must end the batch, since a rejected one would be in its partial session.
        """
        spec = self.spec
        is_plain = spec.order == "arrival" and spec.on_error == "raise"
        return is_plain and all(bound.merges for bound in spec.bound) and not self.program.features

    def __call__(self, events: pa.Table, buckets: Numbers) -> Combined | None:
        """
        Return partial sessions, and the events that go on.

        None where combining changes rows, or saves little: the hot buckets have more than half as
        many sessions as events.
        """
        if not self.merges:
            return None
        sizes = np.bincount(buckets, minlength=self.buckets)
        is_hot = (sizes >= max(self.least, self.hot * len(buckets) // self.buckets))[buckets]
        none = self.program.schema.empty_table()
        nothing = Combined(none, buckets[:0], np.ones(len(buckets), np.bool_))
        if not is_hot.any():
            return nothing
        hot = events if is_hot.all() else events.filter(pa.array(is_hot))
        keys, _ = key_numbers(key_columns(hot), key_columns(none))
        times = micros(hot["time"])
        order = total_order(keys, times, [])
        ends = window_end(times[order], self.program.gap_us)
        inclusive = self.program.cuts.rules.gap_inclusive
        unions = unite(keys[order], times[order], ends, gap_inclusive=inclusive)
        if 2 * len(unions) > len(order):
            return None
        goes_on = np.zeros(len(order), np.bool_)
        goes_on[order[unions.first]] = True
        left = np.delete(order, unions.first)
        plan = self._plan(hot, keys, times, left, _without_first(unions))
        try:
            folded = self.program.fold.fold(plan)
        except StateValueError:
            # The sum of all events of a session may fit; if it doesn't, its bucket says so.
            return nothing
        first = plan.order[plan.unions.first]
        goes_on_of_all = ~is_hot
        goes_on_of_all[is_hot] = goes_on
        places = np.flatnonzero(~goes_on_of_all)[first]
        return Combined(self.program.stored(plan, folded), places, goes_on_of_all)

    def _plan(
        self, events: pa.Table, keys: Numbers, times: Numbers, order: Numbers, unions: Unions
    ) -> Plan:
        """Plan for some of the events, by their places in the order of their sessions."""
        chosen = np.zeros(len(keys), np.bool_)
        chosen[order] = True
        keys, times, none = keys[chosen], times[chosen], self.program.schema.empty_table()
        # Without the first of three events, the others have the numbers 0 and 1.
        order = (np.cumsum(chosen) - 1)[order]
        ends = window_end(times, self.program.gap_us)
        return Plan(
            spec=self.spec,
            events=WindowedEvents(events.filter(pa.array(chosen)), times, ends),
            sessions=none,
            rows=order[:0],
            order=order,
            keys=keys,
            starts=times,
            ends=ends,
            unions=unions,
            horizon=Horizon(),
        )


def _without_first(unions: Unions) -> Unions:
    """Return sessions, as they start and end, without the first event of each."""
    # Sessions of 3, 1 and 2 events keep 2, none and 1: two begin, at 0 and 2.
    kept = unions.sizes > 1
    sizes = unions.sizes[kept] - 1
    ends = unions.start[kept], unions.end[kept], unions.closes[kept]
    return Unions(np.cumsum(sizes) - sizes, sizes, *ends, unions.closed_by[kept])
