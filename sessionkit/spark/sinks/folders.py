"""A folder as one sink of several: a subfolder for each micro-batch."""

import os
from typing import Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionkit.spark.checkpoints.log import NO_SUCH_PATH
from sessionkit.spark.sinks.batches import Batch
from sessionkit.spark.sinks.native import Files

__all__ = ["FolderWriter", "exists"]

DONE: Final = "_SUCCESS"
"""What Spark writes into a folder once everything else is there."""


@attrs.frozen
class FolderWriter:
    """Writes each micro-batch to `query_id=.../batch_id=...`, which is its name."""

    sink: Files
    runs_all: bool = attrs.field(default=True, init=False)

    def is_written(self, batch: Batch) -> bool:
        """Return whether the folder of the micro-batch is complete."""
        return exists(batch.frame.sparkSession, f"{self._folder(batch)}/{DONE}")

    def write(self, batch: Batch) -> None:
        """Write it in place of what an attempt may have left."""
        writer = batch.frame.write.format(self.sink.format).mode("overwrite")
        # Without the marker, one that runs again would be taken for one that is incomplete.
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        if self.sink.partition_by:
            writer = writer.partitionBy(*self.sink.partition_by)
        # The rows of other micro-batches are in other folders.
        writer.option("partitionOverwriteMode", "static").save(self._folder(batch))

    def _folder(self, batch: Batch) -> str:
        folder = os.fspath(self.sink.path)
        return f"{folder}/query_id={batch.query_id}/batch_id={batch.number}"


def exists(spark: SparkSession, glob: str) -> bool:
    """Return whether a path exists, wherever it is stored: Spark reads no file of such a log."""
    try:
        # With two paths, Spark doesn't look for a log in it. Connect needs a reason to look at all.
        return bool(spark.read.text([glob, glob]).columns)
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return False
        raise
