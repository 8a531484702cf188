"""A query that a disk, a folder or a server has ended says so first, and what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession

from sessionkit.spark import Files, start_query
from sessionkit.spark._started import in_our_words

pytestmark = pytest.mark.cell("classic")


def test_a_folder_that_can_no_longer_be_written_is_the_first_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own text names a task, and neither the cause nor what to do."""
    out = tmp_path / "out"

    def put_a_file_there(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        out.mkdir(exist_ok=True)
        (out / "part=0").write_text("a file")
        yield from frames

    spark.range(1).write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    query: Any = start_query(
        rows.mapInPandas(put_a_file_there, "id long").selectExpr("id", "0 AS part"),
        sink=Files("json", out, partition_by=("part",)),
        trigger="availableNow",
        checkpoint=tmp_path / "checkpoint",
    )
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination()

    for error in (ended.value, query.exception()):
        first, _, hint, *_ = str(error).splitlines()
        assert first.startswith("the query has ended: ")
        assert f"{out}/part=0" in first
        assert "Hint: a file is where a folder must be: move it, and start the query again" == hint
        assert "[TASK_WRITE_FAILED]" in str(error)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[STREAM_FAILED]", "org.apache.spark.api.python.PythonException: TimeoutError: timeout"),
        ("[STREAM_FAILED]", "java.lang.ArithmeticException: / by zero"),
        ("SinkError: refused\n\nHint: wait", "java.net.ConnectException: Connection refused"),
    ],
    ids=["a function's", "the query's", "ours"],
)
def test_another_error_stays_as_it_is(text: str, cause: str, spark: SparkSession) -> None:
    """An error of a function, of the query, and an error that has a hint."""
    error = captured.StreamingQueryException(text, "")

    assert error is in_our_words(error, cause)


def test_a_full_disk_is_the_first_line(spark: SparkSession) -> None:
    """Spark's text says that a task failed while it wrote rows."""
    error = captured.StreamingQueryException("[STREAM_FAILED] .. [TASK_WRITE_FAILED] ..", "")
    said = in_our_words(error, "java.io.IOException: No space left on device")

    assert str(said).startswith(
        "the query has ended: java.io.IOException: No space left on device\n\n"
        "Hint: make room on that disk, and start the query again\n\n[STREAM_FAILED]"
    )
