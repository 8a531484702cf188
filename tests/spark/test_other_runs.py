"""A query that another run has overtaken: its error begins with that, whatever Spark says."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions import captured
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import SpecError
from sessionkit.spark import AtLeastOnce, ExactlyOnce, Files, start_query
from sessionkit.spark._other_runs import FOUND
from sessionkit.spark._refusals import said_at_start
from sessionkit.spark._started import in_our_words
from sessionkit.spark.sinks.values import StreamSink

pytestmark = pytest.mark.cell("classic")
SAID = f"{FOUND}\n\nHint: leave only one run"
SPARK_SAYS = {
    "_spark_metadata/0": "Race while writing batch 0",
    "commits/0": "Multiple streaming jobs detected for 0",
}


def _of_other_run(path: Path) -> None:
    """Write what another run would have written just before."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("v1\n{}")


@pytest.mark.parametrize("place", SPARK_SAYS)
def test_the_error_of_a_query_begins_with_the_other_run(
    place: str, spark: SparkSession, tmp_path: Path
) -> None:
    """For each log of Spark's, to awaitTermination and to who asks for the exception."""
    in_sink = place.startswith("_")
    folder = tmp_path / ("out" if in_sink else "checkpoint")

    def overtake(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        _of_other_run(folder / place)
        yield from frames

    def write(frame: DataFrame, number: int) -> None:
        frame.collect()

    spark.range(1).write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    sink: StreamSink = Files("json", folder) if in_sink else AtLeastOnce(write)
    query: Any = start_query(
        rows.mapInPandas(overtake, "id long"),
        sink=sink,
        trigger="availableNow",
        checkpoint=tmp_path / "checkpoint",
    )
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination()

    for error in (ended.value, query.exception()):
        assert str(error).startswith(SAID)
        assert SPARK_SAYS[place] in str(error)


def test_another_error_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """It's Spark's own, with its cause."""
    spark.range(1).write.parquet(str(tmp_path / "in"))

    def fail(frame: DataFrame, number: int) -> None:
        raise ValueError("mine")

    query = start_query(
        spark.readStream.schema("id long").parquet(str(tmp_path / "in")),
        sink=AtLeastOnce(fail),
        trigger="availableNow",
        checkpoint=tmp_path / "checkpoint",
    )
    with pytest.raises(StreamingQueryException, match=r"^\[STREAM_FAILED\]"):
        query.awaitTermination()


def test_a_start_says_that_another_run_writes_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rather than that the checkpoint is older than the sink, which someone would take back."""
    spark.range(1).write.parquet(str(tmp_path / "in"))
    offsets = tmp_path / "checkpoint" / "offsets"

    def last_batch_of_other_run(query_id: str) -> int:
        (offsets / "1").write_text((offsets / "0").read_text())
        return 1

    def start(last: Callable[[str], int]) -> StreamingQuery:
        return start_query(
            spark.readStream.schema("id long").parquet(str(tmp_path / "in")),
            sink=ExactlyOnce(lambda frame, query_id, number: None, last),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        )

    start(lambda query_id: -1).awaitTermination()
    with pytest.raises(SpecError, match=f"^{FOUND}"):
        start(last_batch_of_other_run)


def test_two_first_starts_at_once_are_named(spark: SparkSession) -> None:
    """Rather than that the checkpoint is to be deleted, with which the other run goes on."""
    as_it_starts = Exception("Multiple streaming queries are concurrently using /c/metadata")
    as_it_runs = captured.StreamingQueryException(
        "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location /c/offsets should be "
        "empty on batch 0\nPlease [...] delete the existing data in the checkpoint location.",
        "",
    )

    with pytest.raises(SpecError) as refused, said_at_start():
        raise as_it_starts
    assert str(refused.value).startswith(SAID)
    assert str(in_our_words(as_it_runs, "")).startswith(SAID)
