"""
A small comparison for the tests: it fails when sessionkit gets slower by half.

Only ratios count, of CPU time, the best of some runs in one process: they hardly depend on the
machine, or on what else it does. `guard.json` has the ratios of the last change that was meant.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.child import run_query, stream_of
from benchmarks.entrants import ENTRANTS
from benchmarks.events import write_batches
from benchmarks.processes import usage_of
from benchmarks.workloads import Workload

__all__ = ["ALLOWED", "RECORDED", "ratios", "recorded", "slower"]

RECORDED: Final = Path(__file__).with_name("guard.json")
ALLOWED: Final = 1.5
"""A ratio may be at most this many times the recorded one."""
ROUNDS: Final = 2
MANY: Final = Workload(
    name="many",
    about="enough events for the cost of an event to show",
    entrants=("functions", "aggregates", "floor"),
    events=30_000,
    keys=6_000,
    batches=2,
)
FEW: Final = Workload(
    name="few",
    about="few keys, because each takes a millisecond by hand",
    entrants=("functions", "aggregates", "by hand"),
    events=2_500,
    keys=500,
    batches=2,
)


def ratios(spark: SparkSession, folder: Path) -> dict[str, float]:
    """Return the CPU time of sessionkit, as a ratio to the floor and to a job by hand."""
    found: dict[str, float] = {}
    for workload in (MANY, FEW):
        best = _best(spark, workload, folder / workload.name)
        *ours, other = best
        found |= {f"{name} / {other}": best[name] / best[other] for name in ours}
    return found


def recorded() -> dict[str, float]:
    """Return the ratios that are expected."""
    found: dict[str, float] = json.loads(RECORDED.read_text())
    return found


def slower(measured: Mapping[str, float], expected: Mapping[str, float]) -> dict[str, str]:
    """Return the ratios that are too high, with what was expected."""
    return {
        name: f"{ratio:.2f}, expected {expected[name]:.2f}"
        for name, ratio in measured.items()
        if ratio > ALLOWED * expected[name]
    }


def _best(spark: SparkSession, workload: Workload, folder: Path) -> dict[str, float]:
    """Return the least CPU seconds of each entrant; they take turns."""
    write_batches(workload, folder / "files")
    names = [name for name in workload.entrants if name in ENTRANTS]
    runs: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(ROUNDS):
        for name in names:
            seconds = _cpu_s(spark, name, workload, folder, f"checkpoint-{name}-{turn}")
            runs[name].append(seconds)
    return {name: min(seconds) for name, seconds in runs.items()}


def _cpu_s(
    spark: SparkSession, name: str, workload: Workload, folder: Path, checkpoint: str
) -> float:
    stream = stream_of(spark, workload, folder / "files")
    rows = ENTRANTS[name].ways[workload.task](stream, workload)
    before_s = usage_of(os.getpid()).cpu_s
    run_query(rows.writeStream.format("noop"), folder / checkpoint)
    return usage_of(os.getpid()).cpu_s - before_s
