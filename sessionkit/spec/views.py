"""The arguments of user functions: a session; or the state, clocks and timers of a key."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import GenericAlias, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, overload

import attrs
import pandas as pd

from sessionkit._instants import instant_of, micros_of
from sessionkit.errors import StateValueError, TimerError
from sessionkit.spec.functions import wrong_class
from sessionkit.state._beside import UNSET
from sessionkit.state._collections import AttrsType
from sessionkit.timeouts._policies import Clock
from sessionkit.timeouts._session_rules import ClosedBy

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    M = TypeVar("M", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    M = TypeVar("M")


@attrs.frozen(slots=False)
class Session(Generic[K, M]):
    """
    The session that `finish` and `remember` receive: a closed session, except for early rows.

    All times are event time, in UTC. To have types checked, annotate `session: Session[User]` with
    the class of the key, or `Session[User, Shopper]` with the class of its memory too.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`. `User` is a `NamedTuple`
            with the same fields.
        session_id: A hash of key and start, the same in every run, however events are split into
            batches.
        session_start: The time of the first event.
        session_end: The time of the last event plus the gap, also if a rule has ended the session
            before. An event at exactly this time still joins, under `gap_inclusive=True`, the
            default, if it comes before the watermark has reached this.
        last_event_time: The time of the last event. In a test that makes a `Session` without it,
            `session_end`.
        events: The number of events.
        closed_by: The name of the rule that ended it: `"gap"`, or a rule of `SessionRules`. In an
            early row, the rule that will end it if no event comes.
        is_final: Whether it's closed; False only in early rows under `emit`.
        revision: The number of this row among the rows of the session, from 1.
        session_number: Its number among the sessions of its key, from 1. This and the next two are
            None without `SessionSpec(memory=...)`.
        previous_session_id: The id of the previous session; None for the first.
        since_previous: The time from when the previous session was over to `session_start`, see
            `Memory`; None for the first.
        memory: What `Memory(remember=...)` returned for the previous session; None for the first,
            and if the spec has no such function.
    """

    key: K
    session_id: str
    session_start: datetime
    session_end: datetime
    events: int
    closed_by: ClosedBy = "gap"
    is_final: bool = True
    revision: int = 1
    session_number: int | None = None
    previous_session_id: str | None = None
    since_previous: timedelta | None = None
    memory: M | None = None
    last_event_time: datetime = attrs.field(
        default=attrs.Factory(lambda session: session.session_end, takes_self=True), kw_only=True
    )

    @property
    def length(self) -> timedelta:
        """The time from the first event to the last: `last_event_time` less `session_start`."""
        return self.last_event_time - self.session_start

    if not TYPE_CHECKING:
        # Before Python 3.13 a type variable has no default, so `Session[User]` needs this.
        __class_getitem__ = classmethod(GenericAlias)


class _MadeWhenAsked:
    """A time of a session, stored as microseconds until it's first read."""

    def __init__(self, name: str) -> None:
        self.name, self.micros = name, f"_{name}_us"

    def __get__(self, session: Any, owner: type[Any]) -> Any:
        if session is None:
            return self
        values = session.__dict__  # an entry there hides this descriptor from then on
        values[self.name] = instant_of(values.pop(self.micros))
        return values[self.name]


for _name in ("session_start", "session_end", "last_event_time"):
    # Most `finish` functions read no time, and datetimes cost more than all the rest of a session.
    setattr(Session, _name, _MadeWhenAsked(_name))
for _name in (
    "is_final",
    "revision",
    "session_number",
    "previous_session_id",
    "since_previous",
    "memory",
):
    # A session with a single row and no memory needs none of these.
    setattr(Session, _name, getattr(attrs.fields(Session), _name).default)


def session_of(  # noqa: PLR0917 (called by `map`, a session at a time)
    key: Any,
    name: str,
    start_us: int,
    end_us: int,
    last_event_us: int,
    events: int,
    closed_by: ClosedBy,
) -> Session[Any]:
    """Return a session that converts its times when they are first read."""
    session: Session[Any] = object.__new__(Session)
    values = session.__dict__
    values["key"] = key
    values["session_id"] = name
    values["_session_start_us"] = start_us
    values["_session_end_us"] = end_us
    values["_last_event_time_us"] = last_event_us
    values["events"] = events
    values["closed_by"] = closed_by
    return session


S = TypeVar("S")
D = TypeVar("D")

MISSING: Final[Any] = object()
"""Marks a key without a state. Not None, which a user may pass as a default."""


@attrs.frozen
class StoredTimer:
    """A timer as it's stored: its clock, and its instant in microseconds."""

    clock: Clock
    at_us: int


@attrs.define(eq=False)
class KeySnapshot:
    """A key as a call finds and leaves it: what `KeyState` and `KeyTimes` show and change."""

    key: Any
    value: Any  # the state, or `MISSING`
    timers: dict[str, StoredTimer]
    was_set: bool = False  # whether a call of this micro-batch set the state
    was_removed: bool = False  # whether a call of this micro-batch removed the key
    is_last: bool = False  # a policy has ended the key, so nothing can be kept
    is_set: bool = False  # whether this call set the state
    newly_set: list[str] = attrs.field(factory=list)  # the timers that this call has set


@attrs.define(eq=False)
class KeyState(Generic[S]):
    """
    The state of a key, which `process` and `on_timer` read and change.

    What you pass to `set` is stored as it is when the function returns. If you change the object
    that `get` returned, call `set` with it: Spark stores nothing otherwise. A `StatefulDriver` then
    raises a `UserFunctionError`, so a test finds it.
    """

    _snapshot: KeySnapshot
    _kind: AttrsType

    @property
    def exists(self) -> bool:
        """Whether the key has a state."""
        return self._snapshot.value is not MISSING

    @overload
    def get(self) -> S: ...
    @overload
    def get(self, default: D) -> S | D: ...
    def get(self, default: Any = MISSING) -> Any:
        """
        Return the state.

        Args:
            default: The return value for a key without a state.

        Raises:
            StateValueError: The key has no state, and there is no default.
        """
        if self._snapshot.value is not MISSING:
            return self._snapshot.value
        if default is MISSING:
            found = f"`state.get()`: no state is stored for {self._snapshot.key!r}"
            hint = "ask `state.exists` first, or pass what to start with: state.get(default)"
            raise StateValueError(found, hint)
        return default

    def set(self, value: S) -> None:
        """
        Store a state in place of the previous state.

        Raises:
            StateValueError: The value isn't an object of the spec's `state` class; a value in it
                doesn't fit its field, which the message names; or the timeout has ended the key.
        """
        if self._snapshot.is_last:
            found = f"`state.set(...)`: the timeout policy has ended {self._snapshot.key!r}"
            raise StateValueError(found, "return a result row; nothing is kept")
        if value.__class__ is not self._kind.cls:
            what, cls = "`state.set(...)` must be given a", self._kind.cls
            hint = "build one" if value is not None else "to drop the state call state.remove()"
            raise StateValueError(wrong_class(what, cls, value, hint))
        name, beside = self._kind.cls.__name__, self._kind.beside
        for field in self._kind.fields:
            part = getattr(value, field.name, UNSET)
            if part.__class__ not in field.type.exact:
                field.type.coerce(part, f"{name}.{field.name}")
        if beside is not None and beside.found_in([value]):
            self._kind.coerce(value, name)
        self._snapshot.value = value
        self._snapshot.was_set = self._snapshot.is_set = True

    def remove(self) -> None:
        """
        Remove the state and, as in Spark, all current timers of the key.

        A timer that is set after this call stays.
        """
        self._snapshot.value = MISSING
        self._snapshot.was_set = self._snapshot.is_set = False
        self._snapshot.was_removed = True
        self._snapshot.timers.clear()


@attrs.frozen
class Timer:
    """
    A timer that has not fired: `KeyTimes.timers` and `StoredKey.timers` have such objects.

    Attributes:
        clock: `"event_time"` or `"processing_time"`.
        at: The instant, in UTC, after which it fires.
    """

    clock: Clock
    at: datetime


@attrs.frozen
class BatchTimes:
    """
    The clocks of a micro-batch, the same for all its keys and rows.

    Attributes:
        watermark: The watermark in force (event time, in UTC); None while there is none. A batch
            has none until all events are read; then it's the last instant of the year 9999: for
            `on_timer`, and under `order="event_time"` for `process` too.
        processing_time: The processing time of the micro-batch, in UTC; the same if the micro-batch
            runs again. On a batch, the fixed processing time of the run.
    """

    watermark: datetime | None
    processing_time: datetime


POLICY_NAMES: Final = ("event_time_gap", "processing_time_gap", "time_to_live")
"""The names that `on_timer` receives when a policy ends a key; timers can't have these names."""


@attrs.frozen
class TimerRules:
    """Which timers the functions of a spec may set: on which clocks, or none without `on_timer`."""

    on_timer: bool
    event_time: bool
    processing_time: bool


@attrs.define(eq=False)
class KeyTimes:
    """
    The clocks of a micro-batch and the timers of a key, for `process` and `on_timer`.

    A key can have any number of named timers. A timer fires once, in the first micro-batch whose
    clock is strictly after its instant, as in Spark. A timeout of the spec differs: it ends a key
    once the clock reaches its end.

    Timers fire after the key's events of that micro-batch, in the order of their instants. A timer
    set to a past instant fires in the same micro-batch.
    """

    _snapshot: KeySnapshot
    _now: BatchTimes
    _rules: TimerRules
    _times_us: Sequence[int] = ()

    @property
    def event_times(self) -> tuple[datetime, ...]:
        """The event times of the events, in order; `()` in `on_timer`, or without event time."""
        return tuple(map(instant_of, self._times_us))

    @property
    def watermark(self) -> datetime | None:
        """The watermark in force (event time, in UTC), see `BatchTimes`."""
        return self._now.watermark

    @property
    def processing_time(self) -> datetime:
        """The processing time of the micro-batch, in UTC, see `BatchTimes`."""
        return self._now.processing_time

    @property
    def timers(self) -> Mapping[str, Timer]:
        """The timers of the key that have not fired, by name: `Timer` objects."""
        stored = self._snapshot.timers.items()
        return MappingProxyType({name: Timer(t.clock, instant_of(t.at_us)) for name, t in stored})

    def set_event_timer(self, name: str, at: datetime) -> None:
        """
        Set a timer in event time, in place of the key's timer of this name, if it has one.

        Args:
            name: The timer's name, which `on_timer` receives.
            at: The event time, with a time zone, that the watermark must pass.

        Raises:
            TimerError: The spec has no `watermark_delay` or no `on_timer`; `at` isn't a datetime or
                has no time zone; the name is empty, or is `event_time_gap`, `processing_time_gap`
                or `time_to_live`; or the timeout has ended the key.
        """
        if not self._rules.event_time:
            found = f"timer {name!r}: the spec has no watermark that could pass an event time"
            hint = 'add event_time="ts" and watermark_delay="10 minutes" to the spec'
            raise TimerError(found, hint)
        self._set(name, "event_time", at)

    def set_processing_timer(self, name: str, at: datetime) -> None:
        """
        Set a timer in processing time, in place of the key's timer of this name, if it has one.

        Args:
            name: The timer's name, which `on_timer` receives.
            at: The processing time that must have passed, with a time zone, such as
                `times.processing_time + timedelta(minutes=5)`.

        Raises:
            TimerError: The spec has no `by_processing_time(...)`; `at` isn't a datetime or has no
                time zone; the name is empty, or is `event_time_gap`, `processing_time_gap` or
                `time_to_live`; or the timeout has ended the key.
        """
        if not self._rules.processing_time:
            found = f"timer {name!r}: the spec does not ask for processing-time timers"
            hint = "pass on_timer=by_processing_time(...); docs/explanation/timers.md says the cost"
            raise TimerError(found, hint)
        self._set(name, "processing_time", at)

    def delete_timer(self, name: str) -> None:
        """Delete a timer of the key, if it has one of this name."""
        self._snapshot.timers.pop(name, None)

    def _set(self, name: str, clock: Clock, at: datetime) -> None:
        if not self._rules.on_timer:
            found = f"timer {name!r}: the spec has no function to call when it fires"
            raise TimerError(found, "add on_timer=... to the spec")
        if self._snapshot.is_last:
            found = f"timer {name!r}: the timeout policy has ended {self._snapshot.key!r}"
            raise TimerError(found, "set no timer when `name` is that of a policy")
        found = f"a timer cannot have the name {name!r}"
        if name.__class__ is not str or not name or name in POLICY_NAMES:
            raise TimerError(found, f"choose a text other than {', '.join(POLICY_NAMES)}")
        try:
            name.encode()
        except UnicodeEncodeError:
            hint = "choose a text without lone surrogates"
            raise TimerError(f"{found}: UTF-8 cannot encode it", hint) from None
        self._snapshot.timers[name] = StoredTimer(clock, _instant_us(name, at))
        self._snapshot.newly_set.append(name)


def _instant_us(name: str, at: object) -> int:
    if not isinstance(at, datetime) or pd.isna(at):
        found = f"timer {name!r}: the instant must be a datetime, found {at!r}"
        hint = "write times.processing_time + timedelta(...), or the event time plus one"
        raise TimerError(f"{found} ({type(at).__name__})", hint)
    if at.utcoffset() is None:
        found = f"timer {name!r}: the instant has no time zone, found {at!r}"
        raise TimerError(found, "write datetime(..., tzinfo=UTC)")
    at_us = micros_of(at)
    try:
        instant_of(at_us)
    except OverflowError:
        found = f"timer {name!r}: the instant is outside the years 1 to 9999, found {at!r}"
        raise TimerError(found, "set no timer for what never comes") from None
    return at_us
