"""
The interface of a rule that ends sessions, or says which events may open one.

    spec         name, needs_order          its name, and whether it depends on the order of events
                 predicates, check          its conditions on events, and the specs it refuses
    checkpoint   code, identity             its code as the reason of a session's end, its settings
                 fields, stored             what it stores for an open session
    cutting      read                       what it reads from open sessions and events
                 days, closes, inclusive    where it ends sessions by their times, vectorized
                 may_fire                   which other sessions it may end, vectorized
                 begins_next, after,        where it ends those sessions, one instant of a key
                 is_last                    after the other
                 may_open                   which instants may begin a session
    messages     text

`SessionRules.in_use` lists the rules of a spec. If several rules fire at an instant, the first
counts. The code that cuts sessions knows this interface, and no rule but the gap.
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
"""What a rule reads at an instant: a row for each event, with an entry for each of its columns."""


class Joined(Protocol):
    """The sessions into which the gap joins open sessions and events."""

    @property
    def start(self) -> Numbers:
        """The starts of the sessions, in microseconds."""

    def reduced(self, ufunc: np.ufunc, values: Array) -> Array:
        """Reduce the values of open sessions and events, in order, to a value for each session."""


@attrs.frozen
class RuleInput:
    """
    The open sessions and the events of a micro-batch, as rules read them.

    Open sessions are numbered first, then events; `order` sorts the numbers by key and start. With
    the open session 0 between the events 1 and 2, it's `1 0 2`.
    """

    opened: pa.Table
    events: pa.Table
    starts: Numbers
    order: Numbers

    def values(self, stored: str, read: str) -> pa.Array:
        """Return a stored column of open sessions, followed by a column of events."""
        of_opened, of_events = self.opened[stored], self.events[read]
        chunks = [*of_opened.chunks, *of_events.chunks]
        return whole(pa.chunked_array(chunks, of_opened.type))

    def in_order(self, of_opened: Array, of_events: Array) -> Array:
        return np.concatenate([of_opened, of_events])[self.order]

    def met(self, name: str, *, of_opened: bool = False) -> Mask:
        """Mark the events, in order, that meet a predicate; open sessions are all `of_opened`."""
        met = whole(self.events[f"rule.{name}"]).to_numpy(zero_copy_only=False)
        return self.in_order(np.full(self.opened.num_rows, of_opened), met)

    def last(self, values: pa.Array, is_valid: Mask, sessions: Joined) -> pa.Array:
        """Return the last valid value of each session, or null."""
        is_valid = is_valid[self.order]
        latest = sessions.reduced(np.maximum, np.where(is_valid, np.arange(len(is_valid)), -1))
        return values.take(pa.array(self.order[latest], mask=latest < 0))


class Rule:
    """
    Base class of rules: a rule that never fires.

    Attributes:
        name: The value of `closed_by` for the sessions that it ends.
        code: Its code in checkpoints, unique among all rules, former ones included. Those of
            tests begin at 100.
        needs_order: Whether it depends on the order of events.
        limits_openings: Whether it has a `may_open` of its own.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    needs_order: ClassVar[bool] = False
    limits_openings: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """When it ends a session, in words that complete "closes by:"."""
        raise NotImplementedError

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        """The conditions to evaluate for each event, by name; `RuleInput.met` has the results."""
        return {}

    def check(self, event: type[Any]) -> None:
        """Check that the rule fits a class of events."""

    def identity(self, event: type[Any]) -> dict[str, Any]:
        """Return the settings for the checkpoint, as JSON; predicates are code, so left out."""
        return {}

    def fields(self, event: type[Any]) -> Sequence[pa.Field]:
        """Return its columns of an open session: `last.NAME` holds the last value of a field."""
        return ()

    def stored(self, rows: RuleInput, sessions: Joined) -> Mapping[str, pa.Array]:
        """Return the columns that `fields` declares, with a row for each session."""
        return {}

    def read(self, rows: RuleInput) -> Sequence[Array]:
        """Return what the rule reads of open sessions and events, in order: at least one column."""
        return ()

    def days(self, starts: Numbers) -> Numbers | None:
        """Return a number for each instant; a session never spans different numbers."""
        return None

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers | None:
        """Return when it ends sessions by their times alone, in microseconds."""
        return None

    @property
    def inclusive(self) -> bool:
        """Whether an event exactly at the instant of `closes` still belongs to the session."""
        return False

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        """
        Mark the sessions in which the rule may fire: only these are walked instant by instant.

        Args:
            columns: The columns of `read`.
            later: Marks the open sessions and events, in order, after the first instant of their
                session.
            sessions: The sessions as the gap alone joins them.
        """
        return np.zeros(len(sessions.start), np.bool_)

    def begins_next(self, known: Any, readings: Readings) -> bool:
        """Return whether an instant after the first of a session begins the next session."""
        return False

    def after(self, known: Any, readings: Readings) -> Any:
        """Return what the rule knows after an instant of a session; `known` is None before any."""
        return known

    def is_last(self, known: Any) -> bool:
        """Return whether a session ends with the last instant."""
        return False

    def may_open(self, readings: Readings) -> bool:
        """Return whether an instant may begin a session."""
        return True


def event_fields(event: type[Any], names: Sequence[str]) -> list[Field]:
    fields = {field.name: field for field in codec_of(event).type.fields}
    return [fields[name] for name in names]
