"""The hints of refusals: who does what one says has a spec, and is never led in a circle."""

import ast
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sessionkit
from sessionkit import (
    Aggregates,
    EventTimeGap,
    Every,
    FirstOf,
    Functions,
    Inputs,
    KeyState,
    KeyTimes,
    Lateness,
    Memory,
    NoTimeout,
    ProcessingTimeGap,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
    TimeToLive,
)
from sessionkit import aggregates as agg
from sessionkit.spark.jobs.checks import check_chained_columns
from sessionkit.spec import BatchTimes, BucketResult, by_bucket, by_processing_time
from sessionkit.spec.base import check_names_with_rejected
from sessionkit.spec.calls import check_kind, check_until
from sessionkit.testing import SessionDriver

Make = Callable[[], Any]
ROOT = Path(sessionkit.__file__).parent


@attrs.frozen
class View:
    """An event."""

    page: str = ""
    number: int = 0
    seconds: float = 0.0
    is_last: bool = False
    tags: list[str] = attrs.field(factory=list)


@attrs.define
class Visit:
    """A state and a row, with functions as methods."""

    pages: int = 0

    def update(self, view: View) -> None:
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages


@attrs.define
class Row:
    """A row that isn't the state."""

    count: int


class Pair(NamedTuple):
    """A class without fields that sessionkit reads."""

    page: str = ""


KEYED: dict[str, Any] = {"keys": {"user": str}}
SHARED: dict[str, Any] = {**KEYED, "event_time": "ts", "watermark_delay": "10 minutes"}
GAP: dict[str, Any] = {"gap": "30 minutes"}


def update(state: Visit, event: View) -> None:
    state.pages += 1


def of_a_list(state: Visit, event: [View]) -> None:  # type: ignore[misc,valid-type]
    state.pages += 1


def evolved_in_vain(state: Visit, event: View) -> None:
    state = attrs.evolve(state, pages=state.pages + 1)


def adds_in_vain(state: Visit, event: View) -> None:
    state.pages + 1


def evolved(state: Visit, event: View) -> Visit:
    return attrs.evolve(state, pages=state.pages + 1)


def merge(left: Visit, right: Visit) -> Visit:
    return left


def finish(session: Session[Any], state: Visit) -> Row:
    return Row(state.pages)


