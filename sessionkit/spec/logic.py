"""
How a session is folded: by functions, by aggregates, or not at all but event by event.

A `SessionSpec` has one of the three as its `logic`. Each reads and checks what concerns it alone.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from sessionkit._arguments import check_field, explained
from sessionkit._typing import FinishResult, Record
from sessionkit.aggregates._aggregate import (
    Aggregate,
    BoundAggregate,
    bound_aggregates,
    check_event_class,
    check_result,
    class_of_results,
)
from sessionkit.errors import SpecError
from sessionkit.spec.base import E, R, S, set_derived
from sessionkit.spec.bytecode import loses
from sessionkit.spec.functions import FinishMethod
from sessionkit.spec.signatures import (
    MAY_TAKE_TIME,
    Place,
    Signature,
    check_annotations,
    check_call,
    check_callable,
    check_returns,
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
"""The parameters of functions that were written as methods of the state."""
MEANS: Final = dict.fromkeys(("left", "right", "self", "other"), "state")
CHANGE: Final = ("update", "merge")
"""The functions that change a state in place, or return another."""
RETURNS: Final = {"create": "state", "update": "state", "merge": "state", "finish": "row"}


# -- the three kinds ----------------------------------------------------------------------------


@explained()
@attrs.frozen(kw_only=True)
class Functions(Generic[E, S, R]):
    """
    Sessions folded by functions: `logic=Functions(update=..., merge=..., finish=...)`.

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
            None. Called once a session, or for each of its rows. Left out, the state is the row.
        event: The attrs class of an event. Its fields name the columns that are read, and their
            types; nothing else crosses to Python. A null in a field that isn't Optional
            quarantines the row. Left out, the annotations of the functions say it.
        state: The attrs class of the stored state. Left out, the annotations say it.
        result: The attrs class of a result row. Its fields become columns, after those of the key.
            Left out, the annotations say it.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        SpecError: A class has fields that cannot be stored; all are named.
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
    """The roles of the functions that take the time of the event too."""
    must_return: frozenset[str] = attrs.field(init=False, eq=False, repr=False)
    """The roles of the functions that are annotated to return an object, and never None."""

    def __attrs_post_init__(self) -> None:
        read = self._signatures(*PARAMETERS)
        for _, one in read:
            # With a class for the rows, a `finish` without one says that there are none.
            if one.role == "create" or (one.role == "finish" and self._result is None):
                check_returns(one)
        said = _places(read)
        event = class_of("event", self._event, said["event"], "in `update`: `event: View`")
        state = class_of("state", self._state, said["state"], "in `update`: `state: Visit`")
        result: Any = state
        if self.finish is not None or self._result is not None:
            result = class_of("result", self._result, said["row"], "what `finish` returns")
        classes = {"event": event, "session": Session, **dict.fromkeys(["state", *MEANS], state)}
        timed, promised = set(), set()
        for cls in (event, state, result):
            fields_of(cls)
        for names, signature in read:
            check_annotations(signature, dict(zip(names, map(classes.get, names), strict=True)))
            # An executor may lack the names of an annotation, so these are found on the driver.
            if "time" in names:
                timed.add(signature.role)
            if signature.role != "create" and signature.always_returns:
                promised.add(signature.role)
        set_derived(
            self,
            event=event,
            state=state,
            result=result,
            takes_time=frozenset(timed),
            must_return=frozenset(promised),
        )
        _check_left_out(self)
        for _, one in read:
            if one.role in CHANGE:
                _check_kept(one, state)

    @property
    def keyed(self) -> list[Place]:
        """The annotations of what has a key: that of `create`, and the session of `finish`."""
        said = _places(self._signatures("create", "finish"))
        return [*said["key"], *said["session"]]

    def _signatures(self, *roles: str) -> _Read:
        """Return the functions that are given, each with the parameters that it should have."""
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
            check_call(signature, names)
            check_annotations(signature, dict.fromkeys(names))
            read.append((names, signature))
        return read


