"""Which events come too late, and what the watermark has passed."""

from typing import Final

import attrs

from sessionkit._engine.logic import BatchClocks
from sessionkit._engine.sessions.cuts import Cuts
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import EventTimeGap

LATE_EVENT: Final = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY: Final = (
    "its own window is over: event time + gap, or midnight, is at or before the watermark"
)
LATE_SESSION: Final = "the session it would join is over: its end is at or before the watermark"
LATE_HEARTBEAT: Final = "no open session is there at its time, which is at or before the watermark"


@attrs.frozen
class Horizon:
    """
    What the watermark has passed in a micro-batch. All in microseconds.

    Attributes:
        late_event_us: By when the own window of an event must be over for it to be late; None
            where events aren't judged alone.
        late_session_us: By when the session that an event would join must be over; None where
            events aren't judged by it.
        gone_us: By when a session must be over for it to be forgotten, perhaps.
        lasts_us: How long a session lasts at least.
        salted: What the salt of a session is made of that gets its start where one may have been
            forgotten.
    """

    late_event_us: int | None = None
    late_session_us: int | None = None
    gone_us: int = BEGINNING_US
    lasts_us: int = 0
    salted: tuple[int, ...] = (0, 0, 0)


@attrs.frozen
class LatenessRule:
    """
    How a spec judges whether an event is late. Spans are in microseconds.

    Attributes:
        in_time_order: Whether events wait for the watermark: then none is late here.
        allowed_us: How late an event may be.
        stays_us: How long after its close a session can still become part of another.
        lasts_us: How long after its start a session is over at the earliest.
        by_event: Whether an event whose own window is over is late.
        by_session: Whether one is whose session is over. With both, an event is judged by its
            session if it doesn't keep one open.
        why_event, why_session: Why such events are late.
    """

    in_time_order: bool
    allowed_us: int
    stays_us: int
    lasts_us: int
    by_event: bool
    by_session: bool
    why_event: str
    why_session: str

    @classmethod
    def of(cls, spec: AnySessionSpec, cuts: Cuts) -> "LatenessRule":
        lateness, allowed = spec.lateness, spec.lateness.allowed
        by_event, extends = lateness.judged_by == "event", cuts.rules.extends is not None
        less = ", less `Lateness(allowed=...)`" if allowed else ""
        return cls(
            in_time_order=spec.order == "event_time",
            allowed_us=span_us(allowed) if allowed else 0,
            stays_us=span_us(spec.mergeable) if spec.mergeable else 0,
            lasts_us=_shortest_us(spec),
            by_event=by_event,
            # The windows of events that keep no session open are over as soon as they happen.
            by_session=lateness.judged_by == "session" or extends,
            why_event=(LATE_EVENT if cuts.rules.midnight is None else LATE_DAY) + less,
            why_session=(LATE_HEARTBEAT if by_event else LATE_SESSION) + less,
        )

    def horizon(self, clocks: BatchClocks) -> Horizon:
        watermark_us, since_us = clocks.watermark_us, clocks.since_us
        late_us: int | None = watermark_us - self.allowed_us
        gone_us = watermark_us - self.stays_us
        if watermark_us == BEGINNING_US:
            late_us = gone_us = BEGINNING_US
        if self.in_time_order:
            # Events of an instant are folded in one micro-batch, and later ones are late.
            late_us, gone_us = None, BEGINNING_US
        lasts_us, from_us = self.lasts_us, BEGINNING_US
        if since_us is not None:
            # Sessions from before may have had other rules.
            if not self.in_time_order:
                gone_us = max(gone_us, since_us)
            gone_us, lasts_us, from_us = max(gone_us, clocks.idle_us), 0, since_us
        return Horizon(
            late_event_us=late_us if self.by_event else None,
            late_session_us=late_us if self.by_session else None,
            gone_us=gone_us,
            lasts_us=lasts_us,
            salted=(watermark_us, self.stays_us, from_us),
        )


def _shortest_us(spec: AnySessionSpec) -> int:
    """Return how long after its start a session is over at the earliest, whatever its events."""
    # A restart may change functions, and rules that are code.
    if isinstance(spec.timeout, EventTimeGap) and not callable(spec.timeout.gap):
        return span_us(spec.timeout.longest)
    return 0
