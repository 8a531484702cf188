"""
The logic of a session spec: `Functions`, `Aggregates` or `Events`.

Each class checks its own arguments.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from sessionkit._arguments import REST, check_field, explained
from sessionkit._typing import FinishResult, Record
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate
from sessionkit.aggregates._of_spec import bound_aggregates, check_event_class, with_result
from sessionkit.errors import SpecError
from sessionkit.spec.base import E, R, S, set_derived
from sessionkit.spec.bytecode import computes_in_vain, loses
from sessionkit.spec.functions import FinishMethod
from sessionkit.spec.signatures import (
    MAY_TAKE_TIME,
    Place,
    Signature,
    check_annotations,
    check_call,
    check_callable,
    class_of,
    signature_of,
)
from sessionkit.spec.views import Session
from sessionkit.state._codec import codec_of
from sessionkit.state._fields import FACTORY, attributes_of, fields_of, is_frozen, is_record

Row = TypeVar("Row", bound=Record)
Create: TypeAlias = Callable[[Any, E], S] | Callable[[Any, E, datetime], S]
Update: TypeAlias = Callable[[S, E], S | None] | Callable[[S, E, datetime], S | None]
Merge: TypeAlias = Callable[[S, S], S | None]
Finish: TypeAlias = Callable[[Session[Any], S], FinishResult[R]]

_Read: TypeAlias = list[tuple[tuple[str, ...], Signature]]
PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "create": ("key", "event"),
    "update": ("state", "event"),
    "merge": ("left", "right"),
    "finish": ("session", "state"),
}
METHODS: Final = {"update": ("self", "event"), "merge": ("self", "other")}
MEANS: Final = dict.fromkeys(("left", "right", "self", "other"), "state")
CHANGE: Final = ("update", "merge")
"""The functions that change a state in place or return a new one."""
RETURNS: Final = {"create": "state", "update": "state", "merge": "state", "finish": "row"}


# -- the three kinds ----------------------------------------------------------------------------


@explained()
@attrs.frozen(kw_only=True)
class Functions(Generic[E, S, R]):
    """
    Compute sessions by functions: `logic=Functions(update=..., merge=..., finish=...)`.

    Events change a *state*, an object of your own class. `finish` makes a row of it.

    Attributes:
        create: `create(key, event) -> state`, for the first event of a session. Left out, the
            session starts with `State()`, an object of the state class made without arguments, and
            `update` gets the first event too; a mutable default must then be an attrs factory.
        update: `update(state, event) -> state`, for each further event. It returns the new state;
            or changes `state` in place, and returns it or None. `create` and `update` may take a
            third argument, named `time` or annotated `datetime`: the event's time, in UTC.
        merge: `merge(left, right) -> state`, for two open sessions that become one because a new
            event lies between them, at most a gap from both. `left` starts first, and may be
            changed in place. Without `merge`, a spec needs `order="event_time"`: events then come
            in order, so this never happens.
        finish: `finish(session, state)`, called when a session is over, and for each of its early
            rows and revisions: a result row, a list of rows, or None. Left out, the state is the
            row.
        event: The attrs class of an event. Its fields name the columns that are read, and their
            types; Python gets no other column. A row with a null in a field that isn't Optional is
            no event: it's rejected as `quarantined`. By default from the annotations of the
            functions.
        state: The attrs class of the stored state. By default from the annotations.
        result: The attrs class of a result row. Its fields become columns, after the key columns.
            By default from the annotations.

    Raises:
        SpecError: A function doesn't take these arguments, its annotations name no class, `update`
            makes a new state without returning it, `update` returns None though the state class is
            frozen, or `create` is left out and `State()` needs arguments.
        SpecError: A field of a class has a type that can't be stored. The message names all such
            fields.
    """

    create: Create[E, S] | None = None
    update: Update[S, E]
    merge: Merge[S] | None = None
    finish: Finish[S, R] | None = None
    _event: type[E] | None = attrs.field(default=None, alias="event", eq=False, repr=False)
    _state: type[S] | None = attrs.field(default=None, alias="state", eq=False, repr=False)
    _result: type[R] | None = attrs.field(default=None, alias="result", eq=False, repr=False)
    event: type[E] = attrs.field(init=False)
    state: type[S] = attrs.field(init=False)
    result: type[R] = attrs.field(init=False)
    takes_time: frozenset[str] = attrs.field(init=False, eq=False, repr=False)
    must_return: frozenset[str] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        read = self._signatures(*PARAMETERS)
        places = _places(read)
        event = class_of("event", self._event, places["event"], "in `update`: `event: View`")
        state = class_of("state", self._state, places["state"], "in `update`: `state: Visit`")
        result: Any = state
        if self.finish is not None or self._result is not None:
            result = class_of("result", self._result, places["row"], "what `finish` returns")
        classes = {"event": event, "session": Session, **dict.fromkeys(["state", *MEANS], state)}
        for cls in (event, state, result):
            fields_of(cls)
        for names, signature in read:
            check_annotations(signature, dict(zip(names, map(classes.get, names), strict=True)))
        set_derived(self, event=event, state=state, result=result)
        # Annotations are resolved on the driver: executors may lack their names.
        timed = frozenset(signature.role for names, signature in read if "time" in names)
        promised = {signature.role for _, signature in read if signature.always_returns}
        set_derived(self, takes_time=timed, must_return=frozenset(promised - {"create"}))
        _check_left_out(self)
        for _, signature in read:
            if signature.role in CHANGE:
                _check_kept(signature, state)

    @property
    def keyed(self) -> list[Place]:
        """The annotations of the key of `create`, and of the session of `finish`."""
        places = _places(self._signatures("create", "finish"))
        return [*places["key"], *places["session"]]

    def _signatures(self, *roles: str) -> _Read:
        """Return the signatures of the functions in use, with their expected parameters."""
        read: _Read = []
        for role in roles:
            function, names = getattr(self, role), PARAMETERS[role]
            if function is None and role != "update":
                continue
            if isinstance(function, FinishMethod):
                function, names = function.method, ("self", "session")
            check_callable(function, role, names)
            signature = signature_of(function, role, self._state)
            if signature.parameters and signature.parameters[0].name == "self":
                names = METHODS.get(role, names)
            if role in MAY_TAKE_TIME and signature.takes_time:
                names = (*names, "time")
            # With a `result` class, a `finish` that returns None gives no rows.
            or_nothing = role == "finish" and self._result is not None
            check_call(signature, names, or_nothing=or_nothing)
            check_annotations(signature, dict.fromkeys(names))
            read.append((names, signature))
        return read


@explained()
@attrs.frozen
class Aggregates(Generic[E, Row]):
    """
    Return a row of aggregates for each session: `logic=Aggregates(View, {...})`.

    An aggregate is a count, a sum, a first value and the like. No Python runs for an event. Where
    `read_state` or a driver shows an open session, its `state` is the row that it would give now.

    Attributes:
        event: The attrs class of an event, without validators and converters.
        aggregates: The aggregates, by the names of their columns in the result: functions of
            `sessionkit.aggregates` make them.
        result: An attrs class whose fields have these names, for typed rows. Left out, one is made.

    Raises:
        SpecError: `event` has no field that an aggregate reads, or one of another type than the
            aggregate takes; `event` has a validator or a converter; or `result` has other fields.
        SpecError: A field of a class has a type that can't be stored. The message names all such
            fields.
    """

    event: type[E]
    aggregates: Mapping[str, Aggregate] = attrs.field(hash=False)
    _result: type[Row] | None = attrs.field(
        default=None, alias="result", eq=False, repr=False, kw_only=True
    )
    result: type[Row] = attrs.field(init=False)
    bound: tuple[BoundAggregate, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        bound = bound_aggregates(self.event, self.aggregates)
        result, bound = with_result(bound, self._result)
        set_derived(self, bound=bound, result=result)


@explained()
@attrs.frozen
class Events(Generic[E]):
    """
    Return a row for each event of a session: `logic=Events(View)`.

    The rows come once the session is over. After the columns of the session, each has `number`, the
    position of the event in the session from 1; the event's time, under the name of `event_time`;
    and the event's fields. Until then, the events are stored.

    Attributes:
        event: The attrs class of an event, without validators and converters.

    Raises:
        SpecError: `event` isn't an attrs class or a dataclass, or has a validator or a converter.
        SpecError: A field has a type that can't be stored. The message names all such fields.
    """

    event: type[E] = attrs.field()

    def __attrs_post_init__(self) -> None:
        check_event_class(self.event)


Logic: TypeAlias = Functions[E, S, R] | Aggregates[E, R] | Events[E]


def classes_of(
    logic: Logic[Any, Any, Any], event_time: str, keys: Collection[str]
) -> dict[str, type[Any]]:
    """Return the classes of events, states and result rows, by the attributes of a spec."""
    match logic:
        case Functions():
            return {"event": logic.event, "state": logic.state, "result": logic.result}
        case Aggregates():
            return {"event": logic.event, "state": logic.result, "result": logic.result}
        case Events():
            event: Any = logic.event
            row = event_row_class(event, event_time, frozenset(keys))
            return {"event": event, "state": held_class(event, event_time), "result": row}
    found = f"`logic` must say how sessions are folded, found {logic!r}"
    raise SpecError(found, "write logic=Functions(update=...), or SessionSpec.of(Visit, ...)")


# -- functions, checked -------------------------------------------------------------------------


def _places(read: _Read) -> Mapping[str, list[Place]]:
    """Group annotations by what they describe: event, state, row, key or session."""
    places = defaultdict(list)
    for names, signature in read:
        parameters = zip(names, signature.parameters, strict=False)
        for name, place in (*parameters, (RETURNS[signature.role], signature.returned)):
            if place.annotation not in (None, NoneType):
                places[MEANS.get(name, name)].append(place)
    return places


def _check_left_out(logic: Functions[Any, Any, Any]) -> None:
    """Check that the state class can replace `create` and `finish`, if left out."""
    state = logic.state
    if logic.finish is None and logic.result is not state:
        found = f"`finish` is left out, so the state is the row, and {logic.result.__name__} is not"
        raise SpecError(f"{found} {state.__name__}", "pass finish=..., or leave result out")
    if logic.create is not None:
        return
    needed = [
        name
        for name, argument in inspect.signature(state).parameters.items()
        if argument.default is argument.empty and argument.kind not in REST
    ]
    if needed:
        found = f"`create` is left out, and {state.__name__} cannot be made without"
        hint = f"pass create=..., or give the fields of {state.__name__} defaults"
        raise SpecError(f"{found} {', '.join(needed)}", hint)
    for owner, shared in _shared_defaults(state):
        kind = type(shared.default).__name__
        found = f"`create` is left out, and all states would share one {kind}, the default of"
        hint = f"write `{shared.name}: ... = attrs.field(factory={kind})`"
        raise SpecError(f"{found} `{owner}.{shared.name}`", hint)


def _check_kept(signature: Signature, state: type[Any]) -> None:
    """Check that a function doesn't lose the state it makes."""
    if is_frozen(state) and signature.returns_nothing:
        found = f"{signature.returned} returns None: it changes the state in place"
        hint = f"return the new state, or make {state.__name__} with attrs.define"
        raise SpecError(f"{found}, and {state.__name__} is frozen", hint)
    for place in signature.parameters[:1]:
        if signature.plain and loses(signature.plain, place.name, state):
            found = f"{place} makes a new {state.__name__} and does not return it: it would be lost"
            raise SpecError(found, f"return it, or change `{place.name}` itself")
        if signature.plain and computes_in_vain(signature.plain):
            found = (
                f"{place} computes a value and does nothing with it: `{place.name}` stays as it was"
            )
            hint = (
                f"assign it, such as `{place.name}.pages = ...`, or return a new {state.__name__}"
            )
            raise SpecError(found, hint)