@explained()
@attrs.frozen
class Aggregates(Generic[E, Row]):
    """
    Sessions folded by aggregates, no Python function for an event: `logic=Aggregates(View, {...})`.

    Attributes:
        event: The attrs class of an event, without validators and converters.
        aggregates: The aggregates of `sessionkit.aggregates`, by the fields of the result row. The
            row so far is what `read_state` shows as the state.
        result: An attrs class with these fields, for typed rows. Left out, one is made.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        SpecError: A class has fields that cannot be stored; all are named.
    """

    event: type[E]
    aggregates: Mapping[str, Aggregate]
    _result: type[Row] | None = attrs.field(
        default=None, alias="result", eq=False, repr=False, kw_only=True
    )
    result: type[Row] = attrs.field(init=False)
    bound: tuple[BoundAggregate, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        bound = bound_aggregates(self.event, self.aggregates)
        row = self._result or class_of_results(*((one.name, one.annotation) for one in bound))
        check_result(row, bound)
        set_derived(self, bound=bound, result=row)


@explained()
@attrs.frozen
class Events(Generic[E]):
    """
    A row for each event, with its session's id and its number within it: `logic=Events(View)`.

    A row comes once, when the session is over: its `number` in the session, from 1, its time under
    the name of `event_time`, and its fields. The state holds the events.

    Attributes:
        event: The attrs class of an event, without validators and converters.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        SpecError: The class has fields that cannot be stored; all are named.
    """

    event: type[E] = attrs.field()

    def __attrs_post_init__(self) -> None:
        check_event_class(self.event)


Logic: TypeAlias = Functions[E, S, R] | Aggregates[E, R] | Events[E]


def classes_of(
    logic: Logic[Any, Any, Any], event_time: str, keys: Collection[str]
) -> dict[str, type[Any]]:
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
    """Return the annotations by what they say: the event, state, row, key or session."""
    said = defaultdict(list)
    for names, signature in read:
        named = [*zip(names, signature.parameters, strict=False)]
        for name, place in (*named, (RETURNS[signature.role], signature.returned)):
            if place.annotation not in (None, NoneType):
                said[MEANS.get(name, name)].append(place)
    return said


def _check_left_out(logic: Functions[Any, Any, Any]) -> None:
    """Check that `create` and `finish` can be done without, where they are left out."""
    state = logic.state
    if logic.finish is None and logic.result is not state:
        found = f"`finish` is left out, so the state is the row, and {logic.result.__name__} is not"
        raise SpecError(f"{found} {state.__name__}", "pass finish=..., or leave result out")
    if logic.create is not None:
        return
    needed = [
        one.name
        for one in inspect.signature(state).parameters.values()
        if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
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
    """Check that what a function makes of a state is not lost."""
    if is_frozen(state) and signature.returns_nothing:
        found = f"{signature.returned} returns None: it changes the state in place"
        hint = f"return the new state, or make {state.__name__} with attrs.define"
        raise SpecError(f"{found}, and {state.__name__} is frozen", hint)
    for one in signature.parameters[:1]:
        if signature.plain and loses(signature.plain, one.name, state):
            found = f"{one} makes a new {state.__name__} and does not return it: it would be lost"
            raise SpecError(found, f"return it, or change `{one.name}` itself")


def _shared_defaults(cls: type[Any]) -> Iterator[tuple[str, "attrs.Attribute[Any]"]]:
    """Yield each field whose default can change and is one for all objects, with its class."""
    for field in attributes_of(cls):
        made = field.default.factory if isinstance(field.default, FACTORY) else None
        if made is not None and is_record(made):
            yield from _shared_defaults(made)
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
"""The field of the state that holds the events of a session."""
NUMBER: Final = "number"
"""The field of a row that says which event of its session it is, from 1."""


@lru_cache(maxsize=256)
def held_class(event: Any, event_time: str) -> type[Any]:
    """Return the class of the state: the events of a session, each with its time."""
    each: Any = attrs.make_class("Event", _fields(event, event_time), frozen=True)
    return attrs.make_class("Events", {HELD: attrs.field(type=list[each])}, frozen=True)


@lru_cache(maxsize=256)
def event_row_class(event: Any, event_time: str, keys: frozenset[str]) -> type[Any]:
    """Return the class of a row: the event with its number, without what the key says already."""
    fields = _fields(event, event_time)
    if NUMBER in {*fields, *keys}:
        found = f"each row has the number of its event in the session as `{NUMBER}`, and the events"
        hint = "rename the column in the frame, or leave it out"
        raise SpecError(f"{found} have a column of this name", hint)
    fields = {NUMBER: attrs.field(type=int, kw_only=True), **fields}
    fields = {name: field for name, field in fields.items() if name not in keys}
    return attrs.make_class("EventRow", fields, frozen=True)


def _fields(event: type[Any], event_time: str) -> dict[str, Any]:
    codec_of(event)  # resolves the annotations
    own = {
        one.name: attrs.field(type=one.type, default=one.default, kw_only=True, alias=one.name)
        for one in attributes_of(event)
    }
    rename = "rename the column, with letters, digits and underscores: each row has it as a field"
    check_field(event_time, "`event_time`: ", rename)
    at = attrs.field(type=datetime, kw_only=True, alias=event_time)
    return own if event_time in own else {event_time: at, **own}
