"""Two runs over a table of a lake: in any order of their steps, each micro-batch once."""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit.addons.merging import Table
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch, RowsToWrite
from tests.support.figures import FIGURES, Record
from tests.support.lakes import LAKES, Lake, lake_of, rows_in
from tests.support.two_runs import Killed, Turns, explained_by

ORDERS: Final = int(os.environ.get("ORDERS", "4"))
NUMBERS: Final = range(2)
SCHEMA: Final = "value string, part int"
STEPS: Final = ("fork", "add", "publish")
"""The steps of a commit to Iceberg; one to Delta is a single step."""


def in_turn(step: Callable[..., None], run: str, turns: Turns) -> Callable[..., None]:
    """Return a step of a table that waits for its turn, before and after it."""

    def held(*arguments: Any, **named: Any) -> None:
        turns.step(run, step.__name__)
        step(*arguments, **named)
        turns.step(run, f"after {step.__name__}")

    return held


def held(table: Table, run: str, turns: Turns) -> Any:
    """Return a table whose steps come in turn."""
    kind = type(table)
    there = [name for name in STEPS if hasattr(kind, name)]
    steps = {name: in_turn(getattr(kind, name), run, turns) for name in there}
    arguments = {one.name: getattr(table, one.name) for one in attrs.fields(kind) if one.init}
    return type("Held", (kind,), steps)(**arguments)


@attrs.define
class Job:
    """One of two copies of a job, which has planned other rows than the other copy."""

    name: str
    spark: SparkSession
    sink: Any
    checkpoint: Path
    finished: set[int] = attrs.field(factory=set, init=False)

    def plan(self, number: int, rows: str) -> None:
        offsets = self.checkpoint / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).write_text(rows)

    def writer(self) -> Any:
        rows = RowsToWrite(self.spark.createDataFrame([], SCHEMA).schema, of_results=False)
        return self.sink.writer(rows, self.spark)

    def batch(self, number: int, run: str = "run") -> Batch:
        plan = (self.checkpoint / "offsets" / str(number)).read_text()
        values = [(f"{plan} {part}", part) for part in range(2)]
        rows = self.spark.createDataFrame(values, SCHEMA)
        return Batch(rows, number, "q", f"{self.name}{run}", lambda: plan)

    def write(self, writer: Any, number: int, run: str = "run") -> None:
        batch = self.batch(number, run)
        if not writer.is_written(batch):
            writer.write(batch)

    def run(self, turns: Turns | None = None) -> str:
        """Write the micro-batches that it hasn't finished, as one run."""
        writer = self.writer()
        if turns is not None:
            writer = attrs.evolve(writer, table=held(writer.table, self.name, turns))
        for number in NUMBERS:
            if number not in self.finished:
                if turns is not None:
                    turns.step(self.name, f"look for {number}")
                self.write(writer, number, f"{turns is None}")
                self.finished.add(number)
        return "finished"


def check_rows(lake: Lake, table: str) -> None:
    """Check that each micro-batch has the rows of one plan, each once."""
    plans: dict[str, list[str]] = {}
    for value, _ in rows_in(lake, table, "value", "part"):
        plan, part = value.split()
        plans.setdefault(plan, []).append(part)
    assert all(["0", "1"] == sorted(parts) for parts in plans.values()), plans
    numbers = [plan[-1] for plan in plans]
    assert sorted({*numbers}) == sorted(numbers), plans


@pytest.mark.parametrize("name", LAKES)
@pytest.mark.parametrize("key", [(), "value"], ids=["added", "merged"])
def test_the_second_copy_of_a_job_is_told_of_the_first(
    key: Any, name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Both have looked before either writes; later, and after a restart, it's told too."""
    lake = lake_of(name, spark, tmp_path)
    one, two = (Job(run, spark, lake.sink("t", key), tmp_path / run) for run in "AB")
    for job in (one, two):
        job.plan(0, "both-0")
        job.plan(1, f"{job.name}-1")
    first, second = one.writer(), two.writer()
    assert not second.is_written(two.batch(0))
    first.write(one.batch(0))
    second.write(two.batch(0))
    first.write(one.batch(1))
    for again in (second, two.writer()):
        with pytest.raises(SinkError, match="has other rows for micro-batch 1: two copies"):
            two.write(again, 1)

    assert [("A-1 0",), ("A-1 1",), ("both-0 0",), ("both-0 1",)] == rows_in(lake, "t", "value")


@pytest.mark.long
@pytest.mark.parametrize("name", LAKES)
def test_no_order_of_steps_loses_doubles_or_mixes_rows(
    name: str, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Of two copies of a job, one goes on, after a kill too; the other one is told of it."""
    ends, lake = Counter[str](), lake_of(name, spark, tmp_path)
    sessions = {run: spark.newSession() for run in "AB"}
    for seed in range(ORDERS):
        turns, table = Turns(seed, 0.08), f"t{seed}"
        sink = lake.sink(table, "value" if seed % 2 else ())
        jobs = {
            run: Job(run, sessions[run], sink, tmp_path / "checkpoints" / f"{seed}{run}")
            for run in "AB"
        }
        for run, job in jobs.items():
            for number in NUMBERS:
                # A copy may be made when a micro-batch is planned: then both have its plan.
                is_shared = number == 0 and seed % 4 > 1
                job.plan(number, f"{'both' if is_shared else run}-{number}")
        with explained_by(turns):
            found = turns.run({run: partial(job.run, turns) for run, job in jobs.items()})
            for run, end in found.items():
                assert isinstance(end, str | Killed | SinkError), (run, end)
                ends[type(end).__name__ if isinstance(end, BaseException) else end] += 1
            if any(not isinstance(end, Killed) or jobs[run].finished for run, end in found.items()):
                check_rows(lake, table)
            again = Counter[str]()
            for job in jobs.values():
                try:
                    again[job.run()] += 1
                except SinkError as error:
                    again[str(error).partition(" for ")[0]] += 1
            check_rows(lake, table)
            assert Counter(finished=1, **{f"{sink.label} has other rows": 1}) == again
    record_property(FIGURES, f"{ORDERS} orders of two runs over {name}: {dict(ends)}")
