"""Early and late results from all events so far, with nothing remembered but what is out."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import attrs

from tests.support.naive_sessions import Event, Found


@attrs.frozen
class Row:
    """A row of a session, its values sorted."""

    key: str
    start: datetime
    end: datetime
    values: tuple[int, ...]
    is_final: bool


class Upserted(Protocol):
    """What a row says of its place in a table."""

    @property
    def session_id(self) -> str:
        """The session's id."""

    @property
    def revision(self) -> int:
        """The number of the row."""

    @property
    def supersedes(self) -> Sequence[str]:
        """The ids that it replaces."""


@attrs.define
class Table:
    """A table of sessions, kept as the how-to says: by id, without those that are superseded."""

    rows: dict[str, Any] = attrs.field(factory=dict)

    def upsert(self, rows: Iterable[Upserted]) -> None:
        """Take the rows of a micro-batch; one that has no place is refused, as sinks do."""
        before = {**self.rows}
        for row in rows:
            for superseded in row.supersedes:
                del self.rows[superseded]
            name = row.session_id
            assert name not in before or row.revision > before[name].revision
            if name not in self.rows or row.revision > self.rows[name].revision:
                self.rows[name] = row


def row_of(row: Any) -> Row:
    """Return a row of the driver as the model has it."""
    times = row.session_start, row.session_end
    return Row(row.key[0], *times, tuple(sorted(row.result.values)), row.is_final)


@attrs.frozen
class Trigger:
    """
    When a session that is open gives a row.

    Attributes:
        events: With this many new events.
        duration: This long after its start and after each row, where it has new events.
        by_start: Whether that begins at the time of its first event, or when it's first seen.
    """

    events: int | None = None
    duration: timedelta | None = None
    by_start: bool = True


@attrs.define
class _Known:
    """A session as it was seen last: its values, those that are out, and when it may show."""

    row: Row
    out: frozenset[int]
    next_at: datetime | None


@attrs.define
class NaiveRows:
    """Says which rows a micro-batch gives."""

    trigger: Trigger | None
    sessions: Callable[[Sequence[Event]], list[Found]]
    known: list[_Known] = attrs.field(factory=list, init=False)

    def __call__(
        self,
        events: Sequence[Event],
        watermark: datetime | None,
        now: datetime | None,
        *,
        only_final: bool = False,
    ) -> list[Row]:
        """Return the rows, given all events so far."""
        rows: list[Row] = []
        known: list[_Known] = []
        for found in self.sessions(events):
            over = watermark is not None and found.end <= watermark
            values = tuple(sorted(found.values))
            row = Row(found.key, found.start, found.end, values, over)
            parts = [part for part in self.known if self._is_part(part.row, row)]
            out = frozenset[int]().union(*(part.out for part in parts))
            counts = parts if out or not self._by_start else []
            times = [part.next_at for part in counts if part.next_at is not None]
            is_out = row in [part.row for part in parts if part.out]
            next_at = min(times, default=self._after(row.start if self._by_start else now))
            early = (
                not over and not only_final and self._is_due(len(values) - len(out), next_at, now)
            )
            if early or (over and not is_out):
                rows.append(row)
                out, next_at = frozenset(values), self._after(now)
            kept = row if len(out) == len(values) else attrs.evolve(row, is_final=False)
            known.append(_Known(kept, out, next_at))
        self.known = known
        return rows

    @staticmethod
    def _is_part(part: Row, row: Row) -> bool:
        return part.key == row.key and set(part.values) <= set(row.values)

    @property
    def _by_start(self) -> bool:
        return self.trigger is None or self.trigger.by_start

    def _after(self, at: datetime | None) -> datetime | None:
        duration = None if self.trigger is None else self.trigger.duration
        return None if duration is None or at is None else at + duration

    def _is_due(self, new: int, next_at: datetime | None, now: datetime | None) -> bool:
        if self.trigger is None or not new:
            return False
        if self.trigger.events is not None:
            return new >= self.trigger.events
        return next_at is not None and now is not None and next_at <= now
