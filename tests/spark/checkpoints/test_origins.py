"""State that knows its query: what another run has stored isn't read, and a whole copy is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit.spark import AtLeastOnce, Files, Routes
from sessionkit.spark.sinks.batches import drain
from tests.support.counted_views import USERS, spec_of, views
from tests.support.spark_settings import changed
from tests.support.streams import FileStream


@pytest.fixture(autouse=True)
def _no_batches_without_data(spark: SparkSession) -> Iterator[None]:
    """They show nothing here, and cost as much as the others."""
    with changed(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        yield


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_the_state_of_another_run_does_not_start_and_a_whole_copy_does(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    """
    Though spec, buckets and micro-batches are the same.

    A whole copy has the id of its query, so two versions of a job run side by side.
    """
    one, other = (FileStream(spark, spec_of(layout), tmp_path / name) for name in ("one", "other"))
    for stream in (one, other):
        stream.put(views(0))
        stream.run()
    for part in ("0", "whole"):
        copy = attrs.evolve(one, folder=tmp_path / f"other_{part[-1]}", files=one.source)
        shutil.copytree(one.checkpoint, copy.checkpoint)
        if part == "whole":
            break
        shutil.rmtree(f"{copy.checkpoint}/state/{part}")
        shutil.copytree(f"{other.checkpoint}/state/{part}", f"{copy.checkpoint}/state/{part}")
        one.put(views(1))
        with pytest.raises(Exception, match="belongs to another query"):
            copy.run()

    for stream in (one, copy):
        stream.run()
        assert [2] * len(USERS) == [session.state.views for session in stream.open()]


def run_all(frame: DataFrame, number: int) -> None:
    del number
    drain(frame)


@pytest.mark.nightly
def test_what_foreach_batch_stores_belongs_to_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """On Connect too, where a thread that isn't the query's runs what the function asks for."""

    def run(kind: str, number: int) -> str:
        routed = kind == "routes"
        stream = FileStream(spark, spec_of("buckets"), tmp_path / kind, with_rejected=routed)
        files = Files("parquet", stream.folder / "out")
        stream.put(views(number))
        stream.run_to(Routes(session=files, rejected=None) if routed else AtLeastOnce(run_all))
        return f"{stream.checkpoint}/state/0"

    one, other = (run(kind, 0) for kind in ("routes", "function"))
    shutil.move(one, tmp_path / "kept")
    shutil.move(other, one)
    shutil.move(tmp_path / "kept", other)

    for kind in ("routes", "function"):
        with pytest.raises(Exception, match="belongs to another query"):
            run(kind, 1)
