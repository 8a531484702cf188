"""A timeline as a notebook and a terminal show it: a picture of what has room, and words."""

import html
from typing import Any, Final

import attrs

from sessionkit.testing.pictures.literals import clock_text, literal
from sessionkit.testing.pictures.timeline import Timeline

MOST_LANES: Final = 20
"""How many keys a picture shows."""
MOST_BARS: Final = 40
"""How many sessions or timers of these keys it shows: the latest ones."""


def as_html(run: Timeline, title: str, nothing: str) -> str:
    """Draw a timeline, with the words below; a sentence where there is nothing."""
    keys = _keys(run)
    if not keys:
        return f"<p>{html.escape(title)}: {html.escape(nothing)}.</p>"
    shown, left_out = _with_room(run)
    words = [
        *(f"{name} at {clock_text(stood[-1])} (UTC)" for name, stood in shown.clocks.items()),
        *(f"{literal(bar.key)}: {bar.caption}" for bar in shown.bars),
        *left_out,
    ]
    text = "\n".join(words)
    image = shown.as_svg(keys[:MOST_LANES], title, text) or ""
    return f"<div>{image}<pre>{html.escape(text)}</pre></div>"


def as_lines(run: Timeline) -> list[str]:
    """Draw a timeline in plain text; no line where there is nothing."""
    shown, left_out = _with_room(run)
    return [*shown.as_text(), *left_out]


def _keys(run: Timeline) -> list[Any]:
    return list(dict.fromkeys(one.key for one in (*run.events, *run.bars)))


def _with_room(run: Timeline) -> tuple[Timeline, list[str]]:
    """Return what a picture has room for, and what it leaves out, in words."""
    keys = _keys(run)
    lanes = set(keys[:MOST_LANES])
    bars = [bar for bar in run.bars if bar.key in lanes]
    events = [event for event in run.events if event.key in lanes]
    shown = attrs.evolve(run, events=events, bars=bars[-MOST_BARS:])
    left_out = {
        "more keys": len(keys) - len(lanes),
        "earlier sessions or timers of these keys": len(bars) - len(shown.bars),
    }
    return shown, [f"and {count} {what}" for what, count in left_out.items() if count]
