"""The two clocks of a driver, event time and processing time; neither goes back."""

from datetime import datetime, timedelta
from typing import Final

import attrs

from sessionkit._instants import instant_of, micros_of, span_us
from sessionkit._spec import AnySpec
from sessionkit.errors import ScriptError, with_hint
from sessionkit.timeouts import watermark_in_force

__all__ = ["Clocks", "aware"]


MILLISECOND_US: Final = 1_000


@attrs.frozen
class Clocks:
    """
    The clocks at a batch border.

    Attributes:
        hard_ms: Spark's watermark of the next batch, in milliseconds; 0 while there is none.
        before_ms: Spark's watermark of the last batch, by which it drops late rows.
        processing: The processing time; None where the test has none.
    """

    hard_ms: int = 0
    before_ms: int = 0
    processing: datetime | None = None

    @property
    def processing_ms(self) -> int:
        """The processing time in milliseconds; 0, the epoch, where the test has none."""
        if self.processing is None:
            return 0
        return micros_of(self.processing) // MILLISECOND_US

    def watermark(self, spec: AnySpec) -> datetime | None:
        """Return the watermark in force, in UTC; None while there is none."""
        if not self.hard_ms:
            return None
        return instant_of(watermark_in_force(self.hard_ms, spec.retention_ms))

    def with_watermark(self, spec: AnySpec, instant: datetime) -> "Clocks":
        """
        Move the watermark of the next batch.

        Raises:
            ScriptError: It would go back, isn't a whole millisecond, or is so close to 1970 that
                Spark's own watermark wouldn't be past the epoch.
        """
        if spec.delay_ms is None:
            found = "the spec has no watermark"
            raise ScriptError(with_hint(found, "add watermark_delay=... to the spec"))
        aware(instant, "the watermark")
        wanted_ms, rest = divmod(micros_of(instant), MILLISECOND_US)
        hard_ms = wanted_ms - spec.retention_ms
        if rest or hard_ms <= 0:
            found = f"the watermark cannot be {instant.isoformat()}"
            raise ScriptError(with_hint(found, "pass whole milliseconds, well after 1970"))
        if hard_ms < self.hard_ms:
            now = self.watermark(spec)
            found = f"the watermark cannot go back from {now} to {instant.isoformat()}"
            raise ScriptError(with_hint(found, "pass a later instant"))
        return attrs.evolve(self, hard_ms=hard_ms)

    def after_events(self, spec: AnySpec, latest_us: int) -> "Clocks":
        """Return the clocks after a batch whose latest valid event time was this; 0 for none."""
        if spec.delay_ms is None:
            return self
        seen_ms = latest_us // MILLISECOND_US - spec.delay_ms - spec.retention_ms
        return attrs.evolve(self, before_ms=self.hard_ms, hard_ms=max(self.hard_ms, seen_ms))

    def after(self, span: timedelta) -> "Clocks":
        """
        Move the processing time of the next batch.

        Raises:
            ScriptError: It would go back, or there is none.
        """
        if self.processing is None:
            found = "the driver has no processing time"
            raise ScriptError(with_hint(found, "pass processing_time=... when you build it"))
        if span < timedelta(0):
            found = f"the processing time cannot go back, by {span}"
            raise ScriptError(with_hint(found, "pass a positive timedelta"))
        return attrs.evolve(self, processing=self.processing + span)

    def is_future(self, spec: AnySpec, event_us: int) -> bool:
        """Return whether an event time is too far ahead of the processing time."""
        if self.processing is None or spec.max_future_skew is None:
            return False
        return event_us > micros_of(self.processing) + span_us(spec.max_future_skew)

    def is_dropped(self, spec: AnySpec, event_us: int) -> bool:
        """Return whether Spark drops an event: not after its watermark of the batch before."""
        is_filtered = spec.clock == "event_time"
        return is_filtered and 0 < event_us <= self.before_ms * MILLISECOND_US


def aware(instant: object, name: str) -> datetime | None:
    """
    Return a time that has a zone, or None.

    Raises:
        ScriptError: It is something else.
    """
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        found = f"`{name}` must be a datetime with a time zone, found {instant!r}"
        raise ScriptError(with_hint(found, "write datetime(..., tzinfo=UTC)"))
    return instant
