"""Checks that the parts of a session spec fit together."""

from collections.abc import Collection
from typing import Any, TypeAlias, get_args

from sessionkit.aggregates._events import check_condition, type_in
from sessionkit.errors import SpecError
from sessionkit.spec.base import Order
from sessionkit.spec.functions import name_of
from sessionkit.spec.logic import Aggregates, Events, Functions, Logic
from sessionkit.spec.memory import Memory
from sessionkit.spec.options import Lateness, Results, Storage
from sessionkit.spec.signatures import check_function, check_key_annotation
from sessionkit.spec.views import Session
from sessionkit.state._collections import inner_type
from sessionkit.state._fields import is_record
from sessionkit.state._scalars import IntType
from sessionkit.timeouts._policies import EventTimeGap
from sessionkit.timeouts._session_rules import SessionRules

AnyLogic: TypeAlias = Logic[Any, Any, Any]


def one_timeout(gap: Any, timeout: Any) -> EventTimeGap | SessionRules:
    """Return the timeout policy from `gap` or `timeout`; exactly one must be given."""
    if (gap is None) == (timeout is None):
        found = "`gap` is missing" if gap is None else "`gap` and `timeout` are the same"
        hint = 'write gap="30 minutes"'
        if gap is not None:
            hint += ' alone; a copy has a timeout: attrs.evolve(spec, timeout="30m")'
        raise SpecError(found, hint)
    if isinstance(gap, EventTimeGap | SessionRules):
        found = f"`gap` must be a duration, found {gap!r}"
        raise SpecError(found, f"write timeout={type(gap).__name__}(...)")
    if callable(gap):
        found = f"`gap` is a function ({name_of(gap)}), so its longest result must be declared"
        raise SpecError(found, 'write timeout=EventTimeGap(function, max_gap="1 hour")')
    policy = timeout if gap is None else EventTimeGap(gap)
    if not isinstance(policy, EventTimeGap | SessionRules):
        found = f"`timeout` of a session must be an EventTimeGap, found {timeout!r}"
        raise SpecError(found, 'write timeout=EventTimeGap("30 minutes")')
    return policy


def check_lateness(lateness: Lateness, order: Order, *, in_order: bool) -> None:
    """Refuse options of a `StatefulSpec`, and options without effect in event-time order."""
    if lateness.late_events != "reject":
        found = "`late_events` is for a StatefulSpec: a session that is over takes no event"
        raise SpecError(found, 'write Lateness(allowed="1 hour") to keep sessions on')
    if lateness.judged_by == "session" and order == "event_time":
        found = '`judged_by="session"` has no effect with `order="event_time"`'
        why = "an event is late once the watermark has reached it"
        raise SpecError(f"{found}, where {why}", _without("judged_by", in_order=in_order))


def _without(name: str, *, in_order: bool) -> str:
    """Return the hint for an option that `order="event_time"` rules out."""
    return f"leave `{name}` out" if in_order else f'leave `{name}` out, or write order="arrival"'


def _only_by_arrival(lateness: Lateness) -> str | None:
    """Return the option in use that `order="event_time"` rules out, if any."""
    if lateness.judged_by == "session":
        return "judged_by"
    spans = ("allowed", "reopen_within")
    return next((name for name in spans if getattr(lateness, name) is not None), None)


def check_sequence(event: type[Any], name: str) -> None:
    unknown = f"`sequence` names `{name}`, and {event.__name__} has no such field"
    if not isinstance(type_in(event, name, unknown), IntType):
        found = f"`sequence` names `{event.__name__}.{name}`, which isn't an int"
        hint = "name an int that no event lacks, such as an offset, a line or an event number"
        raise SpecError(found, hint)


def check_functions(
    logic: Functions[Any, Any, Any], keys: Collection[str], order: Order, lateness: Lateness
) -> None:
    for place in logic.keyed:
        check_key_annotation(place, keys)
    if logic.merge is None and order != "event_time":
        found = "`merge` is missing: an event may bridge two open sessions"
        hint = "pass merge=..."
        if _only_by_arrival(lateness) is None:
            hint += ', or order="event_time", where no event can come between'
        raise SpecError(found, hint)


def check_without_functions(
    logic: AnyLogic, results: Results, storage: Storage, *, is_held: bool
) -> None:
    """Refuse options that need functions; `is_held` means that events wait for no reason."""
    if storage.upgrade:
        found = f"`upgrade` converts states, and {_kind_of(logic)} has no state class"
        raise SpecError(found, "leave `upgrade` out")
    if results.with_events and isinstance(logic, Events):
        found = f"{_kind_of(logic)} gives each event already, and `with_events` asks for them"
        raise SpecError(found, "leave `with_events` out")
    if is_held:
        found = f'`order="event_time"` has no effect on {_kind_of(logic)} but to hold events back'
        raise SpecError(found, "leave `order` out: any order has the same result")


