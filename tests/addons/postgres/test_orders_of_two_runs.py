"""`ExactlyOnce` over a table: two copies of a checkpoint, in any order of their steps."""

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import psycopg
import pytest

from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch
from sessionkit.spark.sinks.values import ExactlyOnce
from sessionkit.spark.sinks.writers import OnceWriter
from tests.support.figures import FIGURES, Record
from tests.support.two_runs import Killed, Turns, explained_by

if TYPE_CHECKING:
    from examples.embedded_postgres import Postgres

ORDERS = 200
LAST = 3
STORE = "the store of `last_batch`"
SAID = re.compile(
    rf"another run of the query q has written micro-batch \d to {STORE}\n\nHint: stop the other run"
    rf"|micro-batch \d of the query q is in {STORE}, though `write` of ExactlyOnce ended with"
    r" (UniqueViolation|LockNotAvailable): .*\n\nHint: start the query again; if another run"
    r"|`write` of ExactlyOnce failed for micro-batch \d of the query q, and"
    rf" {STORE} doesn't have it: LockNotAvailable: .*\n\nHint: if another run of the query"
)
TABLES = """
    DROP TABLE IF EXISTS done, rows;
    CREATE TABLE done (query text, batch integer, PRIMARY KEY (query, batch));
    CREATE TABLE rows (batch integer, plan text, part integer)"""


@attrs.define
class Store:
    """A user's two functions, whose steps come in turn."""

    dsn: str
    name: str
    turns: Turns

    def last_batch(self, query_id: str) -> int | None:
        self.turns.step(self.name, "ask for the last one")
        with psycopg.connect(self.dsn) as connection:
            asked = "SELECT max(batch) FROM done WHERE query = %s"
            row = connection.execute(asked, [query_id]).fetchone()
        return None if row is None else row[0]

    def write(self, frame: Any, query_id: str, number: int) -> None:
        with psycopg.connect(self.dsn) as connection:
            # A run that is held with its transaction open would hold the other one too.
            connection.execute("SET lock_timeout = '20ms'")
            self.turns.step(self.name, f"mark {number}")
            connection.execute("INSERT INTO done VALUES (%s, %s)", [query_id, number])
            for part, plan in enumerate(frame):
                self.turns.step(self.name, f"write part {part} of {number}")
                added = "INSERT INTO rows VALUES (%s, %s, %s)"
                connection.execute(added, [number, plan, part])
            self.turns.step(self.name, f"commit {number}")


def test_two_runs_write_each_row_once_in_any_order_of_their_steps(
    postgres: "Postgres", record_property: Record
) -> None:
    """The primary key refuses the second run, and each micro-batch has the rows of one run."""
    ends = Counter[str]()
    for seed in range(ORDERS):
        postgres.run(TABLES)
        turns = Turns(seed, 0.05)

        def run(name: str, turns: Turns = turns) -> str:
            store = Store(postgres.dsn, name, turns)
            writer = OnceWriter(ExactlyOnce(store.write, store.last_batch))
            for number in range(LAST + 1):
                plan: Any = [f"{name}-{number}"] * 2
                batch = Batch(plan, number, "q", name)
                if not writer.is_written(batch):
                    writer.write(batch)
            return "finished"

        with explained_by(turns):
            found = turns.run({name: partial(run, name) for name in "AB"})
            done = {batch for (batch,) in postgres.rows("SELECT batch FROM done")}
            rows: dict[int, list[Any]] = {}
            stored: list[Any] = postgres.rows("SELECT batch, plan, part FROM rows")
            for batch, plan, part in stored:
                rows.setdefault(batch, []).append((plan, part))
            assert done == {*rows}
            for parts in rows.values():
                assert [0, 1] == sorted(part for _, part in parts)
                assert 1 == len({plan for plan, _ in parts})
            if "finished" in found.values():
                assert {*range(LAST + 1)} == done
        for end in found.values():
            assert isinstance(end, str | Killed | SinkError), end
            if isinstance(end, SinkError):
                assert SAID.match(str(end))
                is_told_before_it_writes = str(end).startswith("another run")
                assert is_told_before_it_writes != isinstance(end.__cause__, psycopg.Error)
            ends[type(end).__name__ if isinstance(end, BaseException) else end] += 1
    record_property(FIGURES, f"{ORDERS} orders of two runs over PostgreSQL: {dict(ends)}")
    assert ends["finished"] > ORDERS / 4


pytestmark = pytest.mark.nightly
