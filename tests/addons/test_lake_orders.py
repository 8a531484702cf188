"""Two runs over a table of Delta: in any order of their steps, each micro-batch once."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit.addons.merging import Table
from sessionkit.addons.tables import Upsert
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch, RowsToWrite
from tests.support.figures import FIGURES, Record
from tests.support.lakes import lake_of, rows_in
from tests.support.two_runs import Killed, Turns, explained_by

ORDERS = int(os.environ.get("ORDERS", "20"))
LAST = 1


@attrs.define
class HeldTable(Table):
    """A table whose commits come in turn."""

    run: str = attrs.field(kw_only=True)
    turns: Turns = attrs.field(kw_only=True)

    def commit(self, rows: DataFrame, upsert: Upsert, mark: Mapping[str, str]) -> None:
        self.turns.step(self.run, f"commit {[*mark.values()][-1]}")
        super().commit(rows, upsert, mark)
        self.turns.step(self.run, f"has committed {[*mark.values()][-1]}")


def held(writer: Any, run: str, turns: Turns) -> Any:
    of_table = attrs.asdict(writer.table, recurse=False)
    is_known = of_table.pop("is_known")
    table = HeldTable(**of_table, run=run, turns=turns)
    table.is_known = is_known
    return attrs.evolve(writer, table=table)


@pytest.mark.long
@pytest.mark.cell("delta")
@pytest.mark.parametrize("key", [(), "value"])
def test_two_runs_write_each_row_once_in_any_order_of_their_steps(
    key: Any, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """A micro-batch in the table has the rows of one run, each once: Delta skips the other's."""
    ends, lake = Counter[str](), lake_of("delta", spark, tmp_path)
    sessions = {run: spark.newSession() for run in "AB"}
    schema = "value string, part int"
    for seed in range(ORDERS):
        turns, table = Turns(seed, 0.05), f"t{seed}"
        sink = lake.sink(table, key)

        def run(name: str, turns: Turns = turns, sink: Any = sink) -> str:
            own = sessions[name]
            rows = RowsToWrite(spark.createDataFrame([], schema).schema, of_results=False)
            writer = held(sink.writer(rows, own), name, turns)
            for number in range(LAST + 1):
                values = [(f"{name}-{number}-{part}", part) for part in range(2)]
                batch = Batch(own.createDataFrame(values, schema), number, "q", name)
                turns.step(name, f"look for {number}")
                if not writer.is_written(batch):
                    writer.write(batch)
            return "finished"

        with explained_by(turns):
            found = turns.run({each: partial(run, each) for each in "AB"})
            parts: dict[str, list[str]] = defaultdict(list)
            for end in found.values():
                assert isinstance(end, str | Killed | SinkError), (end, turns.trace)
            if any(isinstance(end, str) for end in found.values()):
                for value, _ in rows_in(lake, table, "value", "part"):
                    parts[value[2:3]].append(value)
                assert {*map(str, range(LAST + 1))} == {*parts}
            for values in parts.values():
                assert 2 == len(values), values
                assert 1 == len({value[0] for value in values}), values
        for end in found.values():
            ends[end if isinstance(end, str) else type(end).__name__] += 1
    record_property(FIGURES, f"{ORDERS} orders of two runs over Delta, key {key}: {dict(ends)}")
