"""When sessions end, checked against the rest of a spec."""

from datetime import timedelta
from typing import Any

from sessionkit._functions import check_function
from sessionkit._instants import Duration, duration
from sessionkit._revisions import check_revisions
from sessionkit._session_rules import check_rules
from sessionkit._spec import check_delay
from sessionkit.errors import SpecError, with_hint
from sessionkit.timeouts import EventTimeGap, SessionRules

__all__ = ["check_times", "read_delay", "read_repeats", "read_timeout"]


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
