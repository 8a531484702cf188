"""The frame and the text of the pictures that `scripts.draw_pictures` writes."""

from collections.abc import Sequence
from html import escape


def picture(width: int, height: int, label: str, style: str, parts: Sequence[str]) -> str:
    """Return a picture of a size in pixels; the label has no character to escape."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
            f"<style>{style}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(said)}</text>'
