"""The rules that cut sessions, checked against the rest of a spec."""

from typing import Any

from sessionkit._conditions import check_condition, nearest_field
from sessionkit._functions import check_function
from sessionkit._spec import KEY_TYPES
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import EnumType, codec_of, inner_type
from sessionkit.timeouts import SessionRules, StateGap

__all__ = ["check_rules"]


def check_rules(spec: Any, rules: SessionRules) -> None:
    """
    Check the rules of a session spec.

    Raises:
        SpecError: A rule needs events in order, or doesn't fit the event class.
    """
    for name in ("until", "starts_with", "extends"):
        predicate = getattr(rules, name)
        if callable(predicate):
            check_function(predicate, name, event=spec.event)
        elif predicate is not None:
            check_condition(spec.event, f"`{name}`", predicate)
    if rules.state_gap is not None:
        _check_state_gap(spec, rules.state_gap)
    for name in rules.changes_of:
        _check_attribute(spec.event, name)
    if rules.in_order and spec.order != "event_time":
        found = f"`{rules.in_order[0]}` depends on the order of events, and they come in any order"
        raise SpecError(with_hint(found, 'write order="event_time"'))


def _check_state_gap(spec: Any, state_gap: StateGap) -> None:
    if spec.per == "event" or spec.aggregates is not None:
        instead = "aggregates" if spec.aggregates is not None else 'per="event"'
        found = f"`state_gap` is a function of the state, and `{instead}` has no state of yours"
        raise SpecError(with_hint(found, "write functions instead, or leave `state_gap` out"))
    check_function(state_gap, "state_gap", state=spec.state)


def _check_attribute(event: type[Any], name: str) -> None:
    types = {field.name: inner_type(field.type) for field in codec_of(event).type.fields}
    if name not in types:
        found = f"`changes_of` names `{name}`, and {event.__name__} has no such field"
        raise SpecError(with_hint(found, nearest_field(event, name)))
    if not isinstance(types[name], (*KEY_TYPES, EnumType)):
        found = f"`changes_of` names `{event.__name__}.{name}`, whose values can't be compared"
        hint = "name a str, an int, a bool, bytes, a date, a datetime, a Decimal or an Enum"
        raise SpecError(with_hint(found, hint))
