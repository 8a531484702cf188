"""A batch on Sail has the rows of the driver: cases of other engines, and histories at random."""

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from sessionkit.spark._sail import WORKERS
from tests.support.batches import AnySpec, frame_of, told_by_driver, told_by_engine
from tests.support.conformance.cases import SCHEMA as CASE
from tests.support.conformance.cases import Batch, Run, planned
from tests.support.random_scripts import SCHEMA, Script, scripts
from tests.support.spark_settings import changed

RUNS = [run for run in planned() if isinstance(run, Run)]
SHORT = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LONG = settings(SHORT, max_examples=300, derandomize=False, print_blob=True)
VALUES = ["values"]


def of_a_batch(spec: AnySpec) -> AnySpec:
    """Return a spec without what only a stream shows: early rows, and events that wait."""
    inputs = attrs.evolve(spec.inputs, max_buffered_per_key=10_000)
    results = attrs.evolve(spec.results, emit="on_close")
    return attrs.evolve(spec, inputs=inputs, results=results)


def check(script: Script, spark: SparkSession) -> None:
    spec = of_a_batch(script.spec)
    rows = [row for stretch in script.stretches for batch in stretch.batches for row in batch]
    frame = frame_of(spark, pa.Table.from_pylist(rows, SCHEMA))

    values = [*VALUES, "events"]

    assert told_by_driver(rows, spec, values) == told_by_engine(frame, spec, values)


@SHORT
@given(script=scripts())
def test_random_histories_have_the_rows_of_the_driver(script: Script, spark: SparkSession) -> None:
    """Sessions, ids, bounds, values and rejected rows are those of the driver."""
    check(script, spark)


@pytest.mark.long
@LONG
@given(script=scripts(max_size=40))
def test_many_random_histories_have_the_rows_of_the_driver(
    script: Script, spark: SparkSession
) -> None:
    """The same, for many more and longer histories, whose functions run in worker processes."""
    with changed(spark, {WORKERS: "2"}):
        check(script, spark)


def test_cases_of_other_engines_have_their_answers(spark: SparkSession) -> None:
    """Every case about sessions, as one batch: those of one spec share a query."""
    by_spec: dict[str, tuple[AnySpec, list[dict[str, object]]]] = {}
    for place, run in enumerate(RUNS):
        rows = [row for step in run.steps if isinstance(step, Batch) for row in step.rows]
        spec, taken = by_spec.setdefault(repr(run.spec), (run.spec, []))
        # The keys of cases are apart, so many may share a frame.
        taken += [{**row, "key": row["key"] and f"{place} {row['key']}"} for row in rows]
    for spec, rows in by_spec.values():
        frame = frame_of(spark, pa.Table.from_pylist(rows, CASE))

        assert told_by_driver(rows, spec, VALUES) == told_by_engine(frame, spec, VALUES)
