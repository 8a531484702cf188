"""The records of an access log: from a CSV file, or made up."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from examples.logins.spec import Action

__all__ = ["made_up", "read_log"]

SCHEMA: Final = pa.schema(
    {
        "user": pa.string(),
        "session": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "action": pa.string(),
        "country": pa.string(),
    }
)
MONDAY: Final = datetime(2026, 3, 9, 8, tzinfo=UTC)
COUNTRIES: Final = ("BR", "DE", "ES", "FR")
LOST: Final = 0.1
"""How many log-outs are lost."""


def read_log(path: Path) -> pa.Table:
    """Return the records of a CSV file whose first line is `user,session,at,action,country`."""
    options = pa.csv.ConvertOptions(column_types=dict(zip(SCHEMA.names, SCHEMA.types, strict=True)))
    return pa.csv.read_csv(path, convert_options=options).select(SCHEMA.names).sort_by("at")


def made_up(users: int = 100) -> pa.Table:
    """Return the records of three days, of users and of two stolen accounts."""
    chance = Random(2026)  # noqa: S311 (nobody is to be surprised)
    sessions = count(1)
    rows = [row for user in range(users) for row in _life(f"user-{user:03}", chance, sessions)]
    stolen = [
        *((minute, Action.WRONG, "DE") for minute in (0, 1, 2, 3, 4, 5)),
        (6, Action.LOG_IN, "DE"),
        (15, Action.LOG_OUT, "DE"),
    ]
    rows += _session("mallory", next(sessions), MONDAY, stolen)
    rows += _session("trudy", next(sessions), MONDAY, [(0, Action.LOG_IN, "FR")])
    rows += _session("trudy", next(sessions), MONDAY, [(20, Action.LOG_IN, "BR")])
    return pa.Table.from_pylist(rows, SCHEMA).sort_by("at")


def _life(user: str, chance: Random, sessions: Iterator[int]) -> Iterator[dict[str, Any]]:
    country = chance.choice(COUNTRIES)
    for day in range(3):
        began = MONDAY + timedelta(days=day, minutes=chance.randrange(9 * 60))
        minutes = range(0, chance.randint(5, 90), 5)
        actions = [(minute, Action.ALIVE, country) for minute in minutes[1:]]
        wrong = [(-1, Action.WRONG, country)] * chance.randint(0, 2)
        end = [] if chance.random() < LOST else [(minutes[-1] + 1, Action.LOG_OUT, country)]
        records = [*wrong, (0, Action.LOG_IN, country), *actions, *end]
        yield from _session(user, next(sessions), began, records)


def _session(
    user: str, session: int, began: datetime, records: list[tuple[int, Action, str]]
) -> Iterator[dict[str, Any]]:
    for minute, action, country in records:
        yield {
            "user": user,
            "session": session,
            "at": began + timedelta(minutes=minute),
            "action": action.value,
            "country": country,
        }
