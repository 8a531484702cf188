"""Rows written to the sinks of tables, one micro-batch after the other."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionkit.spark.sinks import Batch, BatchWriter, RowsToWrite, TableSink


def writer_of(sink: TableSink, schema: T.StructType, **rows: Any) -> Any:
    """Return the writer of rows of a schema, which aren't sessions unless `rows` says so."""
    spark: Any = SparkSession.getActiveSession()
    return sink.writer(RowsToWrite(schema, **{"of_results": False, **rows}), spark)


def write(
    writer: BatchWriter, frame: DataFrame, number: int = 0, query: str = "query", run: str = "run"
) -> None:
    """Write a micro-batch that the table doesn't have."""
    batch = Batch(frame, number, query, run)
    assert not writer.is_written(batch)
    writer.write(batch)
