"""
What each recommended setting of Spark gains, on a workload of small micro-batches.

`python -m benchmarks.tuning` runs the same job with all of them, and then without one of them
at a time. `--python` names another interpreter, with the same packages, to compare with this
one.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from benchmarks.child import CORES
from benchmarks.entrants import ENTRANTS
from benchmarks.measure import Place, place, timed
from benchmarks.workloads import WORKLOADS
from sessionkit.spark import recommended_settings

__all__ = ["main"]

PREFIX: Final = "spark.sql.streaming.stateStore.rocksdb."
WITHOUT: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.python.unix.domain.socket.enabled": "false",
    f"{PREFIX}changelogCheckpointing.enabled": "false",
    "spark.python.worker.reuse": "false",
}
"""What Spark has by default; but its workers are reused unless told otherwise."""
PATIENCE_S: Final = 1200


def main() -> None:
    """Print the median of each variant, and its ratio to that with all settings."""
    options = _options()
    workload = WORKLOADS[options.workload].shortened(options.batches)
    with tempfile.TemporaryDirectory(prefix="sessionkit-tuning-") as folder:
        base = attrs.evolve(
            place(workload, Path(folder), PATIENCE_S), settings=recommended_settings(CORES)
        )
        variants = {"all as recommended": base}
        for name, value in WITHOUT.items():
            if name in base.settings and not name.endswith(tuple(options.leave_out)):
                changed = {**base.settings, name: value}
                variants[f"{name} = {value}"] = attrs.evolve(base, settings=changed)
        if options.python:
            variants[options.python] = attrs.evolve(base, python=options.python)
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        load = os.getloadavg()[0]
        for turn in range(options.rounds):
            # The order changes each turn, so that none always profits from what comes before it.
            for name in list(variants)[:: -1 if turn % 2 else 1]:
                seconds[name] += _seconds(options.entrant, variants[name])
    print(f"{workload.about}; load {load:.2f}; Python {sys.version.split()[0]}")
    best = statistics.median(seconds["all as recommended"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{middle:8.3f} s  {middle / best:5.2f}  n={len(found)}  {name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("--workload", default="steady", choices=WORKLOADS)
    parser.add_argument("--entrant", default="functions", choices=ENTRANTS)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--leave-out", nargs="+", default=(), help="settings, by how they end")
    parser.add_argument("--python", help="another interpreter, to compare with this one")
    return parser.parse_args()


def _seconds(entrant: str, at: Place) -> list[float]:
    run = timed(ENTRANTS[entrant], at)
    return [sample.seconds for sample in run.samples[1:]]


if __name__ == "__main__":
    main()
