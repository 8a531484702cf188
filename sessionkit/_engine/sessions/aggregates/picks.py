"""Aggregates that are one of the values: the least, the greatest, the first, the last."""

from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import whole
from sessionkit._engine.sessions.aggregates.rows import Rows, Segments
from sessionkit._engine.sessions.aggregates.values import (
    Mask,
    Numbers,
    array_of,
    is_number,
    numbers_of,
    ranked,
)
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state import DatetimeType, Field, FieldType, OptionalType

__all__ = ["Edge", "Extreme"]

LARGEST: Final = np.iinfo(np.int64).max
SMALLEST: Final = np.iinfo(np.int64).min


@attrs.frozen
class Extreme:
    """The least or the greatest value of a field; NaN is greater than all numbers."""

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        return [Field(self.bound.name, _optional(self.bound), self.bound.name)]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        before, events = rows.part(self.bound.name), rows.values(self.bound)
        valid = None
        if self.bound.may_be_missing:
            valid = rows.all_valid(before, rows.chosen(self.bound))
        if is_number(events.type):
            values = rows.joined(numbers_of(before), numbers_of(events))
            best = self._best(rows.segments, values, valid)
            return [array_of(best, events.type, _without(rows.segments, valid))]
        ranks, values = ranked(pa.concat_arrays([before, events]))
        best = self._best(rows.segments, ranks[rows.segments.order], valid)
        return [values.take(pa.array(best, mask=_without(rows.segments, valid)))]

    def _best(self, segments: Segments, values: Any, valid: Mask | None) -> Any:
        is_float, is_min = values.dtype.kind == "f", self.bound.aggregate.kind == "min"
        if valid is not None:
            # What changes nothing: `fmin` passes over NaN.
            neutral = (np.nan if is_min else -np.inf) if is_float else SMALLEST
            neutral = LARGEST if is_min and not is_float else neutral
            values = np.where(valid, values, values.dtype.type(neutral))
        least = np.fmin if is_float else np.minimum
        return segments.reduced(least if is_min else np.maximum, values)

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return whole(sessions[f"state.{self.bound.name}"])


@attrs.frozen
class Edge:
    """
    The value of a field at the earliest or at the latest time; of several there, by value.

    Its time is stored beside it, unless the start of the session says it. The end doesn't say when
    the last event was: events may have had other gaps, and the rules may have been others.
    """

    bound: BoundAggregate

    @property
    def _is_first(self) -> bool:
        return self.bound.aggregate.kind == "first"

    @property
    def _stores_time(self) -> bool:
        return self.bound.may_be_missing or not self._is_first

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        name = self.bound.name
        at = Field(f"{name}.at", OptionalType(DatetimeType()), f"{name}.at")
        return [Field(name, _optional(self.bound), name), *([at] if self._stores_time else [])]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        segments, before = rows.segments, rows.part(self.bound.name)
        values = pa.chunked_array([before, rows.values(self.bound)])
        valid = rows.all_valid(before, rows.chosen(self.bound))
        times = rows.joined(self._times_before(rows), rows.times)
        # Ascending for both: the last is the first from the other end.
        keys = np.where(valid, times if self._is_first else -times, LARGEST)
        best = segments.reduced(np.minimum, keys)
        at = np.flatnonzero(valid & (keys == segments.spread(best)))
        at = at[self._wins(segments, at, values)]
        places = np.full(len(segments), -1)
        places[segments.numbers[at]] = segments.order[at]
        missing = places < 0
        found = whole(values.take(pa.array(places, mask=missing)))
        if not self._stores_time:
            return [found]
        instants = best if self._is_first else -best
        return [found, array_of(instants, DatetimeType.arrow, missing)]

    def _times_before(self, rows: Rows) -> Numbers:
        if self._stores_time:
            times: Numbers = numbers_of(rows.part(f"{self.bound.name}.at"))
            return times
        return rows.starts

    def _wins(self, segments: Segments, at: Numbers, values: pa.ChunkedArray) -> Mask:
        """Mark, of the rows at the time of their session, the one that is it; equal ones all."""
        sessions = segments.numbers[at]
        if not (np.diff(sessions) == 0).any():
            return np.ones(len(at), np.bool_)
        ranks, _ = ranked(whole(values.take(pa.array(segments.order[at]))))
        ranks = ranks if self._is_first else -ranks
        best = np.full(len(segments), LARGEST)
        np.minimum.at(best, sessions, ranks)
        wins: Mask = ranks == best[sessions]
        return wins

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return whole(sessions[f"state.{self.bound.name}"])


def _optional(bound: BoundAggregate) -> FieldType:
    return OptionalType(bound.type) if bound.may_be_missing else bound.type


def _without(segments: Segments, valid: Mask | None) -> Mask | None:
    """Mark the sessions without a value."""
    return None if valid is None else ~segments.reduced(np.logical_or, valid)
