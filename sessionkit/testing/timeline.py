"""What a picture of a run shows, to scale: events, sessions or timers, and clocks; as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit._instants import instant_of, micros_of
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import SessionSpec
from sessionkit.testing.drivers.query import (
    Snapshot,
    buffered_in,
    open_sessions_in,
    stored_keys_in,
)
from sessionkit.testing.drivers.results import BatchResult
from sessionkit.testing.literals import clock_text, literal, plain_key
from sessionkit.timeouts._session_rules import ClosedBy

Fate: TypeAlias = Literal["read", "rejected", "waiting", "other"]
"""The outcome of an event; `other` is an event of a key that the picture isn't about."""
Batches: TypeAlias = Sequence[tuple[Snapshot, BatchResult[Any]]]
"""Micro-batches: the snapshot before each, and its result."""

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
BETWEEN_LABELS: Final = 3
WIDTH: Final = 60
NARROWEST_NAME: Final = len("2026-01-01")
MANY: Final = 10
SIGNS: Final[dict[Fate, str]] = {"read": "o", "other": "o", "waiting": ".", "rejected": "x"}
SESSIONS, TIMERS = "[==) closed  [--) open", "T timer set"
EDGES: Final = {0: "<", WIDTH + 1: ">"}
LEGEND: Final = "o event (2..9, + several)  . waiting  x rejected  {bars}  ^ clock  < > outside"
MOST_LANES: Final = 20
"""How many keys a picture shows."""
MOST_BARS: Final = 40
"""How many sessions or timers of these keys it shows: only the latest."""
MOST_BATCHES: Final = 100
"""How many micro-batches a driver remembers for its picture."""


