"""What Spark writes down in a checkpoint: which micro-batches were planned, and which finished."""

import json
from typing import Any, Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SessionkitError, with_hint

__all__ = [
    "NO_SUCH_PATH",
    "LastBatch",
    "Progress",
    "folder_texts",
    "last_batch_of",
    "planned_offsets",
    "progress_of",
    "query_id_of",
]

NO_SUCH_PATH: Final = "PATH_NOT_FOUND"


@attrs.frozen
class Progress:
    """
    How far a query has come.

    Attributes:
        batch: The number of its last finished micro-batch; None if none has finished.
        planned: The number of a micro-batch that was planned and not finished, and that would run
            again; None where there is none.
        watermark_ms: Spark's watermark of the next micro-batch, in milliseconds; 0 for none.
        offsets: For each source, as JSON, up to where the last finished micro-batch read it.
        files: For each source, the files that finished micro-batches have read; nothing for a
            source that doesn't read files.
    """

    batch: int | None
    planned: int | None
    watermark_ms: int
    offsets: tuple[str, ...]
    files: tuple[tuple[str, ...], ...] = attrs.field(repr=False)


@attrs.frozen
class LastBatch:
    """
    The last finished micro-batch of a query, as Spark wrote it down before it began.

    Attributes:
        watermark_ms: The watermark that it had, in milliseconds.
        started_ms: Its processing time, in milliseconds.
        partitions: In how many partitions its state is.
    """

    watermark_ms: int
    started_ms: int
    partitions: int


def progress_of(path: str, spark: SparkSession) -> Progress:
    """
    Return how far the query of a checkpoint has come.

    Raises:
        SessionkitError: There is no checkpoint.
    """
    offsets, commits = (_by_batch(spark, f"{path}/{name}") for name in ("offsets", "commits"))
    if not offsets:
        found = f"there is no checkpoint at {path}: it has no planned micro-batch"
        raise SessionkitError(with_hint(found, "pass the checkpoint location of a query"))
    planned = max(offsets) if max(offsets) not in commits else None
    if not commits:
        return Progress(None, planned, 0, (), ())
    batch = max(commits)
    sources = tuple(offsets[batch][2:])
    return Progress(
        batch,
        planned,
        int(json.loads(commits[batch][1]).get("nextBatchWatermarkMs", 0)),
        sources,
        tuple(_files(path, number, text, spark) for number, text in enumerate(sources)),
    )


def last_batch_of(path: str, spark: SparkSession) -> LastBatch | None:
    """Return the last finished micro-batch of the query of a checkpoint; None if none finished."""
    commits = _by_batch(spark, f"{path}/commits")
    if not commits:
        return None
    last = max(commits)
    found: dict[str, Any] = json.loads(_by_batch(spark, f"{path}/offsets/{last}")[last][1])
    partitions = int(found["conf"]["spark.sql.shuffle.partitions"])
    return LastBatch(found["batchWatermarkMs"], found["batchTimestampMs"], partitions)


def planned_offsets(path: str, spark: SparkSession) -> list[str]:
    """Return, for each source, up to where the last planned micro-batch reads it, as JSON."""
    offsets = _by_batch(spark, f"{path}/offsets")
    return offsets[max(offsets)][2:] if offsets else []


def query_id_of(spark: SparkSession, path: str) -> str | None:
    """Return the id that the query of a checkpoint keeps over restarts; None if none has begun."""
    metadata = f"{path}/metadata"
    try:
        # With two paths, Spark doesn't look for a file sink's log, nor warn that it is missing.
        (row,) = spark.read.text([metadata, metadata], wholetext=True).limit(1).collect()
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return None
        raise
    return str(json.loads(row[0])["id"])


def _by_batch(spark: SparkSession, path: str) -> dict[int, list[str]]:
    """Return the lines of each file of a log, by the number of its micro-batch."""
    found = folder_texts(spark, path)
    return {int(name): text.splitlines() for name, text in found.items() if name.isdigit()}


def folder_texts(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the files of a folder by their names; nothing where there is no folder."""
    try:
        files = spark.read.text(path, wholetext=True)
        rows = files.select(F.col("_metadata.file_name"), "value").collect()
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return {}
        raise
    return {row[0]: row[1] for row in rows}


def _files(path: str, number: int, offset: str, spark: SparkSession) -> tuple[str, ...]:
    """Return the files that a file source has read up to an offset."""
    last: Any = json.loads(offset) if offset.startswith("{") else {}
    if "logOffset" not in last:
        return ()
    entries = [
        json.loads(line)
        for text in folder_texts(spark, f"{path}/sources/{number}").values()
        for line in text.splitlines()
        if line.startswith("{")
    ]
    taken = {entry["path"] for entry in entries if entry["batchId"] <= last["logOffset"]}
    return tuple(sorted(taken))
