"""
What the aggregates of one micro-batch are computed from: rows, and the sessions they belong to.

The rows are those of the open sessions, then those of the events. `order` sorts them by session, so
that the rows of each session follow each other: NumPy's `reduceat` then folds all sessions at once.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import micros, whole
from sessionkit._engine.sessions.aggregates.values import Column, Mask, Numbers, mask_of
from sessionkit.spec.aggregates import BoundAggregate

__all__ = ["Rows", "Segments"]

Ufunc: TypeAlias = np.ufunc
Array: TypeAlias = npt.NDArray[Any]


@attrs.frozen
class Segments:
    """
    Which rows make which session.

    Attributes:
        order: The numbers of the rows, by session.
        first: For each session, the place of its first row in that order.
        sizes: For each session, how many rows it has, at least one.
    """

    order: Numbers
    first: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.intp]

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self.first)

    def reduced(self, ufunc: Ufunc, values: Array) -> Array:
        """Return, for each session, what its values come to; they are given in order."""
        found: Array = ufunc.reduceat(values, self.first)
        return found

    def spread(self, values: Array) -> Array:
        """Return, for each row in order, the value of its session."""
        return np.repeat(values, self.sizes)

    @cached_property
    def numbers(self) -> Numbers:
        """The number of the session of each row, in order."""
        return self.spread(np.arange(len(self)))

    @cached_property
    def by_row(self) -> Numbers:
        """The number of the session of each row, by the row's own number."""
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = self.numbers
        return numbers


@attrs.frozen
class Rows:
    """
    The rows of a micro-batch.

    Attributes:
        segments: Which rows make which session.
        stored: The rows of the open sessions.
        events: The rows of the events.
        times: The times of the events, in microseconds.
        conditions: What each condition comes to for the events, by its text.
    """

    segments: Segments
    stored: pa.Table
    events: pa.Table
    times: Numbers
    conditions: Mapping[str, pa.Array]

    def values(self, bound: BoundAggregate) -> pa.Array:
        """Return what an aggregate is of: the field of each event, or its condition."""
        if bound.is_of_condition:
            return self.conditions[repr(bound.aggregate.of)]
        return whole(self.events[f"event.{bound.aggregate.of}"])

    def chosen(self, bound: BoundAggregate) -> Mask | None:
        """Mark the events that have a part in an aggregate; None for all."""
        where = bound.aggregate.where
        masks = [] if where is None else [mask_of(self.conditions[repr(where)])]
        if bound.aggregate.of is not None and (values := self.values(bound)).null_count:
            masks.append(mask_of(values.is_valid()))
        return np.logical_and.reduce(masks) if masks else None

    def part(self, name: str) -> pa.Array:
        """Return a column of the stored states."""
        return whole(self.stored[f"state.{name}"])

    def joined(self, stored: Array, events: Array) -> Array:
        """Return the values of open sessions and events, in order."""
        both: Array = np.concatenate([stored, events])[self.segments.order]
        return both

    def all_valid(self, stored: Column, chosen: Mask | None) -> Mask:
        """Mark, in order, the open sessions that have a value, and the events that are chosen."""
        events = np.ones(len(self.times), np.bool_) if chosen is None else chosen
        return self.joined(mask_of(stored.is_valid()), events)

    @property
    def starts(self) -> Numbers:
        """The starts of the open sessions, in microseconds."""
        return micros(self.stored["start"])