@attrs.frozen
class Axis:
    """The scale of a picture: its first and last instant, in microseconds."""

    first_us: int
    last_us: int

    def place(self, instant: datetime) -> float:
        """Return the place of an instant: 0 for the first one, 1 for the last one."""
        return (micros_of(instant) - self.first_us) / (self.last_us - self.first_us)

    def column(self, instant: datetime) -> int:
        """Return the column of an instant: 0 before the scale, WIDTH + 1 after it."""
        place = self.place(instant)
        if not 0 <= place <= 1:
            return 0 if place < 0 else WIDTH + 1
        return 1 + round(place * (WIDTH - 1))

    def ticks(self) -> list[tuple[datetime, str]]:
        """Return round instants with their labels, as many as fit."""
        span = self.last_us - self.first_us
        room = {step: len(_label(instant_of(step), step)) + BETWEEN_LABELS for step in STEPS_US}
        step = next(step for step in STEPS_US if span * room[step] <= step * WIDTH)
        first = -(-self.first_us // step) * step
        instants = map(instant_of, range(first, self.last_us + 1, step))
        return [(instant, _label(instant, step)) for instant in instants]

    def labels_and_rule(self) -> tuple[str, str]:
        """Return a line with the labels of round instants, and a line of ticks."""
        labels, rule = [" "] * (WIDTH + 2), [" ", *["-"] * WIDTH]
        free = 0
        for instant, text in self.ticks():
            column = self.column(instant)
            rule[column] = "|"
            if column >= free:
                labels[column:] = [*text, *labels[column + len(text) :]]
                free = column + len(text) + 1
        return "".join(labels), "".join(rule)


def _label(instant: datetime, step_us: int) -> str:
    """Return the day of a tick, or its time of day if there are several ticks per day."""
    if step_us >= DAY_US:
        return f"{instant:%Y-%m-%d}"
    return clock_text(instant).rpartition(" ")[2]


@attrs.frozen
class Event:
    """An event to draw."""

    key: Any
    at: datetime
    fate: Fate


@attrs.frozen
class Bar:
    """
    A session to draw, with an exclusive end, or a timer, without an end.

    The legend explains `sign`; `caption` follows the bar.
    """

    key: Any
    start: datetime
    end: datetime | None
    sign: Literal["=", "-", "T"]
    caption: str

    def line(self, axis: Axis) -> str:
        first, drawn = axis.column(self.start), str(self.sign)
        if self.end is not None:
            drawn = f"[{self.sign * (axis.column(self.end) - first - 1)})"
        return f"{' ' * first + drawn:{WIDTH + 2}} {self.caption}"


def session_bar(
    key: Any, start: datetime, end: datetime, *, is_open: bool, rule: ClosedBy | None = None
) -> Bar:
    """Return the bar of a session, with the rule that ends it, if known."""
    word = "open" if is_open else "closed"
    caption = f"{word} {clock_text(start)} to {clock_text(end)}{f', {rule}' if rule else ''}"
    return Bar(key, start, end, "-" if is_open else "=", caption)


@attrs.frozen
class Timeline:
    """
    A picture with a lane for each key: events, sessions or timers, and the clocks.

    The axis spans the sessions or timers, and the read and waiting events. Rejected events may be
    years away, and tests often move the watermark far on to close everything. Such events and
    clocks appear at the edge, as do events of other keys.
    """

    events: Sequence[Event]
    bars: Sequence[Bar]
    clocks: Mapping[str, Sequence[datetime]]

    def layout(self) -> "Layout | None":
        """Return what fits in a picture, lane by lane; None if there is nothing to draw."""
        keys = [*dict.fromkeys(item.key for item in chain[Event | Bar](self.events, self.bars))]
        lanes = {key: literal(key) for key in keys[:MOST_LANES]}
        bars = [bar for bar in self.bars if bar.key in lanes]
        shown = bars[-MOST_BARS:]
        drawn = [event for event in self.events if event.key in lanes]
        axis = self._axis(drawn, shown)
        if axis is None:
            return None
        left_out = {
            "more keys": len(keys) - len(lanes),
            "earlier sessions or timers of these keys": len(bars) - len(shown),
        }
        return Layout(
            axis,
            [
                Lane(
                    name,
                    [event for event in drawn if event.key == key],
                    [bar for bar in shown if bar.key == key],
                )
                for key, name in sorted(lanes.items(), key=lambda lane: lane[1])
            ],
            self.clocks,
            [f"and {count} {what}" for what, count in left_out.items() if count],
        )

    def as_text(self) -> list[str]:
        """Return the picture as lines, with the numbers of omitted items; empty without items."""
        layout = self.layout()
        if layout is None:
            return []
        axis = layout.axis
        labels, rule = axis.labels_and_rule()
        rows = [(f"{instant_of(axis.first_us):%Y-%m-%d}", labels), ("", rule)]
        for lane in layout.lanes:
            rows.append((lane.name, _line(dict(_signs(axis, lane.events)))))
            rows += [("", bar.line(axis)) for bar in lane.bars]
        for name, instants in self.clocks.items():
            line = _line({axis.column(instant): "^" for instant in instants})
            rows.append((name, f"{line} {clock_text(instants[-1])}"))
        width = max([NARROWEST_NAME, *(len(lane.name) for lane in layout.lanes)])
        legend = TIMERS if layout.has_timers else SESSIONS
        return [
            *(f"{name:{width}} {line}".rstrip() for name, line in rows),
            LEGEND.format(bars=legend),
            *layout.left_out,
        ]

    def _axis(self, events: Sequence[Event], bars: Sequence[Bar]) -> Axis | None:
        """Return the scale; None if there is nothing to draw."""
        shown = [event.at for event in events if event.fate in {"read", "waiting"}]
        for bar in bars:
            shown += [bar.start, bar.end or bar.start]
        shown = shown or [*(event.at for event in events), *chain(*self.clocks.values())]
        if not shown:
            return None
        first, last = micros_of(min(shown)), micros_of(max(shown))
        return Axis(first, last if first < last else first + MINUTE_US)


@attrs.frozen
class Lane:
    """A key, with the events and bars to draw."""

    name: str
    events: Sequence[Event]
    bars: Sequence[Bar]


@attrs.frozen
class Layout:
    """What a picture shows, and in words what it leaves out."""

    axis: Axis
    lanes: Sequence[Lane]
    clocks: Mapping[str, Sequence[datetime]]
    left_out: Sequence[str]

    @property
    def has_timers(self) -> bool:
        """Whether its bars are timers, not sessions."""
        return any(bar.end is None for lane in self.lanes for bar in lane.bars)


def _signs(axis: Axis, events: Sequence[Event]) -> Iterator[tuple[int, str]]:
    for fate, sign in SIGNS.items():
        counts = Counter(axis.column(event.at) for event in events if event.fate == fate)
        for column, count in counts.items():
            number = str(count) if count < MANY else "+"
            yield column, number if sign == "o" and count > 1 else sign


def _line(signs: Mapping[int, str]) -> str:
    """Return a line of signs in their columns, with `<` or `>` for signs outside the scale."""
    shown = {column: EDGES.get(column, sign) for column, sign in signs.items()}
    return "".join(shown.get(column, " ") for column in range(WIDTH + 2))


# -- of a driver ---------------------------------------------------------------------------------


def timeline_of(spec: AnySpec, batches: Batches, left: Snapshot) -> Timeline:
    """Return the timeline of a driver's latest micro-batches, and of its stored rows (`left`)."""
    rejected = {
        (plain_key(rejection.key), rejection.event_time)
        for _, result in batches
        for rejection in result.rejections
    }
    buffered = {(plain_key(key), time) for key, time in buffered_in(spec, left)}
    rows = [(False, row) for before, _ in batches for row in before.next_rows]
    rows += [(True, row) for row in left.unread]
    events = []
    for is_unread, row in rows:
        key = plain_key(tuple(row.get(name) for name in spec.keys))
        time = row.get(spec.event_time or "")
        if time:
            waits = is_unread or (key, time) in buffered
            fate: Fate = "rejected" if (key, time) in rejected else "read"
            events.append(Event(key, time, "waiting" if waits else fate))
    readings = [*(before.clocks for before, _ in batches), left.clocks]
    clocks = {"watermark": [reading.watermark for reading in readings]}
    if spec.clock == "processing_time":
        clocks["processing"] = [reading.processing for reading in readings]
    known = {name: [at for at in instants if at] for name, instants in clocks.items()}
    shown = {name: instants for name, instants in known.items() if instants}
    is_of_sessions = isinstance(spec, SessionSpec)
    bars = _sessions(spec, batches, left) if is_of_sessions else _timers(spec, left)
    return Timeline(events, [*bars], shown)


def _sessions(spec: Any, batches: Batches, left: Snapshot) -> Iterator[Bar]:
    closed = [row for _, result in batches for row in result.rows if row.is_final]
    # `dict.fromkeys` drops duplicates: a session may have several rows.
    yield from dict.fromkeys(
        session_bar(plain_key(row.key), row.session_start, row.session_end, is_open=False)
        for row in closed
    )
    for session in open_sessions_in(spec, left):
        yield session_bar(
            plain_key(session.key), session.session_start, session.session_end, is_open=True
        )


def _timers(spec: Any, left: Snapshot) -> Iterator[Bar]:
    for stored in stored_keys_in(spec, left):
        for name, timer in stored.timers.items():
            caption = f"{name} set for {clock_text(timer.at)}"
            yield Bar(plain_key(stored.key), timer.at, None, "T", caption)
