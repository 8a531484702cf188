"""The rules that end sessions by their events: a condition on one, how many, another value."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask
from sessionkit.aggregates._events import type_in
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import forms_of, inner_type
from sessionkit.state._scalars import EnumType
from sessionkit.state._types import may_be_key
from sessionkit.timeouts._rules.rule import (
    Joined,
    Predicate,
    Readings,
    Rule,
    RuleInput,
    event_fields,
)


@attrs.frozen(eq=False)
class Until(Rule):
    name: ClassVar = "until"
    code: ClassVar = 0
    needs_order: ClassVar = True
    predicate: Predicate

    @property
    def text(self) -> str:
        return "an event ends it"

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        return {"until": self.predicate}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.met("until")]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        return sessions.reduced(np.logical_or, columns[0])

    def after(self, known: Any, readings: Readings) -> Any:
        return any(met for (met,) in readings)

    def is_last(self, known: Any) -> bool:
        return bool(known)


@attrs.frozen
class MaxEvents(Rule):
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
class StartsWith(Rule):
    name: ClassVar = "starts_with"
    code: ClassVar = 4
    needs_order: ClassVar = True
    predicate: Predicate

    @property
    def text(self) -> str:
        return "an event starts the next session"

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        return {"starts_with": self.predicate}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.met("starts_with")]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        return sessions.reduced(np.logical_or, columns[0] & later)

    def begins_next(self, known: Any, readings: Readings) -> bool:
        return any(met for (met,) in readings)


@attrs.frozen
class ChangesOf(Rule):
    """
    A value is known by a number of its own, the same for a session's last one and an event's.

    Of the values `a null b a` that's `0 -1 1 0`: a null, -1, says nothing.
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
                raise SpecError(with_hint(f"{what}, whose values can't be compared", hint))

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"changes_of": forms_of(event_fields(event, self.names))}

    def fields(self, event: type[Any]) -> Sequence[pa.Field]:
        every = event_fields(event, self.names)
        return [pa.field(f"last.{one.name}", one.type.arrow) for one in every]

    def stored(self, rows: RuleInput, sessions: Joined) -> Mapping[str, pa.Array]:
        last = dict[str, pa.Array]()
        for name in self.names:
            values = rows.values(f"last.{name}", f"event.{name}")
            there = values.is_valid().to_numpy(zero_copy_only=False)
            last[f"last.{name}"] = rows.last(values, there, sessions)
        return last

    def read(self, rows: RuleInput) -> Sequence[Array]:
        columns = (rows.values(f"last.{name}", f"event.{name}") for name in self.names)
        codes = (column.dictionary_encode().indices.fill_null(-1) for column in columns)
        return [one.to_numpy().astype(np.int64)[rows.order] for one in codes]

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
            known = codes if known is None else _latest(known, codes)
        return known


def _latest(known: Sequence[int], codes: Sequence[int]) -> list[int]:
    return [old if new < 0 else new for old, new in zip(known, codes, strict=True)]
