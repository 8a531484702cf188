"""A session spec as a whole: what goes together, and what does not."""

from datetime import timedelta
from typing import Any

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.aggregates import check_condition, nearest_field
from sessionkit.spec.shared import check_delay
from sessionkit.spec.signatures import check_function
from sessionkit.state import EnumType, codec_of, inner_type, may_be_key
from sessionkit.timeouts import EventTimeGap, SessionRules, StateGap

__all__ = [
    "check_revisions",
    "check_rules",
    "check_times",
    "read_delay",
    "read_lateness",
    "read_reopening",
    "read_repeats",
    "read_timeout",
]


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
    if not (may_be_key(types[name]) or isinstance(types[name], EnumType)):
        found = f"`changes_of` names `{event.__name__}.{name}`, whose values can't be compared"
        hint = "name a str, an int, a bool, bytes, a date, a datetime, a time, a Decimal or an Enum"
        raise SpecError(with_hint(found, hint))


def read_lateness(value: Duration | None) -> timedelta | None:
    """Read how late an event may be."""
    return None if value is None else duration(value, "allowed_lateness")


def read_reopening(value: Duration | None) -> timedelta | None:
    """Read how long a session goes on after its close."""
    return None if value is None else duration(value, "reopen_within")


def check_revisions(spec: Any) -> None:
    """
    Check a session spec under which a session may give several rows.

    Raises:
        SpecError: Another argument stands against it.
    """
    if not spec.revises:
        if spec.discards:
            found = '`revisions="discarding"` has no effect on sessions that give one row'
            raise SpecError(with_hint(found, 'leave it out, or write emit="on_update"'))
        return
    option = "emit" if spec.early is not None else _keeping(spec)
    if spec.allowed_lateness is not None and spec.reopen_within is not None:
        found = "`allowed_lateness` and `reopen_within` are both given"
        hint = "leave out `reopen_within`: the other one also reopens sessions"
        raise SpecError(with_hint(found, hint))
    if spec.per != "session":
        found = f'`per="{spec.per}"` gives each event once, and `{option}` a session several times'
        raise SpecError(with_hint(found, f"leave `{option}` out, or use two specs"))
    if spec.on_error == "drop_session":
        found = f'`on_error="drop_session"` drops sessions that have rows out, under `{option}`'
        raise SpecError(with_hint(found, 'write on_error="reject"'))
    if spec.order == "event_time" and spec.mergeable is not None:
        found = f'`{_keeping(spec)}` has no effect with `order="event_time"`'
        why = "an event that comes after its turn can't be put in"
        hint = 'raise `watermark_delay`, or write order="arrival"'
        raise SpecError(with_hint(f"{found}, where {why}", hint))
    if spec.discards and spec.rules is not None and spec.rules.max_events is not None:
        found = '`max_events` counts events that `revisions="discarding"` has forgotten'
        raise SpecError(with_hint(found, "leave out one of the two"))
    if spec.discards and spec.rules is not None and spec.rules.state_gap is not None:
        found = '`state_gap` reads a state of which `revisions="discarding"` has forgotten a part'
        raise SpecError(with_hint(found, "leave out one of the two"))


def _keeping(spec: Any) -> str:
    return "allowed_lateness" if spec.allowed_lateness is not None else "reopen_within"


def read_delay(value: Duration) -> timedelta:
    """Read how far the watermark trails the events."""
    return duration(value, "watermark_delay", zero_allowed=True)


def read_repeats(value: Duration | None) -> timedelta | None:
    """Read how long after the close of its session an event is known."""
    return None if value is None else duration(value, "drop_duplicates_for", zero_allowed=True)


def read_timeout(value: EventTimeGap | SessionRules | Duration) -> EventTimeGap | SessionRules:
    """Read when a session is over; a duration is the gap."""
    return EventTimeGap(value) if isinstance(value, str | timedelta) else value


def check_times(spec: Any) -> None:
    """
    Check the times and the rules of a session spec.

    Raises:
        SpecError: They don't go together, or not with another argument.
    """
    if not isinstance(spec.timeout, EventTimeGap | SessionRules):
        found = f"`timeout` of a session must be an EventTimeGap, found {spec.timeout!r}"
        raise SpecError(with_hint(found, 'write timeout=EventTimeGap("30 minutes")'))
    if callable(spec.timeout.gap):
        check_function(spec.timeout.gap, "gap", event=spec.event)
    if spec.rules is not None:
        check_rules(spec, spec.rules)
    if spec.late_by == "session" and spec.order == "event_time":
        found = '`late_by="session"` has no effect with `order="event_time"`'
        why = "an event is late once the watermark has reached it"
        hint = 'leave `late_by` out, or write order="arrival"'
        raise SpecError(with_hint(f"{found}, where {why}", hint))
    check_revisions(spec)
    check_delay(spec)
