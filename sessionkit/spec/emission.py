"""When a session that is open gives a row."""

import re
from datetime import timedelta
from typing import Any, Final, TypeAlias

import attrs

from sessionkit._arguments import at_least_one, choice, explained
from sessionkit._instants import Duration, duration, duration_text
from sessionkit.errors import SpecError, with_hint
from sessionkit.timeouts import Clock

TEXT: Final = re.compile(
    r"every\s+(?:(?P<events>\d+)\s+events?|(?P<span>.+?)(?:\s+of\s+(?P<clock>event|processing)"
    r"\s+time)?)",
    re.ASCII,
)
HINT: Final = (
    'write "on_close", "on_update", "every 100 events", "every 5 minutes" or '
    '"every 5 minutes of processing time"'
)
CLOCKS: Final[dict[str, Clock]] = {"event": "event_time", "processing": "processing_time"}


def _read_span(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "duration")


@explained()
@attrs.frozen
class Every:
    """
    How often a session that is open gives a row: `Every("5 minutes")`, or `Every(events=100)`.

    A row comes at the end of a micro-batch, and only where the session has taken events since its
    last row.

    Attributes:
        duration: Once its clock has moved on by so long since the session began, or gave a row.
        events: Once the session has taken so many events since then, those of sessions that became
            part of it included.
        clock: That of `duration`: `"event_time"`, so the watermark, or `"processing_time"`.

    Raises:
        SpecError: Not exactly one of `duration` and `events` is given, or one can't work.
    """

    duration: timedelta | None = attrs.field(default=None, converter=_read_span)
    events: int | None = attrs.field(default=None, kw_only=True, validator=at_least_one)
    clock: Clock = attrs.field(default="event_time", kw_only=True, validator=choice)

    def __attrs_post_init__(self) -> None:
        if (self.duration is None) == (self.events is None):
            found = "`Every` takes a duration or a number of events, one of the two"
            raise SpecError(with_hint(found, 'write Every("5 minutes") or Every(events=100)'))
        if self.duration is None and self.clock != "event_time":
            found = "`Every` has a clock, and counts events"
            raise SpecError(with_hint(found, "leave `clock` out, or write a duration"))

    def __str__(self) -> str:
        if self.duration is None:
            return f"every {self.events} event{'' if self.events == 1 else 's'}"
        of = " of processing time" if self.clock == "processing_time" else ""
        return f"every {duration_text(self.duration)}{of}"


Emit: TypeAlias = Every | str
"""
When a session gives rows: what `Results(emit=...)` takes.

`"on_close"`: once, when it is over. `"on_update"`: also after each micro-batch that gave it events.
An `Every`, or a text for one such as `"every 5 minutes"`: also so often.
"""


def read_emit(value: object) -> Any:
    if isinstance(value, Every) or value in ("on_close", "on_update"):
        return value
    found = TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise SpecError(with_hint(f"`emit` can't be {value!r}", HINT))
    if found["events"] is not None:
        return Every(events=int(found["events"]))
    span = duration(found["span"], "emit")
    return Every(span, clock=CLOCKS[found["clock"] or "event"])
