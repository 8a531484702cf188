"""The log that Spark's file sink keeps in its folder: which micro-batches it has."""

import os
from typing import Final

from pyspark.sql import SparkSession

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.checkpoints.log import folder_texts
from sessionkit.spark.sinks.folders import exists
from sessionkit.spark.sinks.native import Files

__all__ = ["check_file_log", "numbers_from"]

LOG: Final = "_spark_metadata"
NONE: Final = -1


def check_file_log(spark: SparkSession, sink: Files, checkpoint: str) -> None:
    """
    Refuse a folder to which other micro-batches were written than those of the query.

    The log knows micro-batches by number, and not by query. Spark takes one whose number is there
    for one that runs again, and drops its rows. It reads no log that doesn't begin with number 0.

    Args:
        spark: The session of the query.
        sink: The folder.
        checkpoint: The checkpoint location, which may be new.

    Raises:
        SpecError: The log has a micro-batch that the query of the checkpoint hasn't planned yet, or
            doesn't have its last finished one.
    """
    folder = os.fspath(sink.path)
    planned, finished = (_last(spark, f"{checkpoint}/{log}") for log in ("offsets", "commits"))
    if _has_from(spark, folder, planned + 1):
        found = (
            f"the folder {folder} has micro-batches that the query of the checkpoint {checkpoint} "
            "hasn't planned yet: another query wrote them, and Spark would drop the rows of every "
            "micro-batch whose number is there"
        )
        hint = "pass a folder of its own, or the checkpoint of the query that wrote to this one"
        raise SpecError(with_hint(found, hint))
    if finished != NONE and not _has_from(spark, folder, finished):
        found = (
            f"the folder {folder} doesn't have micro-batch {finished}, which the query of the "
            f"checkpoint {checkpoint} has finished: it wrote to another folder, and Spark could "
            "read none in which the first micro-batches are missing"
        )
        raise SpecError(with_hint(found, "pass the folder that the query wrote to"))


def _last(spark: SparkSession, log: str) -> int:
    """Return the number of the last micro-batch in a log of a checkpoint."""
    return max((int(name) for name in folder_texts(spark, log) if name.isdigit()), default=NONE)


def _has_from(spark: SparkSession, folder: str, least: int) -> bool:
    """Return whether the log of a folder has a micro-batch from a number on."""
    return exists(spark, f"{folder}/{LOG}/{numbers_from(least)}")


def numbers_from(least: int) -> str:
    """Return a glob of the names that begin with a whole number, from a least one on."""
    digits = str(least)
    higher = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'[0-9]' * (len(digits) - place - 1)}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    longer = "[0-9]" * (len(digits) + 1)
    return f"{{{','.join([digits, *higher, longer])}}}*"
