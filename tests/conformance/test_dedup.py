"""The cases of `cases.json` about deduplication, on Spark itself."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.conformance.cases import Case
from tests.support.conformance.dedup import DEDUP_CASES, dedup_case


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in DEDUP_CASES])
def test_on_spark(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    """A case emits the rows of its answer, and drops as late those that it names."""
    emitted, late = dedup_case(case, spark, tmp_path)

    assert case["expected_emitted"] == emitted
    assert case["late"] == late


def test_there_are_three() -> None:
    """No case is left out."""
    assert 3 == len(DEDUP_CASES)
