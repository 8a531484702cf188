"""Read and check the logs of a checkpoint: its planned and its finished micro-batches."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID, uuid4

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.shell.payload import RESTORE
from sessionkit.errors import SessionkitError, StateCorruptedError, UnsupportedError
from sessionkit.spark._paths import LOCAL_ROOT, literal_path
from sessionkit.spark._sail import check_no_checkpoint
from sessionkit.spark._settings import said_if_silent

VERSION: Final = re.compile(r"v\d+")
NAMED: Final = re.compile(r"(\w+):(.+)")
"""A line of an offset log of format 2, whose sources, by number or name, are unordered."""
OFFSETS: Final = "spark.sql.streaming.offsetLog.formatVersion"
Found = TypeVar("Found")
Location: TypeAlias = str | os.PathLike[str]
"""The path of a checkpoint or a seed."""


@attrs.frozen
class Progress:
    """
    The progress of a query.

    Attributes:
        batch: The number of its last finished micro-batch; None if none has finished.
        planned: The number of a planned but unfinished micro-batch, which would run again; None if
            there is none.
        watermark_ms: Spark's watermark of the next micro-batch, in milliseconds; 0 for none.
        offsets: For each source, as JSON, the end offset of the last finished micro-batch.
        files: For each source, the files that finished micro-batches have read; empty for a source
            that doesn't read files.
    """

    batch: int | None
    planned: int | None
    watermark_ms: int
    offsets: tuple[str, ...]
    files: tuple[tuple[str, ...], ...] = attrs.field(repr=False)


@attrs.frozen
class Logs:
    """The lines of both logs by micro-batch; Spark deletes old entries."""

    path: str
    offsets: Mapping[int, list[str]]
    commits: Mapping[int, list[str]]

    @property
    def planned(self) -> int:
        return max(self.offsets, default=-1)

    @property
    def finished(self) -> int:
        return max(self.commits, default=-1)

    @property
    def written(self) -> int:
        """The last finished micro-batch that wrote to the sink; -1 for none."""
        number = self.finished
        while self.is_repartition(number):
            number -= 1
        return number

    def is_repartition(self, number: int) -> bool:
        """
        Return whether a micro-batch only repartitions the state, without output.

        Spark's checkpoint manager adds it, with the offsets and time of the micro-batch before. It
        changes the number of partitions, which a query can't.
        """
        previous, lines = self.offsets.get(number - 1), self.offsets.get(number)
        if previous is None or lines is None or previous[2:] != lines[2:]:
            return False
        before, about = self.about(number - 1), self.about(number)
        same_time = before.get("batchTimestampMs") == about.get("batchTimestampMs")
        return same_time and self.partitions(number - 1) != self.partitions(number)

    def spans(self, since: int, last: int) -> list[tuple[int, int]]:
        """
        Return the first and the last micro-batch of each span between repartitions.

        The spans cover all micro-batches after `since`, up to `last`, except repartitions, which
        change no row.
        """
        cuts = filter(self.is_repartition, range(since + 1, last + 1))
        pairs = pairwise([since, *cuts, last + 1])
        return [(before + 1, after - 1) for before, after in pairs if after - before > 1]

    def partitions(self, number: int) -> int:
        return int(self.about(number)["conf"]["spark.sql.shuffle.partitions"])

    def watermark_ms(self, number: int) -> int:
        """Return the watermark in force in a planned micro-batch; 0 for none."""
        return int(self.about(number)["batchWatermarkMs"])

    def started_ms(self, number: int) -> int:
        return int(self.about(number)["batchTimestampMs"])

    def sources(self, number: int) -> Mapping[str, str]:
        """Return the end offsets of a planned micro-batch as JSON, by source number or name."""
        place = f"{self.path}/offsets/{number}"
        version, *lines = self.offsets.get(number) or [""]
        if version == "v1":
            return {str(source): line for source, line in enumerate(lines[1:])}
        matches = [*map(NAMED.fullmatch, lines[1:])]
        if version == "v2" and all(matches):
            offsets = [(match[1], match[2]) for match in matches if match]
            return dict(sorted(offsets, key=lambda o: (o[0].isdecimal() and int(o[0]), o[0])))
        raise damaged_checkpoint(f"{place} is missing or unreadable")

    @property
    def source_names(self) -> set[str]:
        """The names of sources in all offset entries, damaged ones included."""
        return {line.partition(":")[0] for lines in self.offsets.values() for line in lines[2:]}

    def source_logs(
        self, number: int, spark: SparkSession, readings: Sequence[int] = ()
    ) -> list[tuple[str, str]]:
        """
        Return the end offset of each source in a planned micro-batch, and the folder of its log.

        A source that a query reads twice has a single log. From Spark 4.3 on, it has two offsets in
        format 1, and in format 2 a single offset, under the number of the last reading. If the
        query is known, `readings` has the number of the log for each reading.
        """
        offsets = self.sources(number)
        logs = [*offsets]  # a source with a name has a log of that name
        if all(map(str.isdecimal, logs)):
            if self.offsets[number][0] == "v2":
                log_of_reading = {str(reading): log for reading, log in enumerate(readings)}
                logs = [str(log_of_reading.get(name, place)) for place, name in enumerate(logs)]
            elif len(readings) == len(logs):
                logs = [*map(str, readings)]
            elif len({*offsets.values()}) == 1 < len(logs) and not readings:
                has_one_log = not exists(spark, f"{self.path}/sources/1")
                logs = ["0"] * len(logs) if has_one_log else logs
        folders = (f"{self.path}/sources/{log}" for log in logs)
        return [*zip(offsets.values(), folders, strict=True)]

    def next_watermark_ms(self, number: int) -> int:
        """Return the watermark that a finished micro-batch passes to the next; 0 for none."""
        return int(self.about(number, "commits").get("nextBatchWatermarkMs", 0))

    def about(
        self, number: int, log: Literal["offsets", "commits"] = "offsets"
    ) -> Mapping[str, Any]:
        """Return what a log says of a micro-batch: its watermark, time and settings."""
        try:
            return dict(json.loads(getattr(self, log)[number][1]))
        except (LookupError, ValueError, TypeError):
            found = f"{self.path}/{log}/{number} is missing or unreadable"
            raise damaged_checkpoint(found) from None


def logs_of(path: str, spark: SparkSession) -> Logs:
    """Return the logs of a checkpoint; empty logs if it doesn't exist."""
    offsets, commits = (
        {
            int(name): text.splitlines()
            for name, text in folder_texts(spark, f"{path}/{log}").items()
            if name.isdigit()
        }
        for log in ("offsets", "commits")
    )
    version = next(iter(offsets.get(max(offsets, default=0), ())), "v1")
    if VERSION.fullmatch(version) and version not in {"v1", "v2"}:
        text = f"{path}/offsets is of format {version}, which this release can't read"
        raise UnsupportedError(text, f"set {OFFSETS} to 2, with a new checkpoint")
    return Logs(path, offsets, commits)


