"""What functions are given: a session; or the state of a key, and its times."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import GenericAlias, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, overload

import attrs
import pandas as pd

from sessionkit._instants import instant_of, micros_of
from sessionkit.errors import StateValueError, TimerError
from sessionkit.spec.functions import wrong_class
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
    A session, as `finish` is given it: a closed one, but for early results.

    All times are event time, in UTC. Annotate `session: Session[User]`, or `Session[User, Shopper]`
    where something is remembered, to have its key and its memory checked.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`. `User` is a `NamedTuple`
            with the same fields.
        id: A hash of key and start, the same in every run and for every cut into batches.
        start: The time of the first event.
        end: The time of the last event plus the gap, exclusive. For how long a session lasted, see
            `length`.
        last_event: The time of the last event.
        events: How many events were folded.
        closed_by: The name of the rule that ended it: `"gap"`, or one of `SessionRules`. While it
            is open, the rule that would end it.
        is_final: Whether it's closed; always, but for early rows under `emit`.
        revision: How many rows it has given, this one included.
        number: Its number among the sessions of its key, from 1. This and the next two are only
            known with `SessionSpec(memory=...)`, and None without.
        previous_id: The id of the session before it; None for the first.
        since_previous: The time from the end of that one to `start`; None for the first.
        memory: What `Memory(remember=...)` returned for the session before it; None for the first,
            and where a spec has no such function.
    """

    key: K
    id: str
    start: datetime
    end: datetime
    events: int
    closed_by: ClosedBy = "gap"
    is_final: bool = True
    revision: int = 1
    number: int | None = None
    previous_id: str | None = None
    since_previous: timedelta | None = None
    memory: M | None = None
    last_event: datetime = attrs.field(
        default=attrs.Factory(lambda own: own.end, takes_self=True), kw_only=True
    )

    @property
    def length(self) -> timedelta:
        """How long it lasted: from the first event to the last one, without the gap."""
        return self.last_event - self.start

    if not TYPE_CHECKING:
        # `Session[User]` too, though a type variable has no default before Python 3.13.
        __class_getitem__ = classmethod(GenericAlias)


class _MadeWhenAsked:
    """A time of a session that the engine leaves as microseconds until someone reads it."""

    def __init__(self, name: str) -> None:
        self.name, self.micros = name, f"_{name}_us"

    def __get__(self, session: Any, owner: type[Any]) -> Any:
        if session is None:
            return self
        own = session.__dict__  # what is put there hides this from then on
        own[self.name] = instant_of(own.pop(self.micros))
        return own[self.name]


for _name in ("start", "end", "last_event"):
    # Most `finish` read neither, and two datetimes cost more than all the rest of a session.
    setattr(Session, _name, _MadeWhenAsked(_name))
for _name in ("is_final", "revision", "number", "previous_id", "since_previous", "memory"):
    # Nor does a session that gives one row, or of a key that isn't remembered, need these.
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
    """Return a session whose times are made when they are first read."""
    session: Session[Any] = object.__new__(Session)
    own = session.__dict__
    own["key"] = key
    own["id"] = name
    own["_start_us"] = start_us
    own["_end_us"] = end_us
    own["_last_event_us"] = last_event_us
    own["events"] = events
    own["closed_by"] = closed_by
    return session


S = TypeVar("S")
D = TypeVar("D")

MISSING: Final[Any] = object()
"""The state of a key without one; a user may pass None as the default."""


@attrs.frozen
class StoredTimer:
    """A timer as it is stored: on which clock, and the instant in microseconds."""

    clock: Clock
    at_us: int


@attrs.define(eq=False)
class KeySnapshot:
    """One key as a call finds and leaves it: `KeyState` and `KeyTimes` show a part of it each."""

    key: Any
    value: Any  # its state, or `MISSING`
    timers: dict[str, StoredTimer]  # its timers by name
    was_set: bool = False  # by a call of this micro-batch, as `was_removed`
    was_removed: bool = False
    is_last: bool = False  # a policy has ended the key, so nothing can be kept
    is_set: bool = False  # by this call
    newly_set: list[str] = attrs.field(factory=list)  # the timers that this call has set


