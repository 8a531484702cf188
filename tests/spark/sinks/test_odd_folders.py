"""A folder of `Files` in `Routes` that was moved behind links, or has files of others in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionkit.spark import Files, Routes
from tests.support.hourly_query import Query


def behind_a_link(folder: Path, elsewhere: Path) -> None:
    """Move a folder to another place, to which a link leads."""
    elsewhere.parent.mkdir(exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def link(job: Path, of_query: Path) -> None:
    for part in (of_query / "_runs", of_query / "_batches", of_query, job / "checkpoint"):
        behind_a_link(part, job / "other disk" / part.name)


def litter(job: Path, of_query: Path) -> None:
    """Leave what editors, copies and people leave."""
    runs, marks = of_query / "_runs", of_query / "_batches"
    run = next(iter(runs.iterdir()))
    for name in (f"{run.name} copy", "backup"):
        (runs / name).mkdir()
    (runs / "README.txt").write_text("Runs of the job")
    (marks / "Thumbs.db").write_bytes(b"\0\1\2")
    mark = next(marks.glob("0/saved-*"))
    for name, text in (("notes.txt", "looked at this"), ("other.json", '{"a": 1}'), (".x", "y")):
        (mark / name).write_text(text)
    (of_query.parent / "notes.txt").write_text("{}")


@pytest.mark.parametrize("change", [link, litter])
def test_a_query_goes_on_in_a_folder_that_others_have_changed(
    change: Callable[[Path, Path], None], spark: SparkSession, tmp_path: Path
) -> None:
    """Each session is there once, for the reader too."""
    job, visits = tmp_path / "a job", tmp_path / "a job" / "visits [of ours]"
    query, files = Query(spark, job, with_rejected=True), Files("json", visits)
    sink = Routes(session=files, rejected=None)

    def rows() -> list[Any]:
        found = files.read(spark, schema="key string, session_id string, session_start timestamp")
        return sorted((row.key, row.session_id) for row in found.collect())

    query.run(sink)
    query.run(sink)
    before = rows()
    change(job, next(visits.glob("query_id=*/_runs")).parent)
    assert before == rows()
    query.run(sink)
    query.run(sink)
    found = rows()

    assert before == [row for row in found if row in before]
    assert len(before) + 4 == len({*found}) == len(found)
