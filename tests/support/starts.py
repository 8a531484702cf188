"""
Instants between the first and the last step of a start, and what the next start says.

`python -m tests.support.starts FOLDER LAYOUT CHANGE` starts a query of its own JVM, which is killed
at a change to a file. What a cut leaves in the JVM of the tests is the same.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
from pyspark.sql import SparkSession

from sessionkit.spark import Files, Routes
from tests.support.faults.disks import fill
from tests.support.hourly_query import SPEC, hour
from tests.support.spark_settings import IN_PARTITIONS, quick_settings
from tests.support.streams import FileStream, with_gap

Layout: TypeAlias = Literal["alone", "routes"]
"""`Files`, which Spark writes, or a folder that our own writer has."""
Trouble: TypeAlias = Callable[[Path], AbstractContextManager[object]]
ROOT: Final = Path(__file__).parents[2]
MEGABYTES: Final = 4


@attrs.frozen
class Start:
    """A query over two hours of events: the first one's sessions come out."""

    spark: SparkSession
    folder: Path
    layout: Layout

    @property
    def stream(self) -> FileStream:
        return FileStream(
            self.spark, SPEC, self.folder, with_rejected=self.layout == "routes", shape=with_gap
        )

    @property
    def files(self) -> Files:
        return Files("json", self.folder / "out")

    @property
    def sink(self) -> Any:
        return self.files if self.layout == "alone" else Routes(session=self.files, rejected=None)

    def run(self) -> None:
        if not self.stream.source.exists():
            self.stream.put(hour(0), hour(1))
        self.stream.run_to(self.sink)

    def rows(self) -> list[Any]:
        found = self.files.read(self.spark).select("key", "values", "events").collect()
        return sorted((row["key"], [*row["values"]], row["events"]) for row in found)


@attrs.frozen
class Instant:
    """
    What a start has come to, and what the next one finds.

    Attributes:
        layout: How the rows are written.
        cut: The first change to a file that isn't made, nor is any after it.
        harm: What becomes of the files then.
        disk: The folder that is a small disk of its own.
        trouble: What is wrong with a folder at the next start, until its hint is followed.
        says: How the error begins, in which the folder is `~`; empty where the query starts.
    """

    layout: Layout = "routes"
    cut: str = ""
    harm: Callable[[Path], None] = lambda folder: None
    disk: str = ""
    trouble: Trouble = nullcontext
    says: str = ""


def shortened(size: Literal["empty", "half"], *names: str) -> Callable[[Path], None]:
    """Return what a power cut leaves of files, of which a disk didn't get all."""

    def harm(folder: Path) -> None:
        for name in names:
            (path,) = (path for path in folder.glob(name) if path.suffix != ".crc")
            os.truncate(path, path.stat().st_size // 2 if size == "half" else 0)
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)

    return harm


def lost(*names: str) -> Callable[[Path], None]:
    """Return the harm of one who deletes what they take for the rest of a run."""

    def harm(folder: Path) -> None:
        for name in names:
            for path in [*folder.glob(name)]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return harm


def full(name: str) -> Trouble:
    @contextmanager
    def trouble(folder: Path) -> Iterator[None]:
        with fill(folder / name):
            yield

    return trouble


def read_only(name: str) -> Trouble:
    @contextmanager
    def trouble(folder: Path) -> Iterator[None]:
        _remount(folder / name, "ro")
        try:
            yield
        finally:
            _remount(folder / name, "rw")

    return trouble


def _remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def in_the_way(name: str) -> Trouble:
    """Return a file where a folder must be."""

    @contextmanager
    def trouble(folder: Path) -> Iterator[None]:
        (folder / name).write_text("a note")
        try:
            yield
        finally:
            (folder / name).unlink()

    return trouble


