"""The cases of `cases.json`: on the driver, and on Spark itself."""

from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from pyspark.sql import SparkSession

from sessionkit import Storage
from sessionkit.testing.generators import cuts
from tests.support.conformance.cases import (
    CASES,
    Batch,
    NotRun,
    Run,
    Watermark,
    from_aggregates,
    planned,
)
from tests.support.conformance.dedup import DEDUP_CASES
from tests.support.conformance.keyed import KEYED_RUNS, KeyedRun
from tests.support.conformance.runners import AnyRun, DedupRun, on_driver, on_spark

PLANNED: Final = list(planned())
RUNS: Final = [run for run in PLANNED if isinstance(run, Run)]
ON_DRIVER: Final[list[Run | KeyedRun]] = [*RUNS, *KEYED_RUNS]
DEDUP_RUNS: Final = [DedupRun(case["name"], case) for case in DEDUP_CASES]
ON_SPARK: Final[list[AnyRun]] = [*ON_DRIVER, *DEDUP_RUNS]
NOT_RUN: Final = [
    *(run for run in PLANNED if isinstance(run, NotRun)),
    *(NotRun(run.name, "Spark's own operator, so not on the driver") for run in DEDUP_RUNS),
]

ON_A_STREAM: Final = ("probe_close_at_watermark_end", "spark_bridge", "spark_out_of_order")
"""How cases begin that end at the instant of a watermark, or merge over micro-batches."""


def _on_spark(run: AnyRun) -> pytest.MarkDecorator | tuple[()]:
    """
    Leave to the long tests what needs no stream, or has one elsewhere.

    These are cases whose micro-batches don't show, cases of other systems, and rules that are
    options: what is late, and when, Spark's own cases and probes show too.
    """
    if isinstance(run, DedupRun):
        return ()
    if run.dialect != "spark" or not run.name.startswith(("probe", "spark")):
        return pytest.mark.long
    if isinstance(run, KeyedRun) or run.name.startswith(ON_A_STREAM):
        return ()
    return pytest.mark.nightly if _shows_its_batches(run) else pytest.mark.long


def _shows_its_batches(run: Run) -> bool:
    """Return whether all events in one batch come to another answer."""
    rows = [row for step in run.steps if isinstance(step, Batch) for row in step.rows]
    ends = [step for step in run.steps if isinstance(step, Watermark)][-1:]
    return bool(run.expected != on_driver(attrs.evolve(run, steps=[Batch(rows), *ends])))


@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in ON_DRIVER])
def test_a_case_has_its_answer_on_the_driver(run: Run | KeyedRun) -> None:
    """A case comes to its answer on the driver."""
    assert run.expected == on_driver(run)


@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in RUNS])
def test_a_case_about_sessions_has_its_answer_from_aggregates(run: Run) -> None:
    """A case about sessions comes to the same answer without functions."""
    assert run.expected == on_driver(from_aggregates(run))


@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in RUNS])
def test_a_case_has_its_answer_with_its_state_in_pages(run: Run) -> None:
    """A case comes to its answer on the driver too if the state is in pages."""
    spec: Any = attrs.evolve(run.spec, storage=Storage(layout="pages"))
    assert run.expected == on_driver(attrs.evolve(run, spec=spec))


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=run.name, marks=_on_spark(run)) for run in ON_SPARK]
)
def test_a_case_has_its_answer_on_spark(run: AnyRun, spark: SparkSession, tmp_path: Path) -> None:
    """A case comes to its answer on a Spark stream."""
    assert run.expected == on_spark(run, spark, tmp_path)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, id=run.name, marks=pytest.mark.skip(reason=f"not run: {run.reason}"))
        for run in NOT_RUN
    ],
)
def test_a_case_that_is_not_run_is_skipped_and_never_passed(run: NotRun) -> None:
    """A case that is not run, here or at all, is skipped, never passed."""
    pytest.fail(run.reason)


def test_every_case_is_planned() -> None:
    """No case is left out, whatever becomes of it."""
    planned_runs: list[AnyRun | NotRun] = [*ON_SPARK, *NOT_RUN]
    names = {run.name.partition("-as-")[0] for run in planned_runs}

    assert {case["name"] for case in CASES} == names


@given(data=st.data())
def test_a_case_has_its_answer_for_any_order_and_cut_of_its_events(data: DataObject) -> None:
    """A case that says so comes to the same answer for any order and cut of its events."""
    (run,) = (run for run in RUNS if run.name == "beam_order_independent_default_trigger")
    rows = [row for step in run.steps if isinstance(step, Batch) for row in step.rows]
    batches = [Batch(rows) for rows in data.draw(st.permutations(rows).flatmap(cuts))]
    (end,) = (step for step in run.steps if isinstance(step, Watermark))
    assert run.expected == on_driver(
        Run(run.name, run.dialect, run.spec, [*batches, end], run.expected)
    )