def _shared_defaults(cls: type[Any]) -> Iterator[tuple[str, "attrs.Attribute[Any]"]]:
    """Yield the fields with a mutable default that all objects share, with their class names."""
    for field in attributes_of(cls):
        factory = field.default.factory if isinstance(field.default, FACTORY) else None
        if factory is not None and is_record(factory):
            yield from _shared_defaults(factory)
        elif _can_change(field.default):
            yield cls.__name__, field


def _can_change(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_can_change, value))
    cls: type[Any] = type(value)
    if not is_record(cls):
        return isinstance(value, list | dict | set | bytearray)
    parts = [getattr(value, field.name) for field in attributes_of(cls)]
    return not is_frozen(cls) or any(map(_can_change, parts))


# -- a row for each event -----------------------------------------------------------------------


HELD: Final = "events"
NUMBER: Final = "number"
"""The field of a row with the position of its event in the session, from 1."""


@lru_cache(maxsize=256)
def held_class(event: Any, event_time: str) -> type[Any]:
    """Return the class of the state: the events of a session, each with its time."""
    item: Any = attrs.make_class("Event", _fields(event, event_time), frozen=True)
    return attrs.make_class("Events", {HELD: attrs.field(type=list[item])}, frozen=True)


@lru_cache(maxsize=256)
def event_row_class(event: Any, event_time: str, keys: frozenset[str]) -> type[Any]:
    """Return the class of a row: the number and the event, without its key columns."""
    fields = _fields(event, event_time)
    if NUMBER in {*fields, *keys}:
        found = f"`{NUMBER}` numbers the events of a session, and they have such a column"
        hint = "rename the column in the frame, or leave it out"
        raise SpecError(found, hint)
    fields = {NUMBER: attrs.field(type=int, kw_only=True), **fields}
    fields = {name: field for name, field in fields.items() if name not in keys}
    return attrs.make_class("EventRow", fields, frozen=True)


def _fields(event: type[Any], event_time: str) -> dict[str, Any]:
    codec_of(event)  # resolves the annotations
    fields = {
        field.name: attrs.field(
            type=field.type, default=field.default, kw_only=True, alias=field.name
        )
        for field in attributes_of(event)
    }
    rename = "rename the column, with letters, digits and underscores: each row has it as a field"
    check_field(event_time, "`event_time`: ", rename)
    at = attrs.field(type=datetime, kw_only=True, alias=event_time)
    return fields if event_time in fields else {event_time: at, **fields}