def of(**changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of a state class; what is None is left out."""
    given = {**SHARED, **GAP, **changes}
    return SessionSpec.of(Visit, **{name: one for name, one in given.items() if one is not None})


def counted(**changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of aggregates."""
    given = {**SHARED, **GAP, "aggregates": {"pages": agg.count()}, **changes}
    aggregates = given.pop("aggregates")
    return SessionSpec.aggregate(View, aggregates, **given)


def ruled(**changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of aggregates that rules cut."""
    names = {field.name for field in attrs.fields(SessionRules)}
    rules = {name: changes.pop(name) for name in [*changes] if name in names}
    return counted(**{"gap": None, "timeout": SessionRules("30 minutes", **rules), **changes})


def per_event(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.per_event(
        attrs.make_class("Seen", {"page": attrs.field(type=str)}), **{**SHARED, **GAP, **changes}
    )


def folded(**functions: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of functions."""
    settings = {
        name: functions.pop(name)
        for name in [*functions]
        if name in {*SHARED, *GAP, "memory", "storage", "order", "lateness"}
    }
    return SessionSpec(
        logic=Functions(**{"update": update, "merge": merge, **functions}),
        **{**SHARED, **GAP, **settings},
    )


def process(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row | None:
    return None


def on_timer(key: Any, name: str, state: KeyState[Visit], times: KeyTimes) -> Row | None:
    return None


def fold(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    return BucketResult(states)


def keyed(**changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec for keys."""
    given = {"process": process, "timeout": NoTimeout(), **SHARED, **changes}
    return StatefulSpec(**given)


def bucketed(**changes: Any) -> StatefulSpec[Any, Any, Any]:
    classes = {"event": View, "state": Visit, "result": Row}
    return keyed(process=by_bucket(fold), **{**classes, **changes})


@attrs.frozen
class Case:
    """A call that is refused, what its hint says, and the call that does it."""

    refused: Make
    hint: str
    followed: Make


def case(make: Callable[..., Any], wrong: dict[str, Any], hint: str, right: dict[str, Any]) -> Case:
    """Return a case of one call with other arguments."""
    return Case(lambda: make(**wrong), hint, lambda: make(**right))


ORDER: dict[str, Any] = {"order": "event_time"}
TO_LIVE: dict[str, Any] = {"time_to_live": "1 day"}
CHAINED: dict[str, Any] = {"results": Results(carries_watermark=True)}


def memory(**changes: Any) -> Memory[Any]:
    return Memory(**{**TO_LIVE, **changes})


def remember(session: Session[Any], state: Visit) -> Row:
    return Row(state.pages)


def hour(*_: Any) -> timedelta:
    return timedelta(hours=1)


def chained(**changes: Any) -> None:
    """Make a spec whose rows stateful operators may read, checked as `sessionize` does."""
    spec = counted(**{**CHAINED, **changes})
    if spec.results.carries_watermark:
        check_chained_columns(spec)


def told(**changes: Any) -> None:
    """Make a spec whose rejected rows are asked for."""
    check_names_with_rejected(counted(**changes))


IN_CIRCLES = [
    case(
        ruled,
        {"max_duration": "1 hour"},
        'write order="event_time"',
        {"max_duration": "1h", **ORDER},
    ),
    case(
        ruled,
        {"max_duration": "1 hour", "lateness": Lateness(allowed="1 hour")},
        'write order="event_time", and leave `allowed` out',
        {"max_duration": "1 hour", **ORDER},
    ),
    case(
        SessionRules,
        {"gap": "1 hour", "max_duration_inclusive": False},
        "leave it out, or pass max_duration=...",
        {"gap": "1 hour", "max_duration": "2 hours", "max_duration_inclusive": False},
    ),
    case(
        ruled,
        {"max_events": 3, "lateness": Lateness(judged_by="session")},
        'write order="event_time", and leave `judged_by` out',
        {"max_events": 3, **ORDER},
    ),
    case(
        ruled,
        {"max_events": 3, "lateness": Lateness(allowed="1 hour"), **ORDER},
        "leave `allowed` out; ",
        {"max_events": 3, **ORDER},
    ),
    case(
        ruled,
        {"max_events": 3, "lateness": Lateness(judged_by="session"), **ORDER},
        "leave `judged_by` out",
        {"max_events": 3, **ORDER},
    ),
    case(
        of,
        {"lateness": Lateness(reopen_within="1 hour"), **ORDER},
        'leave `reopen_within` out, or write order="arrival"',
        {"lateness": Lateness(reopen_within="1 hour"), "order": "arrival"},
    ),
    case(
        of,
        {"lateness": Lateness(judged_by="session"), **ORDER},
        'leave `judged_by` out, or write order="arrival"',
        {"lateness": Lateness(judged_by="session")},
    ),
    case(
        folded, {"merge": None}, 'pass merge=..., or order="event_time"', {"merge": None, **ORDER}
    ),
    case(
        folded,
        {"merge": None, "lateness": Lateness(allowed="1 hour")},
        "pass merge=...",
        {"lateness": Lateness(allowed="1 hour")},
    ),
    case(chained, {"memory": memory()}, "leave `memory` out", {}),
    case(
        chained,
        {"aggregates": {"pages": agg.count_by("page"), "all": agg.count()}},
        "leave the aggregate `pages` out",
        {"aggregates": {"all": agg.count()}},
    ),
    case(
        chained,
        {"memory": memory()},
        "or leave `carries_watermark` out",
        {"memory": memory(), "results": Results()},
    ),
]
"""Two options that rule each other out, of which a hint may name no wrong one."""


@attrs.define
class Counted:
    """A state that needs a value."""

    pages: int


@attrs.define
class Listed:
    """A state whose default can change."""

    pages: list[int] = []  # noqa: RUF008 (what is refused)


@attrs.define
class ListedApart:
    pages: list[int] = attrs.field(factory=list)


@attrs.frozen
class Still:
    """A state that can't change."""

    pages: int = 0


@attrs.frozen
class Empty:
    """Nothing to remember."""


@attrs.define
class Kept:
    """A state that has no field of a key's name."""

    total: int = 0


@attrs.define
class Older:
    """A state as it was in an earlier version."""

    views: int = 0


def create(key: Any, event: View) -> Counted:
    return Counted(0)


def to_visit(old: Older) -> Visit:
    return Visit(old.views)


def to_older(old: Older) -> Older:
    return old


def begun(key: Any, event: View) -> Visit:
    return Visit()


def nothing(session: Session[Any], state: Visit) -> None: ...


def in_place(state: Still, event: View) -> None: ...


def anew(state: Still, event: View) -> Still:
    return Still(state.pages + 1)


def of_any(state: Any, event: Any) -> Any:
    return state


def of_pair(state: Visit, event: Pair) -> None: ...


def of_dict(state: Visit, event: dict[str, Any]) -> None: ...


def unnamed(state: Visit, event: "Vieww") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def later(state: Visit, event: View) -> None: ...


def each(state: Visit, event: View) -> Iterator[Visit]:
    yield state


def alone(state: Visit) -> None: ...


def swapped(event: View, state: Visit) -> None: ...


def of_text(state: str, event: View) -> None: ...


def forgotten(left: Visit, right: Visit) -> Visit:  # type: ignore[empty-body]
    """Return nothing."""


def of_empty(session: Session[Any], state: Visit) -> Empty:
    return Empty()


def anew_merge(left: Still, right: Still) -> Still:
    return left


class User(NamedTuple):
    """A key of other columns."""

    name: str


def of_user(session: Session[User], state: Visit) -> Row:
    return Row(state.pages)


def of_memory(session: Session[Any, Visit], state: Visit) -> Row:
    return Row(state.pages)


def processed(key: Any, events: list[View], state: KeyState[list[int]], times: KeyTimes) -> Row:
    return Row(1)


@attrs.define
class Updates:
    """A state whose method is misspelt."""

    pages: int = 0

    def updates(self, view: View) -> None: ...


@attrs.define
class Creates:
    """A state whose method makes one."""

    pages: int = 0

    def create(self, key: Any, event: View) -> None: ...

    def update(self, view: View) -> None: ...


def set_up(update: Any = update, **functions: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of functions over events in order."""
    return SessionSpec(logic=Functions(update=update, **functions), **SHARED, **GAP, **ORDER)


def timed(**changes: Any) -> SessionSpec[Any, Any, Any]:
    given = {"logic": Aggregates(View, {"pages": agg.count()}), **SHARED, **changes}
    return SessionSpec(**given)


DROP: dict[str, Any] = {"watermark_delay": None, "event_time": None}
MAKE: Any = SessionSpec.of
UPGRADE: dict[str, Any] = {"upgrade": {1: to_visit}}
WITH_EVENTS: dict[str, Any] = {"results": Results(with_events=True)}
MADE = {**KEYED, "process": process, "timeout": NoTimeout()}
OF_TIME = TimeToLive("1 day", clock="event_time")
PER_EVENT: dict[str, Any] = {"keys": {"number": int}}


def no_rows_by_chance(session, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    pass


def no_rows(session: Session[Any], state: Visit) -> None:
    pass


OF_SPECS = [
    # -- sessionkit/spec/logic.py
    case(
        folded,
        {"finish": no_rows_by_chance},
        "annotate it `-> None` and pass the class `result=...`",
        {"finish": no_rows, "result": Row},
    ),
    case(folded, {"update": adds_in_vain}, "assign it, such as `state.pages", {"update": update}),
    case(folded, {"update": evolved_in_vain}, "return it, or change `state`", {"update": evolved}),
    Case(
        lambda: per_event(keys={"number": int}),
        "rename the column in the frame",
        lambda: per_event(keys={"place": int}),
    ),
    # -- sessionkit/spec/base.py
    case(
        timed,
        {**GAP, "watermark_delay": "1 us"},
        "'1 millisecond'",
        {**GAP, "watermark_delay": "1 ms"},
    ),
    case(of, {"keys": {}}, 'write keys={"user_id": str}', {"keys": {"user_id": str}}),
    case(of, {"keys": {"price": float}}, "use str, int, bool", {"keys": {"price": str}}),
    case(of, {"keys": {"1st": str}}, 'withColumnRenamed("1st", "user")', {"keys": {"user": str}}),
    case(
        of,
        {"inputs": Inputs(passthrough={"tags": list[datetime]})},
        "pass it as text: F.to_json(",
        {"inputs": Inputs(passthrough={"tags": str})},
    ),
    case(
        of,
        {"inputs": Inputs(event_id="offset")},
        "or add it to `passthrough`",
        {"inputs": Inputs(event_id="offset", passthrough={"offset": int})},
    ),
    case(
        of,
        {"inputs": Inputs(event_id=())},
        "name some of is_last, number, page",
        {"inputs": Inputs(event_id="page")},
    ),
    case(
        keyed,
        {**DROP, "inputs": Inputs(max_jump="1 day")},
        "add event_time=...",
        {"watermark_delay": None, "inputs": Inputs(max_jump="1 day")},
    ),
    case(counted, {"aggregates": {"user": agg.count()}}, "rename the aggregate `user`", {}),
    case(
        told,
        {"keys": {"kind": str}},
        'frame.withColumnRenamed("kind", "own_kind")',
        {"keys": {"own_kind": str}},
    ),
    case(SessionDriver, {"spec": Visit}, "write SessionSpec.of(Visit, ", {"spec": of()}),
    case(
        of,
        {"storage": Storage(upgrade={1: to_visit}, version=3)},
        "each version from the oldest up to 2",
        {"storage": Storage(upgrade={1: to_older, 2: to_visit}, version=3)},
    ),
    case(
        of,
        {"storage": Storage(upgrade={1: to_older})},
        "let it return a Visit",
        {"storage": Storage(upgrade={1: to_visit})},
    ),
    case(
        of,
        {"storage": Storage(upgrade={1: merge})},
        "def from_v1(old: VisitV1) -> Visit",
        {"storage": Storage(upgrade={1: to_visit})},
    ),
    case(
        of,
        {"storage": Storage(upgrade={1: lambda old: old})},
        "def from_v1(old: VisitV1) -> Visit",
        {"storage": Storage(upgrade={1: to_visit})},
    ),
    # -- sessionkit/spec/options.py
    case(
        Storage, {"upgrade": [to_visit]}, "write upgrade={1: from_v1}", {"upgrade": {1: to_visit}}
    ),
    case(
        Lateness,
        {"allowed": "1h", "reopen_within": "1h"},
        "leave out `reopen_within`",
        {"allowed": "1h"},
    ),
    case(Every, {}, 'write Every("5 minutes")', {"duration": "5 minutes"}),
    case(Every, {"events": 3, "clock": "processing_time"}, "leave `clock` out", {"events": 3}),
    case(Results, {"emit": "often"}, 'write "on_close"', {"emit": "on_close"}),
    case(Storage, {"bucket_count": 10**6}, "leave it out", {}),
    # -- sessionkit/spec/session.py, checks.py
    case(timed, {}, 'write gap="30 minutes"', GAP),
    case(timed, {**GAP, "timeout": "1h"}, 'write gap="30 minutes" alone', GAP),
    case(
        timed,
        {"gap": EventTimeGap("1h")},
        "write timeout=EventTimeGap(...)",
        {"timeout": EventTimeGap("1h")},
    ),
    case(
        timed,
        {"gap": hour},
        'write timeout=EventTimeGap(function, max_gap="1 hour")',
        {"timeout": EventTimeGap(hour, max_gap="1 hour")},
    ),
    case(
        timed,
        {"timeout": NoTimeout()},
        'write timeout=EventTimeGap("30 minutes")',
        {"timeout": EventTimeGap("30 minutes")},
    ),
    case(
        of,
        {"lateness": Lateness(late_events="process")},
        'write Lateness(allowed="1 hour")',
        {"lateness": Lateness(allowed="1 hour")},
    ),
    case(of, {"sequence": "page"}, "name an int", {"sequence": "number"}),
    case(counted, {"storage": Storage(**UPGRADE)}, "leave `upgrade` out", {}),
    case(per_event, WITH_EVENTS, "leave `with_events` out", {}),
    case(counted, ORDER, "leave `order` out", {}),
    case(ruled, {"state_gap": hour, **ORDER}, "or leave `state_gap` out", {}),
    case(
        of,
        {"memory": "1 day"},
        'write memory=Memory(time_to_live="400 days")',
        {"memory": Memory(time_to_live="400 days")},
    ),
    case(
        counted,
        {"memory": memory(first={"a": "pages"}, last={"a": "pages"})},
        "give them two names",
        {"memory": memory(first={"a": "pages"}, last={"b": "pages"})},
    ),
    case(
        counted,
        {
            "aggregates": {"by": agg.count_by("page"), "n": agg.count()},
            "memory": memory(first={"a": "by"}),
        },
        "name a field that is a number",
        {
            "aggregates": {"by": agg.count_by("page"), "n": agg.count()},
            "memory": memory(first={"a": "n"}),
        },
    ),
    case(
        counted,
        {"memory": memory(first={"a b": "pages"})},
        "use letters, digits",
        {"memory": memory(first={"a_b": "pages"})},
    ),
    case(
        counted,
        {"memory": memory(remember=remember)},
        "`first` and `last` of `Memory` carry",
        {"memory": memory(first={"a": "pages"})},
    ),
    case(
        folded,
        {"finish": of_memory, "memory": memory(remember=remember)},
        "write Row, which `remember` returns",
        {"finish": finish, "memory": memory(remember=remember)},
    ),
    case(per_event, {"results": Results(emit="on_update")}, "leave `emit` out", {}),
    case(
        counted,
        {"lateness": Lateness(allowed="1h"), **WITH_EVENTS},
        "leave `allowed` out",
        WITH_EVENTS,
    ),
    case(
        counted,
        {"results": Results(carries_watermark=True, emit="on_update")},
        "leave `emit` out",
        CHAINED,
    ),
    Case(
        lambda: ruled(midnight="UTC", **CHAINED),
        "leave `timeout=SessionRules(...)` out",
        lambda: counted(**CHAINED),
    ),
    case(
        of,
        {"inputs": Inputs(passthrough={"line": datetime | None})},
        "write its type without None",
        {"inputs": Inputs(passthrough={"line": datetime})},
    ),
    case(set_up, {"update": in_place}, "return the new state", {"update": anew}),
    case(set_up, {"update": in_place}, "or make Still with attrs.define", {}),
    case(
        timed,
        {**GAP, "logic": update},
        "write logic=Functions(update=...)",
        {**GAP, "logic": Functions(update=update, merge=merge)},
    ),
    case(
        set_up,
        {"result": Row},
        "pass finish=..., or leave result out",
        {"result": Row, "finish": finish},
    ),
    case(
        set_up,
        {"update": of_any, "event": View, "state": Counted},
        "pass create=...",
        {"update": of_any, "event": View, "state": Counted, "create": create},
    ),
    case(
        set_up,
        {"update": of_any, "event": View, "state": Listed},
        "attrs.field(factory=list)",
        {"update": of_any, "event": View, "state": ListedApart},
    ),
    Case(lambda: MAKE("Visit", **SHARED, **GAP), "write SessionSpec.of(Visit, ", of),
    Case(lambda: MAKE(Creates, **SHARED, **GAP, **ORDER), "write `@classmethod` above", of),
    Case(lambda: MAKE(Updates, **SHARED, **GAP, **ORDER), "rename it `update`", of),
    Case(lambda: MAKE(Row, **SHARED, **GAP, **ORDER), "write `def update(self, ", of),
    # -- sessionkit/spec/memory.py
    case(
        memory,
        {"lookback": "1h"},
        'write last={"credited": "source"}',
        {"lookback": "1h", "last": {"credited": "source"}},
    ),
    case(
        memory,
        {"lookback": "36h", "last": {"a": "b"}},
        'write time_to_live="1 day 12 hours"',
        {"lookback": "36h", "last": {"a": "b"}, "time_to_live": "1 day 12 hours"},
    ),
    case(
        memory,
        {"remember": of_empty},
        "give it what the next session should know",
        {"remember": remember},
    ),
    # -- sessionkit/spec/signatures.py
    case(set_up, {"update": of_pair}, "write `@attrs.define` above `class Pair:`", {}),
    case(set_up, {"update": of_dict}, "annotate in `update`: `event: View`", {}),
    case(set_up, {"update": unnamed}, "define the class at the top of its module", {}),
    case(set_up, {"update": unnamed}, "pass event=...", {"update": unnamed, "event": View}),
    case(
        set_up,
        {"update": of_any, "event": View},
        "pass state=...",
        {"update": of_any, "event": View, "state": Visit},
    ),
    case(set_up, {"finish": finish, "result": Visit}, "leave result out", {"finish": finish}),
    case(
        folded,
        {"update": of_any, "merge": anew_merge, "create": begun},
        "make them agree, or pass state=...",
        {},
    ),
    case(set_up, {"finish": of_user}, "give User the fields of `keys`", {"finish": finish}),
    case(set_up, {"update": 3}, "write `def update(state, event): ...`", {}),
    case(set_up, {"update": later}, "write it with `def`", {}),
    case(set_up, {"update": each}, "write `return` in place of `yield`", {}),
    case(folded, {"update": of_a_list, "event": View}, "write a class, or list[View]", {}),
    case(folded, {"merge": forgotten}, "end it with `return ...`", {}),
    case(set_up, {"finish": nothing}, "let it return an object", {"finish": finish}),
    case(set_up, {"update": alone}, "write `def update(state, event): ...`", {}),
    case(set_up, {"update": swapped}, "write `def update(state, event): ...`", {}),
    case(set_up, {"update": of_text, "state": Visit}, "declare `state: Visit`", {}),
]


def asked_only(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row:
    return Row(state.get().pages if state.exists else 0)


def asked_and_set(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row:
    held = state.get() if state.exists else Visit()
    state.set(held)
    return Row(held.pages)


OF_KEYS = [
    # -- sessionkit/spec/stateful.py
    case(keyed, {"process": asked_only}, "call `state.set(...)`", {"process": asked_and_set}),
    case(keyed, {"process": processed}, "has a field `items: list[int]`", {}),
    case(keyed, {"lateness": Lateness(allowed="1h")}, "leave it out", {}),
    case(keyed, {"inputs": Inputs(drop_duplicates_for="1h")}, "leave it out", {}),
    case(
        keyed,
        {"timeout": SessionRules("1h")},
        'write timeout=EventTimeGap("30 minutes")',
        {"timeout": EventTimeGap("30 minutes")},
    ),
    case(
        keyed,
        {"timeout": EventTimeGap("30m", gap_inclusive=False)},
        'write EventTimeGap("30 minutes")',
        {"timeout": EventTimeGap("30 minutes")},
    ),
    case(keyed, {"event_time": None}, 'add event_time="ts"', {}),
    case(
        keyed,
        {**DROP, "timeout": OF_TIME},
        'add event_time="ts" and watermark_delay="10',
        {"timeout": OF_TIME},
    ),
    case(
        keyed,
        {"watermark_delay": None, "lateness": Lateness(late_events="process")},
        'add watermark_delay="10 minutes"',
        {"lateness": Lateness(late_events="process")},
    ),
    case(keyed, {**DROP, **ORDER}, 'add event_time="ts" and watermark_delay="10', ORDER),
    case(
        keyed,
        {"lateness": Lateness(late_events="process"), **ORDER},
        "leave `late_events` out",
        ORDER,
    ),
    case(bucketed, ORDER, 'or write order="arrival"', {"order": "arrival"}),
    case(
        bucketed,
        {"keys": {"pages": int}},
        "leave the key out of Visit",
        {"keys": {"pages": int}, "state": Kept},
    ),
    case(
        bucketed,
        {"on_timer": by_processing_time(on_timer)},
        "leave `on_timer` without it",
        {"on_timer": on_timer},
    ),
    # -- sessionkit/timeouts
    case(
        EventTimeGap,
        {"gap": hour},
        'add max_gap, such as max_gap="1 hour"',
        {"gap": hour, "max_gap": "1 hour"},
    ),
    case(EventTimeGap, {"gap": "1h", "max_gap": "2h"}, "omit `max_gap`", {"gap": "1h"}),
    case(
        FirstOf,
        {"policies": OF_TIME},
        "write policy | policy",
        {"policies": (OF_TIME | EventTimeGap("1h"),)},
    ),
    case(FirstOf, {"policies": ()}, "write NoTimeout()", {"policies": (OF_TIME,)}),
    Case(
        lambda: OF_TIME & ProcessingTimeGap("2 days"),  # type: ignore[operator]
        "write policy | policy",
        lambda: OF_TIME | ProcessingTimeGap("2 days"),
    ),
    case(
        FirstOf,
        {"policies": (OF_TIME, NoTimeout())},
        "combine an EventTimeGap",
        {"policies": (OF_TIME, EventTimeGap("1h"))},
    ),
    case(
        FirstOf,
        {"policies": (OF_TIME, TimeToLive("2 days", clock="event_time"))},
        "keep the shorter one",
        {"policies": (OF_TIME,)},
    ),
    case(
        FirstOf,
        {"policies": (OF_TIME, TimeToLive("2 days"))},
        "put both on one clock, or use a gap",
        {"policies": (OF_TIME, ProcessingTimeGap("2 days"))},
    ),
    case(
        SessionRules,
        {"gap": hour, "max_gap": "1h", "state_gap": hour},
        "pass the longest gap as `gap`",
        {"gap": "1 hour", "state_gap": hour},
    ),
    case(
        SessionRules,
        {"gap": "1h", "midnight": "Berlin"},
        'write midnight="Europe/Berlin"',
        {"gap": "1h", "midnight": "Europe/Berlin"},
    ),
    case(
        SessionRules,
        {"gap": "1h", "max_step": "1h"},
        "it has gap, max_gap, ",
        {"gap": "1h", "max_duration": "1h"},
    ),
    case(
        ruled,
        {"until": timedelta(minutes=5), **ORDER},
        "or max_duration=... for a length of time",
        {"max_duration": timedelta(minutes=5), **ORDER},
    ),
    case(
        ruled,
        {"changes_of": "tags", **ORDER},
        "name a str, an int",
        {"changes_of": "page", **ORDER},
    ),
]


HAS_PAGE = pc.field("page") == "/"
Checked = attrs.make_class(
    "Checked", {"page": attrs.field(type=str, validator=attrs.validators.min_len(1))}
)


class Hooked(attrs.make_class("Hooked", {"page": attrs.field(type=str)})):  # type: ignore[misc]
    """An event with a hook."""

    def __attrs_post_init__(self) -> None: ...


def aggregated(aggregate: Any, event: Any = View, result: Any = None) -> Any:
    return Aggregates(event, {"count": aggregate}, result=result)


def later_only(aggregate: Any) -> Any:
    """Return what an aggregate is that a running query adds."""
    return aggregate.from_now()


def one(wrong: Callable[[], Any], hint: str, right: Callable[[], Any]) -> Case:
    """Return a case of an aggregate, which is bound to the event."""
    return Case(lambda: aggregated(wrong()), hint, lambda: aggregated(right()))


NUMBER: Any = 3
NOTHING: Any = None
OF_AGGREGATES = [
    one(
        lambda: agg.percentile(NUMBER, 0.5),
        'pass that first, such as "seconds"',
        lambda: agg.percentile("seconds", 0.5),
    ),
    one(lambda: agg.any(NUMBER), "pass that first, such as pc.field", lambda: agg.any(HAS_PAGE)),
    one(
        lambda: agg.count(where=NUMBER),
        'write where=pc.field("kind") == "buy"',
        lambda: agg.count(where=HAS_PAGE),
    ),
    one(
        lambda: agg.collect("page", at_most=0),
        "leave it out for the default",
        lambda: agg.collect("page"),
    ),
    one(lambda: agg.max("tags"), "use a field of a plain type", lambda: agg.max("seconds")),
    one(
        lambda: agg.steps("page", 1, 2),
        "write values of its type",
        lambda: agg.steps("page", "/", "/a"),
    ),
    one(lambda: NUMBER, 'write {"count": agg.count()}', agg.count),
    Case(
        lambda: Aggregates(View, {}),
        'write {"pages": agg.count()}',
        lambda: Aggregates(View, {"pages": agg.count()}),
    ),
    Case(
        lambda: aggregated(agg.count(), Checked),
        "or a class without it",
        lambda: aggregated(agg.count()),
    ),
    Case(
        lambda: aggregated(agg.count(), Hooked),
        "or a class without it",
        lambda: aggregated(agg.count()),
    ),
    Case(
        lambda: aggregated(agg.count(), result=Visit),
        "give both the same names",
        lambda: aggregated(agg.count(), result=Row),
    ),
    Case(
        lambda: aggregated(agg.mean("seconds"), result=Row),
        "write `count: float`",
        lambda: aggregated(
            agg.mean("seconds"),
            result=attrs.make_class("Row", {"count": attrs.field(type=float)}),
        ),
    ),
    one(lambda: agg.sum("second"), "write `seconds`", lambda: agg.sum("seconds")),
    one(
        lambda: agg.any(pc.field("page") > 3),
        "compare a field with a value of its type",
        lambda: agg.any(HAS_PAGE),
    ),
    one(lambda: agg.any("page"), 'compare it: pc.field("page") == ...', lambda: agg.any(HAS_PAGE)),
    one(
        lambda: agg.any(pc.field("number") + 1),
        "compare it, such as",
        lambda: agg.any(pc.field("number") + 1 == 2),
    ),
    one(
        lambda: agg.funnel({}),
        'write funnel({"viewed": ',
        lambda: agg.funnel({"viewed": HAS_PAGE, "bought": "is_last"}),
    ),
    one(
        lambda: agg.funnel({"viewed": NUMBER}),
        'write funnel({"viewed": ',
        lambda: agg.funnel({"viewed": HAS_PAGE, "bought": "is_last"}),
    ),
    one(
        lambda: agg.funnel_next(agg.sum("number"), "page"),
        'write funnel_next(funnel(["is_view", "is_sale"]), "page")',
        lambda: agg.funnel_next(agg.funnel(["is_last"]), "page"),
    ),
    one(
        lambda: agg.funnel_next(agg.funnel(["is_last"]), NOTHING),
        'write funnel_next(funnel, "page")',
        lambda: agg.funnel_next(agg.funnel(["is_last"]), "page"),
    ),
    one(
        lambda: agg.funnel_next(agg.funnel(["is_last"]), "page", where=NUMBER),
        "write where=pc.field",
        lambda: agg.funnel_next(agg.funnel(["is_last"]), "page", where=HAS_PAGE),
    ),
    one(
        lambda: agg.time_between(NUMBER, HAS_PAGE),
        "write opened=pc.field",
        lambda: agg.time_between("is_last", HAS_PAGE),
    ),
    one(
        lambda: agg.reached_within(0, "10 minutes"),
        'write reached_within(5, "10 minutes")',
        lambda: agg.reached_within(5, "10 minutes"),
    ),
    one(
        lambda: agg.funnel(["is_last"], not_between=NUMBER),
        "write not_between=pc.field",
        lambda: agg.funnel(["is_last"], not_between=HAS_PAGE),
    ),
    one(
        lambda: agg.funnel(["is_last"], allow_reentry=True),
        'write strict="order", or leave it out',
        lambda: agg.funnel(["is_last"], allow_reentry=True, strict="order"),
    ),
    one(
        lambda: agg.funnel(NUMBER),
        'write funnel(["is_view", "is_sale"])',
        lambda: agg.funnel(["is_last"]),
    ),
    one(
        lambda: agg.funnel(["is_last"], strict=NUMBER),
        "leave it out for events in between",
        lambda: agg.funnel(["is_last"]),
    ),
    one(
        lambda: agg.funnel_times(agg.count()),
        "write funnel_times(funnel([",
        lambda: agg.funnel_times(agg.funnel(["is_last"])),
    ),
    one(
        lambda: agg.steps("page", "/", "/"),
        "a value that repeats is one of the path",
        lambda: agg.path("page"),
    ),
    one(lambda: agg.mean("page"), "use a number", lambda: agg.mean("seconds")),
    one(lambda: agg.sum("is_last"), 'count(where="is_last")', lambda: agg.count(where="is_last")),
    one(
        lambda: agg.percentile("seconds", 95),
        'write percentile("seconds", 0.95)',
        lambda: agg.percentile("seconds", 0.95),
    ),
    one(
        lambda: agg.percentile("page", 0.5),
        "use a field that is a number",
        lambda: agg.percentile("seconds", 0.5),
    ),
    one(
        lambda: agg.engaged_time(cap="1 ms", within="1 day"),
        "take a longer `cap`",
        lambda: agg.engaged_time(cap="1 minute", within="1 day"),
    ),
    one(
        lambda: agg.funnel_times(agg.funnel(["is_last"] * 2), between=("2", "1")),
        "write between=('1', '2')",
        lambda: agg.funnel_times(agg.funnel(["is_last"] * 2), between=("1", "2")),
    ),
    one(
        lambda: agg.least(NUMBER, NUMBER),
        'write least(agg.sum("seconds"), 3600.0)',
        lambda: agg.least(agg.sum("seconds"), 3600.0),
    ),
    one(
        lambda: agg.count() == NUMBER,
        "compare values by .eq(...)",
        lambda: agg.count().eq(NUMBER),
    ),
    one(
        lambda: (agg.count() > 1) and (agg.count() < NUMBER),
        "combine with &, | and ~, in parentheses",
        lambda: (agg.count() > 1) & (agg.count() < NUMBER),
    ),
    one(
        lambda: agg.count() + HAS_PAGE,
        'pass an aggregate of the field, such as agg.max("price")',
        lambda: agg.count() + agg.max("number"),
    ),
    one(
        lambda: agg.count() > datetime(2026, 3, 1),  # noqa: DTZ001 (without a zone)
        "add the time zone",
        lambda: agg.count() > NUMBER,
    ),
    one(
        lambda: agg.count() // NUMBER,
        'such as F.floor(F.col("pages") / 2)',
        lambda: agg.count() / NUMBER,
    ),
    one(
        lambda: agg.count().alias("pages"),  # type: ignore[attr-defined]
        "its name is that of the argument",
        agg.count,
    ),
    one(
        lambda: (agg.count() > 1) & (agg.count() == NUMBER),
        "which compares the aggregates themselves, write .eq(...)",
        lambda: (agg.count() > 1) & agg.count().eq(NUMBER),
    ),
    one(
        lambda: (agg.count() > 1) & HAS_PAGE,
        'pass an aggregate of it: agg.any((page == "/"))',
        lambda: (agg.count() > 1) & agg.any(HAS_PAGE),
    ),
    one(lambda: agg.count("*"), "agg.count() counts all events", agg.count),
    one(
        lambda: agg.count(where=pc.field(0) == "/"),
        'read it by its name: pc.field("page")',
        lambda: agg.count(where=HAS_PAGE),
    ),
    one(
        lambda: agg.steps("page", HAS_PAGE, "/a"),
        'write steps("page", "/cart", "/thanks")',
        lambda: agg.steps("page", "/cart", "/thanks"),
    ),
    one(
        lambda: agg.funnel(["is_last"], strict="order", allow_reentry=NUMBER),
        "leave it out for False",
        lambda: agg.funnel(["is_last"], strict="order"),
    ),
    one(
        lambda: agg.count() & (agg.count() > 1),
        "compare first, each comparison in parentheses",
        lambda: (agg.count() > NUMBER) & (agg.count() > 1),
    ),
    one(
        lambda: agg.first("page") - agg.count(),
        "use fields that are numbers",
        lambda: agg.first("number") - agg.count(),
    ),
    one(
        lambda: agg.first("page") > NUMBER,
        "compare it with a str",
        lambda: agg.first("page") > "/",
    ),
    one(
        lambda: agg.collect("number") + NUMBER,
        "use aggregates of one value, such as count, sum or first",
        lambda: agg.sum("number") + NUMBER,
    ),
    one(
        lambda: agg.count_by("seconds"),
        "Spark casts to an int or a Decimal",
        lambda: agg.count_by("number"),
    ),
    one(
        lambda: agg.count(where=pc.field("page") != None),  # noqa: E711 (the mistake)
        'write pc.field("page").is_valid()',
        lambda: agg.count(where=pc.field("page").is_valid()),
    ),
    one(
        lambda: agg.count(where=pc.field("page").isin("/x")),
        "write isin(['/x'])",
        lambda: agg.count(where=pc.field("page").isin(["/x"])),
    ),
    one(lambda: agg.top("page", 0), "write n=3", lambda: agg.top("page", n=3)),
    Case(
        lambda: later_only(agg.duration()),
        "in a query with a new checkpoint",
        lambda: aggregated(agg.duration()),
    ),
]

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
AHEAD = timezone(timedelta(hours=1))
OF_CALLS = [
    Case(lambda: check_kind(Visit), "write SessionSpec.of(Visit,", lambda: check_kind(of())),
    Case(
        lambda: check_until(keyed(event_time=None, watermark_delay=None), NOON),
        "leave it out",
        lambda: keyed(event_time=None, watermark_delay=None),
    ),
    Case(
        lambda: check_until(of(), NOON.replace(tzinfo=None)),
        "write datetime(..., tzinfo=UTC)",
        lambda: check_until(of(), NOON),
    ),
    Case(
        lambda: check_until(of(), datetime(1, 1, 1, tzinfo=AHEAD)),
        "write it in UTC: datetime(..., tzinfo=UTC)",
        lambda: check_until(of(), datetime(1, 1, 1, tzinfo=UTC)),
    ),
]

EVERY = [*IN_CIRCLES, *OF_SPECS, *OF_KEYS, *OF_AGGREGATES, *OF_CALLS]
FOLDERS = ("spec", "timeouts", "aggregates")
OF_WORKERS = {"spec/views.py", "timeouts/_rule.py"}
"""Modules whose errors come from calls while a query runs."""


def refusal_of(one: Case) -> SpecError:
    with pytest.raises(SpecError) as refused:
        one.refused()
    return refused.value


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.hint)
def test_following_a_hint_ends_the_refusal(one: Case) -> None:
    text = str(refusal_of(one))
    assert one.hint in text.partition("\n\nHint: ")[2]
    one.followed()


def test_every_refusal_has_a_hint_that_is_followed_here() -> None:
    """A new one in these folders needs a case above."""
    reached = set()
    for one in EVERY:
        for frame in traceback.extract_tb(refusal_of(one).__traceback__):
            reached.add((frame.filename, frame.lineno))
    missed = [
        f"{path.relative_to(ROOT)}:{first}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("*.py"))
        if str(path.relative_to(ROOT)) not in OF_WORKERS
        for first, last in raises_in(path)
        if not any((str(path), line) in reached for line in range(first, last + 1))
    ]
    assert [] == missed


def raises_in(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each statement that raises a refusal."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func)
            if name in {"SpecError", "_not_inferred"}:
                yield node.lineno, node.end_lineno or node.lineno
