"""Aggregates whose state is a list: the values in time order, and the different ones."""

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.order import in_total_order
from sessionkit._engine.rows.table import lists_of, whole
from sessionkit._engine.sessions.aggregates.rows import Rows
from sessionkit._engine.sessions.aggregates.values import (
    Mask,
    Numbers,
    coded,
    mask_of,
    numbers_of,
)
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state import DatetimeType, Field, ListType, OptionalType

__all__ = ["Collect", "Distinct"]


@attrs.frozen
class Distinct:
    """How many different values there are; their list is null once there are too many."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        name = self.bound.name
        return [Field(name, OptionalType(ListType(self.bound.type)), name)]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        before, number = rows.part(self.bound.name), len(rows.segments)
        values, sessions = _flat(rows, self.bound, before)
        codes, different = coded(values)
        found = np.sort(sessions * (len(different) + 1) + codes)
        owners, codes = np.divmod(found[np.diff(found, prepend=-1) != 0], len(different) + 1)
        sizes = np.bincount(owners, minlength=number)
        full = sizes > (self.bound.aggregate.at_most or 0)
        full[rows.segments.by_row[: len(before)][~mask_of(before.is_valid())]] = True
        kept = different.take(pa.array(codes[~full[owners]]))
        return [lists_of(kept, np.where(full, 0, sizes), full)]

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result: null where there are too many."""
        lists = whole(sessions[f"state.{self.bound.name}"])
        return pc.list_value_length(lists).cast(pa.int64())


@attrs.frozen
class Collect:
    """The earliest values in the order of time, those at one time by value; kept with it."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        name = self.bound.name
        at = Field(f"{name}.at", ListType(DatetimeType()), f"{name}.at")
        return [Field(name, ListType(self.bound.type), name), at]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        times_before = rows.part(f"{self.bound.name}.at").flatten()
        values, sessions = _flat(rows, self.bound, rows.part(self.bound.name))
        chosen = rows.chosen(self.bound)
        times = rows.times if chosen is None else rows.times[chosen]
        times = np.concatenate([numbers_of(times_before), times])
        order = in_total_order(sessions, times, pa.table({"event.value": values}), 0)
        sizes = np.bincount(sessions, minlength=len(rows.segments))
        most = self.bound.aggregate.at_most or 0
        if sizes.max() > most:
            first = np.cumsum(sizes) - sizes
            order = order[np.arange(len(order)) - first[sessions[order]] < most]
            sizes = np.minimum(sizes, most)
        instants = pa.array(times[order]).view(DatetimeType.arrow)
        return [lists_of(values.take(pa.array(order)), sizes), lists_of(instants, sizes)]

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return whole(sessions[f"state.{self.bound.name}"])


def _flat(rows: Rows, bound: BoundAggregate, before: pa.Array) -> tuple[pa.Array, Numbers]:
    """Return the stored values, then those of the chosen events, and the session of each."""
    chosen: Mask | None = rows.chosen(bound)
    events, by_row = rows.values(bound), rows.segments.by_row
    stored_of, event_of = by_row[: len(before)], by_row[len(before) :]
    if chosen is not None:
        events, event_of = events.filter(pa.array(chosen)), event_of[chosen]
    parents = pc.list_parent_indices(before).to_numpy()
    values = pa.concat_arrays([before.flatten(), events])
    return values, np.concatenate([stored_of[parents], event_of])
