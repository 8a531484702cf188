"""The rules that end sessions by their times: midnight, the gap, a duration, and idle sources."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal

import attrs
import numpy as np

from sessionkit._arrays import Array, Mask, Numbers
from sessionkit._instants import duration_text, span_us
from sessionkit.timeouts._rules.days import days_of
from sessionkit.timeouts._rules.rule import Joined, Readings, Rule, RuleInput


@attrs.frozen
class Midnight(Rule):
    name: ClassVar = "midnight"
    code: ClassVar = 2
    zone: str

    @property
    def text(self) -> str:
        return f"midnight in {self.zone}"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"midnight": self.zone}

    def days(self, starts: Numbers) -> Numbers:
        return days_of(self.zone, starts)[0]

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return days_of(self.zone, starts)[1]


@attrs.frozen
class GapPassed(Rule):
    """
    The gap, which every spec has: where it fires, the ends of sessions say.

    Attributes:
        longest: The longest gap that an event can have.
        inclusive: As `gap_inclusive`.
        is_said_by: What says the gap of an event.
        extended_by_all: Whether every event keeps its session open.
    """

    name: ClassVar = "gap"
    code: ClassVar = 3
    longest: timedelta
    inclusive: bool
    is_said_by: Literal["spec", "event", "state"]
    extended_by_all: bool

    @property
    def text(self) -> str:
        event = "no event" if self.extended_by_all else "no event that extends it"
        longest = duration_text(self.longest)
        if self.is_said_by == "state":
            return f"{event} within the gap by its state, of at most {longest}"
        if self.is_said_by == "event":
            return f"{event} within the gaps of its events"
        return f"{event} for {longest}"

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return ends


@attrs.frozen
class MaxDuration(Rule):
    name: ClassVar = "max_duration"
    code: ClassVar = 6
    needs_order: ClassVar = True
    longest: timedelta

    @property
    def text(self) -> str:
        return f"it has lasted {duration_text(self.longest)}"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"max_duration_us": self.longest_us}

    @cached_property
    def longest_us(self) -> int:
        return span_us(self.longest)

    @property
    def inclusive(self) -> bool:
        return True

    def closes(self, starts: Numbers, ends: Numbers) -> Numbers:
        return starts + self.longest_us

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [rows.starts[rows.order]]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        (starts,) = columns
        return sessions.reduced(np.maximum, starts) - sessions.start > self.longest_us

    def begins_next(self, known: Any, readings: Readings) -> bool:
        return bool(readings[0][0] - known > self.longest_us)

    def after(self, known: Any, readings: Readings) -> Any:
        return readings[0][0] if known is None else known


@attrs.frozen
class Idle(Rule):
    """No rule of events: a session that it ends is over because the watermark was moved on."""

    name: ClassVar = "idle"
    code: ClassVar = 7
    span: timedelta

    @property
    def text(self) -> str:
        span = duration_text(self.span)
        return f"nothing has moved the watermark for {span} of processing time"

    def identity(self, event: type[Any]) -> dict[str, Any]:
        return {"closes_idle": True}
