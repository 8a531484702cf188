"""A picture of one run in plain text, to scale: events, sessions or timers, and the clocks."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, TypeAlias

import attrs

from sessionkit._instants import instant_of, micros_of
from sessionkit.testing.literals import clock_text, literal
from sessionkit.timeouts import ClosedBy

Fate: TypeAlias = Literal["read", "rejected", "waiting"]

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
WIDTH: Final = 60
NARROWEST_NAME: Final = len("2026-01-01")
MANY: Final = 10
SIGNS: Final = {"read": "o", "waiting": ".", "rejected": "x"}
LEGEND: Final = "o event (2..9, + several)  . waiting  x rejected  {bars}  ^ clock  < > outside"


@attrs.frozen
class Axis:
    """The scale of a picture: the instants at which it begins and ends, in microseconds."""

    first_us: int
    last_us: int

    @classmethod
    def over(cls, instants: Iterable[datetime]) -> "Axis":
        """Make an axis that spans these instants, of which there is one at least."""
        micros = sorted(map(micros_of, instants))
        return cls(micros[0], micros[-1] if micros[0] < micros[-1] else micros[0] + MINUTE_US)

    def place(self, instant: datetime) -> float:
        """Return where an instant lies: 0 at the beginning, 1 at the end, or outside of these."""
        return (micros_of(instant) - self.first_us) / (self.last_us - self.first_us)

    def ticks(self, width: int) -> list[tuple[datetime, str]]:
        """Return round instants and their labels, as many as have room in a width, in letters."""
        span = self.last_us - self.first_us
        step = next(step for step in STEPS_US if span * _room(step) <= step * width)
        first = -(-self.first_us // step) * step
        instants = map(instant_of, range(first, self.last_us + 1, step))
        return [(instant, _label(instant, step)) for instant in instants]


def _label(instant: datetime, step_us: int) -> str:
    """Return the day of a tick, or its time of day where there are several ticks a day."""
    if step_us >= DAY_US:
        return f"{instant:%Y-%m-%d}"
    return clock_text(instant).rpartition(" ")[2]


def _room(step_us: int) -> int:
    return len(_label(instant_of(step_us), step_us)) + SPACE_BETWEEN_LABELS


@attrs.frozen
class Event:
    """An event to draw: whose it is, when it happened, and what became of it."""

    key: Any
    at: datetime
    fate: Fate


@attrs.frozen
class Span:
    """A session to draw; its end is exclusive, and `rule` is what ends it, where that is known."""

    key: Any
    start: datetime
    end: datetime
    is_open: bool
    rule: ClosedBy | None = None
    legend: ClassVar = "[==) closed  [--) open"

    @property
    def instants(self) -> list[datetime]:
        """What the axis must show of it."""
        return [self.start, self.end]

    def drawn(self, axis: Axis) -> str:
        """Return it as a line of the picture."""
        first, last = _column(axis, self.start), _column(axis, self.end)
        inside = ("-" if self.is_open else "=") * (last - first - 1)
        bar = f"{' ' * first}[{inside})"
        return f"{bar:{WIDTH + 2}} {self.caption}"

    @property
    def caption(self) -> str:
        """What it is, in words."""
        word = "open" if self.is_open else "closed"
        rule = f", {self.rule}" if self.rule else ""
        return f"{word} {clock_text(self.start)} to {clock_text(self.end)}{rule}"


@attrs.frozen
class Mark:
    """A timer to draw: whose it is, its name, for when it was set, and whether it still is."""

    key: Any
    name: str
    at: datetime
    is_set: bool
    legend: ClassVar = "T timer set  ! went off"

    @property
    def instants(self) -> list[datetime]:
        """What the axis must show of it."""
        return [self.at]

    def drawn(self, axis: Axis) -> str:
        """Return it as a line of the picture."""
        bar = f"{' ' * _column(axis, self.at)}{'T' if self.is_set else '!'}"
        word = "set for" if self.is_set else "went off"
        return f"{bar:{WIDTH + 2}} {self.name} {word} {clock_text(self.at)}"


@attrs.frozen
class Timeline:
    """
    What to draw, a lane for each key: events, sessions or timers, and where the clocks stood.

    The axis spans the sessions or timers, and the events that were not rejected. A rejected event
    may be years away, and a watermark is often moved far on to close everything: both are shown at
    the edge.
    """

    events: Sequence[Event]
    bars: Sequence[Span | Mark]
    clocks: Mapping[str, Sequence[datetime]]

    @property
    def axis(self) -> Axis | None:
        """Its scale; None where there is nothing to draw."""
        shown = [instant for bar in self.bars for instant in bar.instants]
        shown += [event.at for event in self.events if event.fate != "rejected"]
        stood = [instant for instants in self.clocks.values() for instant in instants]
        shown = shown or [*(event.at for event in self.events), *stood]
        return Axis.over(shown) if shown else None

    def drawn(self, axis: Axis | None = None) -> list[str]:
        """Return the lines of the picture, over an axis of its own unless one is given."""
        axis = axis or self.axis
        if axis is None:
            return []
        names = {thing.key: literal(thing.key) for thing in (*self.events, *self.bars)}
        width = max(NARROWEST_NAME, *map(len, names.values()), 0)
        lines = _scale(axis, width)
        for key, name in sorted(names.items(), key=lambda pair: pair[1]):
            lines.append(
                f"{name:{width}} {_events(axis, [e for e in self.events if e.key == key])}"
            )
            lines += [f"{'':{width}} {bar.drawn(axis)}" for bar in self.bars if bar.key == key]
        clocks = self.clocks.items()
        lines += [f"{name:{width}} {_clock(axis, instants)}" for name, instants in clocks]
        legend = "  ".join(dict.fromkeys(bar.legend for bar in self.bars)) or Span.legend
        return [line.rstrip() for line in (*lines, LEGEND.format(bars=legend))]


def _column(axis: Axis, instant: datetime) -> int:
    """Return the column of an instant: 0 before the first, WIDTH + 1 after the last."""
    place = axis.place(instant)
    if not 0 <= place <= 1:
        return 0 if place < 0 else WIDTH + 1
    return 1 + round(place * (WIDTH - 1))


def _scale(axis: Axis, width: int) -> list[str]:
    labels, rule = _blank(), ["-"] * WIDTH
    free = 0
    for tick, text in axis.ticks(WIDTH):
        column = _column(axis, tick)
        rule[column - 1] = "|"
        if column >= free:
            labels[column:] = [*text, *labels[column + len(text) :]]
            free = column + len(text) + 1
    day = f"{instant_of(axis.first_us):%Y-%m-%d}"
    return [f"{day:{width}} {''.join(labels)}", f"{'':{width}}  {''.join(rule)}"]


def _events(axis: Axis, events: Sequence[Event]) -> str:
    line = _blank()
    for fate, sign in SIGNS.items():
        columns = [_column(axis, event.at) for event in events if event.fate == fate]
        for column in set(columns):
            count = columns.count(column)
            many = str(count) if count < MANY else "+"
            line[column] = many if fate == "read" and count > 1 else sign
    return _edged(line)


def _clock(axis: Axis, instants: Sequence[datetime]) -> str:
    line = _blank()
    for instant in instants:
        line[_column(axis, instant)] = "^"
    return f"{_edged(line)} {clock_text(instants[-1])}"


def _blank() -> list[str]:
    return [" "] * (WIDTH + 2)


def _edged(line: list[str]) -> str:
    """Show what lies outside by the direction in which it lies."""
    left, *inside, right = line
    return "".join(["<" if left != " " else " ", *inside, ">" if right != " " else " "])
