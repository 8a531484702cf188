"""`ExactlyOnce` over a store that refuses the second of two runs: its error names the other one."""

import sqlite3
from pathlib import Path
from typing import Any

import attrs
import pytest

from sessionkit.errors import SinkError, SpecError
from sessionkit.spark.sinks import Batch
from sessionkit.spark.sinks.values import ExactlyOnce
from sessionkit.spark.sinks.writers import OnceWriter

FRAME: Any = ["a"]
BATCH = Batch(FRAME, 3, "q", "run")


def store(path: Path) -> ExactlyOnce:
    """Return the functions of docs/how-to/write-to-tables.md."""

    def last_batch(query_id: str) -> int | None:
        with sqlite3.connect(path) as rows:
            asked = "SELECT max(batch) FROM done WHERE query = ?"
            last: int | None = rows.execute(asked, [query_id]).fetchone()[0]
        return last

    def write(_: Any, query_id: str, number: int) -> None:
        with sqlite3.connect(path, timeout=0) as rows:
            rows.execute("INSERT INTO done VALUES (?, ?)", [query_id, number])

    with sqlite3.connect(path) as rows:
        rows.execute("CREATE TABLE IF NOT EXISTS done (query, batch, PRIMARY KEY (query, batch))")
    return ExactlyOnce(write, last_batch)


def refusal(write: Any, last_batch: Any) -> tuple[str, BaseException | None]:
    with pytest.raises(SinkError) as refused:
        OnceWriter(ExactlyOnce(write, last_batch)).write(BATCH)
    return str(refused.value), refused.value.__cause__


def test_a_micro_batch_that_is_there_by_then_is_another_runs(tmp_path: Path) -> None:
    """Both have looked before either has written; the key of the table refuses the second one."""
    one = store(tmp_path / "rows.db")
    assert not OnceWriter(one).is_written(BATCH)
    one.write(FRAME, "q", 3)
    said, cause = refusal(one.write, one.last_batch)

    assert said == (
        "micro-batch 3 of the query q is in the store of `last_batch`, though `write` of "
        "ExactlyOnce ended with IntegrityError: UNIQUE constraint failed: done.query, done.batch: "
        "another run has written it, or this call has, before it failed\n\n"
        "Hint: start the query again; if another run of it is active, stop that one first"
    )
    assert isinstance(cause, sqlite3.IntegrityError)


@pytest.mark.parametrize(("began_with", "last"), [(2, 3), (3, 4)], ids=["later", "ahead"])
def test_a_micro_batch_that_only_another_run_can_have_written_ends_this_one(
    began_with: int, last: int
) -> None:
    """Left out as if it were this run's, its rows would be lost where the other had other rows."""
    stored = [began_with - 1]
    writer = OnceWriter(ExactlyOnce(lambda *_: None, lambda _: stored[0]))
    if began_with < BATCH.number:
        assert not writer.is_written(attrs.evolve(BATCH, number=began_with))
    stored[0] = last

    with pytest.raises(SinkError, match="^another run of the query q has written micro-batch 3 "):
        writer.is_written(BATCH)


def test_a_lock_of_another_run_is_told_with_the_micro_batch(tmp_path: Path) -> None:
    """Nobody but the store knows who has it, so the hint has a condition."""
    one = store(tmp_path / "rows.db")
    with sqlite3.connect(tmp_path / "rows.db") as other:
        other.execute("INSERT INTO done VALUES ('q', 3)")
        said, cause = refusal(one.write, lambda _: None)

    assert said == (
        "`write` of ExactlyOnce failed for micro-batch 3 of the query q, and the store of "
        "`last_batch` doesn't have it: OperationalError: database is locked\n\n"
        "Hint: if another run of the query is active, stop it; then start this one again"
    )
    assert isinstance(cause, sqlite3.OperationalError)


def test_a_store_that_gives_no_answer_leaves_the_first_error(tmp_path: Path) -> None:
    """The second one, of the question, would hide why the micro-batch wasn't written."""
    gone = store(tmp_path / "rows.db")
    (tmp_path / "rows.db").unlink()
    said, _ = refusal(gone.write, gone.last_batch)

    assert "OperationalError: no such table: done" in said


def test_an_error_that_has_a_hint_stays_as_it_is() -> None:
    """It says already what to change."""

    def write(*_: object) -> None:
        found = "no column x"
        raise SpecError(found, "add it")

    with pytest.raises(SpecError, match="no column x"):
        OnceWriter(ExactlyOnce(write, lambda _: None)).write(BATCH)
