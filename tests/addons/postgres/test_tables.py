"""The SQL of the sink Postgres, and the types of its columns; no server runs it here."""

import re

import attrs
import pytest
from pyspark.sql import types as T

from sessionkit.addons.postgres import tables
from sessionkit.addons.postgres.tables import (
    COPIED,
    COPY,
    RELEASE,
    Relation,
    Target,
    postgres_type,
)
from sessionkit.addons.postgres.writer import Moving
from sessionkit.addons.tables import Upsert
from sessionkit.errors import SpecError

VISITS = Target("web", "visits", Upsert("visits", ("session_id", 'pa"ges'), ("session_id",)), "q")


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (T.StringType(), "text"),
        (T.VarcharType(3), "text"),
        (T.ByteType(), "smallint"),
        (T.IntegerType(), "integer"),
        (T.LongType(), "bigint"),
        (T.FloatType(), "real"),
        (T.DoubleType(), "double precision"),
        (T.BooleanType(), "boolean"),
        (T.BinaryType(), "bytea"),
        (T.TimestampType(), "timestamp with time zone"),
        (T.TimestampNTZType(), "timestamp"),
        (T.DateType(), "date"),
        (T.DayTimeIntervalType(), "interval"),
        (T.DecimalType(10, 2), "numeric(10,2)"),
        (T.ArrayType(T.StringType()), "text[]"),
        (T.ArrayType(T.ArrayType(T.LongType())), "jsonb"),
        (T.MapType(T.StringType(), T.LongType()), "jsonb"),
        (T.StructType(), "jsonb"),
    ],
)
def test_each_type_has_a_column(kind: T.DataType, column: str) -> None:
    """What has parts becomes JSON, except for arrays of single values."""
    assert column == postgres_type(kind, "it")


def test_a_type_without_a_column_is_refused() -> None:
    """The message names the column."""
    with pytest.raises(SpecError, match="no column for `months`, which is interval year to month"):
        postgres_type(T.YearMonthIntervalType(), "months")


def test_names_are_quoted() -> None:
    """A name is never read as SQL, whatever it is made of."""
    assert (
        f"COPY {VISITS.staging.as_string(None)}"
        ' ("sessionkit_attempt", "session_id", "pa""ges") FROM STDIN'
        == VISITS.sql(COPY).as_string(None)
    )
    assert 'DELETE FROM "web"."sessionkit_batches" WHERE table_name = \'visits\'' == VISITS.sql(
        RELEASE
    ).as_string(None)


def test_staging_tables_never_meet() -> None:
    """Each query and each table has its own, in the table's schema and of a name that fits."""
    names = [
        Target("web", name, VISITS.upsert, query).staging.as_string(None)
        for name in ("visits", "v" * 63)
        for query in ("first", "second")
    ]

    assert 4 == len({*names})
    assert all(
        re.fullmatch(r'"web"\."sessionkit_staging_[0-9a-f]{32}"', name) is not None
        for name in names
    )


def test_a_key_is_found_in_whatever_order_the_server_has_its_columns() -> None:
    """Many collations sort `a` before `B`, and Python doesn't."""
    columns = ("a", "B")
    table = Target("web", "visits", Upsert("visits", columns, ("B", "a")), "q")
    schema = T.StructType([T.StructField(name, T.LongType()) for name in columns])
    types = dict.fromkeys(columns, "bigint")
    everything = ["INSERT", "SELECT", "UPDATE", "DELETE"]
    unique = [["a"], ["a", "B"]]
    there = Relation("web.visits", None, True, "me", everything, types, [], unique)  # noqa: FBT003

    tables._check_fits(there, table, schema)
    with pytest.raises(SpecError, match="no unique index of exactly"):
        tables._check_fits(attrs.evolve(there, unique_by=[["a"]]), table, schema)


def test_a_row_replaces_the_earlier_one_by_its_key() -> None:
    """Without a key rows are added; with nothing but a key they stay as they are."""
    added = moved(("id", "n"), ())
    replaced = moved(("id", "n"), ("id",))
    kept = moved(("id",), ("id",))

    assert "ON CONFLICT" not in added
    assert replaced.endswith('ON CONFLICT ("id") DO UPDATE SET "n" = excluded."n"')
    assert kept.endswith('ON CONFLICT ("id") DO NOTHING')


def moved(columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    """Return the SQL that moves rows without revisions."""
    table = Target("s", "t", Upsert("t", columns, key), "q")
    return Moving(table, table.sql(COPIED, attempts=[])).insert().as_string(None)
