"""A sink that any process can be killed in: SQLite, each micro-batch in one transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

__all__ = ["Row", "begin", "rows_of", "write_batch"]

Row: TypeAlias = tuple[str, str | None, tuple[int, ...]]
"""A row of the job: its kind, its key, and the numbers of its events."""
PATIENCE_S: Final = 30.0


def begin(path: Path) -> None:
    """Make an empty ledger."""
    with closing(_open(path)) as ledger, ledger:
        ledger.execute("CREATE TABLE batches (number INTEGER PRIMARY KEY)")
        ledger.execute("CREATE TABLE rows (batch INTEGER, kind TEXT, key TEXT, numbers TEXT)")


def write_batch(
    path: Path, number: int, rows: Iterable[Row], *, before_commit: Callable[[], None]
) -> None:
    """
    Add the rows of a micro-batch, unless they are there.

    Args:
        path: The ledger.
        number: The number of the batch, which is kept in the same transaction.
        rows: Its rows.
        before_commit: Called when all is written, and nothing can be seen yet.
    """
    with closing(_open(path)) as ledger, ledger:
        ledger.execute("BEGIN IMMEDIATE")
        if ledger.execute("SELECT 1 FROM batches WHERE number = ?", (number,)).fetchone():
            return
        ledger.execute("INSERT INTO batches VALUES (?)", (number,))
        shown = [(number, kind, key, json.dumps(numbers)) for kind, key, numbers in rows]
        ledger.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", shown)
        before_commit()


def rows_of(path: Path) -> list[Row]:
    """Return all rows."""
    with closing(_open(path)) as ledger:
        found = ledger.execute("SELECT kind, key, numbers FROM rows ORDER BY batch").fetchall()
    return [(kind, key, tuple(json.loads(numbers))) for kind, key, numbers in found]


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
