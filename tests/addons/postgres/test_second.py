"""The sink Postgres refuses a second session with the id of another one, and names both."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from examples import embedded_postgres as server
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.tables import Upsert
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import RowsToWrite
from tests.support.refusals import refusal, says
from tests.support.table_sinks import write, writer_of

COLUMNS = ("user", "session_id", "session_start", "session_end", "n", "revision", "supersedes")
ROWS = "SELECT {} FROM {}"


def row(
    name: str, n: int, revision: int, end: str = "12:30", supersedes: Sequence[str] = ()
) -> str:
    """Return a row of a session as SQL."""
    gone = ", ".join(f"'{one}'" for one in supersedes)
    return (
        f"SELECT 'ann' AS user, '{name}' AS session_id, {n} AS n, {revision}L AS revision,"
        f" TIMESTAMP '2026-03-08 12:00:00Z' AS session_start,"
        f" TIMESTAMP '2026-03-08 {end}:00Z' AS session_end,"
        f" CAST(array({gone}) AS array<string>) AS supersedes"
    )


@attrs.define
class Sessions:
    """A table of sessions, to which micro-batches are written."""

    postgres: server.Postgres
    spark: SparkSession
    name: str
    key: tuple[str, ...]
    revises: bool = True
    number: int = 0

    def write(self, *rows: str) -> list[Any]:
        """Write a micro-batch, and return what is there."""
        frame = self.spark.sql(" UNION ALL ".join(rows)).select(*COLUMNS)
        frame = frame if self.revises else frame.drop("revision", "supersedes")
        sink = Postgres(self.postgres.dsn, self.name, self.key)
        writer = writer_of(sink, frame.schema, of_results=True)
        write(writer, frame, self.number, run=f"run {self.number}")
        self.number += 1
        return self.there()

    def there(self) -> list[Any]:
        columns = "session_id, n, revision" if self.revises else "session_id, n"
        return self.postgres.rows(ROWS.format(columns, self.name))


@pytest.mark.parametrize("key", [("session_id",), ("session_id", "n")], ids=["id", "id and n"])
@pytest.mark.parametrize("revision", [1, 2], ids=["lower", "same"])
def test_a_session_that_another_micro_batch_has_is_refused(
    postgres: server.Postgres, spark: SparkSession, key: tuple[str, ...], revision: int
) -> None:
    """By a row of the same or a higher revision, whatever else the key has; both are named."""
    table = Sessions(postgres, spark, f"known_{len(key)}_{revision}", key)
    table.write(row("a", 0, 2), row("b", 0, 1))
    with pytest.raises(SinkError) as refused:
        table.write(row("c", 0, 1), row("a", len(key) - 1, revision, end="12:40"))

    session = "user: ann, session_id: a, session_start: 2026-03-08 12:00:00"
    assert 2 == str(refused.value).count(session)
    assert f"the table public.known_{len(key)}_{revision} has a row of a session" in str(
        refused.value
    )
    assert "session_end: 2026-03-08 12:30:00+00:00, revision: 2" in str(refused.value)
    assert f"session_end: 2026-03-08 12:40:00+00:00, revision: {revision}" in str(refused.value)
    assert "Hint: if another query wrote" in str(refused.value)
    assert [("a", 0, 2), ("b", 0, 1)] == table.there()


@pytest.mark.parametrize("key", [("session_id",), ("session_id", "n")], ids=["id", "id and n"])
def test_without_revisions_any_second_session_is_refused(
    postgres: server.Postgres, spark: SparkSession, key: tuple[str, ...]
) -> None:
    """All rows of a session come in one micro-batch, so those of another one are another's."""
    table = Sessions(postgres, spark, f"once_{len(key)}", key, revises=False)
    several = [row("a", n, 1) for n in range(len(key))]
    table.write(*several)
    with pytest.raises(SinkError, match="another micro-batch has a row of the same session_id"):
        table.write(row("a", len(key), 1), row("b", 0, 1))

    assert [("a", n) for n in range(len(key))] == table.there()


@pytest.mark.parametrize("revises", [False, True])
def test_two_sessions_of_one_micro_batch_are_refused(
    postgres: server.Postgres, spark: SparkSession, *, revises: bool
) -> None:
    """Of one revision; both are named, and nothing is written."""
    table = Sessions(postgres, spark, f"twice_{revises}".lower(), ("session_id",), revises=revises)
    with pytest.raises(SinkError, match="two rows of a micro-batch have the same") as refused:
        table.write(row("b", 0, 1), row("a", 0, 1), row("a", 0, 1, end="12:40"))

    assert "session_end: 2026-03-08 12:30:00+00:00" in str(refused.value)
    assert "session_end: 2026-03-08 12:40:00+00:00" in str(refused.value)
    assert [] == table.there()


def test_a_unique_index_of_the_user_says_what_it_says(
    postgres: server.Postgres, spark: SparkSession
) -> None:
    """Rows that it refuses aren't called two sessions with one id."""
    table = Sessions(postgres, spark, "indexed", ("session_id",))
    table.write(row("a", 0, 1))
    postgres.run('CREATE UNIQUE INDEX one_user ON indexed ("user")')
    with pytest.raises(Exception, match="one_user"):
        table.write(row("b", 0, 1))


def test_rows_other_than_sessions_replace_a_row_with_their_key() -> None:
    """Other modes, other rows and keys that you name for rows of your own replace a row."""
    sessions = of("session_id", "session_start", "session_end")
    own = of("session_id", "total")
    default, named = Postgres("d", "t"), Postgres("d", "t", "session_id")

    def refuses(sink: Postgres, rows: RowsToWrite) -> bool:
        return Upsert.of(sink, rows).refuses_duplicates

    assert refuses(default, RowsToWrite(sessions))
    assert refuses(default, RowsToWrite(own))
    assert refuses(named, RowsToWrite(sessions))
    assert not refuses(named, RowsToWrite(own))
    assert not refuses(named, RowsToWrite(sessions, mode="update"))
    assert not refuses(named, RowsToWrite(sessions, of_results=False))
    assert not refuses(Postgres("d", "t", ()), RowsToWrite(sessions))


def test_a_table_of_rejected_rows_leads_to_that_of_the_sessions() -> None:
    """By its key, or by its columns; a table that has `kind` of its own is one of sessions."""
    sessions = of("session_id", "session_start", "session_end")
    by_key = refusal(Upsert.of, Postgres("d", "t", "event_id"), RowsToWrite(sessions))
    upsert = Upsert.of(Postgres("d", "t"), RowsToWrite(sessions))
    kinds = ["kind", "reason", "event_time", "event_id"]
    by_columns = refusal(upsert.check_columns_of, [*sessions.names, *kinds])

    assert says(by_key, "`key` of the table t names `event_id`", "`session` of Routes")
    assert says(by_columns, "the table t also has rejected rows", "`session` of Routes")
    upsert.check_columns_of([*sessions.names, "kind", "reason"])


def of(*names: str) -> T.StructType:
    """Return a schema with columns of these names."""
    return T.StructType([T.StructField(name, T.StringType()) for name in names])
