"""The time between pairs of events, such as opened and closed."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._arrays import array_of, numbers_of, owners_of
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._events import Condition, EventRows
from sessionkit.errors import SpecError
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import DatetimeType, IntType, TimedeltaType
from sessionkit.state._types import INT64, FieldType

OPENED: Final = 0b01
BOTH: Final = 0b11


@attrs.frozen(kw_only=True, order=False, repr=False)
class TimeBetween(Kind):
    """
    The time between the events that open and those that close.

    A session stores the instants with such an event, what they do as bits, and its last event.
    """

    kind: ClassVar = "time_between"
    needs_field: ClassVar = False
    gives: ClassVar[Any] = timedelta | None
    is_ordered: ClassVar = True
    merges: ClassVar = (FieldType,)
    opened: Condition = attrs.field(eq=repr)
    closed: Condition = attrs.field(eq=repr)

    def check(self) -> None:
        for name, condition in (("opened", self.opened), ("closed", self.closed)):
            given: object = condition
            if not isinstance(given, Condition):
                found = f"`{name}` must be a condition, found {given!r}"
                raise SpecError(found, f'write {name}=pc.field("kind") == "{name}"')

    @property
    def conditions(self) -> Mapping[str, Condition]:
        return {**super().conditions, "`opened`": self.opened, "`closed`": self.closed}

    def stored(self, bound: BoundAggregate) -> list[Field]:
        end = bound.field(OptionalType(DatetimeType()), ".end")
        return [bound.field(ListType(IntType())), *bound.moments(), end]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        """Return what each instant does; one more than the limit, to tell that there were more."""
        chosen, bits = self.chosen(rows), rows.bits([self.opened, self.closed])
        kept = bits != 0 if chosen is None else (bits != 0) & chosen
        owners, bits, moments = bound.by_instant(rows, pa.array(bits), kept)
        end = bound.column(rows.opened, ".end")
        times = rows.joined(np.where(end.is_valid(), numbers_of(end), INT64[0]), rows.times)
        last = array_of(rows.reduced(np.maximum, times), DatetimeType.arrow)
        return [*rows.kept(owners, [bits, *moments], 1 + self.most), last]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        lists = bound.column(sessions)
        owners, bits = owners_of(lists), numbers_of(lists.flatten())
        times = numbers_of(bound.column(sessions, ".at").flatten())
        changes = bits != BOTH
        owners, bits, times = owners[changes], bits[changes], times[changes]
        # It's open from each event that opens to the next event, whichever that is.
        until = numbers_of(bound.column(sessions, ".end"))[owners]
        goes_on = owners[1:] == owners[:-1]
        until[:-1][goes_on] = times[1:][goes_on]
        totals = np.zeros(len(lists), np.int64)
        np.add.at(totals, owners, np.where(bits == OPENED, until - times, 0))
        unknown = lists.value_lengths().to_numpy() > self.most
        return array_of(totals, TimedeltaType.arrow, unknown)


@explains
def time_between(
    opened: Condition, closed: Condition, *, at_most: int = 1_000, where: Condition | None = None
) -> Aggregate:
    """
    Add up the times during which something was open: a timedelta.

        agg.time_between(pc.field("kind") == "enter", pc.field("kind") == "leave")

    An event that meets `opened` opens it, and the next event that meets `closed` closes it. Further
    events of the same kind in between change nothing: to count people, give each a key of its own.
    If it's still open at the end, the time up to the last event of the session counts, so a session
    that a rule cuts in between loses the rest. Without such events, the result is zero.

    If one instant has both an opening and a closing event, the two cancel out: what was open stays
    open, what was closed stays closed. With a `sequence` in the spec, they count in its order.

    Args:
        opened: The condition of events that open.
        closed: The condition of events that close. An event that meets both conditions changes
            nothing.
        at_most: How many instants with such an event are kept, 16 bytes each: a late event may come
            between any two. If a session has more, the result is None.
        where: Selects the events that open and close.

    Raises:
        SpecError: `opened` or `closed` isn't a condition, or `at_most` isn't a whole number from 1.
    """
    return TimeBetween(where=where, at_most=at_most, opened=opened, closed=closed)
