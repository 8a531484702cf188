"""Explain the sessions of a key: why they are open or closed, and which events were rejected."""

import html
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs

from sessionkit._arguments import explains
from sessionkit._engine.sessions.features.rules import event_that_closes, rule_text
from sessionkit._engine.sessions.view import OpenSession
from sessionkit._instants import duration_text
from sessionkit.errors import DriverError, SpecError
from sessionkit.spec.base import E, R, S
from sessionkit.spec.options import Results
from sessionkit.spec.session import SessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.testing.drivers.kinds import SessionDriver
from sessionkit.testing.drivers.query import on_clock
from sessionkit.testing.drivers.results import Rejection
from sessionkit.testing.literals import clock_text, literal, plain_key
from sessionkit.testing.svg import svg_of
from sessionkit.testing.timeline import Event, Timeline, session_bar
from sessionkit.timeouts._session_rules import ClosedBy

TimedEvent: TypeAlias = tuple[datetime, Any]
"""An event and its time."""

MOST_TIMES: Final = 6
Given: TypeAlias = E | tuple[datetime | None, E] | tuple[Any, datetime | None, E]


@attrs.frozen
class ExplainedSession:
    """
    A session, and why it's closed or what will close it. All times are event time, in UTC.

    Attributes:
        session_id: Its id. An open session keeps its id unless its start changes.
        session_start: The time of its first event.
        session_end: The time of its last event plus the gap, also if a rule closes it before.
        events: Pairs of time and event, sorted by time.
        closes: When it's over: it closes once the watermark reaches this. In an open session, it
            changes if another event joins.
        closed_by: The rule that ends it then: `"gap"`, or a rule of `SessionRules`.
        why: The rule in words.
        is_open: Whether it's open.
        to_go: How far the watermark has to move to close it; None if it's closed, or there is no
            watermark yet.
        closing_event_time: The earliest event time, of any key, that moves the watermark to
            `closes`; None if the session is closed.
    """

    session_id: str
    session_start: datetime
    session_end: datetime
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
    A rejected event, or a session without a result row.

    Attributes:
        kind: `late`, `duplicate`, `outside`, `quarantined`, `failed` or `failed_output`.
        reason: Why, in words.
        event_time: The event's time; None for an event without a time, and for `failed_output`.
        event: The event; None for `failed_output`.
        watermark: The watermark that decided whether it was late; None if there was none.
    """

    kind: str
    reason: str
    event_time: datetime | None
    event: Any
    watermark: datetime | None


@attrs.frozen
class Explanation:
    """
    The sessions and rejected events of a key. All times are event time, in UTC.

    `str()` returns words and a picture, and a notebook shows the same.

    Attributes:
        key: The value of the key column, or a tuple of values if there are several.
        sessions: Its sessions, sorted by start.
        rejected: Its rejected events and failed outputs, in order of rejection.
        others: Keys and times of the events of other keys, which moved the watermark.
        watermarks: The distinct watermarks of the micro-batches.
        watermark_delay: How far the watermark trails the latest event time.
        idle: The rule of `close_idle_after` in words, which may also close open sessions; None
            without it.
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
        """The last watermark; None if there is none yet."""
        return self.watermarks[-1] if self.watermarks else None

    def __str__(self) -> str:
        """Return the explanation in words, with a picture."""
        drawn = self._picture.as_text()
        return "\n".join([*self._words(), *([""] if drawn else []), *drawn])

    def _repr_html_(self) -> str:
        words = html.escape("\n".join(self._words()))
        return f"<pre>{words}</pre>{svg_of(self._picture)}"

    @property
    def _picture(self) -> Timeline:
        key = self.key
        events = [
            *(Event(key, time, "read") for session in self.sessions for time, _ in session.events),
            *(Event(key, e.event_time, "rejected") for e in self.rejected if e.event_time),
            *(Event(other, time, "other") for other, time in self.others),
        ]
        spans = [
            session_bar(key, s.session_start, s.closes, is_open=s.is_open, rule=s.closed_by)
            for s in self.sessions
        ]
        return Timeline(events, spans, {"watermark": self.watermarks} if self.watermarks else {})

    def _words(self) -> Iterator[str]:
        count, opened = len(self.sessions), sum(session.is_open for session in self.sessions)
        sessions = f"{count or 'no'} session{'s' if count != 1 else ''} of {literal(self.key)}"
        at = self.watermark and clock_text(self.watermark)
        clock = f"the watermark is at {at}" if at else "there is no watermark yet"
        yield f"{sessions}, {opened or 'none'} of them open; {clock} (times in UTC)"
        entries = [("open" if s.is_open else "closed", self._session(s)) for s in self.sessions]
        entries += [(rejected.kind, _rejection(rejected)) for rejected in self.rejected]
        width = max([len(label) for label, _ in entries], default=0) + 2
        for label, lines in entries:
            for place, line in enumerate(lines):
                yield f"{'' if place else label:{width}}{line}"

    def _session(self, session: ExplainedSession) -> Iterator[str]:
        over = f"over at {clock_text(session.closes)}, by `{session.closed_by}`: {session.why}"
        start = clock_text(session.session_start)
        yield f"from {start}, {'would be ' if session.is_open else ''}{over}"
        count = len(session.events)
        shown = [clock_text(time) for time, _ in session.events[:MOST_TIMES]]
        more = [f"and {count - MOST_TIMES} more"] if count > MOST_TIMES else []
        yield f"{count} event{'s' if count != 1 else ''}: {', '.join([*shown, *more])}"
        if session.closing_event_time is not None:
            to_go, delay = session.to_go, duration_text(self.watermark_delay)
            way = "" if to_go is None else f", which has {duration_text(to_go)} to go"
            yield f"it closes once the watermark gets there{way}"
            at = clock_text(session.closing_event_time)
            yield f"an event at {at}, of any key, moves it there: the watermark delay is {delay}"
            if self.idle is not None:
                yield f"or it closes by `idle`, once {self.idle}"


