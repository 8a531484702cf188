"""
What more executors bring: `python -m benchmarks.executors`.

The same files are read by 1, 2 and 4 executors of one core, each a process of its own, under a
standalone master. Spark's event log says what its tasks read and wrote. Where the machine has fewer
cores than executors, seconds show nothing, but CPU seconds and bytes do.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.entrants import ENTRANTS
from benchmarks.events import write_batches
from benchmarks.measure import Place, timed
from benchmarks.results import Run
from benchmarks.workloads import WORKLOADS, Workload
from tests.support.clusters import cluster_environment

__all__ = ["bytes_of", "line_of", "main"]

MEMORY_MB: Final = 2048
PARTITIONS_A_CORE: Final = 2
METRICS: Final = {
    "over the network": ("Shuffle Read Metrics", "Remote Bytes Read"),
    "within a machine": ("Shuffle Read Metrics", "Local Bytes Read"),
    "to local disks": ("Shuffle Write Metrics", "Shuffle Bytes Written"),
}
MILLION: Final = 10**6


def main() -> None:
    """Measure, and print a line for each number of executors."""
    parser = argparse.ArgumentParser("python -m benchmarks.executors", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, default="dense")
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=["functions"])
    parser.add_argument("--executors", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--scale", type=float, default=1.0, help="times the events and keys")
    options = parser.parse_args()
    workload = WORKLOADS[options.only].scaled(options.scale).shortened(options.batches)
    with TemporaryDirectory(prefix="sessionkit-bench-") as name:
        folder = Path(name)
        write_batches(workload, folder / "files")
        os.environ.update(cluster_environment(folder / "spark", Path(sys.executable)))
        for entrant in options.entrants:
            for number in options.executors:
                log = folder / f"{entrant}-{number}"
                log.mkdir()
                place = Place(
                    workload,
                    folder / "files",
                    folder / "few",
                    folder,
                    patience_s=1200,
                    master=f"local-cluster[{number},1,{MEMORY_MB}]",
                    settings=_settings(number, log),
                )
                load, run = os.getloadavg()[0], timed(ENTRANTS[entrant], place)
                lines = chain.from_iterable(path.open() for path in log.iterdir())
                found = bytes_of(lines)
                print(
                    line_of(entrant, number, workload, run, found), f"load {load:.1f}", flush=True
                )


def bytes_of(log: Iterable[str]) -> Mapping[str, int]:
    """Return how many bytes all tasks of an event log have read and written, by where to."""
    found = Counter(dict.fromkeys(METRICS, 0))
    for line in log:
        event = json.loads(line)
        metrics = event.get("Task Metrics") or {}
        for name, (group, metric) in METRICS.items():
            found[name] += metrics.get(group, {}).get(metric, 0)
    return found


def line_of(
    entrant: str, executors: int, workload: Workload, run: Run, found: Mapping[str, int]
) -> str:
    """Return a run as a line, with the bytes of an event."""
    counted, events = run.samples[workload.uncounted :], workload.events
    cpu_s = median(sample.jvm_s + sample.rest_s for sample in counted)
    amounts: dict[str, Any] = dict(found) | {
        "to the checkpoint": (run.checkpoint_bytes or 0) * len(run.samples)
    }
    read = len(run.samples) * events
    shown = ", ".join(f"{amount / read:.1f} {name}" for name, amount in amounts.items())
    return (
        f"{workload.name} {entrant}, {executors} executors: "
        f"{median(sample.seconds for sample in counted):.2f} s a micro-batch, "
        f"{cpu_s * MILLION / events:.2f} CPU s a million events, bytes an event: {shown}; "
        f"n {len(counted)}"
    )


def _settings(executors: int, log: Path) -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": str(PARTITIONS_A_CORE * executors),
        "spark.driver.memory": "2g",
        "spark.executor.memory": f"{MEMORY_MB}m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


if __name__ == "__main__":
    main()
