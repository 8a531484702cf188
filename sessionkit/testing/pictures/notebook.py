"""A timeline as a notebook shows it: a picture, and the same in words."""

import html
from typing import Final

import attrs

from sessionkit.testing.pictures.literals import clock_text, literal
from sessionkit.testing.pictures.timeline import Timeline

MOST_LANES: Final = 20
"""How many keys a notebook shows."""
MOST_BARS: Final = 40
"""How many sessions or timers of these keys it shows: the latest ones."""


def as_html(run: Timeline, title: str, nothing: str) -> str:
    """Draw a timeline, with the words below; a sentence where there is nothing."""
    keys = list(dict.fromkeys(one.key for one in (*run.events, *run.bars)))
    if not keys:
        return f"<p>{html.escape(title)}: {html.escape(nothing)}.</p>"
    lanes = set(keys[:MOST_LANES])
    bars = [bar for bar in run.bars if bar.key in lanes]
    shown = attrs.evolve(
        run,
        events=[event for event in run.events if event.key in lanes],
        bars=bars[-MOST_BARS:],
    )
    left_out = {
        "more keys": len(keys) - len(lanes),
        "earlier sessions or timers of these keys": len(bars) - len(shown.bars),
    }
    words = [
        *(f"{name} at {clock_text(stood[-1])} (UTC)" for name, stood in shown.clocks.items()),
        *(f"{literal(bar.key)}: {bar.caption}" for bar in shown.bars),
        *(f"and {count} {what}" for what, count in left_out.items() if count),
    ]
    text = "\n".join(words)
    image = shown.as_svg(keys[:MOST_LANES], title, text) or ""
    return f"<div>{image}<pre>{html.escape(text)}</pre></div>"