def _rejection(rejected: ExplainedRejection) -> Iterator[str]:
    at = "" if rejected.event_time is None else f"{clock_text(rejected.event_time)}, "
    yield from f"{at}{rejected.reason}".splitlines() or [""]
    if rejected.kind == "late" and rejected.watermark is not None:
        yield f"the watermark was at {clock_text(rejected.watermark)} when it came"


@explains
def explain_session(
    spec: SessionSpec[E, Any, Any],
    key: Any,
    events: Iterable[Given[E]],
    *,
    watermark: datetime | None = None,
    processing_time: datetime | None = None,
) -> Explanation:
    """
    Explain why the sessions of a key are open or closed, and what will close the open ones.

    Each event arrives in a micro-batch of its own and moves the watermark of the next micro-batch,
    as in a stream. So pass events in the order of arrival.

    Args:
        spec: The definition.
        key: The value of the key column; a tuple of values if there are several columns.
        events: The events that arrive: `(time, event)`, or just the event if its class has the
            event time as a field; and `(key, time, event)` for events of other keys, which move the
            watermark too.
        watermark: The watermark at the end, if events of other keys that you don't pass moved it. A
            watermark never goes back: a value before the one that the events give is ignored.
        processing_time: The processing time of all micro-batches. As it doesn't move,
            `close_idle_after` closes no session here. Without it, no event time is too far in the
            future.

    Returns:
        An `Explanation`. `print` it for words and a picture; `sessions` has each session with
        `closed_by`, `why`, `is_open`, `closes` and `to_go`, how far the watermark has to move;
        `rejected` has the rejected events.

    Raises:
        SpecError: The spec has `Lateness(allowed=...)` or `Lateness(reopen_within=...)`.
        DriverError: An event has another class, its time or the watermark has no time zone, or a
            key has the wrong number of values; see `SessionDriver`.
        UserFunctionError: A function failed, under `on_error="raise"`.
    """
    if spec.mergeable is not None:
        found = "sessions that continue after their close can't be explained"
        raise SpecError(found, "pass attrs.evolve(spec, lateness=Lateness())")
    driver = SessionDriver(_by_events(spec), processing_time=processing_time)
    run = _Run(driver, plain_key(key))
    for arrived in events:
        run.take(*_arrival(spec, key, arrived))
    if watermark is not None:
        on_clock(watermark, "the watermark")
        run.driver.advance_watermark_to(max(watermark, run.driver.watermark or watermark))
    while not run.driver.is_idle:
        run.run_batch()
    idle = None if spec.close_idle_after is None else rule_text(spec, "idle")
    return attrs.evolve(run.explanation(), idle=idle)


def _by_events(spec: SessionSpec[E, S, R]) -> SessionSpec[E, S, R]:
    """Return the spec without early rows and `close_idle_after`, which need a moving clock."""
    if spec.early is not None:
        spec = attrs.evolve(spec, results=Results(with_events=spec.results.with_events))
    if (rules := spec.rules) is None:
        return spec
    return attrs.evolve(spec, timeout=attrs.evolve(rules, close_idle_after=None))


def _arrival(spec: Any, key: Any, arrived: Any) -> tuple[Any, datetime | None, Any]:
    match arrived:
        case (time, event):
            return key, time, event
        case (other, time, event):
            return other, time, event
    if isinstance(arrived, spec.event) and hasattr(arrived, spec.event_time):
        return key, getattr(arrived, spec.event_time), arrived
    found = f"an event must come with its time, found {arrived!r}"
    raise DriverError(found, 'pass (at("10:00"), event), or (key, at("10:00"), event)')


