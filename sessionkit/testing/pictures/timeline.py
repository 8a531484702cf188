"""A picture of one run, to scale, as text and as SVG: events, sessions or timers, clocks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

import attrs

from sessionkit._instants import instant_of, micros_of
from sessionkit._printable import printable
from sessionkit.testing.pictures.literals import clock_text, literal
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
BETWEEN_LABELS: Final = 3
WIDTH: Final = 60
NARROWEST_NAME: Final = len("2026-01-01")
MANY: Final = 10
SIGNS: Final = {"read": "o", "waiting": ".", "rejected": "x"}
EDGES: Final = {0: "<", WIDTH + 1: ">"}
LEGEND: Final = "o event (2..9, + several)  . waiting  x rejected  {bars}  ^ clock  < > outside"


@attrs.frozen
class Axis:
    """The scale of a picture: the instants at which it begins and ends, in microseconds."""

    first_us: int
    last_us: int

    def place(self, instant: datetime) -> float:
        """Return where an instant lies: 0 at the beginning, 1 at the end, or outside of these."""
        return (micros_of(instant) - self.first_us) / (self.last_us - self.first_us)

    def ticks(self, width: int) -> list[tuple[datetime, str]]:
        """Return round instants and their labels, as many as have room in a width, in letters."""
        span = self.last_us - self.first_us
        room = {step: len(_label(instant_of(step), step)) + BETWEEN_LABELS for step in STEPS_US}
        step = next(step for step in STEPS_US if span * room[step] <= step * width)
        first = -(-self.first_us // step) * step
        instants = map(instant_of, range(first, self.last_us + 1, step))
        return [(instant, _label(instant, step)) for instant in instants]


def _label(instant: datetime, step_us: int) -> str:
    """Return the day of a tick, or its time of day where there are several ticks a day."""
    if step_us >= DAY_US:
        return f"{instant:%Y-%m-%d}"
    return clock_text(instant).rpartition(" ")[2]


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

    @property
    def caption(self) -> str:
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

    @property
    def caption(self) -> str:
        return f"{self.name} {'set for' if self.is_set else 'went off'} {clock_text(self.at)}"


BARS: Final = {Span: "[==) closed  [--) open", Mark: "T timer set  ! went off"}


class Lane(NamedTuple):
    """What to draw of one key."""

    name: str
    events: list[Event]
    bars: list[Span | Mark]


@attrs.frozen
class Timeline:
    """
    What to draw, a lane for each key: events, sessions or timers, and where the clocks stood.

    The axis spans the sessions or timers, and the events that were not rejected. A rejected event
    may be years away, and a watermark is often moved far on to close everything: both are shown at
    the edge, and so are events that the picture isn't about (`others`).
    """

    events: Sequence[Event]
    bars: Sequence[Span | Mark]
    clocks: Mapping[str, Sequence[datetime]]
    others: Sequence[Event] = ()

    @property
    def axis(self) -> Axis | None:
        """Its scale; None where there is nothing to draw."""
        shown = [event.at for event in self.events if event.fate != "rejected"]
        for bar in self.bars:
            shown += [bar.at] if isinstance(bar, Mark) else [bar.start, bar.end]
        stood = [instant for instants in self.clocks.values() for instant in instants]
        shown = shown or [*(event.at for event in self.events), *stood]
        if not shown:
            return None
        first, last = micros_of(min(shown)), micros_of(max(shown))
        return Axis(first, last if first < last else first + MINUTE_US)

    def lanes(self, keys: Iterable[Any]) -> list[Lane]:
        """Return the lanes of some keys, in the order in which they are first named."""
        return [
            Lane(
                literal(key),
                [event for event in (*self.events, *self.others) if event.key == key],
                [bar for bar in self.bars if bar.key == key],
            )
            for key in dict.fromkeys(keys)
        ]

    def as_text(self) -> list[str]:
        axis = self.axis
        if axis is None:
            return []
        lanes = self.lanes(one.key for one in (*self.events, *self.others, *self.bars))
        width = max([NARROWEST_NAME, *(len(lane.name) for lane in lanes)])
        labels, rule = _scale(axis)
        rows = [(f"{instant_of(axis.first_us):%Y-%m-%d}", labels), ("", rule)]
        for lane in sorted(lanes, key=attrgetter("name")):
            rows.append((lane.name, _events(axis, lane.events)))
            rows += [("", _bar(axis, bar)) for bar in lane.bars]
        for name, instants in self.clocks.items():
            line = _line({_column(axis, instant): "^" for instant in instants})
            rows.append((name, f"{line} {clock_text(instants[-1])}"))
        legend = "  ".join(dict.fromkeys(BARS[type(bar)] for bar in self.bars)) or BARS[Span]
        lines = [f"{name:{width}} {line}".rstrip() for name, line in rows]
        return [*lines, LEGEND.format(bars=legend)]

    def as_svg(self, keys: Iterable[Any], title: str, words: str) -> str | None:
        """Return the picture as SVG; `words` say the same for those who can't see it."""
        axis = self.axis
        if axis is None:
            return None
        lanes = self.lanes(keys)
        bottom = TOP + sum(LINE + EVENT_ROW + SESSION_ROW * len(lane.bars) for lane in lanes)
        rows = max(1, len(self.clocks))
        image = _Image.of(axis, bottom + (1 + rows) * LINE, title, words)
        image.draw_scale(bottom)
        for row, (name, instants) in enumerate(self.clocks.items()):
            image.draw_clock(name, instants, bottom, row * LINE)
        image.write(MARGIN, LINE, _cut(title))
        top = TOP
        for lane in lanes:
            image.write(MARGIN, top + LINE - 6, _cut(lane.name))
            top += LINE
            for event in lane.events:
                image.draw_event(event, top + EVENT_ROW / 2)
            top += EVENT_ROW
            for bar in lane.bars:
                image.draw_bar(bar, top)
                top += SESSION_ROW
        return tostring(image.root, encoding="unicode")


