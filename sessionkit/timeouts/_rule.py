"""
What a rule is: one value that says all that there is to a way in which sessions end.

    spec         name, needs_order          what people call it, and whether order matters to it
                 predicates, check          what it asks of each event, and which specs it refuses
    checkpoint   code, identity             how it's stored as the reason of a session's end
                 fields, stored             what it stores of an open session
    cutting      read                       what it reads of open sessions and events
                 days, closes, inclusive    where it ends sessions by their times, all at once
                 may_fire                   in which sessions it may fire otherwise, all at once
                 begins_next, after,        where it fires in these, one instant of a key after
                 is_last                    the other
    people       text

`SessionRules.in_use` has those of a spec. Of rules that fire at one instant, the first one counts.
What cuts sessions walks the rules, and knows none of them but for the gap.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Array, Mask, Numbers, whole
from sessionkit.aggregates._events import Condition
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field

Predicate: TypeAlias = Condition | Callable[[Any], bool]
"""
A condition on an event: a `Condition` of `sessionkit.aggregates`, or a function of the event.

A function is called once for each event, on a worker, with an object of the event class, and
returns a bool. If it raises or returns anything else, the query stops with a `UserFunctionError`,
or under `on_error="reject"` the event fails. A `Condition` is faster: no Python runs for an event.
"""

Readings: TypeAlias = Sequence[tuple[Any, ...]]
"""What a rule has read at one instant: of each event there, an entry of each of its columns."""


class Joined(Protocol):
    """Open sessions and events as the gap joins them into sessions, an entry for each of these."""

    @property
    def start(self) -> Numbers:
        """Their starts, in microseconds."""

    def reduced(self, ufunc: np.ufunc, values: Array) -> Array:
        """Fold the values of the members of each session, given in order, into one."""


@attrs.frozen
class RuleInput:
    """
    The open sessions and the events of a micro-batch, as rules read them.

    Both have numbers, first the open sessions, then the events; `order` has these by key and start.
    With one open session, number 0, after the event 1 and before the event 2, it's `1 0 2`.
    """

    opened: pa.Table
    events: pa.Table
    starts: Numbers
    order: Numbers

    def values(self, stored: str, read: str) -> pa.Array:
        """Return what is stored of open sessions, then what is read of events, by their numbers."""
        first, then = self.opened[stored], self.events[read]
        return whole(pa.chunked_array([*first.chunks, *then.chunks], first.type))

    def in_order(self, of_opened: Array, of_events: Array) -> Array:
        return np.concatenate([of_opened, of_events])[self.order]

    def met(self, name: str) -> Mask:
        """Mark the events, in order, that meet a predicate; an open session never does."""
        met = whole(self.events[f"rule.{name}"]).to_numpy(zero_copy_only=False)
        return self.in_order(np.zeros(self.opened.num_rows, np.bool_), met)

    def last(self, values: pa.Array, there: Mask, sessions: Joined) -> pa.Array:
        """Return the last value that is there of each session, null where it has none."""
        there = there[self.order]
        latest = sessions.reduced(np.maximum, np.where(there, np.arange(len(there)), -1))
        return values.take(pa.array(self.order[latest], mask=latest < 0))


class Rule:
    """
    A rule that never fires: each one says otherwise where it does.

    Attributes:
        name: What `closed_by` says where it ended a session.
        code: How a checkpoint stores that; no other rule has it, nor a former one.
        needs_order: Whether it depends on the order of events.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    needs_order: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """When it ends a session, in words that go on from "closes by:"."""
        raise NotImplementedError

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        """What it asks of each event, by the names under which it finds the answers."""
        return {}

    def check(self, event: type[Any]) -> None:
        """Raise a `SpecError` where it can't work with events of a class."""

    def identity(self, event: type[Any]) -> dict[str, Any]:
        """Return what a checkpoint says of it, as JSON has it; predicates are code."""
        return {}

    def fields(self, event: type[Any]) -> Sequence[pa.Field]:
        """Return what it stores of an open session: `last.NAME` is the last value of a field."""
        return ()

    def stored(self, rows: RuleInput, sessions: Joined) -> Mapping[str, pa.Array]:
        """Return the columns of `fields`, an entry for each session."""
        return {}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        """Return at least a column of what it knows of open sessions and events, in order."""
        return ()

    def days(self, starts: Numbers) -> Numbers | None:
        """Return a number for each instant: it parts those with different ones at once."""
        return None

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers | None:
        """Return when it ends sessions by their times, whatever their events are."""
        return None

    @property
    def inclusive(self) -> bool:
        """Whether an event exactly where it `closes` a session still belongs to it."""
        return False

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        """
        Mark the sessions in which it may fire by what it has read; these are walked.

        Args:
            columns: What it has read.
            later: Which open sessions and events, in order, don't stand at the first instant of
                their session.
            sessions: As the gap alone joins them.
        """
        return np.zeros(len(sessions.start), np.bool_)

    def begins_next(self, known: Any, readings: Readings) -> bool:
        """Return whether an instant, not the first one of its session, begins another one."""
        return False

    def after(self, known: Any, readings: Readings) -> Any:
        """Return what it knows of a session after an instant: before the first, None."""
        return known

    def is_last(self, known: Any) -> bool:
        """Return whether a session is over with its last instant."""
        return False


def event_fields(event: type[Any], names: Sequence[str]) -> list[Field]:
    fields = {field.name: field for field in codec_of(event).type.fields}
    return [fields[name] for name in names]
