"""The logs of a checkpoint: which micro-batches were planned and which finished; their checks."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.shell.payload import RESTORE
from sessionkit.errors import SessionkitError, StateCorruptedError, UnsupportedError

NO_SUCH_PATH: Final = "PATH_NOT_FOUND"
VERSION: Final = re.compile(r"v\d+")
FORMATS: Final = ("v1", "v2")
NAMED: Final = re.compile(r"(\w+):(.+)")
"""A source by its number or name, in an offset log of format 2, which has them in no order."""
OFFSETS: Final = "spark.sql.streaming.offsetLog.formatVersion"
COMPACT: Final = ".compact"
"""What follows the number of a file that has all entries of a source up to it."""
Found = TypeVar("Found")
Location: TypeAlias = str | os.PathLike[str]
"""Where a checkpoint or a seed is."""


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
class Logs:
    """The lines of planned and of finished micro-batches, by number; Spark deletes old ones."""

    path: str
    offsets: Mapping[int, list[str]]
    commits: Mapping[int, list[str]]

    @property
    def planned(self) -> int:
        """The last planned micro-batch; -1 for none."""
        return max(self.offsets, default=-1)

    @property
    def finished(self) -> int:
        """The number of the last finished micro-batch; -1 for none."""
        return max(self.commits, default=-1)

    @property
    def written(self) -> int:
        """The last finished micro-batch that a sink has got; -1 for none."""
        number = self.finished
        while self.is_repartition(number):
            number -= 1
        return number

    def is_repartition(self, number: int) -> bool:
        """
        Return whether a micro-batch is one of Spark's checkpoint manager, which no sink gets.

        It has the sources and the time of the one before, and other partitions, which no query can
        change.
        """
        before, own = self.offsets.get(number - 1), self.offsets.get(number)
        if before is None or own is None or before[2:] != own[2:]:
            return False
        was, now = self.about(number - 1), self.about(number)
        same_time = was.get("batchTimestampMs") == now.get("batchTimestampMs")
        return same_time and self.partitions(number - 1) != self.partitions(number)

    def spans(self, since: int, last: int) -> list[tuple[int, int]]:
        """
        Return the first and the last micro-batch of each span between two repartitions.

        That is after `since`, up to `last`. A repartition changes no row.
        """
        cuts = filter(self.is_repartition, range(since + 1, last + 1))
        pairs = pairwise([since, *cuts, last + 1])
        return [(before + 1, after - 1) for before, after in pairs if after - before > 1]

    def partitions(self, number: int) -> int:
        """Return into how many partitions a planned micro-batch hashes the state."""
        return int(self.about(number)["conf"]["spark.sql.shuffle.partitions"])

    def watermark_ms(self, number: int) -> int:
        """Return the watermark in force in a planned micro-batch; 0 for none."""
        return int(self.about(number)["batchWatermarkMs"])

    def started_ms(self, number: int) -> int:
        """Return the processing time of a planned micro-batch."""
        return int(self.about(number)["batchTimestampMs"])

    def about(self, number: int) -> Mapping[str, Any]:
        """Return the watermark, the processing time and settings of a planned micro-batch."""
        return self._about("offsets", number)

    def sources(self, number: int) -> Mapping[str, str]:
        """Return up to where a planned micro-batch reads each source, as JSON, by its number."""
        place = f"{self.path}/offsets/{number}"
        version, *lines = self.offsets.get(number) or [""]
        if version == "v1":
            return {str(source): line for source, line in enumerate(lines[1:])}
        matches = [*map(NAMED.fullmatch, lines[1:])]
        if version == "v2" and all(matches):
            named = [(one[1], one[2]) for one in matches if one]
            return dict(sorted(named, key=lambda one: (one[0].isdecimal() and int(one[0]), one[0])))
        raise damaged_checkpoint(f"{place} is missing or unreadable")

    @property
    def source_names(self) -> set[str]:
        """Return the names that sources have in any entry, whatever else is damaged there."""
        return {line.partition(":")[0] for lines in self.offsets.values() for line in lines[2:]}

    def source_logs(
        self, number: int, spark: SparkSession, readings: Sequence[int] = ()
    ) -> list[tuple[str, str]]:
        """
        Return up to where a planned micro-batch reads each source, and the folder of its log.

        A source that is read twice has one log. From Spark 4.3 on, it has two offsets in format 1;
        in format 2 it has one, under the number of the last reading. `readings` has the number of
        the log for each reading, where the query is known.
        """
        offsets = self.sources(number)
        logs = [*offsets]  # a source with a name has a log of that name
        if all(map(str.isdecimal, logs)):
            if self.offsets[number][0] == "v2":
                log_of_reading = {str(reading): log for reading, log in enumerate(readings)}
                logs = [str(log_of_reading.get(one, place)) for place, one in enumerate(logs)]
            elif len(readings) == len(logs):
                logs = [*map(str, readings)]
            elif len({*offsets.values()}) == 1 < len(logs) and not readings:
                is_one = not exists(spark, f"{self.path}/sources/1")
                logs = ["0"] * len(logs) if is_one else logs
        folders = (f"{self.path}/sources/{log}" for log in logs)
        return [*zip(offsets.values(), folders, strict=True)]

    def next_watermark_ms(self, number: int) -> int:
        """Return the watermark that a finished micro-batch leaves to the next one; 0 for none."""
        return int(self._about("commits", number).get("nextBatchWatermarkMs", 0))

    def _about(self, log: Literal["offsets", "commits"], number: int) -> Mapping[str, Any]:
        try:
            return dict(json.loads(getattr(self, log)[number][1]))
        except (LookupError, ValueError, TypeError):
            found = f"{self.path}/{log}/{number} is missing or unreadable"
            raise damaged_checkpoint(found) from None


def logs_of(path: str, spark: SparkSession) -> Logs:
    """Return the logs of a checkpoint; empty ones where there is none."""
    offsets, commits = (
        {
            int(name): text.splitlines()
            for name, text in folder_texts(spark, f"{path}/{log}").items()
            if name.isdigit()
        }
        for log in ("offsets", "commits")
    )
    version = next(iter(offsets.get(max(offsets, default=0), ())), "v1")
    if VERSION.fullmatch(version) and version not in FORMATS:
        text = f"{path}/offsets is of format {version}, which this release can't read"
        raise UnsupportedError(text, f"set {OFFSETS} to 2, with a new checkpoint")
    return Logs(path, offsets, commits)


def progress_of(path: str, spark: SparkSession) -> Progress:
    logs = logs_of(path, spark)
    if not logs.offsets:
        raise _no_checkpoint(path)
    planned = logs.planned if logs.planned not in logs.commits else None
    if not logs.commits:
        return Progress(None, planned, 0, (), ())
    batch = logs.finished
    files = files_read(logs, batch, spark)
    offsets = tuple(logs.sources(batch).values())
    return Progress(batch, planned, logs.next_watermark_ms(batch), offsets, files)


def check_begun(path: str, spark: SparkSession) -> None:
    if query_id_of(spark, path) is None and not logs_of(path, spark).offsets:
        raise _no_checkpoint(path)


def _no_checkpoint(path: str) -> SessionkitError:
    found = f"there is no checkpoint at {path}: it has no planned micro-batch"
    return SessionkitError(found, "pass the checkpoint location of a query")


def files_read(logs: Logs, number: int, spark: SparkSession) -> tuple[tuple[str, ...], ...]:
    if number < 0:
        return ()
    return tuple(
        _files(log, _read_up_to(offset), spark) for offset, log in logs.source_logs(number, spark)
    )


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
        raise damaged_checkpoint(f"{metadata} doesn't have the id of its query") from None


def folder_texts(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the files of a folder by their names; nothing where there is no folder."""
    if not exists(spark, path):  # Spark would look for a log in it, and warn that it is missing
        return {}
    files = spark.read.text(path, wholetext=True)
    return {row[0]: row[1] for row in files.select(F.col("_metadata.file_name"), "value").collect()}