def _kind_of(logic: AnyLogic) -> str:
    return f"a spec of {'aggregates' if isinstance(logic, Aggregates) else 'events'}"


def check_session_rules(
    rules: SessionRules, logic: AnyLogic, order: Order, lateness: Lateness
) -> None:
    for name, predicate in rules.predicates.items():
        if callable(predicate):
            check_function(predicate, name, event=logic.event)
        else:
            check_condition(logic.event, f"`{name}`", predicate)
    if rules.state_gap is not None:
        if not isinstance(logic, Functions):
            found = f"`state_gap` takes a state, and {_kind_of(logic)} has no state class"
            raise SpecError(found, "write functions instead, or leave `state_gap` out")
        check_function(rules.state_gap, "state_gap", state=logic.state)
    for rule in rules.in_use:
        rule.check(logic.event)
    if rules.in_order and order != "event_time":
        found = f"`{rules.in_order[0]}` depends on the order of events, and they come in any order"
        other = _only_by_arrival(lateness)
        without = "" if other is None else f", and leave `{other}` out, which it doesn't go with"
        raise SpecError(found, f'write order="event_time"{without}')


def check_memory(memory: object, logic: AnyLogic, keys: Collection[str], result: type[Any]) -> None:
    if not isinstance(memory, Memory):
        found = f"`memory` must be a Memory, found {memory!r}"
        raise SpecError(found, 'write memory=Memory(time_to_live="400 days")')
    if memory.remember is not None:
        _check_remember(memory, logic, keys)
    shared = [name for name in memory.first if name in memory.last]
    if shared:
        found = f"`memory`: `first` and `last` both have a column `{shared[0]}`"
        raise SpecError(found, "give them two names")
    hint = "name a field that is a number, a text, a time or the like"
    for rule, columns in (("first", memory.first), ("last", memory.last)):
        for column, name in columns.items():
            unknown = f"`memory`: `{rule}` names `{name}`, and {result.__name__} has no such field"
            if inner_type(type_in(result, name, unknown)).facts is None:
                found = f"`memory`: `{rule}` names `{result.__name__}.{name}`, not of a plain type"
                raise SpecError(found, hint)
            if not column.isidentifier():
                found = f"`memory`: `{rule}` can't name a column {column!r}"
                raise SpecError(found, "use letters, digits and underscores")


def _check_remember(memory: Memory[Any], logic: AnyLogic, keys: Collection[str]) -> None:
    remembered: Any = memory.remembered
    if not isinstance(logic, Functions):
        found = f"`remember` is given the state of a session, and {_kind_of(logic)} has none"
        hint = "leave it out: `first` and `last` of `Memory` carry values of the result"
        raise SpecError(found, hint)
    signature = check_function(memory.remember, "remember", session=Session, state=logic.state)
    for place in signature.parameters[:1]:
        check_key_annotation(place, keys)
    for place in (*signature.parameters[:1], *logic.keyed):
        for cls in get_args(place.annotation)[1:]:
            if is_record(cls) and cls is not remembered:
                found = f"{place} declares the memory of its session as {cls.__name__}"
                hint = f"write {remembered.__name__}, which `remember` returns, or leave it out"
                raise SpecError(found, hint)


def check_revisions(
    logic: AnyLogic, lateness: Lateness, results: Results, order: Order, *, in_order: bool
) -> None:
    keeps = "allowed" if lateness.allowed is not None else "reopen_within"
    option = keeps if results.emit == "on_close" else "emit"
    if results.with_events or isinstance(logic, Events):
        source = "`with_events`" if results.with_events else "`Events`"
        found = f"{source} gives each event once, and `{option}` a session several times"
        raise SpecError(found, f"leave `{option}` out, or use two specs")
    if order == "event_time" and (lateness.allowed or lateness.reopen_within) is not None:
        found = f'`{keeps}` has no effect with `order="event_time"`'
        why = "an event that comes after its turn can't be put in"
        hint = _without(keeps, in_order=in_order)
        raise SpecError(f"{found}, where {why}", f"{hint}; `watermark_delay` waits for late events")


def check_carries_watermark(
    results: Results, lateness: Lateness, storage: Storage, rules: SessionRules | None
) -> None:
    """Check that each session gives one row, when the watermark reaches its end."""
    refused = {
        "`emit`": results.emit != "on_close",
        "`with_events`": results.with_events,
        "`Lateness(allowed=...)`": lateness.allowed is not None,
        "`reopen_within`": lateness.reopen_within is not None,
        "`timeout=SessionRules(...)`": rules is not None,
        '`layout="pages"`': storage.layout == "pages",
    }
    for name in (name for name, is_used in refused.items() if is_used):
        found = f"{name} doesn't go with `carries_watermark`: each session has one row, at its end"
        hint = f"leave {name} out, or read the rows in a second query, without `carries_watermark`"
        raise SpecError(found, hint)
