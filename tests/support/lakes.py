"""Tables of Delta and of Iceberg, as the tests of what both share see them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs
from sessionkit.addons.delta import Delta
from sessionkit.addons.iceberg import Iceberg
from tests.support.repairs import MINUTE, Right, spec_of

DELTA = pytest.param("delta", marks=pytest.mark.cell("delta"))
FOLDERS, DATABASE = (
    pytest.param(catalog, marks=pytest.mark.cell("iceberg")) for catalog in ("folders", "database")
)
LAKES = (DELTA, FOLDERS, DATABASE)
"""Delta, and the catalogs of Iceberg."""
START = datetime(2026, 3, 8, 6, 50, tzinfo=UTC)


SPEC: Any = attrs.evolve(
    spec_of(Right), watermark_delay="0 seconds", inputs=Inputs(passthrough={"line": int})
)


def minute(number: int) -> datetime:
    return START + number * MINUTE


def events(*rows: tuple[str | None, int, int]) -> pa.Table:
    keys, minutes, values = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "at": pa.array([*map(minute, minutes)], pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.int64()),
            "line": pa.array([value * 100 for value in values], pa.int64()),
        }
    )


class Lake(Protocol):
    """Where the tables of a test are."""

    @property
    def spark(self) -> SparkSession:
        """Spark with what the tables need."""

    def sink(self, table: str, key: Any = None) -> Delta | Iceberg:
        """Return the sink of a table."""

    def name(self, table: str) -> str:
        """Return what SQL calls a table."""

    def commits(self, table: str) -> int:
        """Return how many transactions a table has had."""


@attrs.frozen
class DeltaFolder:
    """Tables of Delta in a folder."""

    spark: SparkSession
    folder: Path

    def sink(self, table: str, key: Any = None) -> Delta:
        return Delta(self.folder / table, key)

    def name(self, table: str) -> str:
        return self.sink(table).identifier

    def commits(self, table: str) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.name(table)}").count())


@attrs.frozen
class IcebergSchema:
    """Tables of Iceberg in a schema of a catalog."""

    spark: SparkSession
    schema: str

    def sink(self, table: str, key: Any = None) -> Iceberg:
        return Iceberg(self.name(table), key)

    def name(self, table: str) -> str:
        return f"{self.schema}.{table}"

    def commits(self, table: str) -> int:
        return self.spark.table(f"{self.name(table)}.snapshots").count()


def lake_of(name: str, spark: SparkSession, folder: Path) -> Lake:
    """Give a place for tables."""
    if name == "delta":
        return DeltaFolder(spark, folder)
    schema = f"{name}.s{uuid4().hex}"
    spark.sql(f"CREATE NAMESPACE {schema}")
    return IcebergSchema(spark, schema)


def rows_in(lake: Lake, table: str, *columns: str) -> list[Any]:
    # A catalog of Iceberg remembers tables for a while, and each query has one of its own.
    if isinstance(lake, IcebergSchema):
        lake.spark.catalog.refreshTable(lake.name(table))
    return sorted(
        tuple(row) for row in lake.spark.table(lake.name(table)).select(*columns).collect()
    )
