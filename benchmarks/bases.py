"""
On which operator of Spark the worker is faster: `python -m benchmarks.bases --only steady small`.

The same sessions, with no operator after them, run on `applyInPandasWithState` (`functions`) and on
`transformWithState` (`chained`), both with RocksDB, in turn: A B B A. Their rows are compared
first. The second half of the micro-batches of each run counts: by then the JVM has compiled. CPU
time tells more than seconds do on a machine with other work. It prints rows of a table.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import numpy as np

from benchmarks.entrants import ENTRANTS
from benchmarks.environments import made
from benchmarks.measure import Place, place, timed, wrong_rows
from benchmarks.results import Run
from benchmarks.workloads import WORKLOADS

__all__ = ["BASES", "line_of", "main"]

BASES: Final = ("functions", "chained")
BATCHES: Final = {"steady": 100, "small": 40, "dense": 16}
SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
MS: Final = 1000
HEAD: Final = (
    "| workload | Unix sockets | operator | s a micro-batch | p50 | p99 | "
    "CPU s: JVM | Python | n |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Measure, and print a row for each workload, kind of socket and operator."""
    # An end from outside is an exit as any other: it ends the runs, and removes their files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = argparse.ArgumentParser("python -m benchmarks.bases", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*BATCHES])
    parser.add_argument("--sockets", nargs="+", choices=("true", "false"), default=["true"])
    parser.add_argument("--batches", type=int, help="default: 100, 40 and 16")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each operator")
    options = parser.parse_args()
    made("protobuf")
    for name in options.only:
        batches = options.batches or BATCHES.get(name, WORKLOADS[name].batches)
        workload = attrs.evolve(WORKLOADS[name], batches=batches)
        with TemporaryDirectory(prefix="sessionkit-bench-") as folder:
            at = place(workload, Path(folder), patience_s=600)
            for base in BASES:
                print(f"{name}, {base}: rows {wrong_rows(ENTRANTS[base], at) or 'right'}")
            for sockets in options.sockets:
                runs = _in_turn(attrs.evolve(at, settings={SOCKETS: sockets}), options.rounds)
                print(HEAD)
                for base in BASES:
                    where = "on" if sockets == "true" else "off"
                    print(f"| {name} | {where} | {line_of(base, runs[base])} |", flush=True)


def _in_turn(at: Place, rounds: int) -> Mapping[str, Sequence[Run]]:
    runs: dict[str, list[Run]] = {base: [] for base in BASES}
    for turn in range(rounds):
        for base in BASES[:: -1 if turn % 2 else 1]:
            load = os.getloadavg()[0]
            runs[base].append(timed(ENTRANTS[base], at))
            print(f"{base}: {line_of(base, runs[base][-1:])}; load before {load:.1f}", flush=True)
    return runs


def line_of(base: str, runs: Sequence[Run]) -> str:
    """Return the cells of runs of an operator: seconds, latencies, CPU seconds, how many."""
    counted = [sample for run in runs for sample in run.samples[len(run.samples) // 2 :]]
    whole_ms = [MS * (sample.whole_s or 0.0) for sample in counted]
    p50, p99 = np.percentile(whole_ms, [50, 99])
    cells = (
        base,
        f"{median(sample.seconds for sample in counted):.3f}",
        f"{p50:.0f} ms",
        f"{p99:.0f} ms",
        f"{_mean([sample.jvm_s for sample in counted]):.3f}",
        f"{_mean([sample.rest_s for sample in counted]):.3f}",
        f"{len(counted)}",
    )
    return " | ".join(cells)


def _mean(numbers: Sequence[float]) -> float:
    # Of many short micro-batches: the kernel counts CPU time in hundredths of a second.
    return float(np.mean(numbers))


if __name__ == "__main__":
    main()
