"""Starts that were cut off at each of their steps, and what the next start says."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sessionkit import SessionkitError
from tests.support.faults.disks import NoDiskError, small_disk
from tests.support.figures import FIGURES, Record
from tests.support.local_files import cut_at
from tests.support.spark_settings import IN_PARTITIONS, changed
from tests.support.starts import INSTANTS, MEGABYTES, ROOT, Start, left_by

pytestmark = pytest.mark.spark

IN_EACH_RUN: Final = ("half an id", "an empty schema of the state")
RIGHT: Final = [("ann", [0, 0], 2), ("bob", [0, 0], 2)]
LONGEST: Final = 300
IN_FOREACH_BATCH: Final = re.compile(
    r"[^\n]*Return Message: sessionkit\.errors\.SinkError: (.*?)\n\nThe above", re.DOTALL
)


@pytest.fixture(autouse=True)
def _two_partitions(spark: SparkSession) -> Iterator[None]:
    with changed(spark, IN_PARTITIONS):
        yield


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[] if one in IN_EACH_RUN else pytest.mark.long) for one in INSTANTS],
)
def test_a_start_goes_on_or_says_what_to_do(
    name: str, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """An error is short, and begins with the cause; its hint leads to a start and right rows."""
    instant, said = INSTANTS[name], "it starts"
    start = Start(spark, tmp_path, instant.layout)
    with ExitStack() as disks:
        if instant.disk:
            try:
                disks.enter_context(small_disk(tmp_path / instant.disk, MEGABYTES))
            except NoDiskError as error:
                pytest.skip(f"not run: {error}")
        if instant.cut:
            with cut_at(spark, instant.cut):
                start.run()
        instant.harm(tmp_path)
        with instant.trouble(tmp_path):
            if instant.says:
                with pytest.raises((SessionkitError, StreamingQueryException)) as refused:
                    start.run()
                said = words_of(refused.value).replace(str(tmp_path), "~")
                assert said.startswith(instant.says)
                assert len(said) <= LONGEST
        if instant.says:
            follow(said.partition("\n\nHint: ")[2], tmp_path)
        start.run()

        assert start.rows() == RIGHT
    record_property(FIGURES, f"{name}: {said.splitlines()[0]}")


def words_of(error: BaseException) -> str:
    """Return the text of an error; of one of a running query, what our sink says first."""
    first = IN_FOREACH_BATCH.match(str(error))
    return first[1] if first else str(error)


def follow(hint: str, folder: Path) -> None:
    """Do to files what a hint says; a trouble is over by itself."""
    delete = re.match(r"delete ~/([\w/]+)", hint)
    if delete:
        path = folder / delete[1]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif "start a new one" in hint:
        for name in ("checkpoint", "out"):
            shutil.rmtree(folder / name, ignore_errors=True)
    else:
        assert hint.endswith("start the query again")


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["within the first offsets", "within the names of the state", "within the mark"]
)
def test_a_cut_leaves_what_a_kill_leaves(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """A JVM that is killed at the same change leaves the same files."""
    instant, cut, killed = INSTANTS[name], tmp_path / "cut", tmp_path / "killed"
    with cut_at(spark, instant.cut):
        Start(spark, cut, instant.layout).run()
    command = [sys.executable, "-m", "tests.support.starts", str(killed), instant.layout]
    done = subprocess.run(
        [*command, instant.cut], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode
    assert "Answer from Java side is empty" in done.stderr
    assert left_by(cut) == left_by(killed)
    with pytest.raises(SessionkitError) if instant.says else ExitStack():
        Start(spark, killed, instant.layout).run()