@attrs.frozen(eq=False)
class _Arrived:
    """An event that arrived, and its time or None. Compared by identity: events may be equal."""

    time: Any
    event: Any


@attrs.define
class _Run:
    """A driver, and the outcomes so far of the events of a key."""

    driver: SessionDriver[Any, Any, Any]
    key: Any
    # Events of the key that are neither in a closed session nor rejected.
    unsettled: list[_Arrived] = attrs.field(factory=list, init=False)
    closed: list[ExplainedSession] = attrs.field(factory=list, init=False)
    rejected: list[ExplainedRejection] = attrs.field(factory=list, init=False)
    others: list[tuple[Any, datetime]] = attrs.field(factory=list, init=False)
    watermarks: list[datetime] = attrs.field(factory=list, init=False)

    def take(self, key: Any, time: datetime | None, event: Any) -> None:
        """Run a micro-batch of a single event."""
        self.driver.add(key, time, event)
        if plain_key(key) == self.key:
            self.run_batch(_Arrived(time, event))
            return
        rejected = self.run_batch()
        if time is not None and all(plain_key(r.key) == self.key for r in rejected):
            self.others.append((plain_key(key), time))

    def run_batch(self, *arrived: _Arrived) -> list[Rejection]:
        opened, before = self._opened(), self.unsettled
        self.unsettled = [*before, *arrived]
        result = self.driver.run_batch()
        if result.watermark is not None and result.watermark not in self.watermarks[-1:]:
            self.watermarks.append(result.watermark)
        for rejection in result.rejections:
            if plain_key(rejection.key) == self.key:
                self._reject(rejection, result.watermark)
        # An event that has just arrived can't join a session that is over by now.
        earlier = [event for event in before if event in self.unsettled]
        for session, events in _parted(opened, earlier):
            if result.watermark is not None and session.closes <= result.watermark:
                self.closed.append(self._session(session, events, is_open=False))
                self.unsettled = [event for event in self.unsettled if event not in events]
        return result.rejections

    def explanation(self) -> Explanation:
        parts = _parted(self._opened(), self.unsettled)
        opened = [self._session(session, events, is_open=True) for session, events in parts]
        return Explanation(
            self.key,
            tuple(sorted([*self.closed, *opened], key=attrgetter("session_start"))),
            tuple(self.rejected),
            tuple(self.others),
            tuple(self.watermarks),
            self.driver.spec.watermark_delay,
        )

    def _opened(self) -> list[OpenSession[Any]]:
        return [s for s in self.driver.open_sessions() if plain_key(s.key) == self.key]

    def _reject(self, rejection: Rejection, watermark: datetime | None) -> None:
        event = None
        if rejection.event_id is not None:
            same_time = [a for a in self.unsettled if a.time == rejection.event_time]
            equal = [a for a in same_time if _values(a.event) == rejection.event]
            # Take the last: an event is late, or quarantined, when it arrives.
            arrived = (equal or same_time)[-1]
            self.unsettled = [a for a in self.unsettled if a is not arrived]
            event = arrived.event
        about = rejection.kind, rejection.reason, rejection.event_time
        self.rejected.append(ExplainedRejection(*about, event, watermark))

    def _session(
        self, session: OpenSession[Any], events: Sequence[_Arrived], *, is_open: bool
    ) -> ExplainedSession:
        spec, watermark = self.driver.spec, self.driver.watermark
        at = event_that_closes(spec, session.closes)
        moved_to = at - timedelta(milliseconds=spec.delay_ms or 0)
        return ExplainedSession(
            session_id=session.session_id,
            session_start=session.session_start,
            session_end=session.session_end,
            events=tuple((arrived.time, arrived.event) for arrived in events),
            closes=session.closes,
            closed_by=session.closed_by,
            why=rule_text(spec, session.closed_by),
            is_open=is_open,
            to_go=moved_to - watermark if is_open and watermark else None,
            closing_event_time=at if is_open else None,
        )


def _parted(
    sessions: Sequence[OpenSession[Any]], events: Sequence[_Arrived]
) -> list[tuple[OpenSession[Any], list[_Arrived]]]:
    """Return each open session of a key with its events, from its start to the next start."""
    starts = [session.session_start for session in sessions]
    parts: list[tuple[OpenSession[Any], list[_Arrived]]] = [(session, []) for session in sessions]
    for event in sorted((event for event in events if event.time), key=attrgetter("time")):
        place = bisect_right(starts, event.time)
        if place:
            parts[place - 1][1].append(event)
    return parts


def _values(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in codec_of(type(event)).type.fields}