# -- as text -------------------------------------------------------------------------------------


def _column(axis: Axis, instant: datetime) -> int:
    """Return the column of an instant: 0 before the first, WIDTH + 1 after the last."""
    place = axis.place(instant)
    if not 0 <= place <= 1:
        return 0 if place < 0 else WIDTH + 1
    return 1 + round(place * (WIDTH - 1))


def _scale(axis: Axis) -> tuple[str, str]:
    labels, rule = [" "] * (WIDTH + 2), [" ", *["-"] * WIDTH]
    free = 0
    for tick, text in axis.ticks(WIDTH):
        column = _column(axis, tick)
        rule[column] = "|"
        if column >= free:
            labels[column:] = [*text, *labels[column + len(text) :]]
            free = column + len(text) + 1
    return "".join(labels), "".join(rule)


def _events(axis: Axis, events: Sequence[Event]) -> str:
    signs = dict[int, str]()
    for fate, sign in SIGNS.items():
        counts = Counter(_column(axis, event.at) for event in events if event.fate == fate)
        for column, count in counts.items():
            many = str(count) if count < MANY else "+"
            signs[column] = many if fate == "read" and count > 1 else sign
    return _line(signs)


def _bar(axis: Axis, bar: Span | Mark) -> str:
    if isinstance(bar, Mark):
        first, shape = _column(axis, bar.at), "T" if bar.is_set else "!"
    else:
        first, last = _column(axis, bar.start), _column(axis, bar.end)
        shape = f"[{('-' if bar.is_open else '=') * (last - first - 1)})"
    return f"{' ' * first + shape:{WIDTH + 2}} {bar.caption}"


def _line(signs: Mapping[int, str]) -> str:
    """Return signs in their columns; what lies outside is shown by its direction."""
    shown = {column: EDGES.get(column, sign) for column, sign in signs.items()}
    return "".join(shown.get(column, " ") for column in range(WIDTH + 2))


# -- as SVG --------------------------------------------------------------------------------------

IMAGE_WIDTH: Final = 760
MARGIN: Final = 40
INSIDE: Final = IMAGE_WIDTH - 2 * MARGIN
OUTSIDE: Final = 14
"""How far from the axis lies what is outside of it."""

FONT_SIZE: Final = 12
LETTER: Final = 7.3
"""How wide a letter of this size is, in a font where all have one width."""

LINE: Final = 20
TOP: Final = 3 * LINE
EVENT_ROW: Final = 24
SESSION_ROW: Final = 36
BAR: Final = 10
LEAST_BAR: Final = 3
RADIUS: Final = 4.5
LONGEST_NAME: Final = int(INSIDE / LETTER) - 1

# Of each thing that is drawn: its colours on a light page and on a dark one.
COLOURS: Final = {
    "card": {"fill": ("#ffffff", "#1b1f24"), "stroke": ("#c9ced6", "#454c55")},
    "text": {"fill": ("#1f2328", "#e6e9ed")},
    "grid": {"stroke": ("#dfe3e8", "#353b43")},
    "event": {"fill": ("#1f2328", "#e6e9ed")},
    "rejected": {"stroke": ("#c62828", "#ff8a80")},
    "closed": {"fill": ("#3566a8", "#7fb0f0"), "stroke": ("#3566a8", "#7fb0f0")},
    "open": {"fill": ("#dbe7f6", "#26384f"), "stroke": ("#3566a8", "#7fb0f0")},
    "watermark": {"stroke": ("#0b7a5b", "#4fd1a5"), "fill": ("#0b7a5b", "#4fd1a5")},
}
PREFIX: Final = "sessionkit-"
"""Of the class names: those of all images of a page share one name space."""


