"""
The marks of a folder: whose files are a micro-batch, as all runs of a query agree.

A run saves the rows of a micro-batch in a folder of its own, and a mark names that folder. Two runs
at once agree on one of them by notes alone: new files that others can list. That's what any file
system has, and no order of their steps leads to two marks with different folders.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from secrets import randbelow
from time import time_ns
from typing import Final, Protocol

import attrs
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SinkError
from sessionkit.spark._logs import exists, if_there
from sessionkit.spark._paths import literal_path
from sessionkit.spark.sinks.runs import check_plan

QUERY: Final = "query_id"
"""The column that names the subfolders of a query: its id, and the run that wrote the files."""
BATCH: Final = "batch_id"
"""The column that names the subfolder of a micro-batch."""
MARKS: Final = "_batches"
"""The folder with the notes about each micro-batch."""
RUNS: Final = "_runs"
"""The folder with a note of each run."""
LOG: Final = "_spark_metadata"
"""The folder in which Spark's own file sink has a file for each micro-batch."""
RUN_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What a mark was up to 0.1: the id that Spark gives a run, which wrote to the query's folder."""
RUNS_OF_A_TICK: Final = 1000
OF_RUN: Final = re.compile(rf"/{QUERY}=([^/]+)/{BATCH}=")
OF_BATCH: Final = re.compile(rf"/{QUERY}=([^/]+)/{MARKS}/(\d+)/")
RUN: Final = re.compile(rf"/{RUNS}/(\d+)/")


@attrs.frozen
class Note:
    """
    A note about a micro-batch.

    Attributes:
        run: The run that wrote the note.
        folder: The folder that has its files, complete; the value of `query_id` for readers.
        plan: A checksum of what the checkpoint says of the micro-batch; empty if unknown.
        is_mark: Whether the files are the micro-batch for good, rather than saved.
    """

    run: int
    folder: str
    plan: str
    is_mark: bool


def note_in(text: str, query_id: str) -> Note | None:
    """Return the note that a line is; None for a line of a file that isn't sessionkit's."""
    if RUN_ID.fullmatch(text):
        return Note(0, query_id, "", is_mark=True)
    try:
        found = json.loads(text)
        return Note(**{name: found[name] for name in attrs.fields_dict(Note)})
    except (ValueError, TypeError, LookupError):
        return None


class Notes(Protocol):
    """The notes of a query in a folder. A note is new: no run changes or removes one."""

    def has_run_from(self, run: int) -> bool:
        """Return whether there is a run with this number or a higher one."""
        ...

    def last_run(self) -> int:
        """Return the highest number of a run."""
        ...

    def add_run(self, run: int) -> None:
        """Note that a run has begun."""
        ...

    def about(self, number: int) -> list[Note]:
        """Return the notes about a micro-batch."""
        ...

    def add(self, number: int, note: Note) -> None:
        """Write a note about a micro-batch."""
        ...


@attrs.define
class Claim:
    """
    The claim of one run to mark micro-batches.

    A run notes its number, which is higher than those of earlier runs, and then looks for files
    that others have saved. Before a mark, it notes that files are saved, and then looks for higher
    numbers. So of two runs, one sees the other: the earlier one ends, or the later one marks the
    files that the earlier one has saved. (This is Disk Paxos, with one disk.)

    Attributes:
        place: The name of the folder in messages.
        query_id: The id of the query.
        run: The number of the run.
    """

    notes: Notes
    place: str
    query_id: str
    run: int = 0

    def begin(self) -> None:
        """Take the folder from earlier runs."""
        run = time_ns() * RUNS_OF_A_TICK + randbelow(RUNS_OF_A_TICK)
        if self.notes.has_run_from(run):  # a clock was ahead
            run = self.notes.last_run() + 1 + randbelow(RUNS_OF_A_TICK)
        self.notes.add_run(run)
        self.run = run

    def check(self) -> None:
        """Check that no later run has taken the folder, and that it's there."""
        if self.notes.has_run_from(self.run + 1):
            found = (
                f"{self.place} was taken from this run of the query {self.query_id}: "
                "a later run has it"
            )
            raise SinkError(found, "leave only one run of a query")
        if not self.notes.has_run_from(self.run):
            found = f"{self.place} is gone, to which this query was writing"
            raise SinkError(found, "restore it, and start the query again")

    def is_finished(
        self, number: int, plan: Callable[[], str], clear: Callable[[str], None]
    ) -> bool:
        """Return whether a micro-batch is marked, after a mark for what a run has saved of it."""
        notes = self.notes.about(number)
        if not notes:
            return False
        # All marks name one folder. Of saved files, only those of the last run may be marked.
        note = max(notes, key=lambda note: (note.is_mark, note.run))
        check_plan(self.place, self.query_id, number, plan(), note.plan)
        if not note.is_mark:
            self.finish(number, note.folder, note.plan, clear)
        return True

    def finish(self, number: int, folder: str, plan: str, clear: Callable[[str], None]) -> None:
        """Mark a micro-batch whose files are in a folder; `clear` removes the files of others."""
        note = Note(self.run, folder, plan, is_mark=False)
        self.notes.add(number, note)
        self.check()
        clear(folder)
        self.notes.add(number, attrs.evolve(note, is_mark=True))


# -------------------------------------------------------------------------------------- on Spark


