"""The log of a file source against the log of the query, which Spark doesn't compare."""

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.payload import RESTORE
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark.checkpoints.log import NO_SUCH_PATH

__all__ = ["check_source_logs"]

COMPACT: Final = ".compact"
"""What follows the number of a file that has all entries up to it."""


def check_source_logs(path: str, offsets: Sequence[str], spark: SparkSession) -> None:
    """
    Check that each file source still knows all that its query has planned to read.

    Otherwise Spark would give new files the numbers of old ones, and never read them, or end with
    a bare `assertion failed`.

    Args:
        path: The checkpoint location.
        offsets: Up to where the last planned micro-batch reads each source, as JSON.
        spark: The session to read with.

    Raises:
        StateCorruptedError: A file of the source's log is missing.
    """
    for number, text in enumerate(offsets):
        offset: Any = json.loads(text) if text.startswith("{") else {}
        last = offset.get("logOffset")
        if last is None or last < 0:
            continue
        log = f"{path}/sources/{number}"
        missing = _missing(_names(log, spark), last)
        if missing is not None:
            found = f"it has read up to {log}/{last}, and {log}/{missing} is missing"
            raise _damaged(found)
        for name, entry in _entries(log, spark):
            if not _is_sound(entry, int(name)):
                found = f"{log}/{name} doesn't have the files of its micro-batch"
                raise _damaged(found)


def _missing(names: Sequence[str], last: int) -> int | None:
    """Return the number of the last file that a log up to a number lacks; None if it has all."""
    for number in range(last, -1, -1):
        if f"{number}{COMPACT}" in names:
            return None
        if str(number) not in names:
            return number
    return None


def _is_sound(text: str, number: int) -> bool:
    """Return whether each line of an entry is a file that has come under its number."""
    try:
        return all(json.loads(line)["batchId"] == number for line in text.splitlines()[1:])
    except (ValueError, KeyError, TypeError):
        return False


def _damaged(found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the checkpoint is damaged: {found}", RESTORE))


def _entries(log: str, spark: SparkSession) -> list[tuple[str, str]]:
    """Return the names and the texts of a log's files, but for those with all entries so far."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*[0-9]").load(log)
    text = F.col("content").cast("string")
    return [(row[0], row[1]) for row in files.select(F.col("_metadata.file_name"), text).collect()]


def _names(log: str, spark: SparkSession) -> list[str]:
    """Return the names of the files of a log; none where there is no log."""
    files = spark.read.format("binaryFile")
    try:
        return [row[0] for row in files.load(log).select(F.col("_metadata.file_name")).collect()]
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return []
        raise
