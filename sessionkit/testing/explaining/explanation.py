"""What became of the events of a key, in words and as a picture."""

import html
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs

from sessionkit._instants import duration_text
from sessionkit.testing.explaining.svg import Lane, svg_timeline
from sessionkit.testing.scripts.axis import Axis
from sessionkit.testing.scripts.literals import clock_text, literal
from sessionkit.testing.scripts.timeline import Event, Span, axis_of, drawn
from sessionkit.timeouts import ClosedBy

__all__ = ["ExplainedRejection", "ExplainedSession", "Explanation", "TimedEvent"]

TimedEvent: TypeAlias = tuple[datetime, Any]
"""An event and its time."""

MOST_TIMES: Final = 6


@attrs.frozen
class ExplainedSession:
    """
    A session, why it is over or would be, and what lets it close. All times are event time, in UTC.

    Attributes:
        id: Its id; that of an open one stays if its start does.
        start: The time of its first event.
        end: The time of its last event plus the gap, exclusive.
        events: Its events, by time, as pairs of time and event.
        closes: When it is over: it closes once the watermark is there. That of an open one changes
            if a further event joins it.
        closed_by: The rule that ends it then: `"gap"`, or one of `SessionRules`.
        why: What the rule says, in words.
        is_open: Whether it's open.
        to_go: How far the watermark has to move to close it; None where it is closed, or there is
            no watermark yet.
        closing_event_time: The earliest event time, of any key, that moves the watermark there;
            None where the session is closed.
    """

    id: str
    start: datetime
    end: datetime
    events: tuple[TimedEvent, ...]
    closes: datetime
    closed_by: ClosedBy
    why: str
    is_open: bool
    to_go: timedelta | None = None
    closing_event_time: datetime | None = None


@attrs.frozen
class ExplainedRejection:
    """
    An event that no session took, or a session that gave no row.

    Attributes:
        kind: `late`, `duplicate`, `quarantined`, `failed` or `failed_output`.
        reason: Why, in words.
        event_time: The event's time; None where it had none, and for `failed_output`.
        event: The event; None for `failed_output`.
        watermark: The watermark by which it was judged; None where there was none.
    """

    kind: str
    reason: str
    event_time: datetime | None
    event: Any
    watermark: datetime | None


