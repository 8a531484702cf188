"""A timeline as an SVG image, which a notebook shows: events, sessions, and the watermark."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from sessionkit._instants import instant_of
from sessionkit.testing.literals import clock_text, literal
from sessionkit.testing.pictures.timeline import Axis, Event, Span, Timeline

WIDTH: Final = 760
MARGIN: Final = 40
INSIDE: Final = WIDTH - 2 * MARGIN
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

# Light by default, so that a viewer without style sheets can show it.
LIGHT: Final = {
    "card": {"fill": "#ffffff", "stroke": "#c9ced6"},
    "text": {"fill": "#1f2328"},
    "grid": {"stroke": "#dfe3e8"},
    "event": {"fill": "#1f2328"},
    "rejected": {"stroke": "#c62828"},
    "closed": {"fill": "#3566a8", "stroke": "#3566a8"},
    "open": {"fill": "#dbe7f6", "stroke": "#3566a8"},
    "watermark": {"stroke": "#0b7a5b", "fill": "#0b7a5b"},
}
DARK: Final = {
    "card": {"fill": "#1b1f24", "stroke": "#454c55"},
    "text": {"fill": "#e6e9ed"},
    "grid": {"stroke": "#353b43"},
    "event": {"fill": "#e6e9ed"},
    "rejected": {"stroke": "#ff8a80"},
    "closed": {"fill": "#7fb0f0", "stroke": "#7fb0f0"},
    "open": {"fill": "#26384f", "stroke": "#7fb0f0"},
    "watermark": {"stroke": "#4fd1a5", "fill": "#4fd1a5"},
}
PREFIX: Final = "sessionkit-"
"""Of the class names: those of all images of a page share one name space."""


def svg_timeline(picture: Timeline, axis: Axis, keys: Iterable[Any], title: str, words: str) -> str:
    """Return a timeline as SVG; what lies outside is at its edge, and `words` say the same."""
    names = {key: literal(key) for key in keys}
    bars = [bar for bar in picture.bars if isinstance(bar, Span)]
    bottom = TOP + (LINE + EVENT_ROW) * len(names) + SESSION_ROW * len(bars)
    image = _frame(bottom + 2 * LINE, title, words)
    _draw_scale(image, axis, bottom)
    _draw_watermarks(image, axis, picture.clocks.get("watermark", ()), bottom)
    _write(image, MARGIN, LINE, _cut(title))
    top = TOP
    for key, name in names.items():
        _write(image, MARGIN, top + LINE - 6, _cut(name))
        top += LINE
        for event in picture.events:
            if event.key == key:
                _draw_event(image, _x(axis, event.at), top + EVENT_ROW / 2, event)
        top += EVENT_ROW
        for bar in bars:
            if bar.key == key:
                _draw_session(image, axis, bar, top)
                top += SESSION_ROW
    return tostring(image, encoding="unicode")


def _frame(height: int, title: str, words: str) -> Element:
    """Return an image with a background, and its contents in words."""
    image = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "width": str(WIDTH),
            "height": str(height),
            "viewBox": f"0 0 {WIDTH} {height}",
            "font-family": "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
            "font-size": str(FONT_SIZE),
        },
    )
    SubElement(image, "title").text = _legible(title)
    SubElement(image, "desc").text = _legible(words)
    SubElement(image, "style").text = _dark_style()
    _draw(image, "rect", "card", x=0.5, y=0.5, width=WIDTH - 1, height=height - 1, rx=8)
    return image


def _draw_scale(image: Element, axis: Axis, bottom: int) -> None:
    day = f"{instant_of(axis.first_us):%Y-%m-%d} UTC"
    _write(image, WIDTH - MARGIN, LINE, day, anchor="end")
    for instant, label in axis.ticks(int(INSIDE / LETTER)):
        x = _x(axis, instant)
        _draw(image, "line", "grid", x1=x, x2=x, y1=TOP - 4, y2=bottom)
        _write(image, x, TOP - 8, label, anchor="middle")


def _draw_event(image: Element, x: float, y: float, event: Event) -> None:
    if event.fate == "rejected":
        arm, size = RADIUS, 2 * RADIUS
        cross = f"M{x - arm:g},{y - arm:g} l{size},{size} m{-size},0 l{size},{-size}"
        mark = _draw(image, "path", "rejected", d=cross, fill="none", stroke_width=2)
    else:
        mark = _draw(image, "circle", "event", cx=x, cy=y, r=RADIUS)
    rejected = "rejected " if event.fate == "rejected" else ""
    SubElement(mark, "title").text = f"{rejected}event at {clock_text(event.at)}"


def _draw_session(image: Element, axis: Axis, session: Span, y: int) -> None:
    left, right = _x(axis, session.start), _x(axis, session.end)
    width = max(right - left, LEAST_BAR)
    name = "open" if session.is_open else "closed"
    dashes = "5 3" if session.is_open else "none"
    at = {"x": left, "y": y, "width": width, "height": BAR}
    _draw(image, "rect", name, **at, rx=2, stroke_dasharray=dashes)
    if left + LETTER * len(session.caption) <= WIDTH - MARGIN:
        _write(image, left, y + BAR + 15, session.caption)
    else:
        _write(image, left + width, y + BAR + 15, session.caption, anchor="end")


def _draw_watermarks(
    image: Element, axis: Axis, watermarks: Sequence[datetime], bottom: int
) -> None:
    for instant in watermarks:
        x = _x(axis, instant)
        _draw(image, "line", "watermark", x1=x, x2=x, y1=bottom - 5, y2=bottom + 5)
    if watermarks:
        # Only the last one crosses the lanes: the others would hide them.
        x, text = _x(axis, watermarks[-1]), f"watermark {clock_text(watermarks[-1])}"
        line = {"x1": x, "x2": x, "y1": TOP, "y2": bottom + 5}
        _draw(image, "line", "watermark", **line, stroke_dasharray="2 3")
        half = LETTER * len(text) / 2
        middle = max(MARGIN + half, min(x, WIDTH - MARGIN - half))
        _write(image, middle, bottom + LINE, text, anchor="middle")


def _x(axis: Axis, instant: datetime) -> float:
    place = axis.place(instant)
    if not 0 <= place <= 1:
        return MARGIN - OUTSIDE if place < 0 else WIDTH - MARGIN + OUTSIDE
    return MARGIN + place * INSIDE


def _draw(image: Element, tag: str, name: str, **attributes: float | str) -> Element:
    """Draw a shape in the colours of a name."""
    written = {
        attribute.replace("_", "-"): value if isinstance(value, str) else f"{value:.6g}"
        for attribute, value in attributes.items()
    }
    return SubElement(image, tag, {"class": PREFIX + name, **LIGHT[name], **written})


def _write(image: Element, x: float, y: float, text: str, *, anchor: str = "start") -> None:
    _draw(image, "text", "text", x=x, y=y, text_anchor=anchor).text = _legible(text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 3]}..."


def _legible(text: str) -> str:
    """Return a text without letters that XML has no way to write."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )


def _dark_style() -> str:
    """Return a style sheet that replaces the colours on a dark page."""
    rules = [
        f".{PREFIX}{name} {{ {'; '.join(f'{key}: {value}' for key, value in colours.items())} }}"
        for name, colours in DARK.items()
    ]
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
