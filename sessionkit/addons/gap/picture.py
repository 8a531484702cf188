"""Draw the pauses on a logarithmic axis, as text and as SVG for a light and a dark page."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from sessionkit.addons.gap.tallies import BINS, FIRST_BIN
from sessionkit.addons.gap.valley import CENTERS, KERNEL, Floats, Mixture, Valley

Place: TypeAlias = Callable[[float], float]

TICKS: Final = {
    **{f"{number} ms": number / 1_000 for number in (1, 10, 100)},
    **{f"{number} s": number for number in (1, 10)},
    **{f"{number} min": number * 60 for number in (1, 5, 30)},
    **{f"{number} h": number * 3_600 for number in (2, 8)},
    **{f"{number} d": number * 86_400 for number in (1, 7, 28, 180)},
    **{f"{number} y": number * 31_557_600 for number in (1, 5, 20)},
}
MARKS: Final = {"Amplitude, mobile": 300, "GA4, PostHog, Snowplow": 1_800}
"""The gaps of known products, in seconds."""
BAR: Final = 40
WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 12, 748, 58, 250
COLORS: Final = {"within": "#3d85c6", "between": "#b8720a", "valley": "#2f8f4e"}
"""Colors with enough contrast to a white page and to a dark one; the rest has the page's color."""


def text_of(pauses: Floats, valley: Valley | None) -> str:
    """Return the number of pauses in each octave as text, with the valley marked."""
    by_octave = pauses.reshape(-1, BINS).sum(axis=1)
    some = np.flatnonzero(by_octave >= 0.5)  # noqa: PLR2004 - rounds to one
    if not len(some):
        return "no pauses"
    lines = [f"{'pauses from':>12}  {'number':>12}"]
    for place in range(some[0], some[-1] + 1):
        octave, count = FIRST_BIN // BINS + place, by_octave[place]
        # An octave is in the valley if its middle is.
        is_in = valley is not None and valley.low <= octave + 0.5 <= valley.high
        bar = "▇" * round(BAR * count / by_octave.max())
        line = f"{_short(2.0**octave):>12}  {round(count):>12,}  {'│' if is_in else ' '} {bar}"
        lines.append(line.rstrip())
    if valley is not None:
        lines.append(f"{'':28}│ the valley")
    return "\n".join(lines)


def svg_of_pauses(
    pauses: Floats, mixture: Mixture | None, valley: Valley | None, suggested: float | None
) -> str:
    """Return the picture as SVG: pauses, the parts of the mixture, the valley and known gaps."""
    some = np.flatnonzero(pauses >= 0.5)  # noqa: PLR2004 - rounds to one
    if not len(some):
        return ""
    smooth = np.convolve(pauses, KERNEL / KERNEL.sum(), "same")
    first, last = max(some[0] - BINS // 2, 0), min(some[-1] + BINS // 2, len(pauses) - 1)
    shown = slice(first, last + 1)
    places, heights = CENTERS[shown], smooth[shown]
    curves = {}
    if mixture is not None:
        density = mixture.density(places) * pauses.sum() / BINS
        curves = {"within": density[:, 0], "between": density[:, 1]}
    highest = max(float(line.max()) for line in (heights, *curves.values()))
    low, high = float(places[0]), float(places[-1])

    def x(octaves: float) -> float:
        return round(LEFT + (octaves - low) / max(high - low, 1e-9) * (RIGHT - LEFT), 1)

    def y(height: float) -> float:
        return round(BOTTOM - height / highest * (BOTTOM - TOP), 1)

    def line(heights: Floats) -> str:
        points = (f"{x(at)} {y(up)}" for at, up in zip(places, heights, strict=True))
        return "L".join(points)

    parts = []
    if valley is not None:
        start, end = (x(min(max(at, low), high)) for at in (valley.low, valley.high))
        size = f'width="{round(end - start, 1)}" height="{BOTTOM - TOP}"'
        color = f'fill="{COLORS["valley"]}" fill-opacity="0.18"'
        parts.append(f'<rect x="{start}" y="{TOP}" {size} {color}/>')
    area = f"M{x(low)} {BOTTOM}L{line(heights)}L{x(high)} {BOTTOM}Z"
    parts.append(f'<path d="{area}" opacity="0.25"/>')
    for name, heights_of in curves.items():
        stroke = f'stroke="{COLORS[name]}" stroke-width="2"'
        parts.append(f'<path d="M{line(heights_of)}" fill="none" {stroke}/>')
    parts += [*_scale(x), *_marks(low, high, x, suggested)]
    parts += _legend(curves, is_valley=valley is not None)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        'style="max-width: 100%" role="img" font-size="12" font-family="sans-serif" '
        'fill="currentColor"><title>How many pauses between a key\'s events have each length, on a '
        f"logarithmic axis</title>{''.join(parts)}</svg>"
    )


def _scale(x: Place) -> Iterator[str]:
    yield f'<path d="M{LEFT} {BOTTOM}H{RIGHT}" stroke="currentColor" opacity="0.6"/>'
    free = 0.0
    for label, seconds in TICKS.items():
        at = x(float(np.log2(seconds)))
        if LEFT <= at <= RIGHT and at >= free:
            free = at + 52
            yield f'<path d="M{at} {BOTTOM}v5" stroke="currentColor" opacity="0.6"/>'
            yield _text(at, BOTTOM + 17, label, anchor="end" if at > RIGHT - 30 else "middle")


def _marks(low: float, high: float, x: Place, suggested: float | None) -> Iterator[str]:
    """Mark the gaps of known products, and the suggested one, each on a line of its own."""
    marks = dict(MARKS) | ({} if suggested is None else {"suggested": suggested})
    for row, (label, seconds) in enumerate(marks.items()):
        octaves = float(np.log2(seconds))
        if not low <= octaves <= high:
            continue
        at, up = x(octaves), 12 + 15 * row
        is_ours = label == "suggested"
        color = COLORS["valley"] if is_ours else "currentColor"
        dashes = "" if is_ours else ' stroke-dasharray="3 3" opacity="0.7"'
        yield f'<path d="M{at} {up + 3}V{BOTTOM}" stroke="{color}"{dashes}/>'
        text = f"{_short(seconds)}: {label}"
        is_right = at + 7 * len(text) > WIDTH
        yield _text(
            at - 4 if is_right else at + 4, up + 4, text, anchor="end" if is_right else "start"
        )


def _legend(curves: object, *, is_valley: bool) -> Iterator[str]:
    at = LEFT
    entries = [("currentColor", "pauses, smoothed", "0.25")]
    if curves:
        entries.append((COLORS["within"], "within a visit", "1"))
        entries.append((COLORS["between"], "between visits", "1"))
    entries += [(COLORS["valley"], "the valley", "0.3")] if is_valley else []
    for color, text, opacity in entries:
        yield f'<rect x="{at}" y="{HEIGHT - 16}" width="12" height="8" fill="{color}" '
        yield f'fill-opacity="{opacity}"/>{_text(at + 17, HEIGHT - 8, text)}'
        at += 34 + 7 * len(text)
    if not is_valley:
        yield _text(at, HEIGHT - 8, "no valley")


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{round(x, 1)}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _short(seconds: float) -> str:
    """Return a duration in its largest unit, such as `4.6 h`."""
    units = {"d": 86_400, "h": 3_600, "min": 60, "s": 1, "ms": 0.001}
    name, unit = next((one for one in units.items() if seconds >= one[1]), ("ms", 0.001))
    return f"{seconds / unit:.3g} {name}"
