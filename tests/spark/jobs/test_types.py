"""Every type of field crosses to Python and back unchanged, on a batch and on a stream."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import NoTimeout, StatefulSpec
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.spark import apply_with_state, sessionize
from sessionkit.spec.session import AnySessionSpec
from tests.support.every_type import (
    EVERYTHING,
    SINGLE,
    events,
    expected,
    expected_single,
    in_utc,
    shown,
    stored_by_a_stream,
)
from tests.support.spark_settings import changed


def test_values_of_every_type_come_out_of_a_batch_as_sent(spark: SparkSession) -> None:
    """Integers beyond 2**53, NaN beside null, folded hours and microseconds come back as sent."""
    rows = sessionize(events(spark), EVERYTHING).collect()

    assert expected() == shown(rows)
    assert [2**60 + 1, 2] == sorted((row.user for row in rows), reverse=True)
    assert {date(2026, 3, 8)} == {row.day_of for row in rows}
    assert {Decimal("1.5")} == {row.amount for row in rows}
    assert {34_200_000_000} == {row.shift for row in rows}
    visitor = "c9bf9e57-1685-4c89-bafb-ff5af830be8a"
    assert {(visitor, "paid", "a@example.org")} == {(r.visitor, r.plan, r.team) for r in rows}
    since = datetime(2026, 3, 8, 7, 0, 0, 1, tzinfo=UTC)
    assert {since} == {in_utc(row.since) for row in rows}


@pytest.mark.parametrize(
    ("zone", "spec"),
    [
        ("America/New_York", EVERYTHING),
        pytest.param("America/New_York", SINGLE, marks=pytest.mark.nightly),
        pytest.param("Asia/Kolkata", EVERYTHING, marks=pytest.mark.long),
        pytest.param("Asia/Kolkata", SINGLE, marks=pytest.mark.long),
    ],
)
def test_values_of_every_type_come_out_of_a_stream_as_sent(
    spark: SparkSession, tmp_path: Path, zone: str, spec: AnySessionSpec
) -> None:
    """The same through stored state, in any zone, with rows that are packed and as they are."""
    assert Worker(logic_of(spec)).as_rows is (spec is SINGLE)
    with changed(spark, {"spark.sql.session.timeZone": zone}):
        rows = stored_by_a_stream(spark, tmp_path, spec)

    assert (expected_single() if spec is SINGLE else expected()) == rows


@pytest.mark.parametrize(
    ("spec", "declared"), [(EVERYTHING, {"maybe"}), (SINGLE, {"maybe", "later", "nothing"})]
)
def test_only_columns_that_are_declared_so_may_be_null(
    spark: SparkSession, tmp_path: Path, spec: AnySessionSpec, declared: set[str]
) -> None:
    """On a batch and on a stream; where rows of several kinds come out, only `kind` is never."""
    stream = spark.readStream.schema(events(spark).schema).parquet(str(tmp_path))
    for frame in (events(spark), stream):
        all_kinds = sessionize(frame, spec, with_rejected=True).schema
        schema = sessionize(frame, spec).schema

        assert declared == {field.name for field in schema if field.nullable}
        assert ["kind"] == [field.name for field in all_kinds if not field.nullable]
        assert [all_kinds[field.name].dataType for field in schema] == [
            field.dataType for field in schema
        ]


@attrs.frozen
class Spanned:
    """An event and a result with a duration alone."""

    span: timedelta


def longest(key: object, events: list[Spanned], state: object, times: object) -> Spanned:
    return max(events, key=lambda event: event.span)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("interval '90' minute", timedelta(minutes=90)),
        ("interval '3' day", timedelta(days=3)),
        ("interval '1:30' minute to second", timedelta(seconds=90)),
    ],
)
def test_an_interval_of_any_fields_crosses(
    spark: SparkSession, interval: str, expected: timedelta
) -> None:
    """Spark has a type for each pair of fields, and cannot take out a day where there is none."""
    spec = StatefulSpec(
        keys={"key": str},
        event=Spanned,
        state=Spanned,
        result=Spanned,
        process=longest,
        timeout=NoTimeout(),
    )
    frame = spark.sql(f"SELECT 'a' AS key, {interval} AS span")

    assert [expected] == [row.span for row in apply_with_state(frame, spec).collect()]