@attrs.frozen
class Folder:
    """The folder of a sink: the notes of one query in it, and the files of its runs."""

    spark: SparkSession
    path: str
    query_id: str

    @property
    def of_query(self) -> str:
        return f"{self.path}/{QUERY}={self.query_id}"

    def of_run(self, run: int) -> str:
        return f"{self.query_id}_{run}"

    def has_run_from(self, run: int) -> bool:
        return exists(self.spark, f"{self.of_query}/{RUNS}", numbers_from(run))

    def last_run(self) -> int:
        notes = self._texts(f"{literal_path(self.of_query)}/{RUNS}/*").inputFiles()
        return max((int(run) for note in notes for run in RUN.findall(note)), default=0)

    def add_run(self, run: int) -> None:
        self._write(f"{RUNS}/{run}", "")

    def has_from(self, number: int) -> bool:
        """Return whether there is a note about a micro-batch with this number or a higher one."""
        return exists(self.spark, f"{self.of_query}/{MARKS}", numbers_from(number))

    def about(self, number: int) -> list[Note]:
        place = f"{self.of_query}/{MARKS}/{number}"
        if not exists(self.spark, place):
            return []
        lines = self._texts(literal_path(place)).collect()
        notes = [note_in(line.value, self.query_id) for line in lines]
        return [note for note in notes if note is not None]

    def add(self, number: int, note: Note) -> None:
        kind = "marked" if note.is_mark else "saved"
        self._write(f"{MARKS}/{number}/{kind}-{note.run}", json.dumps(attrs.asdict(note)))

    def save(
        self,
        rows: DataFrame,
        number: int,
        run: int,
        kind: str,
        *,
        options: Mapping[str, str],
        partition_by: Iterable[str],
    ) -> str:
        """Save the rows of a micro-batch in the folder of a run; return the folder's name."""
        name = self.of_run(run)
        writer = rows.withColumn(BATCH, F.lit(number)).write.format(kind).options(**options)
        writer = writer.mode("append").partitionBy(BATCH, *partition_by)
        writer.save(f"{self.path}/{QUERY}={name}")
        return name

    def clear(self, number: int, kept: str) -> None:
        """Remove what runs that were killed have left of a micro-batch, except one folder."""
        # A run comes to a micro-batch when the one before it is marked, so earlier runs left none.
        runs = [note.run for note in self.about(number - 1) if note.is_mark]
        names = f"{literal_path(self.query_id)}{{,_{numbers_from(min(runs, default=0))}}}"
        place = f"{literal_path(self.path)}/{QUERY}={names}/{BATCH}={number}"
        # With two paths, Spark doesn't log that the folder isn't there.
        files = if_there(lambda: self._texts(place, place).inputFiles()) or ()
        for name in {name for file in files for name in OF_RUN.findall(file)} - {kept}:
            self.remove(number, name)

    def remove(self, number: int, name: str) -> None:
        """Remove the files of a micro-batch from a folder."""
        none = self.spark.createDataFrame([], "part string, line string").write
        # Without rows, a write by a column leaves no file.
        none = none.mode("overwrite").option("partitionOverwriteMode", "static").partitionBy("part")
        none.text(f"{self.path}/{QUERY}={name}/{BATCH}={number}")

    def _texts(self, *places: str) -> DataFrame:
        return self.spark.read.option("recursiveFileLookup", value=True).text([*places])

    def _write(self, name: str, text: str) -> None:
        # No two runs write to one folder: the end of one job would delete the other's files.
        line = self.spark.createDataFrame([(text,)], "line string")
        line.coalesce(1).write.mode("append").text(f"{self.of_query}/{name}")


def finished_rows(
    spark: SparkSession, path: str | os.PathLike[str], reader: DataFrameReader
) -> DataFrame:
    """Return the rows of the marked micro-batches of a folder, of all queries."""
    place = os.fspath(path)
    if exists(spark, place, LOG) or not exists(spark, place, f"{QUERY}=*/{MARKS}"):
        return reader.load(literal_path(place))
    # Spark would log `_batches` alone as ignored.
    places = f"{literal_path(place)}/{QUERY}=*/{MARKS}/*"
    texts = spark.read.option("recursiveFileLookup", value=True).text(places)
    marked = set[tuple[str, int]]()
    # Read the marks before Spark lists the files, so that all files of a marked one are listed.
    for text, file in texts.select("value", "_metadata.file_path").collect():
        for query_id, number in OF_BATCH.findall(file):
            note = note_in(text, query_id)
            if note is not None and note.is_mark:
                marked.add((note.folder, int(number)))
    marks = spark.createDataFrame([*marked], "folder string, number long")
    rows = reader.load(literal_path(place))
    is_marked = (F.col(QUERY).cast("string") == F.col("folder")) & (
        F.col(BATCH).cast("long") == F.col("number")
    )
    found = rows.join(F.broadcast(marks), is_marked, "left_semi")
    return found.withColumn(QUERY, F.regexp_replace(F.col(QUERY).cast("string"), r"_\d+$", ""))


def numbers_from(least: int) -> str:
    """Return a glob for names that begin with this number or a higher one."""
    digits = str(least)
    higher = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'[0-9]' * (len(digits) - place - 1)}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    longer = "[0-9]" * (len(digits) + 1)
    return f"{{{','.join([digits, *higher, longer])}}}*"