def left_by(folder: Path) -> list[str]:
    """Return the files of a query without the numbers and ids of its run."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    ids = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{9,}|TID\d+|_\d{4}_m_\d+(?:_\d+)?")
    return sorted(ids.sub("#", name) for name in names)


CUT_OFF: Final = "the first start of the query was cut off: ~/checkpoint"
DAMAGED: Final = "the checkpoint is damaged: ~/checkpoint"
NOT_STARTED: Final = "the query couldn't start: "
INSTANTS: Final = {
    # What a kill leaves, in the order of the steps.
    "before the folder of the sink": Instant("alone", "mkdir .*/out/_spark_metadata"),
    "before the checkpoint": Instant(cut="mkdir .*/checkpoint$"),
    "before the id of the query": Instant(cut="create .*/checkpoint/.metadata"),
    "within the id of the query": Instant(cut="rename .*/checkpoint/metadata"),
    "before the list of files": Instant(cut="mkdir .*/sources/0"),
    "within the list of files": Instant(cut="rename .*/sources/0/0"),
    "before the first offsets": Instant(cut="create .*/offsets/.0"),
    "within the first offsets": Instant(
        cut="rename .*/offsets/0", says=f"{CUT_OFF}/offsets has the rest of a file"
    ),
    "within the schema of the state": Instant(cut="rename .*/state/0/0/_metadata/schema"),
    "within the names of the state": Instant(cut="rename .*/state/0/_metadata/metadata"),
    "within the state": Instant(cut="rename .*/state/0/0/1.delta"),
    "between two partitions of the state": Instant(cut="rename .*/state/0/1/1.delta"),
    "before the rows, alone": Instant("alone", "create .*/part-"),
    "within the log of the sink": Instant("alone", "rename .*/out/_spark_metadata/0"),
    "after the log of the sink": Instant("alone", "create .*/commits/.0"),
    "within the note of a run": Instant(cut="rename .*/_runs/[0-9]*/part"),
    "before the note of a run is whole": Instant(cut="delete .*/_runs/[0-9]*/_temporary"),
    "before the rows": Instant(cut="mkdir .*/query_id=[^/]*_[0-9]*/_temporary/0$"),
    "within the note of saved rows": Instant(cut="rename .*/saved-[0-9]*/part"),
    "within the mark": Instant(cut="rename .*/marked-[0-9]*/part"),
    "after the mark": Instant(cut="create .*/commits/.0"),
    "within the first commit": Instant(cut="rename .*/commits/0"),
    # What a power cut leaves, where a disk didn't get all of a file.
    "an empty id": Instant(
        cut="mkdir .*/sources/0",
        harm=shortened("empty", "checkpoint/metadata"),
        says=f"{CUT_OFF}/metadata has the rest of a file",
    ),
    "half an id": Instant(
        cut="mkdir .*/sources/0",
        harm=shortened("half", "checkpoint/metadata"),
        says=f"{CUT_OFF}/metadata has the rest of a file",
    ),
    "empty first offsets": Instant(
        cut="mkdir .*/state",
        harm=shortened("empty", "checkpoint/offsets/0"),
        says=f"{DAMAGED}/offsets/0 is missing or unreadable",
    ),
    "half of the first offsets": Instant(
        cut="mkdir .*/state",
        harm=shortened("half", "checkpoint/offsets/0"),
        says=f"{DAMAGED}/offsets/0 is missing or unreadable",
    ),
    "an empty schema of the state": Instant(
        cut="rename .*/state/0/0/1.delta",
        harm=shortened("empty", "checkpoint/state/0/0/_metadata/schema"),
        says=f"{CUT_OFF}/state has the rest of a file",
    ),
    "half of the names of the state": Instant(
        cut="rename .*/state/0/0/1.delta",
        harm=shortened("half", "checkpoint/state/0/_metadata/metadata"),
    ),
    "an empty first commit": Instant(
        cut="create .*/offsets/.1",
        harm=shortened("empty", "checkpoint/commits/0"),
        says=f"{DAMAGED}/commits/0 is missing or unreadable",
    ),
    "an empty note of saved rows": Instant(
        cut="mkdir .*/marked-[0-9]*$",
        harm=shortened("empty", "out/query_id=*/_batches/0/saved-*/part-*"),
    ),
    "an empty mark": Instant(
        cut="create .*/commits/.0",
        harm=shortened("empty", "out/query_id=*/_batches/0/marked-*/part-*"),
    ),
    # What somebody deletes.
    "no offsets": Instant(
        cut="create .*/commits/.0",
        harm=lost("checkpoint/offsets"),
        says=f"{DAMAGED}/offsets is missing",
    ),
    "no state": Instant(cut="create .*/commits/.0", harm=lost("checkpoint/state")),
    "no sources": Instant(
        cut="create .*/commits/.0",
        harm=lost("checkpoint/sources"),
        says="the checkpoint is damaged: it has read up to ~/checkpoint/sources/0/0",
    ),
    "no id": Instant(
        cut="create .*/commits/.0",
        harm=lost("checkpoint/metadata"),
        says=f"{DAMAGED}/metadata is missing",
    ),
    "no notes of runs": Instant(cut="create .*/commits/.0", harm=lost("out/query_id=*/_runs")),
    # What a machine refuses.
    "a full disk of the checkpoint": Instant(
        "alone", disk="checkpoint", trouble=full("checkpoint"), says=NOT_STARTED
    ),
    "a read-only checkpoint": Instant(
        disk="checkpoint", trouble=read_only("checkpoint"), says=NOT_STARTED
    ),
    "a full disk of the sink": Instant(
        disk="out", trouble=full("out"), says="java.io.IOException: No space left on device"
    ),
    "a read-only sink": Instant(disk="out", trouble=read_only("out"), says="java.io.IOException: "),
    "a file for a checkpoint": Instant(trouble=in_the_way("checkpoint"), says=NOT_STARTED),
    "a file for a sink": Instant("alone", trouble=in_the_way("out"), says=NOT_STARTED),
}


def main(folder: Path, layout: Layout, change: str) -> None:
    """Start a query in a JVM that is killed at a change to a file."""
    settings: dict[str, Any] = {**quick_settings(), **IN_PARTITIONS, "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    jvm: Any = spark._jvm
    start = Start(spark, folder, layout)
    jvm.PlainLocalFileSystem.killAt(change)
    start.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "alone" if sys.argv[2] == "alone" else "routes", sys.argv[3])
