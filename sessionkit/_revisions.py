"""Sessions that may give several rows: what that doesn't go together with."""

from datetime import timedelta
from typing import Any

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint

__all__ = ["check_revisions", "read_lateness", "read_reopening"]


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
