"""What writes micro-batches to a table of Delta Lake."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.errors import SpecError, UnsupportedError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark.sinks.batches import Batch
from sessionkit.spark.sinks.delta.sink import Delta
from sessionkit.spark.sinks.keys import (
    REVISION,
    SESSION_ID,
    SUPERSEDES,
    check_has_columns,
    same_key_error,
)
from sessionkit.spark.sinks.routes import Route

__all__ = ["DeltaWriter", "check_columns", "check_delta", "check_table"]

DELETES: Final = "_deletes"

RELEASES: Final = {"3.5": "3.3", "4.0": "4.0", "4.1": "4.3", "4.2": "4.4"}
"""For each release of Spark, the release of delta-spark for it, by what its metadata asks for."""
PROBE: Final = "DESCRIBE HISTORY '/' LIMIT 1"
"""A statement that Spark can parse only with Delta's extension."""
TRANSACTION: Final = "spark.databricks.delta.write.txnAppId"
VERSION: Final = "spark.databricks.delta.write.txnVersion"


def check_delta(spark: SparkSession) -> None:
    """
    Check that a session has Delta Lake.

    Raises:
        UnsupportedError: It hasn't.
    """
    try:
        spark.sql(PROBE)
    except PySparkException as error:
        if "PARSE_SYNTAX_ERROR" in str(error):
            found = f"the sink Delta needs Delta Lake, and this session of Spark {spark.version} "
            raise UnsupportedError(with_hint(f"{found}runs without it", _advice(spark))) from None


def _advice(spark: SparkSession) -> str:
    release = RELEASES.get(".".join(spark.version.split(".")[:2]))
    if release is None:
        newest = [*RELEASES][-1]
        return f"use Spark {newest} or earlier; {newest} goes with delta-spark {RELEASES[newest]}"
    return (
        f"use delta-spark {release} with its session extension and catalog in "
        "`spark.sql.extensions` and `spark.sql.catalog.spark_catalog`"
    )


def check_columns(schema: T.StructType) -> None:
    """
    Check that Delta has a type for each column.

    Raises:
        SpecError: It hasn't.
    """
    for field in schema.fields:
        if _has_interval(field.dataType.jsonValue()):
            found = f"Delta has no type for `{field.name}`: {field.dataType.simpleString()}"
            hint = 'cast an interval: col(..).cast("string"); of an event, before the spec reads it'
            raise SpecError(with_hint(found, hint))


def _has_interval(kind: Any) -> bool:
    """Return whether a type, as JSON, is an interval or has one inside."""
    match kind:
        case str():
            return kind.startswith("interval ")
        case {"fields": fields}:
            return any(_has_interval(field["type"]) for field in fields)
        case dict():
            inner = (kind.get(part) for part in ("elementType", "keyType", "valueType"))
            return any(_has_interval(part) for part in inner)
        case _:
            return False


def check_table(sink: Delta, route: Route, spark: SparkSession) -> None:
    """
    Check that a table has a column for each of the rows, if there is one.

    Raises:
        SpecError: It hasn't.
    """
    try:
        columns = spark.table(sink.identifier).columns
    except PySparkException:
        return  # there is none: the first micro-batch makes it
    check_has_columns(sink.table, route.schema.names, columns)


@attrs.frozen
class DeltaWriter:
    """
    Writes micro-batches, of which Delta leaves out those that the table has.

    Attributes:
        sink: The table.
        key: The columns by which a row replaces an earlier one; none where rows are added.
        route: What tells the rows from those that the query writes elsewhere.
    """

    sink: Delta
    key: tuple[str, ...]
    route: str
    runs_all: bool = attrs.field(default=False, init=False)

    def is_written(self, batch: Batch) -> bool:
        """Return that only Delta knows."""
        del batch
        return False

    def write(self, batch: Batch) -> None:
        """Write it in one transaction."""
        rows, table = batch.frame, self.sink.identifier
        spark = rows.sparkSession
        empty = spark.createDataFrame([], rows.schema)
        empty.write.format("delta").mode("ignore").saveAsTable(table)
        if not self.key:
            with _once(spark, self._transaction(batch), batch.number):
                rows.write.format("delta").mode("append").saveAsTable(table)
            return
        same, gone = self.key, None
        if SESSION_ID in self.key and REVISION in rows.columns:
            same, gone = (SESSION_ID,), _superseded(rows)
            rows = _latest(rows, gone, spark.table(table))
        self._check_unique(rows)
        replaced = rows.select(*map(quoted, same)).distinct()
        replaced = replaced if gone is None else replaced.union(gone)
        with _once(spark, self._transaction(batch), batch.number):
            _replace(spark, table, same, replaced, rows)

    def _transaction(self, batch: Batch) -> str:
        return f"{batch.query_id}/{self.route}"

    def _check_unique(self, rows: DataFrame) -> None:
        counted = rows.groupBy(*map(quoted, self.key)).agg(F.count("*").alias("_rows"))
        if counted.where("_rows > 1").limit(1).collect():
            raise same_key_error(self.sink.table, self.key)


@contextmanager
def _once(spark: SparkSession, transaction: str, version: int) -> Iterator[None]:
    """Let Delta leave out a write that the table has from this transaction, in this version."""
    spark.conf.set(TRANSACTION, transaction)
    spark.conf.set(VERSION, str(version))
    try:
        yield
    finally:
        spark.conf.unset(TRANSACTION)
        spark.conf.unset(VERSION)


def _superseded(rows: DataFrame) -> DataFrame | None:
    """Return the ids that other rows supersede; None where rows don't name any."""
    if SUPERSEDES not in rows.columns:
        return None
    return rows.select(F.explode(SUPERSEDES).alias(SESSION_ID)).distinct()


def _latest(rows: DataFrame, gone: DataFrame | None, table: DataFrame) -> DataFrame:
    """Return the rows of each session's highest revision, unless the table has a higher one."""
    newest_first = Window.partitionBy(SESSION_ID).orderBy(F.desc(REVISION))
    latest = rows.withColumn("_rank", F.rank().over(newest_first)).where("_rank = 1").drop("_rank")
    if gone is not None:
        latest = latest.join(gone, SESSION_ID, "left_anti")
    # The table may be large: only its side isn't shuffled.
    written = latest.select(SESSION_ID, F.col(REVISION).alias("_written")).distinct()
    present = table.select(SESSION_ID, REVISION).join(F.broadcast(written), SESSION_ID)
    higher = present.where(F.col(REVISION) > F.col("_written")).select(SESSION_ID).distinct()
    return latest.join(higher, SESSION_ID, "left_anti")


def _replace(
    spark: SparkSession, table: str, same: Sequence[str], replaced: DataFrame, rows: DataFrame
) -> None:
    """Delete what is replaced and add the rows, in one statement."""
    deleted = replaced.withColumn(DELETES, F.lit(True))  # noqa: FBT003
    added = rows.withColumn(DELETES, F.lit(False))  # noqa: FBT003
    columns = [*map(quoted, rows.columns)]
    matches = " AND ".join(f"old.{name} <=> new.{name}" for name in map(quoted, same))
    into = f"{table} AS old".replace("{", "{{").replace("}", "}}")
    spark.sql(
        f"MERGE INTO {into} USING {{new}} AS new ON new.{DELETES} AND {matches}"  # noqa: S608
        f" WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT new.{DELETES} THEN"
        f" INSERT ({', '.join(columns)}) VALUES ({', '.join(f'new.{name}' for name in columns)})",
        new=added.unionByName(deleted, allowMissingColumns=True),
    )
