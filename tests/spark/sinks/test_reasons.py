"""What Spark shows of an error in a sink begins with what the error says."""

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.spark import ExactlyOnce, Kafka, start_query
from sessionkit.spark.sinks import Batch, BatchWriter
from sessionkit.spark.sinks.batches import Part, Route, WriteBatches

BEGINS = "sessionkit.errors.SinkError: "


@attrs.frozen
class Failing(BatchWriter):
    chained: bool
    runs_all = True

    def write(self, batch: Batch) -> None:
        error = SpecError(f"no place for {batch.number}", "make some")
        if not self.chained:
            raise error
        raise error from KeyError("first")


@pytest.mark.parametrize("chained", [False, True])
def test_a_traceback_begins_with_what_the_error_says(*, chained: bool) -> None:
    """With its kind and its hint, before each cause and each line of code; it stays what it is."""
    nothing: Any = MagicMock()
    part = Part(Route(Kafka("h:1"), T.StructType()), Failing(chained))
    with pytest.raises(SpecError) as failed:
        WriteBatches("", "run", [part], query_id="query")(nothing, 7)

    shown = "".join(traceback.format_exception(failed.value))
    assert shown.startswith(f"{BEGINS}SpecError: no place for 7\n\nHint: make some\n\n")
    assert chained == ("KeyError: 'first'" in shown)


def test_an_error_of_an_executor_is_said_before_the_lines_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where Spark shows the traceback of the executor in that of the driver."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        found = "no more\nof this"
        raise ValueError(found)

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        del query_id, batch_id
        frame.mapInArrow(fail, frame.schema).collect()

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    with pytest.raises(StreamingQueryException) as failed:
        start_query(
            rows,
            sink=ExactlyOnce(write, lambda _: None),
            trigger="availableNow",
            checkpoint=tmp_path,
        ).awaitTermination()

    # Py4J, or Connect.
    shown = re.split("Return Message: |foreachBatch Python process: ", str(failed.value))[1]
    assert shown.startswith(f"{BEGINS}ValueError: no more\nof this\n\nThe above exception")


def test_a_full_disk_is_said_first() -> None:
    """Py4J's own first line says which call has failed."""
    text = (
        "An error occurred while calling o78973.save.\n: org.apache.spark.SparkException: failed\n"
        "\tat a.b.c\nCaused by: org.apache.spark.SparkException: Task failed\n\t... 1 more\n"
        "Caused by: java.io.IOException: No space left on device\n\tat d.e.f\n"
    )
    failing = WriteBatches("/no checkpoint", "run", (), query_id="q")
    cause = RuntimeError(text)

    def fails(*_: object) -> None:
        raise cause

    frame: Any = MagicMock()
    frame.write.format.side_effect = fails
    with pytest.raises(RuntimeError) as failed:
        failing(frame, 0)
    said = "java.io.IOException: No space left on device\n\nHint: make room on that disk"
    assert str(failed.value.__cause__).startswith(said)
