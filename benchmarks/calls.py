"""
What one call of a bucket costs: CPU milliseconds of the engine alone, without Spark or the wire.

    python -m benchmarks.calls                     every workload, the median of many calls
    python -m benchmarks.calls --only dense --phases       where it goes
    python -m benchmarks.calls --only dense --profile      where it goes, by function

A call reads the stored row, runs one step, and writes the row back. The input is one bucket of 64
of the benchmark's batches, so times compare across machines only as ratios.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from benchmarks.entrants.functions import COUNTS, visits
from benchmarks.events import FIRST_US, batch_of_events
from benchmarks.phases import Stopwatch, bars
from benchmarks.workloads import SPAN, WORKLOADS, Workload
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.shell.payload import GroupAccess
from sessionkit._engine.shell.storage import GroupRow, first_due, logic_of, memory_in_row
from sessionkit._engine.shell.worker import collector_paused

__all__ = ["CASES", "main", "prepared"]

Run = Callable[[], Any]
BUCKETS: Final = 64
GROUP: Final = ("bucket",)
CASES: Final = {
    name: WORKLOADS[name].scaled(1 / BUCKETS) for name in ("dense", "small", "sparse", "keys")
}


def prepared(workload: Workload) -> Run:
    """Return one call of a bucket that has seen a few batches; it can be repeated."""
    logic = logic_of(COUNTS if workload.task == "counts" else visits(workload))
    nowhere: Any = None
    row, memory = GroupRow(GroupAccess(logic, GROUP), nowhere), logic.empty_state
    for batch in range(3):
        memory = logic.step(memory, *_input(logic, workload, batch)).memory
    arrived, clocks = _input(logic, workload, 3)
    stored = row.write(memory, first_due(logic, memory), 0)

    def call() -> None:
        outcome = logic.step(memory_in_row(row.access, stored), arrived, clocks)
        row.write(outcome.memory, first_due(logic, outcome.memory), 0)

    return call


def _input(logic: Any, workload: Workload, batch: int) -> tuple[pa.Table, BatchClocks]:
    """Return the events of a batch, and the clocks that Spark has by then."""
    events, schema = batch_of_events(workload, batch), logic.spec.events_schema
    columns = [events["user_id"], events["ts"], events["seconds"]]
    watermark_us = FIRST_US + (batch * SPAN - workload.disorder) // timedelta(microseconds=1)
    table = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
    return table, BatchClocks(watermark_us, watermark_us)


def _cpu_ms(run: Run) -> float:
    start = time.process_time()
    with collector_paused():
        run()
    return 1000 * (time.process_time() - start)


def measured(workload: Workload, seconds: float) -> tuple[float, float]:
    """Return the median and the least CPU milliseconds of a call."""
    run = prepared(workload)
    for _ in range(3):
        run()
    samples: list[float] = []
    while sum(samples) < 1000 * seconds:
        samples.append(_cpu_ms(run))
    return statistics.median(samples), min(samples)


def _profile(workload: Workload) -> None:
    run, profile = prepared(workload), cProfile.Profile()
    run()
    for _ in range(20):
        profile.runcall(run)
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def _phases(workload: Workload, calls: int = 100) -> str:
    """Return where the time of a call goes: the least of many, as the machine may be shared."""
    run, watch = prepared(workload), Stopwatch()
    found: list[dict[str, float]] = []
    with watch.running(), collector_paused():
        for _ in range(calls):
            run()
            found.append(watch.take())
    return bars({phase: min(each[phase] for each in found) for phase in found[0]})


def main() -> None:
    """Print what a call costs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds a workload")
    parser.add_argument("--phases", action="store_true", help="print where the time goes")
    parser.add_argument("--profile", action="store_true", help="print it by function")
    options = parser.parse_args()
    for name, workload in CASES.items():
        if options.only in {None, name}:
            if options.profile:
                _profile(workload)
            if options.phases:
                print(_phases(workload))
            median, least = measured(workload, options.seconds)
            print(f"{name:8} {median:8.2f} ms a call (least {least:.2f})", flush=True)


if __name__ == "__main__":
    main()
