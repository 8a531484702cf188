"""The two clocks of a driver, event time and processing time; neither goes back."""

from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._instants import (
    BEGINNING_US,
    LAST_INSTANT_US,
    instant_of,
    micros_of,
    span_us,
)
from sessionkit.errors import ScriptError, with_hint
from sessionkit.spec.shared import AnySpec

MILLISECOND_US: Final = 1_000


@attrs.frozen
class Clocks:
    """The clocks at a batch border: the watermark of the next batch, 0 while there is none."""

    watermark_ms: int = 0
    before_ms: int = 0
    processing: datetime | None = None
    since_us: int = BEGINNING_US

    @property
    def processing_ms(self) -> int:
        """The processing time in milliseconds; 0, the epoch, where the test has none."""
        if self.processing is None:
            return 0
        return micros_of(self.processing) // MILLISECOND_US

    @property
    def watermark(self) -> datetime | None:
        """The watermark, in UTC; None while there is none."""
        at_us = self.in_force_us
        return instant_of(at_us) if at_us > BEGINNING_US else None

    @property
    def in_force_us(self) -> int:
        """The watermark that is in force, in microseconds."""
        return max(watermark_in_force(self.watermark_ms), self.since_us)

    def with_watermark(self, spec: AnySpec, instant: datetime) -> "Clocks":
        """Move the watermark of the next batch; an earlier one is ignored, as in Spark."""
        if spec.delay_ms is None:
            found = "the spec has no watermark"
            raise ScriptError(with_hint(found, "add watermark_delay=... to the spec"))
        on_clock(instant, "the watermark")
        watermark_ms, rest = divmod(micros_of(instant), MILLISECOND_US)
        if rest or watermark_ms <= 0:
            found = f"the watermark cannot be {instant.isoformat()}"
            raise ScriptError(with_hint(found, "pass whole milliseconds, after 1970-01-01"))
        return attrs.evolve(self, watermark_ms=max(self.watermark_ms, watermark_ms))

    def after_events(self, spec: AnySpec, latest_us: int | None) -> "Clocks":
        """Return the clocks after a batch whose latest event time was this; None for no event."""
        if spec.delay_ms is None:
            return self
        moved_ms = 0 if latest_us is None else latest_us // MILLISECOND_US - spec.delay_ms
        watermark_ms = max(self.watermark_ms, moved_ms, self.since_us // MILLISECOND_US)
        return attrs.evolve(self, before_ms=self.watermark_ms, watermark_ms=watermark_ms)

    def after(self, span: timedelta) -> "Clocks":
        """Move the processing time of the next batch."""
        if self.processing is None:
            found = "the driver has no processing time"
            raise ScriptError(with_hint(found, "pass processing_time=... when you build it"))
        if span < timedelta(0):
            found = f"the processing time cannot go back, by {span}"
            raise ScriptError(with_hint(found, "pass a positive timedelta"))
        if micros_of(self.processing) + span_us(span) > LAST_INSTANT_US:
            found = f"the processing time can't move by {span}: that is after the year 9999"
            raise ScriptError(with_hint(found, "pass a shorter timedelta"))
        return attrs.evolve(self, processing=self.processing.astimezone(UTC) + span)

    def is_future(self, spec: AnySpec, event_us: int) -> bool:
        """Return whether an event time is too far ahead of the processing time."""
        if self.processing is None or spec.inputs.max_future_skew is None:
            return False
        return event_us > micros_of(self.processing) + span_us(spec.inputs.max_future_skew)


def aware(instant: object, name: str) -> datetime | None:
    """Return a time that has a zone, or None."""
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        found = f"`{name}` must be a datetime with a time zone, found {instant!r}"
        raise ScriptError(with_hint(found, "write datetime(..., tzinfo=UTC)"))
    return instant


def on_clock(instant: datetime | None, name: str) -> datetime | None:
    """Return a time that a clock of Spark can show, or None."""
    found = aware(instant, name)
    if found is not None and not 0 <= micros_of(found) <= LAST_INSTANT_US:
        text = f"`{name}` must be from 1970 to 9999 in UTC, found {instant!r}"
        raise ScriptError(with_hint(text, "Spark's clocks start at 1970-01-01"))
    return instant
