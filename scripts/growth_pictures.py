"""The pictures of how cost grows: of a batch by its events, and of a micro-batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import floor, log10
from typing import Any, Final

import attrs

from benchmarks.results import Figures, loaded
from benchmarks.workloads import WORKLOADS
from scripts.svg import picture, text

__all__ = ["measured_pictures"]

COLOURS: Final = {
    "Sail, aggregates": "edge", "DuckDB": "quiet", "aggregates": "event",
    "functions": "edge", "pages": "event", "session_window": "quiet",
}  # fmt: skip
SHOWN: Final = {"aggregates": "Spark, aggregates"}
"""How an entrant of a batch is called, where others have other engines."""
LEFT, WIDTH, GAP, HEIGHT = 48, 190, 142, 150
"""Of a panel: where its axis is, how wide and high it is, and the place for names at its right."""
TOP: Final = 48
THOUSAND: Final = 1_000
MILLION: Final = 1_000_000

Line = Sequence[tuple[float, float]]


@attrs.frozen
class Panel:
    """A figure of the entrants of a family, by size."""

    title: str
    below: str
    family: str
    value: Callable[[Figures], float]


def _seconds(found: Figures) -> float:
    return float(found["seconds"])


BATCH: Final = (
    Panel("Seconds", "events", "growth-batch", _seconds),
    Panel("CPU seconds", "events", "growth-batch", lambda found: float(found["cpu_s"])),
    Panel("Peak memory, GB", "events", "growth-batch", lambda found: found["peak_bytes"] / 1e9),
)
STREAM: Final = (
    Panel("Seconds of a micro-batch", "events in it", "growth-events", _seconds),
    Panel("Seconds of 1,000 events", "open sessions", "growth-open", _seconds),
)


def measured_pictures() -> dict[str, Callable[[Mapping[str, str]], str]]:
    """Return what draws each picture, by its name; none for what wasn't measured."""
    results = loaded()["workloads"]
    return {
        name: partial(_picture, panels)
        for name, panels in {"growth-batch": BATCH, "growth-stream": STREAM}.items()
        if any(_lines(panel, results) for panel in panels)
    }


def _picture(panels: Sequence[Panel], colours: Mapping[str, str]) -> str:
    results = loaded()["workloads"]
    parts, said = [], []
    for place, panel in enumerate(panels):
        lines = _lines(panel, results)
        parts += _drawn(panel, lines, LEFT + place * (WIDTH + GAP))
        ends = (f"{name} {line[-1][1]:.3g}" for name, line in lines.items())
        said.append(f"{panel.title} at the largest number of {panel.below}: {', '.join(ends)}")
    style = (
        "text{{font:13px system-ui,sans-serif;fill:{text}}}.small{{font-size:12px;fill:{quiet}}}"
        ".axis{{stroke:{line}}}path{{fill:none;stroke-width:1.5}}rect{{fill:{card}}}"
        ".edge{{stroke:{edge}}}.event{{stroke:{event}}}.quiet{{stroke:{quiet}}}"
        "circle.edge{{fill:{edge}}}circle.event{{fill:{event}}}circle.quiet{{fill:{quiet}}}"
    ).format(**colours)
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + 52
    frame = f'<rect width="{width}" height="{height}" rx="10"/>'
    return picture(width, height, "; ".join(said), style, [frame, *parts])


def _lines(panel: Panel, results: Mapping[str, Any]) -> dict[str, Line]:
    """Return the points of each entrant, by size."""
    family = [each for each in WORKLOADS.values() if each.family == panel.family]
    return {
        entrant: line
        for entrant in family[0].entrants
        if (
            line := [
                (workload.size, panel.value(results[workload.name]["entrants"][entrant]))
                for workload in family
                if entrant in results.get(workload.name, {}).get("entrants", {})
            ]
        )
    }


def _drawn(panel: Panel, lines: Mapping[str, Line], left: float) -> list[str]:
    """Return a panel: both axes go by powers of ten."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return [text(left, TOP - 18, panel.title)]
    low_x, high_x = (log10(pick(x for x, _ in points)) for pick in (min, max))
    low_y = floor(log10(min(y for _, y in points)))
    high_y = max(low_y + 1, log10(max(y for _, y in points)))
    bottom = TOP + HEIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - low_x) / (high_x - low_x)
        up = (log10(y) - low_y) / (high_y - low_y)
        return round(left + WIDTH * across, 1), round(bottom - HEIGHT * up, 1)

    parts = [text(left, TOP - 18, panel.title)]
    for power in range(low_y, floor(high_y) + 1):
        _, y = at(points[0][0], 10.0**power)
        parts.append(f'<path class="axis" d="M{left} {y}H{left + WIDTH}"/>')
        parts.append(text(left - 6, y + 4, f"{10.0**power:g}", "small", "end"))
    parts += [
        text(at(size, 1)[0], bottom + 18, _short(size), "small", "middle")
        for size in sorted({x for x, _ in points})
    ]
    parts.append(text(left + WIDTH / 2, bottom + 38, panel.below, "small", "middle"))
    # From the bottom up, with room for each name.
    lowest = float(bottom + 14)
    for name, line in sorted(lines.items(), key=lambda each: each[1][-1][1]):
        places = [at(*point) for point in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        colour = COLOURS[name]
        parts.append(f'<path class="{colour}" d="M{path}"/>')
        parts += [f'<circle class="{colour}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in places]
        lowest = min(lowest - 14, places[-1][1] + 4)
        shown = SHOWN.get(name, name) if panel.family == "growth-batch" else name
        parts.append(text(places[-1][0] + 8, lowest, shown))
    return parts


def _short(number: float) -> str:
    """Return a number with `k` or `M`."""
    if number >= MILLION:
        return f"{number / MILLION:g}M"
    return f"{number / THOUSAND:g}k"
