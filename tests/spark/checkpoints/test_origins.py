"""State that knows its query: what another run has stored isn't read, and a whole copy is."""

import shutil
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit.spark import Files, ForeachBatch, Routes
from sessionkit.spark.sinks.batches import drain
from tests.support.counted_views import USERS, begun, spec_of, views
from tests.support.streams import FileStream


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_the_state_of_another_run_does_not_start_and_a_whole_copy_does(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    """
    Though spec, buckets and micro-batches are the same.

    A whole copy has the id of its query, so two versions of a job run side by side.
    """
    one, other = (begun(spark, spec_of(layout), tmp_path / name) for name in ("one", "other"))
    for part in ("0", "whole"):
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
        assert [3] * len(USERS) == [session.state.views for session in stream.open()]


def run_all(frame: DataFrame, number: int) -> None:
    del number
    drain(frame)


@pytest.mark.parametrize("kind", ["routes", "function"])
def test_what_foreach_batch_stores_belongs_to_the_query(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    """On Connect too, where a thread that isn't the query's runs what the function asks for."""
    routed = kind == "routes"

    def run(name: str, *tables: pa.Table) -> str:
        stream = FileStream(spark, spec_of("buckets"), tmp_path / name, with_rejected=routed)
        files = Files("parquet", stream.folder / "out")
        stream.put(*tables)
        stream.run_to(Routes(session=files, rejected=None) if routed else ForeachBatch(run_all))
        return f"{stream.checkpoint}/state/0"

    one, other = (run(name, views(0), views(1)) for name in ("one", "other"))
    shutil.rmtree(other)
    shutil.copytree(one, other)

    with pytest.raises(Exception, match="belongs to another query"):
        run("other", views(2))
