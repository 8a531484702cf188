"""
What one call of a bucket costs: CPU milliseconds of the engine alone, without Spark or the wire.

    python -m benchmarks.calls                     every workload, the median of many calls
    python -m benchmarks.calls --only dense --profile

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

import attrs
import pyarrow as pa

from benchmarks.events import DELAY, FIRST_US, SPAN_US, Load, batch_of_events
from sessionkit import EventTimeGap, KeyState, KeyTimes, NoTimeout, SessionSpec, StatefulSpec
from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.cycle_collector import collector_paused
from sessionkit._engine.rows.table import events_schema
from sessionkit._engine.storage import logic_of, nothing_of, row_of

__all__ = ["WORKLOADS", "Workload", "main"]

Run = Callable[[], Any]
GROUP: Final = ("bucket",)


@attrs.define
class View:
    """An event."""

    seconds: float


@attrs.define
class Visit:
    """The state of a session, and of a user."""

    pages: int
    seconds: float


@attrs.frozen
class Row:
    """A result."""

    pages: int
    seconds: float


def create(key: Any, view: View) -> Visit:
    """Begin a session."""
    return Visit(1, view.seconds)


def update(visit: Visit, view: View) -> Visit:
    """Take one more view."""
    visit.pages += 1
    visit.seconds += view.seconds
    return visit


def merge(left: Visit, right: Visit) -> Visit:
    """Join two sessions."""
    return Visit(left.pages + right.pages, left.seconds + right.seconds)


def finish(session: Any, visit: Visit) -> Row:
    """Make the result."""
    return Row(visit.pages, visit.seconds)


def process(key: Any, views: list[View], state: KeyState[Visit], times: KeyTimes) -> Row:
    """Count the views of a user."""
    visit = state.get(Visit(0, 0.0))
    for view in views:
        visit = update(visit, view)
    state.set(visit)
    return Row(visit.pages, visit.seconds)


def sessions(gap: str) -> SessionSpec[Any, Any, Any]:
    """Return sessions of a count and a sum."""
    return SessionSpec(
        keys={"user_id": str}, event_time="ts", event=View, state=Visit, result=Row,
        create=create, update=update, merge=merge, finish=finish,
        timeout=EventTimeGap(gap), watermark_delay=DELAY,
    )  # fmt: skip


def counters() -> StatefulSpec[Any, Any, Any]:
    """Return a count and a sum for each user."""
    return StatefulSpec(
        keys={"user_id": str}, event=View, state=Visit, result=Row,
        process=process, timeout=NoTimeout(),
    )  # fmt: skip


@attrs.frozen
class Workload:
    """
    What a bucket is called with.

    Attributes:
        spec: Makes the spec.
        load: The events of a batch in this bucket.
        open_before: How many users have an open session before; those of the load by default.
    """

    spec: Callable[[], Any]
    load: Load
    open_before: int = 0


WORKLOADS: Final = {
    "dense": Workload(lambda: sessions("5 minutes"), Load(15_625, 3_125)),
    "small": Workload(lambda: sessions("5 minutes"), Load(1_560, 312)),
    "sparse": Workload(lambda: sessions("30 days"), Load(16, 16), open_before=31_250),
    "keys": Workload(counters, Load(1_560, 1_560, one_each=True)),
}


def prepared(workload: Workload) -> Run:
    """Return one call of a bucket that has seen a few batches; it can be repeated."""
    logic = logic_of(workload.spec())
    row, memory = row_of(logic), nothing_of(logic)
    if workload.open_before:
        first = Load(workload.open_before, workload.open_before, one_each=True)
        memory = _after(logic, memory, first, 0)
    for batch in (1, 2):
        memory = _after(logic, memory, workload.load, batch)
    arrived, clocks = _input(logic, workload.load, 3)
    stored = row.write(memory, logic.due(memory))

    def call() -> None:
        outcome = logic.step(row.read(GROUP, stored), arrived, clocks)
        row.write(outcome.memory, logic.due(outcome.memory))

    return call


def _after(logic: Any, memory: Any, load: Load, batch: int) -> Any:
    return logic.step(memory, *_input(logic, load, batch)).memory


def _input(logic: Any, load: Load, batch: int) -> tuple[pa.Table, BatchClocks]:
    """Return the events of a batch, and the clocks that Spark has by then."""
    events, schema = batch_of_events(load, batch), events_schema(logic.spec)
    columns = [events["user_id"], events["ts"], events["seconds"]]
    watermark_us = FIRST_US + batch * SPAN_US - DELAY // timedelta(microseconds=1)
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


def main() -> None:
    """Print what a call costs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds a workload")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    for name, workload in WORKLOADS.items():
        if options.only in {None, name}:
            if options.profile:
                _profile(workload)
            median, least = measured(workload, options.seconds)
            print(f"{name:8} {median:8.2f} ms a call (least {least:.2f})", flush=True)


if __name__ == "__main__":
    main()
