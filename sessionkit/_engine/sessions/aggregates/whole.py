"""Aggregates of a session as a whole: how long it lasted, and whether it's engaged."""

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import micros
from sessionkit._engine.sessions.aggregates.numbers import Count
from sessionkit._engine.sessions.aggregates.rows import Rows
from sessionkit._engine.sessions.aggregates.values import Numbers, array_of, numbers_of
from sessionkit._instants import span_us
from sessionkit.presets import TWO_VIEWS
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state import DatetimeType, Field, TimedeltaType

__all__ = ["Duration", "Engaged"]


@attrs.frozen
class Duration:
    """
    The time from the first to the last event.

    When the last one was is stored: neither a gap of each event nor one that has changed since says
    it by the end of the session.
    """

    bound: BoundAggregate

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        return [Field(self.bound.name, DatetimeType(), self.bound.name)]

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        times = rows.joined(numbers_of(rows.part(self.bound.name)), rows.times)
        return [array_of(rows.segments.reduced(np.maximum, times), DatetimeType.arrow)]

    def spans(self, sessions: pa.Table) -> Numbers:
        """Return the durations in microseconds."""
        last = micros(sessions[f"state.{self.bound.name}"])
        spans: Numbers = last - micros(sessions["start"])
        return spans

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        return array_of(self.spans(sessions), TimedeltaType.arrow)


@attrs.frozen
class Engaged:
    """Whether a session lasted long enough, or has two page views or a key event."""

    bound: BoundAggregate
    lasted: Duration
    counts: Sequence[Count]

    @property
    def stored(self) -> list[Field]:
        """The columns of the state."""
        counted = [field for count in self.counts for field in count.stored]
        return self.lasted.stored + counted

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return the columns of the state."""
        counted = [column for count in self.counts for column in count.fold(rows)]
        return self.lasted.fold(rows) + counted

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result."""
        limit = self.bound.aggregate.longer_than
        page_views, *others = (numbers_of(count.result(sessions)) for count in self.counts)
        engaged = page_views >= TWO_VIEWS
        if limit is not None:
            engaged |= self.lasted.spans(sessions) > span_us(limit)
        for key_events in others:
            engaged |= key_events > 0
        return pa.array(engaged)
