"""What Spark writes down in a checkpoint: which micro-batches were planned, and which finished."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.shell.payload import RESTORE
from sessionkit.errors import SessionkitError, StateCorruptedError, with_hint

NO_SUCH_PATH: Final = "PATH_NOT_FOUND"
Found = TypeVar("Found")


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
    """The last finished micro-batch of a query, as Spark wrote it down before it began."""

    number: int
    watermark_ms: int
    started_ms: int
    partitions: int


@attrs.frozen
class Planned:
    """
    A micro-batch as Spark wrote it down before it began.

    Attributes:
        about: Its watermark, its processing time, and settings of Spark that stay the same.
        sources: Up to where it reads each source, as JSON.
    """

    about: Mapping[str, Any]
    sources: tuple[str, ...]


@attrs.frozen
class Logs:
    """The lines of planned and of finished micro-batches by number; Spark deletes old ones."""

    path: str
    offsets: Mapping[int, list[str]]
    commits: Mapping[int, list[str]]

    @property
    def planned(self) -> int:
        """The number of the last planned micro-batch; -1 for none."""
        return max(self.offsets, default=-1)

    @property
    def finished(self) -> int:
        """The number of the last finished micro-batch; -1 for none."""
        return max(self.commits, default=-1)

    def plan(self, number: int) -> Planned:
        """Return a planned micro-batch."""
        lines = self.offsets.get(number, [])
        return Planned(self._about("offsets", number, lines), tuple(lines[2:]))

    def next_watermark_ms(self, number: int) -> int:
        """Return the watermark that a finished micro-batch leaves to the next one; 0 for none."""
        about = self._about("commits", number, self.commits.get(number, []))
        return int(about.get("nextBatchWatermarkMs", 0))

    def _about(self, log: str, number: int, lines: list[str]) -> Mapping[str, Any]:
        try:
            found = json.loads(lines[1])
            return dict(found)
        except (IndexError, ValueError, TypeError):
            text = f"the checkpoint is damaged: {self.path}/{log}/{number} is missing or unreadable"
            raise StateCorruptedError(with_hint(text, RESTORE)) from None


def logs_of(path: str, spark: SparkSession) -> Logs:
    """Return the logs of a checkpoint; empty ones where there is none."""
    offsets, commits = (_by_batch(spark, f"{path}/{name}") for name in ("offsets", "commits"))
    return Logs(path, offsets, commits)


def progress_of(path: str, spark: SparkSession) -> Progress:
    """Return how far the query of a checkpoint has come."""
    logs = logs_of(path, spark)
    if not logs.offsets:
        found = f"there is no checkpoint at {path}: it has no planned micro-batch"
        raise SessionkitError(with_hint(found, "pass the checkpoint location of a query"))
    planned = logs.planned if logs.planned not in logs.commits else None
    if not logs.commits:
        return Progress(None, planned, 0, (), ())
    batch = logs.finished
    sources = logs.plan(batch).sources
    return Progress(
        batch, planned, logs.next_watermark_ms(batch), sources, files_read(logs, batch, spark)
    )


def files_read(logs: Logs, number: int, spark: SparkSession) -> tuple[tuple[str, ...], ...]:
    """Return for each source the files that have been read at the end of a micro-batch."""
    sources = enumerate(logs.plan(number).sources)
    return tuple(_files(logs.path, source, offset, spark) for source, offset in sources)


def last_batch_of(logs: Logs) -> LastBatch | None:
    """Return the last finished micro-batch of the query of a checkpoint; None if none finished."""
    if not logs.commits:
        return None
    about = logs.plan(logs.finished).about
    partitions = int(about["conf"]["spark.sql.shuffle.partitions"])
    times = (about["batchWatermarkMs"], about["batchTimestampMs"])
    return LastBatch(logs.finished, *times, partitions)


def query_id_of(spark: SparkSession, path: str) -> str | None:
    """Return the id that the query of a checkpoint keeps over restarts; None if none has begun."""
    metadata = f"{path}/metadata"
    try:
        # With two paths, Spark doesn't look for a file sink's log, nor warn that it is missing.
        rows = if_there(
            lambda: spark.read.text([metadata, metadata], wholetext=True).limit(1).collect()
        )
        return None if rows is None else str(UUID(json.loads(rows[0][0])["id"]))
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        found = f"the checkpoint is damaged: {metadata} doesn't have the id of its query"
        raise StateCorruptedError(with_hint(found, RESTORE)) from None


def _by_batch(spark: SparkSession, path: str) -> dict[int, list[str]]:
    """Return the lines of each file of a log that isn't empty, by its micro-batch."""
    found = folder_texts(spark, path)
    return {int(name): text.splitlines() for name, text in found.items() if name.isdigit()}


def folder_texts(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the files of a folder by their names; nothing where there is no folder."""

    def read() -> list[Row]:
        files = spark.read.text(path, wholetext=True)
        return files.select(F.col("_metadata.file_name"), "value").collect()

    return {row[0]: row[1] for row in if_there(read) or ()}


def if_there(read: Callable[[], Found]) -> Found | None:
    """Return what Spark reads from a path; None where there is no such path."""
    try:
        return read()
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return None
        raise


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


def active_session(spark: SparkSession | None) -> SparkSession:
    """Return a session that is given, or the active one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    return session