@attrs.define(eq=False)
class KeyState(Generic[S]):
    """
    The state of one key, during one call.

    What is stored is what `set` was given, as it is when the call returns. An object from `get`
    that is changed and not `set` again is not stored; a `StatefulDriver` refuses that.
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
            default: What to return where there is none.

        Raises:
            StateValueError: There is none, and no default.
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
        Store a state in place of the one before.

        Raises:
            StateValueError: It is of another class than the spec's `state`, or one of its values
                does not fit its field, named with its path; or a policy has ended the key.
        """
        if self._snapshot.is_last:
            found = f"`state.set(...)`: the timeout policy has ended {self._snapshot.key!r}"
            raise StateValueError(found, "return a result row; nothing is kept")
        if value.__class__ is not self._kind.cls:
            what, cls = "`state.set(...)` must be given a", self._kind.cls
            hint = "build one" if value is not None else "to drop the state call state.remove()"
            raise StateValueError(wrong_class(what, cls, value, hint))
        for field in self._kind.fields:
            part = getattr(value, field.name)
            if part.__class__ not in field.type.exact:
                field.type.coerce(part, f"{self._kind.cls.__name__}.{field.name}")
        self._snapshot.value = value
        self._snapshot.was_set = self._snapshot.is_set = True

    def remove(self) -> None:
        """
        Forget the key: its state and, as in Spark, the timers that it has by now.

        A timer that is set after this call stays. Without a state, only timers are removed.
        """
        self._snapshot.value = MISSING
        self._snapshot.was_set = self._snapshot.is_set = False
        self._snapshot.was_removed = True
        self._snapshot.timers.clear()


@attrs.frozen
class Timer:
    """
    A timer that has not fired.

    Attributes:
        clock: `"event_time"` or `"processing_time"`.
        at: The instant that the clock must pass, in UTC.
    """

    clock: Clock
    at: datetime


@attrs.frozen
class BatchTimes:
    """
    The clocks of a micro-batch, the same for every key and row of it.

    Attributes:
        watermark: The watermark in force (event time, in UTC); None while there is none. At the
            end of a batch run, when all events are there, the last instant of the year 9999: for
            `on_timer`, and under `order="event_time"` for `process` too.
        processing_time: The processing time of the micro-batch, in UTC; the same when it runs
            again. In a batch run it is that of the run, and stands still.
    """

    watermark: datetime | None
    processing_time: datetime


POLICY_NAMES: Final = ("event_time_gap", "processing_time_gap", "time_to_live")
"""Those with which `on_timer` is called where a policy ends a key: timers can't have them."""


@attrs.frozen
class TimerRules:
    """Which timers the functions of a spec may set: on which clocks, and if any."""

    on_timer: bool
    event_time: bool
    processing_time: bool


@attrs.define(eq=False)
class KeyTimes:
    """
    The clocks of the micro-batch and the timers of one key, during one call.

    A key can have any number of timers, each with a name. A timer fires once, in the first
    micro-batch whose clock is past it (strictly, as in Spark): after the key's events of that
    batch, in the order of the instants. One that is set to an instant already past fires in the
    same micro-batch.
    """

    _snapshot: KeySnapshot
    _now: BatchTimes
    _rules: TimerRules
    _times_us: Sequence[int] = ()

    @property
    def event_times(self) -> tuple[datetime, ...]:
        """The event times of the events, in their order; none in `on_timer` or without a time."""
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
        """The timers of the key that have not fired, by name."""
        return MappingProxyType(
            {
                name: Timer(one.clock, instant_of(one.at_us))
                for name, one in self._snapshot.timers.items()
            }
        )

    def set_event_timer(self, name: str, at: datetime) -> None:
        """
        Set a timer on the watermark, in place of the key's timer of this name.

        Args:
            name: Its name, which `on_timer` is given.
            at: When it fires (event time), with a time zone.

        Raises:
            TimerError: The spec has no `watermark_delay` or no `on_timer`, the instant is naive or
                no datetime, the name is empty or a policy's, or a policy has ended the key.
        """
        if not self._rules.event_time:
            found = f"timer {name!r}: the spec has no watermark that could pass an event time"
            hint = 'add event_time="ts" and watermark_delay="10 minutes" to the spec'
            raise TimerError(found, hint)
        self._set(name, "event_time", at)

    def set_processing_timer(self, name: str, at: datetime) -> None:
        """
        Set a timer on the engine's clock, in place of the key's timer of this name.

        Args:
            name: Its name, which `on_timer` is given.
            at: When it fires (processing time), with a time zone, such as
                `times.processing_time + timedelta(minutes=5)`.

        Raises:
            TimerError: The spec has no `by_processing_time(...)`, the instant is naive or no
                datetime, the name is empty or a policy's, or a policy has ended the key.
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
