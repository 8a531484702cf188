"""A sink that any process can be killed in: SQLite, each micro-batch in one transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

PATIENCE_S: Final = 30.0


class Row(NamedTuple):
    """A row of the job: its kind, its key, the numbers of its events, and the session's id."""

    kind: str
    key: str | None
    numbers: tuple[int, ...]
    id: str | None = None


def begin(path: Path) -> None:
    with closing(_open(path)) as ledger, ledger:
        ledger.execute("CREATE TABLE batches (number INTEGER PRIMARY KEY)")
        ledger.execute("CREATE TABLE rows (batch INTEGER, kind, key, numbers, id)")


def write_batch(
    path: Path, number: int, rows: Iterable[Row], *, before_commit: Callable[[], None]
) -> None:
    """Add the rows of a micro-batch, unless they are there."""
    with closing(_open(path)) as ledger, ledger:
        ledger.execute("BEGIN IMMEDIATE")
        if ledger.execute("SELECT 1 FROM batches WHERE number = ?", (number,)).fetchone():
            return
        ledger.execute("INSERT INTO batches VALUES (?)", (number,))
        _add(ledger, number, rows)
        before_commit()


def replace_batch(path: Path, number: int, rows: Iterable[Row]) -> None:
    """Write the rows of a micro-batch in place of those that are there."""
    with closing(_open(path)) as ledger, ledger:
        ledger.execute("BEGIN IMMEDIATE")
        ledger.execute("DELETE FROM rows WHERE batch = ?", (number,))
        _add(ledger, number, rows)


def _add(ledger: sqlite3.Connection, number: int, rows: Iterable[Row]) -> None:
    shown = [(number, row.kind, row.key, json.dumps(row.numbers), row.id) for row in rows]
    ledger.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", shown)


def rows_of(path: Path) -> list[Row]:
    with closing(_open(path)) as ledger:
        found = ledger.execute("SELECT kind, key, numbers, id FROM rows ORDER BY batch").fetchall()
    return [Row(kind, key, tuple(json.loads(numbers)), id_) for kind, key, numbers, id_ in found]


def last_batch(path: Path) -> int | None:
    with closing(_open(path)) as ledger:
        last: int | None = ledger.execute("SELECT max(number) FROM batches").fetchone()[0]
    return last


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
