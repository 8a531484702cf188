"""A picture of one run in plain text, to scale: events, sessions and the watermark."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit._instants import instant_of, micros_of
from sessionkit.testing.scripts.literals import clock_text, literal

__all__ = ["Event", "Span", "timeline"]

Fate: TypeAlias = Literal["read", "rejected", "waiting"]

WIDTH: Final = 60
NARROWEST_NAME: Final = len("2026-01-01")
MANY: Final = 10
SIGNS: Final = {"read": "o", "waiting": ".", "rejected": "x"}
LEGEND: Final = (
    "o event (2..9, + several)  . waiting  x rejected  [==) closed  [--) open  ^ watermark  "
    "< > outside"
)
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US
STEPS_US: Final = (
    *(digit * 10**power for power in range(6) for digit in (1, 2, 5)),
    *(seconds * SECOND_US for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * MINUTE_US for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600 * SECOND_US for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_US for days in (1, 2, 7, 14, 28, 91)),
    *(digit * 10**power * 365 * DAY_US for power in range(4) for digit in (1, 2, 5)),
)
SPACE_BETWEEN_LABELS: Final = 3


@attrs.frozen
class Event:
    """An event to draw: whose it is, when it happened, and what became of it."""

    key: Any
    at: datetime
    fate: Fate


@attrs.frozen
class Span:
    """A session to draw; its end is exclusive."""

    key: Any
    start: datetime
    end: datetime
    is_open: bool


@attrs.frozen
class Axis:
    """The scale of a picture: the instants of its first and last column, in microseconds."""

    first_us: int
    last_us: int

    @classmethod
    def over(cls, instants: Iterable[datetime]) -> "Axis":
        """Make an axis that spans these instants, of which there is one at least."""
        micros = sorted(map(micros_of, instants))
        return cls(micros[0], micros[-1] if micros[0] < micros[-1] else micros[0] + MINUTE_US)

    def column(self, instant: datetime) -> int:
        """Return the column of an instant: 0 before the first, WIDTH + 1 behind the last."""
        us = micros_of(instant)
        if not self.first_us <= us <= self.last_us:
            return 0 if us < self.first_us else WIDTH + 1
        return 1 + round((us - self.first_us) * (WIDTH - 1) / (self.last_us - self.first_us))

    def ticks(self) -> list[tuple[datetime, str]]:
        """Return round instants and their labels, as many as have room."""
        span = self.last_us - self.first_us
        step = next(step for step in STEPS_US if span * _room(step) <= step * WIDTH)
        first = -(-self.first_us // step) * step
        instants = map(instant_of, range(first, self.last_us + 1, step))
        return [(instant, _label(instant, step)) for instant in instants]


def timeline(
    events: Sequence[Event], spans: Sequence[Span], watermarks: Sequence[datetime]
) -> list[str]:
    """
    Draw events, sessions and watermarks, a lane for each key; nothing where there is nothing.

    The axis spans the sessions and the events in them. A rejected event may lie years away, and a
    watermark is often moved far on to close everything: both are shown at the edge.
    """
    shown = [span.start for span in spans] + [span.end for span in spans]
    shown += [event.at for event in events if event.fate != "rejected"]
    shown = shown or [*(event.at for event in events), *watermarks]
    if not shown:
        return []
    axis = Axis.over(shown)
    keys = [*(event.key for event in events), *(span.key for span in spans)]
    names = {key: literal(key) for key in keys}
    width = max(NARROWEST_NAME, *map(len, names.values()), 0)
    lines = _scale(axis, width)
    for key, name in sorted(names.items(), key=lambda pair: pair[1]):
        lines.append(f"{name:{width}} {_events(axis, [e for e in events if e.key == key])}")
        lines += [f"{'':{width}} {_span(axis, span)}" for span in spans if span.key == key]
    if watermarks:
        lines.append(f"{'watermark':{width}} {_watermarks(axis, watermarks)}")
    return [line.rstrip() for line in (*lines, LEGEND)]


def _scale(axis: Axis, width: int) -> list[str]:
    labels, rule = _blank(), ["-"] * WIDTH
    free = 0
    for tick, text in axis.ticks():
        column = axis.column(tick)
        rule[column - 1] = "|"
        if column >= free:
            labels[column:] = [*text, *labels[column + len(text) :]]
            free = column + len(text) + 1
    day = f"{instant_of(axis.first_us):%Y-%m-%d}"
    return [f"{day:{width}} {''.join(labels)}", f"{'':{width}}  {''.join(rule)}"]


def _events(axis: Axis, events: Sequence[Event]) -> str:
    line = _blank()
    for fate, sign in SIGNS.items():
        columns = [axis.column(event.at) for event in events if event.fate == fate]
        for column in set(columns):
            count = columns.count(column)
            many = str(count) if count < MANY else "+"
            line[column] = many if fate == "read" and count > 1 else sign
    return _edged(line)


def _span(axis: Axis, span: Span) -> str:
    first, last = axis.column(span.start), axis.column(span.end)
    inside = ("-" if span.is_open else "=") * (last - first - 1)
    bar = f"{' ' * first}[{inside})"
    word = "open" if span.is_open else "closed"
    return f"{bar:{WIDTH + 2}} {word} {clock_text(span.start)} to {clock_text(span.end)}"


def _watermarks(axis: Axis, watermarks: Sequence[datetime]) -> str:
    line = _blank()
    for watermark in watermarks:
        line[axis.column(watermark)] = "^"
    return f"{_edged(line)} {clock_text(watermarks[-1])}"


def _blank() -> list[str]:
    return [" "] * (WIDTH + 2)


def _edged(line: list[str]) -> str:
    """Show what lies outside by the direction in which it lies."""
    left, *inside, right = line
    return "".join(["<" if left != " " else " ", *inside, ">" if right != " " else " "])


def _label(instant: datetime, step_us: int) -> str:
    """Return the day of a tick, or its time of day where there are several ticks a day."""
    if step_us >= DAY_US:
        return f"{instant:%Y-%m-%d}"
    return clock_text(instant).rpartition(" ")[2]


def _room(step_us: int) -> int:
    return len(_label(instant_of(step_us), step_us)) + SPACE_BETWEEN_LABELS
