"""What a user writes: the spec of a session, a frozen value that is valid once it exists."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

import attrs

from sessionkit._functions import (
    FinishMethod,
    Place,
    check_function,
    check_key,
    is_frozen,
    is_method,
    name_of,
    returns_none,
    takes_time,
)
from sessionkit._instants import Duration, duration
from sessionkit._session_view import Session
from sessionkit._spec import (
    E,
    R,
    S,
    Spec,
    check_durations,
    check_shared,
    choice,
    column_name,
    set_derived,
    show_shared_arguments,
)
from sessionkit._state_class import (
    Finishing,
    InOrder,
    InOrderFinishing,
    Merging,
    Settings,
    SettingsInOrder,
    functions_of,
    needed_fields,
    shared_defaults,
    timeout_of,
)
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import DatetimeType, Field, StrType
from sessionkit.timeouts import EventTimeGap
from sessionkit.typing import FinishResult

__all__ = ["SESSION_COLUMNS", "AnySessionSpec", "Session", "SessionSpec"]

# Those of `SessionSpec.of`: type checkers bind those of the class before they look at a call.
E1 = TypeVar("E1", bound=attrs.AttrsInstance)
S1 = TypeVar("S1", bound=attrs.AttrsInstance)
R1 = TypeVar("R1", bound=attrs.AttrsInstance)

SESSION_FIELDS: Final = (
    Field("session_id", StrType(), "session_id"),
    Field("session_start", DatetimeType(), "session_start"),
    Field("session_end", DatetimeType(), "session_end"),
)
SESSION_COLUMNS: Final = tuple(field.name for field in SESSION_FIELDS)
"""The columns that sessionkit adds to every result row, after those of the key."""


FUNCTIONS: Final = {
    "create": ("key", "event"),
    "update": ("state", "event"),
    "merge": ("left", "right"),
    "finish": ("session", "state"),
}
METHODS: Final = {
    "create": ("key", "event"),
    "update": ("self", "event"),
    "merge": ("self", "other"),
    "finish": ("self", "session"),
}
MEANINGS: Final[Mapping[str, Mapping[int | None, str]]] = {
    "create": {0: "key", 1: "event", None: "state"},
    "update": {0: "state", 1: "event", None: "state"},
    "merge": {0: "state", 1: "state", None: "state"},
    "finish": {0: "session", 1: "state", None: "row"},
}
"""What the parameters of each function are by their place, and what it returns."""


Create: TypeAlias = Callable[[Any, E], S] | Callable[[Any, E, datetime], S]
Update: TypeAlias = Callable[[S, E], S | None] | Callable[[S, E, datetime], S | None]


def _read_delay(value: Duration) -> timedelta:
    return duration(value, "watermark_delay", zero_allowed=True)


def _read_timeout(value: EventTimeGap | Duration) -> EventTimeGap:
    return EventTimeGap(value) if isinstance(value, str | timedelta) else value


@attrs.frozen(kw_only=True)
class SessionSpec(Spec[E, S, R]):
    """
    The definition of a session: what is read, how it is folded, when it is over.

    The same spec runs on a stream, on a batch and in a test. All times are event time.
    `SessionSpec.of(Visit, ...)` reads the functions from the methods of the state class.

    Attributes:
        create: `create(key, event) -> state`, for the first event of a session. Left out, the
            session starts with `State()`, and `update` gets the first event too; a default that
            can change must then be an attrs factory.
        update: `update(state, event) -> state`, for each further event. It may change the state
            that it is given, and return that or None. `create` and `update` may take a third
            argument, named `time` or annotated `datetime`: the event's time, in UTC.
        merge: `merge(left, right) -> state`, for two open sessions that an event between them
            bridges; `left` starts first, and may be changed as by `update`. A spec without it must
            say `order="event_time"`, where no event can come between.
        finish: `finish(session, state)` for a session that is over: a result row, several, or
            None. Called once a session. Left out, the state is the row.
        timeout: When a session is over: an `EventTimeGap`, or only the gap, such as `"30 minutes"`.
        late_by: Which window must be over for an event to be late. `"event"`: its own, event time +
            gap, as in Spark. `"session"`: that of the session it would join, as in Flink. Of no
            effect with `order="event_time"`, and so `"session"` is refused there.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    event_time: str = attrs.field(validator=column_name)
    create: Create[E, S] | None = None
    update: Update[S, E]
    merge: Callable[[S, S], S | None] | None = None
    finish: Callable[[Session[Any], S], FinishResult[R]] | None = None
    timeout: EventTimeGap = attrs.field(converter=_read_timeout)
    watermark_delay: timedelta = attrs.field(converter=_read_delay)
    late_by: Literal["event", "session"] = attrs.field(
        default="event", validator=choice("event", "session")
    )
    create_takes_time: bool = attrs.field(init=False, eq=False, repr=False)
    update_takes_time: bool = attrs.field(init=False, eq=False, repr=False)
    row_kind: ClassVar = "session"
    own_fields: ClassVar = SESSION_FIELDS

    def __attrs_post_init__(self) -> None:
        """Read what the functions say, and check what the single fields cannot see."""
        create_at = self.create is not None and takes_time(self.create)
        set_derived(self, create_takes_time=create_at, update_takes_time=takes_time(self.update))
        for role in ("create", "update", "merge", "finish"):
            _check_function(self, role, {})
        self._set_class("event", _annotations(self, "event"), "in `update`: `event: View`")
        self._set_class("state", _annotations(self, "state"), "in `update`: `state: Visit`")
        if self.finish is None and self._result is None:
            set_derived(self, result=self.state)
        else:
            self._set_class("result", _annotations(self, "row"), "what `finish` returns")
        check_shared(self)
        classes = {"event": self.event, "state": self.state, "session": Session}
        for role in ("create", "update", "merge", "finish"):
            _check_function(self, role, classes)
        for place in (*_annotations(self, "key"), *_annotations(self, "session")):
            check_key(place, self.keys)
        _check_left_out(self)
        _check_in_place(self)
        _check_times(self)

    @overload
    @classmethod
    def of(
        cls,
        state: Finishing[S1, E1, R1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[Settings],
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: Merging[S1, E1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[Settings],
    ) -> "SessionSpec[E1, S1, S1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: InOrderFinishing[S1, E1, R1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[SettingsInOrder],
    ) -> "SessionSpec[E1, S1, R1]": ...
    @overload
    @classmethod
    def of(
        cls,
        state: InOrder[S1, E1],
        /,
        *,
        event: type[E1] | None = None,
        **settings: Unpack[SettingsInOrder],
    ) -> "SessionSpec[E1, S1, S1]": ...
    @classmethod
    def of(cls, state: Any, /, **settings: Any) -> "SessionSpec[Any, Any, Any]":
        """
        Make a spec whose functions are methods of the state class.

        They are `update(self, event)`, `merge(self, other)`, `finish(self, session)` and, as a
        class method, `create(cls, key, event)`. All but `update` may be left out as in
        `SessionSpec`; `create` and `update` may take `time` too.

        Args:
            state: The state class: an attrs class. It needs no base class and no decorator of
                sessionkit's.
            event: The attrs class of an event, where the annotations don't say it.
            settings: What `SessionSpec` takes, which wins over the methods; and `gap="30 minutes"`
                for `timeout`.

        Raises:
            SpecError: Something cannot work; the message says what to change.
            FieldTypeError: A class has fields that cannot be stored; all are named.
        """
        functions = {**functions_of(state, settings), **settings}
        if "update" not in functions:
            found = f"`{state.__name__}` has no method `update`"
            hint = "write `def update(self, event: View) -> None: ...` in it"
            raise SpecError(with_hint(found, hint))
        return SessionSpec(state=state, **timeout_of(functions))

    @property
    def least_retention(self) -> timedelta:
        """How old an event can be, counted from the watermark, without being late."""
        return self.timeout.longest


show_shared_arguments(SessionSpec)
AnySessionSpec: TypeAlias = SessionSpec[Any, Any, Any]


def _annotations(spec: AnySessionSpec, meaning: str) -> list[Place]:
    """Return the annotations that name a class of the spec: event, state or row."""
    roles = ("create", "update", "merge", "finish")
    return [
        Place(role, function, position, own=spec._state)  # noqa: SLF001
        for role in roles
        for function, meanings in [_meanings(spec, role)]
        for position, named in meanings.items()
        if named == meaning
    ]


def _meanings(spec: AnySessionSpec, role: str) -> tuple[Any, dict[int | None, str]]:
    """Return a function, and what its parameters are, and what it returns."""
    function = getattr(spec, role)
    if isinstance(function, FinishMethod):
        return function.method, {0: "state", 1: "session", None: "row"}
    return function, {} if function is None else dict(MEANINGS[role])


def _check_function(spec: AnySessionSpec, role: str, classes: Mapping[str, type[Any]]) -> None:
    """Check one function, with the classes that are known by now."""
    function, meanings = _meanings(spec, role)
    if function is None and role != "update":
        return
    names = METHODS[role] if callable(function) and is_method(function) else FUNCTIONS[role]
    wanted = {name: classes.get(meanings.get(place, "")) for place, name in enumerate(names)}
    if getattr(spec, f"{role}_takes_time", False):
        wanted["time"] = None
    check_function(function, role, **wanted)


def _check_left_out(spec: AnySessionSpec) -> None:
    if spec.merge is None and spec.order != "event_time":
        found = "`merge` is missing: an event may bridge two open sessions"
        hint = 'pass merge=..., or order="event_time", where no event can come between'
        raise SpecError(with_hint(found, hint))
    if spec.create is None:
        _check_new_state(spec.state)
    if spec.finish is None and spec.result is not spec.state:
        found = f"`finish` is left out, so the state is the row, and {spec.result.__name__} is not"
        hint = "pass finish=..., or leave result out"
        raise SpecError(with_hint(f"{found} {spec.state.__name__}", hint))


def _check_new_state(state: type[Any]) -> None:
    """Check that `State()` makes a state, and a new one each time."""
    name = state.__name__
    needed = needed_fields(state)
    if needed:
        found = f"`create` is left out, and {name} cannot be made without {', '.join(needed)}"
        hint = f"pass create=..., or give the fields of {name} defaults"
        raise SpecError(with_hint(found, hint))
    for owner, shared in shared_defaults(state):
        kind = type(shared.default).__name__
        found = f"`create` is left out, and all states would share one {kind}, the default of"
        hint = f"write `{shared.name}: ... = attrs.field(factory={kind})`"
        raise SpecError(with_hint(f"{found} `{owner}.{shared.name}`", hint))


def _check_in_place(spec: AnySessionSpec) -> None:
    state = spec.state.__name__
    for role in ("update", "merge"):
        function = getattr(spec, role)
        if function is not None and returns_none(function) and is_frozen(spec.state):
            found = f"`{role}` ({name_of(function)}) returns None: it changes the state in place"
            hint = f"return the new state, or make {state} with attrs.define"
            raise SpecError(with_hint(f"{found}, and {state} is frozen", hint))


def _check_times(spec: AnySessionSpec) -> None:
    if not isinstance(spec.timeout, EventTimeGap):
        found = f"`timeout` of a session must be an EventTimeGap, found {spec.timeout!r}"
        raise SpecError(with_hint(found, 'write timeout=EventTimeGap("30 minutes")'))
    if callable(spec.timeout.gap):
        check_function(spec.timeout.gap, "gap", event=spec.event)
    if spec.late_by == "session" and spec.order == "event_time":
        found = '`late_by="session"` has no effect with `order="event_time"`'
        why = "an event is late once the watermark has reached it"
        hint = 'leave `late_by` out, or write order="arrival"'
        raise SpecError(with_hint(f"{found}, where {why}", hint))
    check_durations(spec)
