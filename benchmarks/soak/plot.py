"""
Draws a soak: memory above, bytes below, both over time.

It runs in the environment `tables`, which has matplotlib: `python plot.py SOAK.JSON PLOT.SVG`.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

PANELS = {
    "memory, MB": {"JVM": "#1f6feb", "Python workers": "#bf8700", "driver": "#9aa4b2"},
    "checkpoint, MB": {"checkpoint": "#1f6feb", "state": "#9aa4b2", "log of files read": "#bf8700"},
}


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    samples = json.loads(source.read_text())
    minutes = [sample["minutes"] for sample in samples]
    mpl.rcParams.update({"svg.hashsalt": "sessionkit", "svg.fonttype": "none"})
    figure, panels = plt.subplots(2, 1, figsize=(8, 4.8), sharex=True, layout="constrained")
    for panel, (title, lines) in zip(panels, PANELS.items(), strict=True):
        for name, color in lines.items():
            values = [sample[name] / 1e6 for sample in samples]
            panel.plot(minutes, values, color=color, linewidth=1.2, label=name)
        panel.set_ylim(bottom=0)
        panel.set_title(title, fontsize=10, loc="left")
        panel.tick_params(labelsize=8)
        panel.legend(fontsize=8, frameon=False, loc="lower right")
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("minutes", fontsize=9)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
