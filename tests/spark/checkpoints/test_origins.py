"""State that knows its query: what another run has stored isn't read, and a whole copy is."""

import shutil
from pathlib import Path

import attrs
import pytest
from pyspark.sql import SparkSession

from tests.support.counted_views import USERS, begun, spec_of, views


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_the_state_of_another_run_does_not_start_and_a_whole_copy_does(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    """
    Neither a partition nor all of it, though spec, buckets and micro-batches are the same.

    A whole copy has the id of its query, so two versions of a job run side by side.
    """
    one, other = (begun(spark, spec_of(layout), tmp_path / name) for name in ("one", "other"))
    for part in ("0/1", "0", "whole"):
        copy = attrs.evolve(one, folder=tmp_path / f"other_{part[-1]}", files=one.source)
        shutil.copytree(one.checkpoint, copy.checkpoint)
        if part == "whole":
            break
        shutil.rmtree(f"{copy.checkpoint}/state/{part}")
        shutil.copytree(f"{other.checkpoint}/state/{part}", f"{copy.checkpoint}/state/{part}")
        one.put(views(2))
        with pytest.raises(Exception, match="belongs to another query"):
            copy.run()

    for stream in (one, copy):
        stream.run()
        assert [4] * len(USERS) == [session.state.views for session in stream.open()]
