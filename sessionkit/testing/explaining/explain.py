"""Run the events of a key on the driver, and follow what becomes of each."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, TypeAlias

import attrs

from sessionkit._engine.sessions.reasons import event_that_closes, rule_text
from sessionkit._engine.sessions.view import OpenSession
from sessionkit.errors import ScriptError, SpecError, with_hint
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import E, R, S
from sessionkit.state import codec_of
from sessionkit.testing.drivers.frames import Rejection
from sessionkit.testing.drivers.session import SessionDriver
from sessionkit.testing.explaining.explanation import (
    ExplainedRejection,
    ExplainedSession,
    Explanation,
)
from sessionkit.testing.scripts.lines import plain_key

__all__ = ["explain_session"]

Given: TypeAlias = E | tuple[datetime | None, E] | tuple[Any, datetime | None, E]


def explain_session(
    spec: SessionSpec[E, Any, Any],
    key: Any,
    events: Iterable[Given[E]],
    *,
    watermark: datetime | None = None,
    processing_time: datetime | None = None,
) -> Explanation:
    """
    Say why the sessions of a key are open or closed, and what lets the open ones close.

    Each event comes in a micro-batch of its own, in the order given, and moves the watermark of the
    next one, as in a stream. So order them as they arrive.

    Args:
        spec: The definition.
        key: The value of the key column; a tuple of values if there are several columns.
        events: The events that arrive: `(time, event)`, or the event alone if its class has the
            event time as a field; and `(key, time, event)` for those of other keys, which move the
            watermark too.
        watermark: Where the watermark stands in the end, as other keys moved it. It never goes
            back: one before that of the events is ignored.
        processing_time: The processing time of all micro-batches. Without it, no event time is too
            far in the future. It stands still, so no session closes by `idle`.

    Raises:
        SpecError: Sessions may go on after their close.
        ScriptError: An event, its key or its time, or the watermark, can't be; see `SessionDriver`.
        UserFunctionError: A function failed, and the spec says `on_error="raise"`.
    """
    if spec.mergeable is not None:
        found = "sessions that go on after their close can't be explained"
        hint = "pass attrs.evolve(spec, allowed_lateness=None, reopen_within=None)"
        raise SpecError(with_hint(found, hint))
    driver = SessionDriver(_by_events(spec), processing_time=processing_time)
    run = _Run(driver, plain_key(key))
    for given in events:
        run.take(*_arrival(spec, key, given))
    if watermark is not None:
        run.driver.advance_watermark_to(watermark)
    while not run.driver.is_idle:
        run.run_batch()
    idle = None if spec.close_idle_after is None else rule_text(spec, "idle")
    return attrs.evolve(run.explanation(), idle=idle)


def _by_events(spec: SessionSpec[E, S, R]) -> SessionSpec[E, S, R]:
    """Return the spec without early rows and `close_idle_after`: processing time stands still."""
    if spec.early is not None:
        spec = attrs.evolve(spec, emit="on_close", revisions="accumulating")
    if spec.rules is None or spec.close_idle_after is None:
        return spec
    return attrs.evolve(spec, timeout=attrs.evolve(spec.rules, close_idle_after=None))


def _arrival(
    spec: SessionSpec[Any, Any, Any], key: Any, given: Any
) -> tuple[Any, datetime | None, Any]:
    """Return an event with its key and its time."""
    match given:
        case (time, event):
            return key, time, event
        case (other, time, event):
            return other, time, event
    if isinstance(given, spec.event) and hasattr(given, spec.event_time):
        return key, getattr(given, spec.event_time), given
    found = f"an event must come with its time, found {given!r}"
    raise ScriptError(with_hint(found, 'pass (at("10:00"), event), or (key, at("10:00"), event)'))


@attrs.frozen(eq=False)
class _Arrived:
    """An event that arrived; one that equals it is another one."""

    time: datetime | None
    event: Any


@attrs.define
class _Run:
    """
    A driver, and what became so far of the events of a key.

    Attributes:
        driver: The driver.
        key: The key, as `plain_key` has it.
        unsettled: Its events that are neither in a closed session nor rejected.
        closed: Its sessions that are over.
        rejected: What was rejected.
        others: Keys and times of the events of other keys.
        watermarks: Where the watermark stood.
    """

    driver: SessionDriver[Any, Any, Any]
    key: Any
    unsettled: list[_Arrived] = attrs.field(factory=list, init=False)
    closed: list[ExplainedSession] = attrs.field(factory=list, init=False)
    rejected: list[ExplainedRejection] = attrs.field(factory=list, init=False)
    others: list[tuple[Any, datetime]] = attrs.field(factory=list, init=False)
    watermarks: list[datetime] = attrs.field(factory=list, init=False)

    def take(self, key: Any, time: datetime | None, event: Any) -> None:
        """Let an event arrive, in a micro-batch of its own."""
        self.driver.add(key, time, event)
        if plain_key(key) == self.key:
            self.run_batch(_Arrived(time, event))
            return
        rejected = self.run_batch()
        if time is not None and not any(plain_key(one.key) != self.key for one in rejected):
            self.others.append((plain_key(key), time))

    def run_batch(self, *arrived: _Arrived) -> list[Rejection]:
        """Run a micro-batch, and return what it rejected."""
        opened, before = self._opened(), self.unsettled
        self.unsettled = [*before, *arrived]
        result = self.driver.run_batch()
        if result.watermark is not None and result.watermark not in self.watermarks[-1:]:
            self.watermarks.append(result.watermark)
        for rejection in result.rejections:
            if plain_key(rejection.key) == self.key:
                self._reject(rejection, result.watermark)
        # What has just arrived can't join a session that is over by now.
        settled = [one for one in before if one in self.unsettled]
        for session, events in _parted(opened, settled):
            if result.watermark is not None and session.closes <= result.watermark:
                self.closed.append(self._closed_session(session, events))
                self.unsettled = [one for one in self.unsettled if one not in events]
        return result.rejections

    def explanation(self) -> Explanation:
        """Return what became of all events."""
        parts = _parted(self._opened(), self.unsettled)
        opened = [self._open_session(session, events) for session, events in parts]
        return Explanation(
            key=self.key,
            sessions=tuple(sorted([*self.closed, *opened], key=lambda one: one.start)),
            rejected=tuple(self.rejected),
            others=tuple(self.others),
            watermarks=tuple(self.watermarks),
            watermark_delay=self.driver.spec.watermark_delay,
        )

    def _opened(self) -> list[OpenSession[Any]]:
        return [one for one in self.driver.open_sessions() if plain_key(one.key) == self.key]

    def _reject(self, rejection: Rejection, watermark: datetime | None) -> None:
        """Note a rejection, with the event that it's about."""
        event = None
        if rejection.event_id is not None:
            same = [one for one in self.unsettled if one.time == rejection.event_time]
            equal = [one for one in same if _values(one.event) == rejection.event]
            # Of equal ones the last: an event is late, or isn't one at all, when it arrives.
            found = (equal or same)[-1]
            self.unsettled = [one for one in self.unsettled if one is not found]
            event = found.event
        self.rejected.append(
            ExplainedRejection(
                rejection.kind, rejection.reason, rejection.event_time, event, watermark
            )
        )

    def _closed_session(
        self, session: OpenSession[Any], events: Sequence[_Arrived]
    ) -> ExplainedSession:
        return ExplainedSession(
            id=session.id,
            start=session.start,
            end=session.end,
            events=tuple((one.time, one.event) for one in events if one.time is not None),
            closes=session.closes,
            closed_by=session.closed_by,
            why=rule_text(self.driver.spec, session.closed_by),
            is_open=False,
        )

    def _open_session(
        self, session: OpenSession[Any], events: Sequence[_Arrived]
    ) -> ExplainedSession:
        spec, watermark = self.driver.spec, self.driver.watermark
        at = event_that_closes(spec, session.closes)
        moved_to = at - timedelta(milliseconds=spec.delay_ms or 0)
        return attrs.evolve(
            self._closed_session(session, events),
            is_open=True,
            to_go=None if watermark is None else moved_to - watermark,
            closing_event_time=at,
        )


def _parted(
    sessions: Sequence[OpenSession[Any]], events: Sequence[_Arrived]
) -> list[tuple[OpenSession[Any], list[_Arrived]]]:
    """Return open sessions of a key with their events: those from its start to the next start."""
    starts = [session.start for session in sessions]
    parts: list[list[_Arrived]] = [[] for _ in sessions]
    timed = [(one.time, one) for one in events if one.time is not None]
    for time, one in sorted(timed, key=itemgetter(0)):
        place = bisect_right(starts, time) - 1
        if place >= 0:
            parts[place].append(one)
    return list(zip(sessions, parts, strict=True))


def _values(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in codec_of(type(event)).type.fields}
