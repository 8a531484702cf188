"""The log of a file source against the log of the query, which Spark doesn't compare."""

import json
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark.checkpoints.log import NO_SUCH_PATH, planned_offsets
from sessionkit.state import RESTORE

__all__ = ["check_source_logs"]

NOTHING: Final = -1


def check_source_logs(path: str, spark: SparkSession) -> None:
    """
    Check that each file source still knows all that its query has planned to read.

    Otherwise Spark would give new files the numbers of old ones, and never read them.

    Raises:
        StateCorruptedError: A file of the source's log is missing.
    """
    for number, text in enumerate(planned_offsets(path, spark)):
        offset: Any = json.loads(text) if text.startswith("{") else {}
        last = offset.get("logOffset")
        log = f"{path}/sources/{number}"
        if last is not None and NOTHING < _newest(log, spark) < last:
            found = f"the checkpoint is damaged: it has read up to {log}/{last}, which is missing"
            raise StateCorruptedError(with_hint(found, RESTORE))


def _newest(log: str, spark: SparkSession) -> int:
    """Return the number of the last entry of a log; less than any where there is no log."""
    files = spark.read.format("binaryFile")
    try:
        names = files.load(log).select(F.col("_metadata.file_name")).collect()
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return NOTHING
        raise
    numbers = [row[0].removesuffix(".compact") for row in names]
    return max((int(number) for number in numbers if number.isdigit()), default=NOTHING)