def progress_of(path: str, spark: SparkSession) -> Progress:
    """Return how far the query of a checkpoint has come."""
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
    """Check that a path is the checkpoint of a query that has begun."""
    if query_id_of(spark, path) is None and not logs_of(path, spark).offsets:
        raise _no_checkpoint(path)


def _no_checkpoint(path: str) -> SessionkitError:
    found = f"there is no checkpoint at {path}: it has no planned micro-batch"
    return SessionkitError(found, "pass the checkpoint location of a query")


def files_read(logs: Logs, number: int, spark: SparkSession) -> tuple[tuple[str, ...], ...]:
    """Return the files that each source has read up to a micro-batch."""
    if number < 0:
        return ()
    return tuple(
        _files(log, _read_up_to(offset), spark) for offset, log in logs.source_logs(number, spark)
    )


def query_id_of(spark: SparkSession, path: str) -> str | None:
    """Return the query id of a checkpoint, which stays over restarts; None if none has started."""
    metadata = f"{path}/metadata"
    twice = [literal_path(metadata)] * 2
    try:
        # With two paths, Spark doesn't look for a file sink's log, nor warn that it's missing.
        rows = if_there(lambda: spark.read.text(twice, wholetext=True).limit(1).collect())
        return None if rows is None else str(UUID(json.loads(rows[0][0])["id"]))
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        raise damaged_checkpoint(f"{metadata} doesn't have the id of its query") from None