@attrs.frozen
class _Image:
    root: Element
    axis: Axis

    @classmethod
    def of(cls, axis: Axis, height: int, title: str, words: str) -> "_Image":
        """Return an image with a background, and its contents in words."""
        root = Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "role": "img",
                "width": str(IMAGE_WIDTH),
                "height": str(height),
                "viewBox": f"0 0 {IMAGE_WIDTH} {height}",
                "font-family": "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
                "font-size": str(FONT_SIZE),
            },
        )
        for tag, text in {"title": title, "desc": words, "style": _dark_style()}.items():
            # XML has no way to write some letters that aren't printable.
            SubElement(root, tag).text = printable(text, keep="\n")
        image = cls(root, axis)
        image.draw("rect", "card", x=0.5, y=0.5, width=IMAGE_WIDTH - 1, height=height - 1, rx=8)
        return image

    def draw_scale(self, bottom: int) -> None:
        day = f"{instant_of(self.axis.first_us):%Y-%m-%d} UTC"
        self.write(IMAGE_WIDTH - MARGIN, LINE, day, anchor="end")
        for instant, label in self.axis.ticks(int(INSIDE / LETTER)):
            x = self.x(instant)
            self.draw("line", "grid", x1=x, x2=x, y1=TOP - 4, y2=bottom)
            self.write(x, TOP - 8, label, anchor="middle")

    def draw_event(self, event: Event, y: float) -> None:
        x = self.x(event.at)
        if event.fate == "rejected":
            arm, size = RADIUS, 2 * RADIUS
            cross = f"M{x - arm:g},{y - arm:g} l{size},{size} m{-size},0 l{size},{-size}"
            mark = self.draw("path", "rejected", d=cross, fill="none", stroke_width=2)
        else:
            name = "open" if event.fate == "waiting" else "event"
            mark = self.draw("circle", name, cx=x, cy=y, r=RADIUS)
        fate = "" if event.fate == "read" else f"{event.fate} "
        SubElement(mark, "title").text = f"{fate}event at {clock_text(event.at)}"

    def draw_bar(self, bar: Span | Mark, y: int) -> None:
        """Draw a session; a timer is a narrow one."""
        first, last = (bar.at, bar.at) if isinstance(bar, Mark) else (bar.start, bar.end)
        is_open = bar.is_set if isinstance(bar, Mark) else bar.is_open
        left = self.x(first)
        width = max(self.x(last) - left, LEAST_BAR)
        name, dashes = ("open", "5 3") if is_open else ("closed", "none")
        at = {"x": left, "y": y, "width": width, "height": BAR}
        self.draw("rect", name, **at, rx=2, stroke_dasharray=dashes)
        caption = _cut(bar.caption)
        if left + LETTER * len(caption) <= IMAGE_WIDTH - MARGIN:
            self.write(left, y + BAR + 15, caption)
        else:
            self.write(left + width, y + BAR + 15, caption, anchor="end")

    def draw_clock(self, name: str, stood: Sequence[datetime], bottom: int, below: int) -> None:
        for instant in stood:
            x = self.x(instant)
            self.draw("line", "watermark", x1=x, x2=x, y1=bottom - 5, y2=bottom + 5)
        # Only the last one crosses the lanes: the others would hide them.
        x, text = self.x(stood[-1]), f"{name} {clock_text(stood[-1])}"
        line = {"x1": x, "x2": x, "y1": TOP, "y2": bottom + 5}
        self.draw("line", "watermark", **line, stroke_dasharray="2 3")
        half = LETTER * len(text) / 2
        middle = max(MARGIN + half, min(x, IMAGE_WIDTH - MARGIN - half))
        self.write(middle, bottom + LINE + below, text, anchor="middle")

    def draw(self, tag: str, name: str, **attributes: float | str) -> Element:
        """Draw a shape in the colours of a name."""
        colours = {part: light for part, (light, _) in COLOURS[name].items()}
        written = {
            attribute.replace("_", "-"): value if isinstance(value, str) else f"{value:.6g}"
            for attribute, value in attributes.items()
        }
        return SubElement(self.root, tag, {"class": PREFIX + name, **colours, **written})

    def write(self, x: float, y: float, text: str, *, anchor: str = "start") -> None:
        self.draw("text", "text", x=x, y=y, text_anchor=anchor).text = printable(text, keep="\n")

    def x(self, instant: datetime) -> float:
        """Return where an instant lies; one outside of the axis lies at its edge."""
        place = self.axis.place(instant)
        if not 0 <= place <= 1:
            return MARGIN - OUTSIDE if place < 0 else IMAGE_WIDTH - MARGIN + OUTSIDE
        return MARGIN + place * INSIDE


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 3]}..."


def _dark_style() -> str:
    """Return a style sheet that replaces the colours on a dark page."""
    rules = [
        f".{PREFIX}{name} {{ {'; '.join(f'{part}: {dark}' for part, (_, dark) in parts.items())} }}"
        for name, parts in COLOURS.items()
    ]
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
