"""
What a funnel and a path cost as aggregates and as functions: CPU milliseconds of the engine alone.

    python -m benchmarks.sequences

A batch has all events of a bucket at once, and closes every session. A micro-batch is the fourth
of four, each with a quarter of the events: it reads the stored row, runs one step, and writes the
row back. Both specs give the same rows.
"""

import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import FIRST_US
from sessionkit import Session, SessionSpec
from sessionkit import aggregates as agg
from sessionkit._engine.micro_batch import BatchClocks, GroupState
from sessionkit._engine.shell.payload import GroupAccess
from sessionkit._engine.shell.storage import GroupRow, first_due, logic_of, memory_in_row
from sessionkit._engine.shell.worker import collector_paused

__all__ = ["BY_AGGREGATES", "BY_FUNCTIONS", "EVENTS", "arrived", "batch", "main", "micro_batch"]

KINDS: Final = ("home", "search", "product", "cart", "checkout", "order")
STEPS: Final = ("product", "cart", "order")
EVENTS: Final = 20_000
AN_EVENT: Final = timedelta(seconds=20)
"""From one event of a key to its next one; with a longer break now and then."""
BREAKS: Final = 20
AFTER_ALL_US: Final = FIRST_US + timedelta(days=3_650) // timedelta(microseconds=1)


@attrs.frozen
class View:
    kind: str


@attrs.frozen
class Journey:
    far: int | None
    path: list[str]


@attrs.define
class Journal:
    """The state of the functions: events come in the order of time."""

    far: int = 0
    path: list[str] = attrs.field(factory=list)

    def update(self, view: View) -> None:
        if self.far < len(STEPS) and view.kind == STEPS[self.far]:
            self.far += 1
        if not self.path or self.path[-1] != view.kind:
            self.path.append(view.kind)

    def finish(self, session: Session) -> Journey:
        return Journey(self.far, self.path)


SETTINGS: Final[dict[str, Any]] = {
    "keys": {"user": str},
    "event_time": "ts",
    "gap": "30 minutes",
    "watermark_delay": "10 minutes",
}
BY_AGGREGATES: Final = SessionSpec.aggregate(
    View,
    {
        "far": agg.funnel({kind: pc.field("kind") == kind for kind in STEPS}),
        "path": agg.path("kind", at_most=1_000),
    },
    result=Journey,
    **SETTINGS,
)
BY_FUNCTIONS: Final = SessionSpec.of(Journal, order="event_time", **SETTINGS)


def arrived(events: int = EVENTS, a_key: int = 50) -> pa.Table:
    """Return the events of a bucket, each key's in the order of time."""
    dice, keys = np.random.default_rng(7), events // a_key
    gaps_us = np.where(dice.integers(0, BREAKS, (a_key, keys)) == 0, 120, 1) * (
        AN_EVENT // timedelta(microseconds=1)
    ) + dice.integers(0, 1_000_000, (a_key, keys))
    times = FIRST_US + np.cumsum(gaps_us, axis=0)
    users = np.broadcast_to(np.arange(keys), (a_key, keys))
    order = np.argsort(times, axis=None, kind="stable")
    kinds = pa.array(KINDS).take(pa.array(dice.integers(0, len(KINDS), events)))
    columns = [
        pc.binary_join_element_wise("user-", pa.array(users.ravel()[order]).cast(pa.string()), ""),
        pa.array(times.ravel()[order]).view(pa.timestamp("us", tz="UTC")),
        kinds,
    ]
    return pa.Table.from_arrays(columns, schema=BY_AGGREGATES.events_schema).combine_chunks()


def batch(spec: Any, events: pa.Table) -> Callable[[], Any]:
    """Return what runs all events at once, as on a batch."""
    logic = logic_of(spec)
    clocks = BatchClocks(AFTER_ALL_US, AFTER_ALL_US, whole=True)

    def run() -> Any:
        if spec.order == "event_time":
            return logic.step(GroupState(logic.empty_state.kept, events), events[:0], clocks)
        began = logic.step(logic.empty_state, events, attrs.evolve(clocks, watermark_us=0))
        return logic.step(began.memory, events[:0], clocks)

    return run


def micro_batch(spec: Any, events: pa.Table) -> Callable[[], Any]:
    """Return what runs the last quarter of the events, on what is stored of the others."""
    logic, nowhere = logic_of(spec), None
    access = GroupAccess(logic, ("bucket",))
    row = GroupRow(access, nowhere)  # type: ignore[arg-type]  # it has no checkpoint
    quarter, memory = len(events) // 4, logic.empty_state
    clocks = BatchClocks(0, 0)
    for start in range(0, 3 * quarter, quarter):
        part = events.slice(start, quarter)
        memory = logic.step(memory, part, clocks).memory
        seen = pc.max(part["time"]).value - timedelta(minutes=10) // timedelta(microseconds=1)
        clocks = BatchClocks(seen, seen)
    stored = row.write(memory, first_due(logic, memory), 0)

    def run() -> Any:
        outcome = logic.step(memory_in_row(access, stored), events.slice(3 * quarter), clocks)
        row.write(outcome.memory, first_due(logic, outcome.memory), 0)
        return outcome

    return run


def _cpu_ms(run: Callable[[], Any]) -> float:
    start = time.process_time()
    with collector_paused():
        run()
    return 1_000 * (time.process_time() - start)


def main() -> None:
    """Print what a batch and a micro-batch cost."""
    events = arrived()
    print(f"{EVENTS:,} events, {pc.count_distinct(events['key.user']).as_py():,} keys")
    for prepare in (batch, micro_batch):
        for name, spec in (("aggregates", BY_AGGREGATES), ("functions", BY_FUNCTIONS)):
            run = prepare(spec, events)
            run()
            found = [_cpu_ms(run) for _ in range(21)]
            median, least = statistics.median(found), min(found)
            print(f"{prepare.__name__:12} {name:12} {median:8.2f} ms (least {least:.2f})")


if __name__ == "__main__":
    main()
