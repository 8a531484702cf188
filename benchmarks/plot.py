"""
Draws the results: one panel a workload, one bar an entrant, `session_window` is 1.

It runs in the environment `tables`, which has matplotlib: `python plot.py BENCH.JSON PLOT.SVG`.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

OURS = ("functions", "aggregates", "pages", "aggregates pages")
COLUMNS = 3
BASE = "session_window"


def is_shown(workload: Mapping[str, Any]) -> bool:
    """Leave out what isn't about the time of a batch: whole jobs, sizes of state, and growth."""
    is_one_of_many = workload["family"] != workload["name"]
    return workload["mode"] != "job" and workload["batches"] > 1 and not is_one_of_many


def bars(result: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return each entrant's time, divided by that of `session_window` if it has run."""
    seconds = {name: each["seconds"] for name, each in result["medians"].items()}
    base = seconds.get(BASE) or max(seconds.values())
    return sorted(((name, each / base) for name, each in seconds.items()), key=lambda bar: -bar[1])


def draw(panel: Any, name: str, found: list[tuple[str, float]]) -> None:
    """Draw one workload; bars that leave the panel show their number."""
    names = [entrant for entrant, _ in found]
    ratios = [ratio for _, ratio in found]
    colors = ["#1f6feb" if entrant in OURS else "#9aa4b2" for entrant in names]
    edge = 2.0
    panel.barh(names, [min(ratio, edge) for ratio in ratios], color=colors)
    for row, ratio in enumerate(ratios):
        panel.text(min(ratio, edge) + 0.03, row, f"{ratio:.2f}", va="center", fontsize=8)
    panel.axvline(1, color="#57606a", linewidth=0.8)
    panel.set_xlim(0, edge + 0.35)
    panel.set_title(name, fontsize=10, loc="left")
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw the file of the command line."""
    source, target = map(Path, sys.argv[1:])
    found = {
        name: bars(result)
        for name, result in json.loads(source.read_text()).items()
        if result["medians"] and is_shown(result["workload"])
    }
    rows = -(-len(found) // COLUMNS)
    mpl.rcParams.update({"svg.hashsalt": "sessionkit", "svg.fonttype": "none"})
    figure, panels = plt.subplots(
        rows, COLUMNS, figsize=(13, 2.4 * rows), squeeze=False, layout="constrained"
    )
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    for panel, (name, each) in zip(panels.flat, found.items(), strict=False):
        draw(panel, name, each)
    figure.suptitle(
        "Time of a batch; session_window with RocksDB is 1, or the slowest where it has no part",
        fontsize=11,
    )
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