def exists(spark: SparkSession, glob: str) -> bool:
    """Return whether a path exists, in any file system that Spark can read."""
    # With two paths, Spark doesn't look for a log in it. Connect needs a reason to look at all.
    return bool(if_there(lambda: spark.read.text([glob, glob]).columns))


def if_there(read: Callable[[], Found]) -> Found | None:
    """Return what Spark reads from a path; None where there is no such path."""
    try:
        return read()
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return None
        raise


def _read_up_to(offset: str) -> int | None:
    """Return the last entry of a file source's log that an offset includes; None for others."""
    last: int | None = json.loads(offset).get("logOffset") if offset.startswith("{") else None
    return last


def _files(log: str, last: int | None, spark: SparkSession) -> tuple[str, ...]:
    if last is None:
        return ()
    entries = [
        json.loads(line)
        for text in folder_texts(spark, log).values()
        for line in text.splitlines()
        if line.startswith("{")
    ]
    if not entries and last >= 0:
        raise damaged_checkpoint(f"it has read up to {log}/{last}, and {log} is missing")
    return tuple(sorted({entry["path"] for entry in entries if entry["batchId"] <= last}))


def check_logs(path: str, spark: SparkSession, readings: Sequence[int] = ()) -> Logs:
    """Check that the logs of a checkpoint are complete, and agree; for `readings`, see `Logs`."""
    logs = logs_of(path, spark)
    damage = next(_damage(logs, readings, spark), None) if logs.offsets or logs.commits else None
    if damage is not None:
        raise damaged_checkpoint(damage)
    return logs