def folder_texts(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the texts of a folder's files by name; empty if there is no folder."""
    if not exists(spark, path):  # Spark would look for a log in it, and warn that it's missing
        return {}
    # A query that runs deletes old entries of its logs, maybe between their names and their texts.
    files = spark.read.option("ignoreMissingFiles", value=True)
    frame = files.text(literal_path(path), wholetext=True)
    rows = frame.select(F.col("_metadata.file_name"), "value").collect()
    texts = {row[0]: row[1] for row in rows}
    # Spark lists empty files, and reads none.
    names = {file.rpartition("/")[2] for file in frame.inputFiles()} - texts.keys()
    return texts | {name: "" for name in names if exists(spark, path, name)}


def exists(spark: SparkSession, path: str, glob: str = "") -> bool:
    """Return whether a path exists, or one below it, in any file system that Spark can read."""
    # With two paths, Spark doesn't look for a log in it. `columns` makes Connect read the path.
    twice = [f"{literal_path(path)}/{glob}" if glob else literal_path(path)] * 2
    return bool(if_there(lambda: spark.read.text(twice).columns))


def root_of(spark: SparkSession) -> str:
    """Return Spark's default file system, such as `file:`, as it names a path that isn't there."""
    missing = f"/{uuid4()}"
    try:
        # With two paths, Spark doesn't look for a file sink's log, nor warn that it's missing.
        _ = spark.read.text([missing] * 2).columns
    except PySparkException as error:
        found = re.search(rf"(\S*){missing}", str(error))
        return found[1] if found else LOCAL_ROOT
    return LOCAL_ROOT


def if_there(read: Callable[[], Found]) -> Found | None:
    """
    Return what Spark reads from a path; None if the path doesn't exist.

    A frame isn't read yet: Connect looks for its path only when something is asked of the frame.
    """
    try:
        return read()
    except PySparkException as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def _read_up_to(offset: str) -> int | None:
    """Return the last log entry that a file source's offset includes; None for other sources."""
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
    """Check that a checkpoint's logs are complete and agree; for `readings`, see `Logs`."""
    logs, damage = logs_of(path, spark), None
    if logs.offsets or logs.commits:
        damage = next(_damage(logs, readings, spark), None)
    elif exists(spark, f"{path}/state"):
        damage = f"{path}/offsets is missing or empty, and there is state"
    if damage is not None:
        raise damaged_checkpoint(damage)
    return logs


def _damage(logs: Logs, readings: Sequence[int], spark: SparkSession) -> Iterator[str]:
    # Spark plans a micro-batch once the previous has finished, at the watermark that it passed on.
    path, last, finished = logs.path, logs.planned, logs.finished
    if query_id_of(spark, path) is None:
        yield f"{path}/metadata is missing, which has the id of its query"
    if finished > last:
        yield f"{path}/offsets/{finished} is missing, though that micro-batch has finished"
    if finished < last - 1:
        yield f"{path}/commits/{last - 1} is missing, though micro-batch {last} was planned after"
    at_ms = logs.watermark_ms(last)
    left_ms = logs.next_watermark_ms(last - 1) if last - 1 in logs.commits else at_ms
    # A repartition keeps the watermark of the previous micro-batch, and passes the same on.
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
    Yield the planned entries that are missing from a file source's log, and the damaged entries.

    Spark doesn't compare this log with the offset log. It would reuse the numbers of missing
    entries for new files and never read them, or stop with a bare `assertion failed`.
    """
    if last is None or last < 0:
        return
    name = F.col("_metadata.file_name")
    # Leave out the contents of compacted files, which may be large; their names aren't only digits.
    text = F.when(name.rlike("^[0-9]+$"), F.col("content").cast("string"))
    files = spark.read.format("binaryFile")
    rows = if_there(lambda: files.load(literal_path(log)).select(name, text).collect())
    entries = {row[0]: row[1] for row in rows or ()}
    for number in range(last, -1, -1):
        if f"{number}.compact" in entries:  # with all earlier entries too
            break
        if str(number) not in entries:
            yield f"it has read up to {log}/{last}, and {log}/{number} is missing"
    for number, entry in entries.items():
        if entry is not None and not _is_sound(entry, int(number)):
            yield f"{log}/{number} doesn't have the files of its micro-batch"


def _is_sound(text: str, number: int) -> bool:
    """Return whether all lines of an entry are files of its micro-batch."""
    try:
        return all(json.loads(line)["batchId"] == number for line in text.splitlines()[1:])
    except (ValueError, KeyError, TypeError):
        return False


def damaged_checkpoint(found: str) -> StateCorruptedError:
    return StateCorruptedError(f"the checkpoint is damaged: {found}", RESTORE)


def damaged_state(found: str) -> StateCorruptedError:
    return StateCorruptedError(f"the stored state is damaged: {found}", RESTORE)


def active_session(spark: SparkSession | None) -> SparkSession:
    """Return the session, by default the active one."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError("no Spark session is active", "pass spark=...")
    with said_if_silent(session):
        check_no_checkpoint(session)
    return session
