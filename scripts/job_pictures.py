"""The pictures of a job: its live view in a terminal, and an hour of `make soak`."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scripts.svg import picture, text
from sessionkit.addons.monitor.query_status import QueryStatus
from sessionkit.addons.monitor.watching import Picture
from tests.support.progress import progress_of

WIDTH: Final = 100
WEB_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
MICRO_BATCHES: Final = 28
BUCKETS: Final = 8
NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)

HOUR: Final = Path(__file__).resolve().parents[1] / "benchmarks" / "soak" / "hour.json"
PANELS: Final = {
    "Memory, MB": {"JVM": "edge", "Python workers": "event", "driver": "quiet"},
    "Checkpoint, MB": {"checkpoint": "edge", "state": "quiet", "log of files read": "event"},
}
"""The lines of each panel, and their colours."""
MOST_STEPS: Final = 5
LEFT, RIGHT, HEIGHT, PANEL = 52, 480, 345, 105
"""Where the first and the last minute are; the height of the picture, and of a panel."""


def watch_svg() -> str:
    """Return the live view of a query with made-up reports, in the fonts of the reader."""
    reports = map(_report, range(MICRO_BATCHES))
    _, *history = accumulate(reports, QueryStatus.add, initial=QueryStatus())
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(Picture(history[-1], history))
    drawn = console.export_svg(title="watch(query)", unique_id="watch")
    return "".join(f"{line.rstrip()}\n" for line in WEB_FONTS.sub("", drawn).splitlines())


def _report(number: int) -> dict[str, Any]:
    """Return Spark's report of a micro-batch with some late and some broken events."""
    rows = 600 + 40 * min(number, 16) + 7 * (number * number % 11)
    began = NOON + timedelta(seconds=number)
    oldest_us = round((began - timedelta(seconds=9)).timestamp() * 1_000_000)
    buckets = ",".join(
        f"{bucket}:{40 + (bucket * 7 + number) % 9}:{60 + bucket}:{14_000 + 900 * bucket}"
        f":{oldest_us}:"
        for bucket in range(BUCKETS)
    )
    report = progress_of(number, f"{BUCKETS}|{buckets}", rows=rows)
    late, failed = rows // 200, rows // 500
    report["observedMetrics"]["sessionkit"] |= {
        "processed": rows - late - failed,
        "late": late,
        "failed": failed,
        "sessions": rows // 12,
        "rows": rows // 12 + failed,
        "behind_bins": ",".join(map(str, (0, *[rows // 75] * 75, *[0] * 28, late))),
    }
    return report | {
        "timestamp": _text(began),
        "durationMs": {
            "addBatch": 480 + number % 7 * 20,
            "commitOffsets": 35,
            "walCommit": 31,
            "queryPlanning": 24,
            "triggerExecution": 590 + number % 7 * 20,
        },
        "eventTime": {
            "watermark": _text(began - timedelta(seconds=4 + number % 3)),
            "max": _text(began),
        },
        "stateOperators": [{"memoryUsedBytes": 2_400_000 + 1_000 * number}],
    }


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%S}.000Z"


def soak_svg(colours: dict[str, str]) -> str:
    """Return the recorded hour: memory above, bytes below, both over time."""
    hour = json.loads(HOUR.read_text("utf-8"))
    minutes = hour["minutes"]
    parts = []
    for top, (title, lines) in zip((40, 205), PANELS.items(), strict=True):
        parts += _panel(title, minutes, {name: hour[name] for name in lines}, lines, top)
    ends = "; ".join(f"{name} {hour[name][-1]:g} MB" for lines in PANELS.values() for name in lines)
    style = (
        "text{{font:13px system-ui,sans-serif;fill:{text}}}.small{{font-size:12px;fill:{quiet}}}"
        ".axis{{stroke:{line}}}path{{fill:none;stroke-width:1.5}}rect{{fill:{card}}}"
        ".edge{{stroke:{edge}}}.event{{stroke:{event}}}.quiet{{stroke:{quiet}}}"
    ).format(**colours)
    label = f"After {minutes[-1] + 1} minutes: {ends}"
    frame = f'<rect width="640" height="{HEIGHT}" rx="10"/>'
    return picture(640, HEIGHT, label, style, [frame, *parts])


def _panel(
    title: str,
    minutes: Sequence[int],
    values: dict[str, Sequence[float]],
    colours: dict[str, str],
    top: int,
) -> list[str]:
    """Return a panel with its axes, and the name of each line at the line's end."""
    most = max(max(line) for line in values.values())
    step = next(step for step in (1, 2, 5, 10, 50, 100, 250, 500) if most / step <= MOST_STEPS)
    bottom, scale = top + PANEL, PANEL / most

    def x(minute: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * minute / minutes[-1], 1)

    parts = [text(LEFT, top - 14, title)]
    for number in range(0, int(most) + 1, step):
        y = round(bottom - number * scale, 1)
        parts.append(f'<path class="axis" d="M{LEFT} {y}H{RIGHT}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{number:,}", "small", "end"))
    parts += [
        text(x(minute), bottom + 18, f"{minute} min", "small", "middle") for minute in minutes[::10]
    ]
    for name, line in values.items():
        points = " ".join(
            f"{x(minute)},{bottom - value * scale:.1f}"
            for minute, value in zip(minutes, line, strict=True)
        )
        parts.append(f'<path class="{colours[name]}" d="M{points}"/>')
        parts.append(text(RIGHT + 10, round(bottom - line[-1] * scale + 4, 1), name))
    return parts
