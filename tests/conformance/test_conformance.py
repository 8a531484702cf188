"""The cases of `cases.json`: on the driver, and on Spark itself."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from pyspark.sql import SparkSession

from sessionkit.testing.strategies import cuts
from tests.conformance.cases import Batch, NotRun, Run, Watermark, planned
from tests.conformance.runners import on_driver, on_spark

PLANNED: Final = list(planned())
RUNS: Final = [run for run in PLANNED if isinstance(run, Run)]
NOT_RUN: Final = [run for run in PLANNED if isinstance(run, NotRun)]


def _on_spark(run: Run) -> pytest.MarkDecorator | tuple[()]:
    """Leave to the long tests what needs no stream: one batch, or a rule that is an option."""
    needs_stream = run.dialect == "spark" and len(run.steps) > 1
    return () if needs_stream else pytest.mark.long


@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in RUNS])
def test_on_driver(run: Run) -> None:
    """A case comes to its answer on the driver."""
    assert run.expected == on_driver(run)


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=run.name, marks=_on_spark(run)) for run in RUNS]
)
def test_on_spark(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    """A case comes to its answer on a Spark stream."""
    assert run.expected == on_spark(run, spark, tmp_path)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, id=run.name, marks=pytest.mark.skip(reason=f"not run: {run.reason}"))
        for run in NOT_RUN
    ],
)
def test_not_run(run: NotRun) -> None:
    """A case by rules that sessionkit does not offer is skipped, never passed."""
    pytest.fail(run.reason)


@given(data=st.data())
def test_any_order_and_any_cut(data: DataObject) -> None:
    """A case that says so comes to the same answer for any order and cut of its events."""
    (run,) = (run for run in RUNS if run.name == "beam_order_independent_default_trigger")
    rows = [row for step in run.steps if isinstance(step, Batch) for row in step.rows]
    batches = [Batch(rows) for rows in data.draw(st.permutations(rows).flatmap(cuts))]
    (end,) = (step for step in run.steps if isinstance(step, Watermark))
    assert run.expected == on_driver(
        Run(run.name, run.dialect, run.spec, [*batches, end], run.expected)
    )
