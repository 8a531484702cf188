"""Draw a timeline as SVG, for notebooks: readable on a light and on a dark page."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Final

from sessionkit._instants import instant_of
from sessionkit.testing.literals import clock_text
from sessionkit.testing.timeline import Axis, Bar, Fate, Lane, Layout, Timeline

COLORS: Final = {"session": "#3d85c6", "rejected": "#d9434e", "clock": "#b8720a"}
"""Colors with enough contrast to a white page and to a dark one; the rest has the page's color."""
WIDTH: Final = 760
ROW: Final = 20
LETTER: Final = 7
"""The width of a letter, roughly: SVG doesn't measure text."""
MOST_LETTERS: Final = 24
PLOT_END: Final = WIDTH - 24
RADIUS: Final = 4


def svg_of(timeline: Timeline) -> str:
    """Return the picture of a timeline as SVG; empty without anything to draw."""
    layout = timeline.layout()
    return "" if layout is None else _Picture(layout).drawn()


class _Picture:
    """A layout with its measures, in pixels."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        names = [*(lane.name for lane in layout.lanes), *layout.clocks, "2026-01-01"]
        self.start = 16 + LETTER * min(max(map(len, names)), MOST_LETTERS)

    def drawn(self) -> str:
        layout, parts, row = self.layout, [*_scale(self)], 2
        for lane in layout.lanes:
            parts += [*self._lane(lane, row)]
            row += 1 + len(lane.bars)
        for name, instants in layout.clocks.items():
            parts += [*self._clock(name, instants, row)]
            row += 1
        parts += [*_legend(ROW * row + ROW // 2, has_timers=layout.has_timers)]
        for line in layout.left_out:
            row += 1
            parts.append(_text(0, ROW * row + ROW // 2, line))
        height = ROW * (row + 1) + 4
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" style="max-width: 100%" role="img" font-size="12" '
            f'font-family="sans-serif" fill="currentColor"><title>Events, sessions or timers, and '
            f"clocks, in UTC</title>{''.join(parts)}</svg>"
        )

    def x(self, instant: datetime) -> float:
        """Return where an instant is, at most a letter outside the scale."""
        place = self.layout.axis.place(instant)
        room = PLOT_END - self.start
        return round(min(max(self.start + place * room, self.start - 8), PLOT_END + 8), 1)

    def _lane(self, lane: Lane, row: int) -> Iterator[str]:
        y = ROW * row + ROW // 2
        yield _text(0, y, cut(lane.name))
        spots = Counter((event.fate, self.x(event.at)) for event in lane.events)
        times = {(event.fate, self.x(event.at)): event.at for event in lane.events}
        for (fate, x), count in spots.items():
            times_text = f" ({count} events)" if count > 1 else ""
            title = f"{fate}, {clock_text(times[fate, x])}{times_text}"
            yield f"<g><title>{escape(title)}</title>{_sign(fate, x, y)}</g>"
            if count > 1:
                yield _text(x + RADIUS + 1, y - RADIUS, str(count), size=9)
        for place, bar in enumerate(lane.bars, start=1):
            yield from self._bar(bar, y + ROW * place)

    def _bar(self, bar: Bar, y: int) -> Iterator[str]:
        start, color = self.x(bar.start), COLORS["session"]
        end = start if bar.end is None else self.x(bar.end)
        if bar.end is None:
            points = f"{start},{y - 5} {start + 5},{y} {start},{y + 5} {start - 5},{y}"
            yield f'<polygon points="{points}" fill="{color}"/>'
        else:
            dashes = ' stroke-dasharray="4 3"' if bar.sign == "-" else ""
            filled = "0" if bar.sign == "-" else "0.35"
            width = round(max(end - start, 1), 1)
            yield (
                f'<rect x="{start}" y="{y - 6}" width="{width}" height="12" rx="3" '
                f'fill="{color}" fill-opacity="{filled}" stroke="{color}"{dashes}/>'
            )
        needed = LETTER * len(bar.caption) + 8
        if end + needed < WIDTH:
            yield _text(end + 8, y, bar.caption)
        elif start - needed > self.start:
            yield _text(start - 8, y, bar.caption, anchor="end")
        else:
            yield _text(start + 6, y, bar.caption)

    def _clock(self, name: str, instants: Sequence[datetime], row: int) -> Iterator[str]:
        y = ROW * row + ROW // 2
        yield _text(0, y, name)
        for x in dict.fromkeys(map(self.x, instants)):
            yield _triangle(x, y)
        last = self.x(instants[-1])
        is_right = last + 8 * LETTER > WIDTH
        label = clock_text(instants[-1])
        x, anchor = (last - 8, "end") if is_right else (last + 8, "start")
        yield _text(x, y, label, anchor=anchor)


def _scale(picture: _Picture) -> Iterator[str]:
    axis: Axis = picture.layout.axis
    yield _text(0, ROW // 2, f"{instant_of(axis.first_us):%Y-%m-%d}")
    y = ROW + 4
    yield f'<path d="M{picture.start} {y}H{PLOT_END}" stroke="currentColor" opacity="0.6"/>'
    free = 0.0
    for instant, label in axis.ticks():
        x = picture.x(instant)
        yield f'<path d="M{x} {y - 3}v6" stroke="currentColor" opacity="0.6"/>'
        if x >= free:
            free = x + LETTER * (len(label) + 1)
            yield _text(x, ROW // 2, label, anchor="start" if free < WIDTH else "end")


def _legend(y: int, *, has_timers: bool) -> Iterator[str]:
    signs: Mapping[str, str] = {
        "event": _sign("read", 6, y),
        "waiting": _sign("waiting", 6, y),
        "rejected": _sign("rejected", 6, y),
        "clock": _triangle(6, y),
    }
    x = 0
    for meaning, sign in signs.items():
        yield f'<g transform="translate({x} 0)">{sign}{_text(16, y, meaning)}</g>'
        x += 40 + LETTER * len(meaning)
    meaning = "diamond: timer set" if has_timers else "filled: closed, dashed: open"
    yield _text(x, y, meaning)


def _sign(fate: Fate, x: float, y: float) -> str:
    if fate == "rejected":
        arms = f"M{x - RADIUS} {y - RADIUS}l8 8m0 -8l-8 8"
        return f'<path d="{arms}" stroke="{COLORS["rejected"]}" stroke-width="2"/>'
    filled = "none" if fate == "waiting" else "currentColor"
    return f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="{filled}" stroke="currentColor"/>'


def _triangle(x: float, y: float) -> str:
    return (
        f'<polygon points="{x - 5},{y + 5} {x + 5},{y + 5} {x},{y - 5}" fill="{COLORS["clock"]}"/>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x}" y="{y}" dominant-baseline="middle" text-anchor="{anchor}" '
        f'font-size="{size}">{escape(text)}</text>'
    )


def cut(name: str) -> str:
    """Return the name of a lane, shortened to its room."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
