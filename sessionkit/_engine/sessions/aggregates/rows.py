"""
The rows from which the aggregates of one micro-batch are computed.

Open sessions and events are in the order of the plan, so that those of each session follow each
other: NumPy's `reduceat` then folds all sessions at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import Mask, Numbers, micros, whole
from sessionkit._engine.sessions.plan import Plan
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._collections import Field

Array: TypeAlias = npt.NDArray[Any]

WORD: Final = 64


@attrs.frozen
class Rows:
    """The rows of a micro-batch, and for which events each condition holds, by its text."""

    plan: Plan
    conditions: Mapping[str, pa.Array]

    def values(self, bound: BoundAggregate) -> pa.Array:
        """Return what an aggregate is of: the field of each event, or its condition."""
        if bound.is_of_condition:
            return self.conditions[repr(bound.aggregate.of)]
        return whole(self.plan.events.table[f"event.{bound.aggregate.of}"])

    def chosen(self, bound: BoundAggregate) -> Mask | None:
        """Mark the events that have a part in an aggregate; None for all."""
        where = bound.aggregate.where
        masks = [] if where is None else [mask_of(self.conditions[repr(where)])]
        if bound.aggregate.of is not None and (values := self.values(bound)).null_count:
            masks.append(mask_of(values.is_valid()))
        return np.logical_and.reduce(masks) if masks else None

    def part(self, name: str) -> pa.Array:
        return whole(self.plan.touched[f"state.{name}"])

    def joined(self, stored: Array, events: Array) -> Array:
        """Return the values of open sessions and events, in order."""
        both: Array = np.concatenate([stored, events])[self.plan.order]
        return both

    def all_valid(self, stored: pa.Array, chosen: Mask | None) -> Mask:
        """Mark, in order, the open sessions that have a value, and the events that are chosen."""
        events = np.ones(len(self.times), np.bool_) if chosen is None else chosen
        return self.joined(mask_of(stored.is_valid()), events)

    @property
    def times(self) -> Numbers:
        """The times of the events, in microseconds."""
        return self.plan.events.starts

    @property
    def starts(self) -> Numbers:
        """The starts of the open sessions, in microseconds."""
        return micros(self.plan.touched["start"])


def own_column(bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
    """Return the column of the state that has the name of an aggregate."""
    return whole(sessions[f"state.{bound.name}"])


@attrs.frozen
class Kernel:
    """
    How NumPy and Arrow compute a kind of aggregate.

    `stored` returns the fields of its state: each has the name of the aggregate, or that, a dot and
    what it is. `fold` computes their columns, a row for each session; `result` that of the row.
    """

    stored: Callable[[BoundAggregate], list[Field]]
    fold: Callable[[BoundAggregate, Rows], list[pa.Array]]
    result: Callable[[BoundAggregate, pa.Table], pa.Array] = own_column


def mask_of(flags: pa.Array) -> Mask:
    """Return flags as a mask; a null is false."""
    known = flags.fill_null(fill_value=False) if flags.null_count else flags
    mask: Mask = known.to_numpy(zero_copy_only=False)
    return mask


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared as numbers of NumPy."""
    return bool(pa.types.is_primitive(kind)) and not pa.types.is_boolean(kind)


def numbers_of(column: pa.Array) -> Array:
    """Return numbers and times as numbers of NumPy; a null is 0."""
    width = column.type.bit_width
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64() if width == WORD else pa.int32())
    found: Array = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found if width == WORD else found.astype(np.int64)


def array_of(numbers: Array, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Return numbers of NumPy as a column of a type, null where marked."""
    if kind.bit_width != WORD:
        numbers = numbers.astype(np.int32)
    return pa.array(numbers, mask=missing).view(kind)


def coded(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its place among the different ones, and these.

    NaN is equal to itself. A null has the place after the last.
    """
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # one zero: Arrow tells -0.0 from 0.0
    encoded = values.dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    return places.astype(np.int64), encoded.dictionary


def ranked(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its rank among the different ones, and these in ascending order.

    NaN comes last. A null has the rank 0.
    """
    codes, different = coded(values)
    order = pc.sort_indices(different)
    ranks = np.zeros(1 + len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[codes], different.take(order)


def owners_of(lists: pa.Array) -> Numbers:
    """Return the row of each entry of a column of lists."""
    owners: Numbers = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    return owners


def places_in(sizes: Numbers, owners: Numbers) -> Numbers:
    """Return the place of each entry in its list; the entries are in the order of their owners."""
    first = np.cumsum(sizes) - sizes
    places: Numbers = np.arange(len(owners)) - first[owners]
    return places