def _damage(logs: Logs, readings: Sequence[int], spark: SparkSession) -> Iterator[str]:
    """Spark plans a micro-batch once the one before has finished, at the watermark that it left."""
    path, last, finished = logs.path, logs.planned, logs.finished
    if query_id_of(spark, path) is None:
        yield f"{path}/metadata is missing, which has the id of its query"
    if finished > last:
        yield f"{path}/offsets/{finished} is missing, though that micro-batch has finished"
    if finished < last - 1:
        yield f"{path}/commits/{last - 1} is missing, though micro-batch {last} was planned after"
    at_ms = logs.watermark_ms(last)
    left_ms = logs.next_watermark_ms(last - 1) if last - 1 in logs.commits else at_ms
    # A repartition keeps the watermark of the micro-batch before, and leaves what that has left.
    if at_ms != left_ms and not logs.is_repartition(last):
        yield (
            f"{path}/offsets/{last} has the watermark {at_ms} ms, but micro-batch "
            f"{last - 1} has left {left_ms} ms in commits/{last - 1}"
        )
    leaves_ms = logs.next_watermark_ms(last) if last in logs.commits else at_ms
    if leaves_ms < at_ms:
        yield (
            f"{path}/commits/{last} leaves the watermark {leaves_ms} ms, "
            f"but micro-batch {last} already had {at_ms} ms, and a watermark never falls"
        )
    for offset, log in logs.source_logs(last, spark, readings):
        yield from _source_damage(log, _read_up_to(offset), spark)


def _source_damage(log: str, last: int | None, spark: SparkSession) -> Iterator[str]:
    """
    Yield which planned files are missing from the log of a file source.

    Spark doesn't compare the two logs: it would give new files the numbers of old ones, and never
    read them, or end with a bare `assertion failed`.
    """
    if last is None or last < 0:
        return
    name = F.col("_metadata.file_name")
    # Compacted files may be large. They have more than digits in their names.
    text = F.when(name.rlike("^[0-9]+$"), F.col("content").cast("string"))
    files = spark.read.format("binaryFile")
    rows = if_there(lambda: files.load(log).select(name, text).collect())
    entries = {row[0]: row[1] for row in rows or ()}
    for number in range(last, -1, -1):
        if f"{number}{COMPACT}" in entries:
            break
        if str(number) not in entries:
            yield f"it has read up to {log}/{last}, and {log}/{number} is missing"
    for number, entry in entries.items():
        if entry is not None and not _is_sound(entry, int(number)):
            yield f"{log}/{number} doesn't have the files of its micro-batch"


def _is_sound(text: str, number: int) -> bool:
    """Return whether each line of an entry is a file of its micro-batch."""
    try:
        return all(json.loads(line)["batchId"] == number for line in text.splitlines()[1:])
    except (ValueError, KeyError, TypeError):
        return False


def damaged_checkpoint(found: str) -> StateCorruptedError:
    return StateCorruptedError(f"the checkpoint is damaged: {found}", RESTORE)


def damaged_state(found: str) -> StateCorruptedError:
    return StateCorruptedError(f"the stored state is damaged: {found}", RESTORE)


def active_session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError("no Spark session is active", "pass spark=...")
    return session