@attrs.frozen
class Explanation:
    """
    What became of the events of a key. All times are event time, in UTC.

    `str()` says it in words, with a picture; a notebook shows both.

    Attributes:
        key: The key: the value of the key column, or a tuple of values if there are several.
        sessions: Its sessions, by start.
        rejected: What no session took, in order of rejection.
        others: Keys and times of the events of other keys, which moved the watermark.
        watermarks: Where the watermark stood, from micro-batch to micro-batch.
        watermark_delay: By how much it trails the latest event.
        idle: What else closes open sessions, under `close_idle_after`, in words; None without it.
    """

    key: Any
    sessions: tuple[ExplainedSession, ...]
    rejected: tuple[ExplainedRejection, ...]
    others: tuple[tuple[Any, datetime], ...]
    watermarks: tuple[datetime, ...]
    watermark_delay: timedelta
    idle: str | None = None

    @property
    def watermark(self) -> datetime | None:
        """Where the watermark stands at the end; None while there is none."""
        return self.watermarks[-1] if self.watermarks else None

    def __str__(self) -> str:
        """Say it in words, and draw it."""
        axis = self._axis
        picture = [] if axis is None else drawn(axis, self._events, self._spans, self._clocks)
        return "\n".join([*self._words(), *(["", *picture] if picture else [])])

    def _repr_svg_(self) -> str | None:
        """Draw it for a notebook; None where there is nothing to draw."""
        if self._axis is None:
            return None
        own = [event for event in self._events if event.key == self.key]
        keys = list(dict.fromkeys(key for key, _ in self.others))
        lanes = [Lane(literal(self.key), own, self._spans)]
        lanes += [
            Lane(literal(key), [event for event in self._events if event.key == key], ())
            for key in keys
        ]
        title = f"Sessions of {literal(self.key)}"
        return svg_timeline(self._axis, lanes, self.watermarks, title, "\n".join(self._words()))

    def _repr_html_(self) -> str:
        """Draw it for a notebook, with the words below."""
        words = html.escape("\n".join(self._words()))
        return f"<div>{self._repr_svg_() or ''}<pre>{words}</pre></div>"

    @property
    def _axis(self) -> Axis | None:
        """The scale of the picture; what other keys did may lie outside."""
        own = [event for event in self._events if event.key == self.key]
        return axis_of(own, self._spans, self._clocks)

    @property
    def _events(self) -> list[Event]:
        read = [time for session in self.sessions for time, _ in session.events]
        rejected = [one.event_time for one in self.rejected if one.event_time]
        return [
            *(Event(self.key, time, "read") for time in read),
            *(Event(self.key, time, "rejected") for time in rejected),
            *(Event(key, time, "read") for key, time in self.others),
        ]

    @property
    def _spans(self) -> list[Span]:
        return [
            Span(self.key, one.start, one.closes, is_open=one.is_open, rule=one.closed_by)
            for one in self.sessions
        ]

    @property
    def _clocks(self) -> dict[str, Sequence[datetime]]:
        return {"watermark": self.watermarks} if self.watermarks else {}

    def _words(self) -> Iterator[str]:
        yield self._heading()
        entries = [(_state(session), self._session(session)) for session in self.sessions]
        entries += [(rejected.kind, _rejection(rejected)) for rejected in self.rejected]
        width = max([len(label) for label, _ in entries], default=0) + 2
        for label, lines in entries:
            for place, line in enumerate(lines):
                yield f"{'' if place else label:{width}}{line}"

    def _heading(self) -> str:
        count, opened = len(self.sessions), sum(one.is_open for one in self.sessions)
        sessions = f"{count or 'no'} session{'s' if count != 1 else ''} of {literal(self.key)}"
        at = self.watermark
        clock = "there is no watermark yet" if at is None else f"the watermark is at {_text(at)}"
        return f"{sessions}, {opened or 'none'} of them open; {clock} (times in UTC)"

    def _session(self, session: ExplainedSession) -> Iterator[str]:
        over = f"over at {_text(session.closes)}, by `{session.closed_by}`: {session.why}"
        yield f"from {_text(session.start)}, {'would be ' if session.is_open else ''}{over}"
        yield f"{_count(len(session.events))}: {_times(session.events)}"
        if session.closing_event_time is not None:
            to_go, delay = session.to_go, duration_text(self.watermark_delay)
            yield "it closes once the watermark gets there" + (
                "" if to_go is None else f", which has {duration_text(to_go)} to go"
            )
            event = f"an event at {_text(session.closing_event_time)}, of any key, moves it there"
            yield f"{event}: the watermark delay is {delay}"
            if self.idle is not None:
                yield f"or it closes by `idle`, once {self.idle}"


def _rejection(rejected: ExplainedRejection) -> Iterator[str]:
    at = "" if rejected.event_time is None else f"{_text(rejected.event_time)}, "
    first, *rest = rejected.reason.splitlines() or [""]
    yield f"{at}{first}"
    yield from rest
    if rejected.kind == "late" and rejected.watermark is not None:
        yield f"the watermark was at {_text(rejected.watermark)} when it came"


def _state(session: ExplainedSession) -> str:
    return "open" if session.is_open else "closed"


def _count(events: int) -> str:
    return f"{events} event{'s' if events != 1 else ''}"


def _times(events: Sequence[TimedEvent]) -> str:
    shown = [_text(time) for time, _ in events[:MOST_TIMES]]
    more = len(events) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])


def _text(instant: datetime) -> str:
    return clock_text(instant)
