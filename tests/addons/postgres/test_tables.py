"""The SQL of the sink Postgres, and the types of its columns; no server runs it here."""

import re

import pytest
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.addons.postgres.tables import (
    Target,
    postgres_type,
)
from sessionkit.addons.tables import Upsert

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


def test_each_query_and_table_has_a_staging_table_of_its_own() -> None:
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
