"""The log of a file source against the log of the query, which Spark doesn't compare."""

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.shell.payload import RESTORE
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark._logs import Logs, if_there, logs_of, query_id_of

COMPACT: Final = ".compact"
"""What follows the number of a file that has all entries up to it."""


def check_source_logs(path: str, offsets: Sequence[str], spark: SparkSession) -> None:
    """
    Check that each file source still knows all that its query has planned to read.

    Otherwise Spark would give new files the numbers of old ones, and never read them, or end with
    a bare `assertion failed`.
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
    """Return the number of the last missing file of a log; None if none is missing."""
    for number in range(last, -1, -1):
        if f"{number}{COMPACT}" in names:
            return None
        if str(number) not in names:
            return number
    return None


def _is_sound(text: str, number: int) -> bool:
    """Return whether each line of an entry is a file of its micro-batch."""
    try:
        return all(json.loads(line)["batchId"] == number for line in text.splitlines()[1:])
    except (ValueError, KeyError, TypeError):
        return False


def _entries(log: str, spark: SparkSession) -> list[tuple[str, str]]:
    """Return the names and texts of the files of a log, without the compacted ones."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*[0-9]").load(log)
    text = F.col("content").cast("string")
    return [(row[0], row[1]) for row in files.select(F.col("_metadata.file_name"), text).collect()]


def _names(log: str, spark: SparkSession) -> list[str]:
    """Return the names of the files of a log; none where there is no log."""
    files = spark.read.format("binaryFile")
    found = if_there(lambda: files.load(log).select(F.col("_metadata.file_name")).collect())
    return [row[0] for row in found or ()]


def check_logs(path: str, spark: SparkSession) -> Logs:
    """
    Check that the logs of a checkpoint are complete, and agree with each other.

    Spark plans a micro-batch once the one before has finished, at the watermark that this has left.
    """
    logs = logs_of(path, spark)
    if not (logs.offsets or logs.commits):
        return logs
    if query_id_of(spark, path) is None:
        found = f"{path}/metadata is missing, which has the id of its query"
        raise _damaged(found)
    last, finished = logs.planned, logs.finished
    if finished > last:
        found = f"{path}/offsets/{finished} is missing, though that micro-batch has finished"
        raise _damaged(found)
    if finished < last - 1:
        found = f"{path}/commits/{last - 1} is missing, though micro-batch {last} was planned after"
        raise _damaged(found)
    _check_watermarks(logs, last)
    check_source_logs(path, logs.plan(last).sources, spark)
    return logs


def _check_watermarks(logs: Logs, last: int) -> None:
    """Check that the watermarks in the logs follow from each other."""
    at_ms = logs.plan(last).about["batchWatermarkMs"]
    if last and last - 1 in logs.commits:
        left_ms = logs.next_watermark_ms(last - 1)
        if at_ms != left_ms:
            found = (
                f"{logs.path}/offsets/{last} has the watermark {at_ms} ms, but micro-batch "
                f"{last - 1} has left {left_ms} ms in commits/{last - 1}"
            )
            raise _damaged(found)
    if last in logs.commits and logs.next_watermark_ms(last) < at_ms:
        found = (
            f"{logs.path}/commits/{last} leaves the watermark {logs.next_watermark_ms(last)} ms, "
            f"but micro-batch {last} already had {at_ms} ms, and a watermark never falls"
        )
        raise _damaged(found)


def _damaged(found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the checkpoint is damaged: {found}", RESTORE))
