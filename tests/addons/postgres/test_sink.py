"""The sink as a value: what it refuses without a server."""

import attrs
import pytest
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.tables import Upsert
from sessionkit.spark.sinks import RowsToWrite, TableSink


def test_a_table_with_or_without_its_schema_is_one_place() -> None:
    """With its schema or without; another server is another place."""
    assert isinstance(Postgres("d", "visits"), TableSink)
    assert Postgres("d", "visits").place == Postgres("d", "public.visits").place
    assert Postgres("d", "visits").place != Postgres("e", "visits").place


@pytest.mark.parametrize("table", ["", "a.b.c", ".visits", 'a"b', '""', "v" * 64])
def test_a_table_needs_a_name_that_postgresql_keeps(table: str) -> None:
    """One that it would cut is refused, since another table could have the same name then."""
    with pytest.raises(SpecError, match="table"):
        Postgres("postgresql://", table)


@pytest.mark.parametrize("address", ["postgresql://etl:secret@db/shop", "host=db password=secret"])
def test_an_address_in_place_of_a_table_is_refused_without_its_password(address: str) -> None:
    """The arguments are swapped; what isn't a table may have a password."""
    with pytest.raises(SpecError, match="swapped") as refused:
        Postgres("visits", address)
    assert "secret" not in str(refused.value)


def test_a_name_of_a_table_may_be_quoted() -> None:
    """What is in quotes is taken as it is, with its dots; case counts everywhere."""
    assert ("Web", "visits.v2") == Postgres("d", 'Web."visits.v2"').names
    assert ('a"b',) == Postgres("d", '"a""b"').names


@pytest.mark.parametrize(
    "table", ["sessionkit_batches", "web.sessionkit_batches", "sessionkit_staging_1"]
)
def test_no_rows_go_to_the_tables_that_the_sink_keeps_for_itself(table: str) -> None:
    """The ledger and a staging table are refused as targets."""
    with pytest.raises(SpecError, match="keeps its own notes"):
        Postgres("postgresql://", table)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://jobs:se@cret@db/web",
        "postgres://jobs:se/cret@db/web",
        "postgresql://jobs:12/cret@db/web",
    ],
)
def test_a_password_that_would_be_read_as_a_host_is_refused(dsn: str) -> None:
    """An `@` or a `/` of a password must be escaped; the message shows no part of it."""
    with pytest.raises(SpecError, match="%40") as refused:
        Postgres(dsn, "visits")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn", ["postgresql://jobs:se%40cret@db/web", "postgresql:///web?user=a@b", "host=@socket"]
)
def test_an_at_sign_that_is_no_part_of_a_password_is_accepted(dsn: str) -> None:
    """One that is escaped, one of an option, and one in the other form."""
    assert dsn == Postgres(dsn, "visits").dsn


def test_a_sink_is_a_value() -> None:
    """Two that say the same are equal, and none shows how it connects."""
    assert Postgres("secret", "t", "id") == Postgres("secret", "t", ("id",))
    assert "secret" not in repr(Postgres("secret", "t"))


def test_revisions_without_their_id_are_refused() -> None:
    """Each would be one more row of the table, next to those that it replaces."""
    schema = T.StructType([T.StructField(name, T.StringType()) for name in ("user", "revision")])
    sink = Postgres("postgresql://", "visits")
    with pytest.raises(SpecError, match="lack `session_id`.*\n\nHint: keep `session_id`, or pass"):
        Upsert.of(sink, RowsToWrite(schema))

    Upsert.of(sink, RowsToWrite(schema, of_results=False))
    added = attrs.evolve(sink, key=())
    Upsert.of(added, RowsToWrite(schema))
