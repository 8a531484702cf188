"""The rules that end sessions by their events or by their times, or let events open them."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask, Numbers
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US, duration_text, span_us
from sessionkit.aggregates._events import type_in
from sessionkit.errors import SpecError
from sessionkit.state._collections import forms_of, inner_type
from sessionkit.state._derived import EnumType
from sessionkit.state._types import may_be_key
from sessionkit.timeouts._rule import Joined, Predicate, Readings, Rule, RuleInput, event_fields


@attrs.frozen(eq=False)
class _OfPredicate(Rule):
    needs_order: ClassVar[bool] = True
    predicate: Predicate

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        return {self.name: self.predicate}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.met(self.name)]


@attrs.frozen(eq=False)
class Until(_OfPredicate):
    """The rule that ends a session with an event that meets a condition."""

    name: ClassVar = "until"
    code: ClassVar = 0
    text: ClassVar = "an event ends it"

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        return sessions.reduced(np.logical_or, columns[0])

    def after(self, known: Any, readings: Readings) -> Any:
        return any(met for (met,) in readings)

    def is_last(self, known: Any) -> bool:
        return bool(known)


@attrs.frozen
class MaxEvents(Rule):
    """The rule that ends a session at a number of events."""

    name: ClassVar = "max_events"
    code: ClassVar = 1
    needs_order: ClassVar = True
    most: int

    @property
    def text(self) -> str:
        return f"it has {self.most:,} event{'s' if self.most != 1 else ''}"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"max_events": self.most}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        counts, ones = rows.opened["events"].to_numpy(), np.ones(rows.events.num_rows, np.int64)
        return [rows.in_order(counts, ones)]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        return sessions.reduced(np.add, columns[0]) >= self.most

    def after(self, known: Any, readings: Readings) -> Any:
        return (known or 0) + sum(events for (events,) in readings)

    def is_last(self, known: Any) -> bool:
        return bool(known >= self.most)


@attrs.frozen(eq=False)
class StartsWith(_OfPredicate):
    """The rule that begins a session at each event that meets a condition."""

    name: ClassVar = "starts_with"
    code: ClassVar = 4
    text: ClassVar = "an event starts the next session"

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        return sessions.reduced(np.logical_or, columns[0] & later)

    def begins_next(self, known: Any, readings: Readings) -> bool:
        return any(met for (met,) in readings)


@attrs.frozen
class ChangesOf(Rule):
    """
    The rule that ends a session where a field changes, by codes: equal values share a code.

    The values `a null b a` have the codes `0 -1 1 0`: a null, -1, changes nothing.
    """

    name: ClassVar = "changes_of"
    code: ClassVar = 5
    needs_order: ClassVar = True
    names: Sequence[str]

    @property
    def text(self) -> str:
        return f"an event has another {' or '.join(f'`{name}`' for name in self.names)}"

    def check(self, event: type[Any]) -> None:
        for name in self.names:
            unknown = f"`changes_of` names `{name}`, and {event.__name__} has no such field"
            kind = inner_type(type_in(event, name, unknown))
            if not (may_be_key(kind) or isinstance(kind, EnumType)):
                what = f"`changes_of` names `{event.__name__}.{name}`"
                types = "a str, an int, a bool, bytes, a date, a datetime, a time, a Decimal"
                hint = f"name {types} or an Enum"
                raise SpecError(f"{what}, whose values can't be compared", hint)

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"changes_of": forms_of(event_fields(event, self.names))}

    def fields(self, event: type[Any]) -> Sequence[pa.Field]:
        fields = event_fields(event, self.names)
        return [pa.field(f"last.{field.name}", field.type.arrow) for field in fields]

    def stored(self, rows: RuleInput, sessions: Joined) -> Mapping[str, pa.Array]:
        last = dict[str, pa.Array]()
        for name in self.names:
            values = rows.values(f"last.{name}", f"event.{name}")
            is_valid = values.is_valid().to_numpy(zero_copy_only=False)
            last[f"last.{name}"] = rows.last(values, is_valid, sessions)
        return last

    def read(self, rows: RuleInput) -> Sequence[Array]:
        columns = (rows.values(f"last.{name}", f"event.{name}") for name in self.names)
        encoded = (column.dictionary_encode().indices.fill_null(-1) for column in columns)
        return [codes.to_numpy().astype(np.int64)[rows.order] for codes in encoded]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        marked = super().may_fire(columns, later, sessions)
        for codes in columns:
            marked |= sessions.reduced(np.minimum, codes) != sessions.reduced(np.maximum, codes)
        return marked

    def begins_next(self, known: Any, readings: Readings) -> bool:
        return any(
            code not in (-1, last)
            for codes in readings
            for code, last in zip(codes, known, strict=True)
        )

    def after(self, known: Any, readings: Readings) -> Any:
        for codes in readings:
            pairs = zip(known or codes, codes, strict=True)
            known = [old if new < 0 else new for old, new in pairs]
        return known


@attrs.frozen
class Midnight(Rule):
    """The rule that ends sessions at midnight in a time zone."""

    name: ClassVar = "midnight"
    code: ClassVar = 2
    zone: str

    @property
    def text(self) -> str:
        return f"midnight in {self.zone}"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"midnight": self.zone}

    def days(self, starts: Numbers) -> Numbers:
        return days_of(self.zone, starts)[0]

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return days_of(self.zone, starts)[1]


@attrs.frozen
class GapPassed(Rule):
    """
    The gap, which every spec has; it fires at the ends of sessions.

    Attributes:
        longest: The maximum gap of an event.
        inclusive: As `gap_inclusive`.
        is_said_by: What determines the gap of an event.
        extended_by_all: Whether every event keeps its session open.
    """

    name: ClassVar = "gap"
    code: ClassVar = 3
    longest: timedelta
    inclusive: bool
    is_said_by: Literal["spec", "event", "state"]
    extended_by_all: bool

    @property
    def text(self) -> str:
        event = "no event" if self.extended_by_all else "no event that extends it"
        longest = duration_text(self.longest)
        if self.is_said_by == "state":
            return f"{event} within the gap by its state, of at most {longest}"
        if self.is_said_by == "event":
            return f"{event} within the gaps of its events"
        return f"{event} for {longest}"

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return ends


@attrs.frozen
class MaxDuration(Rule):
    """
    The rule that ends a session at its longest duration.

    Attributes:
        longest: The duration.
        inclusive: As `max_duration_inclusive`.
    """

    name: ClassVar = "max_duration"
    code: ClassVar = 6
    needs_order: ClassVar = True
    longest: timedelta
    inclusive: bool

    @property
    def text(self) -> str:
        return f"it has lasted {duration_text(self.longest)}"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        exclusive = {} if self.inclusive else {"max_duration_inclusive": False}
        return {"max_duration_us": self.longest_us, **exclusive}

    @cached_property
    def longest_us(self) -> int:
        return span_us(self.longest)

    @cached_property
    def most_us(self) -> int:
        """How long after the start the last event may be."""
        return self.longest_us - (0 if self.inclusive else 1)

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return starts + self.longest_us

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.starts[rows.order]]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        (starts,) = columns
        return sessions.reduced(np.maximum, starts) - sessions.start > self.most_us

    def begins_next(self, known: Any, readings: Readings) -> bool:
        return bool(readings[0][0] - known > self.most_us)

    def after(self, known: Any, readings: Readings) -> Any:
        return readings[0][0] if known is None else known


@attrs.frozen(eq=False)
class OpensWith(_OfPredicate):
    """
    A rule that ends no session: only events that meet it open one.

    A session that an earlier micro-batch opened stays open, whichever events it has.
    """

    name: ClassVar = "opens_with"
    code: ClassVar = 8
    needs_order: ClassVar = False
    limits_openings: ClassVar = True
    text: ClassVar = "an event opens it"

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.met(self.name, of_opened=True)]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        opens: Mask = sessions.reduced(np.logical_or, columns[0] & ~later)
        return ~opens

    def may_open(self, readings: Readings) -> bool:
        return (True,) in readings


@attrs.frozen
class Idle(Rule):
    """A label for `closed_by`: the engine moved the watermark on, and so closed the session."""

    name: ClassVar = "idle"
    code: ClassVar = 7
    span: timedelta

    @property
    def text(self) -> str:
        span = duration_text(self.span)
        return f"nothing has moved the watermark for {span} of processing time"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"closes_idle": True}


DAY_US: Final = 86_400_000_000
FIRST, EPOCH, LAST = 1, date(1970, 1, 1).toordinal(), date.max.toordinal()


def days_of(zone: str, times_us: Numbers) -> tuple[Numbers, Numbers]:
    """
    Return the start and the exclusive end of each instant's day in a time zone.

    A day lasts 23 or 25 hours when the clocks change. If they skip midnight, the day begins at the
    instant to which they jump; if they repeat it, at the first of the two.
    """
    # No zone is a whole day from UTC, so the days adjacent to the UTC day are enough.
    near = {int(day) + step for day in np.unique(times_us // DAY_US) for step in (-1, 0, 1, 2)}
    midnights = np.array(sorted({_midnight_us(zone, day) for day in near}), np.int64)
    places = np.searchsorted(midnights, times_us, side="right")
    # With the midnights 0 24 48, the time 30 has two at or before it: its day is 24 to 48.
    return midnights[places - 1], midnights[places]


@lru_cache(maxsize=10_000)
def _midnight_us(zone: str, day: int) -> int:
    """Return the first instant, in microseconds, of a day (counted from 1970-01-01) in a zone."""
    if not FIRST <= EPOCH + day <= LAST:
        return BEGINNING_US if day < 0 else END_OF_TIME_US
    # With `fold=0`, Python takes the first of two midnights, and the offset from before a jump.
    midnight = datetime.combine(date.fromordinal(EPOCH + day), time(), ZoneInfo(zone))
    offset = midnight.utcoffset()
    return day * DAY_US - (span_us(offset) if offset else 0)
