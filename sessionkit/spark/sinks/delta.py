"""Rows on their way into a table of Delta Lake, each exactly once."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, UnsupportedError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark._logs import if_there
from sessionkit.spark.sinks.batches import Batch, Ledger, from_last
from sessionkit.spark.sinks.native import NESTED
from sessionkit.spark.sinks.routes import (
    REVISION,
    SESSION_ID,
    SUPERSEDES,
    Route,
    check_has_columns,
    duplicate_id_error,
    same_key_error,
)
from sessionkit.spark.sinks.tables import Delta
from sessionkit.spark.sinks.writers import numbers_from
from sessionkit.spec.columns import SESSION_COLUMNS

DIGITS: Final = 20
"""With how many digits the name of a file of the log begins: the version of the table."""
ACTIONS: Final = "txn struct<appId: string, version: bigint>, commitInfo struct<operation: string>"
RESTORE: Final = "RESTORE"
LOGGER: Final = logging.getLogger("sessionkit")
OWN: Final = "_sessionkit_"
"""How the names of columns begin that the sink adds to rows for a moment."""
DELETES: Final = f"{OWN}deletes"
NEW_REVISION: Final = f"{OWN}revision"
RANK, ROWS, WRITTEN = f"{OWN}rank", f"{OWN}rows", f"{OWN}written"
SECOND: Final = "sessionkit: a second session"
"""What Spark says where a row of the table stands in the way of a new one."""
RELEASES: Final = {"3.5": "3.3", "4.0": "4.0", "4.1": "4.3", "4.2": "4.4"}
"""For each release of Spark, the release of delta-spark that its metadata asks for."""
PROBE: Final = "DESCRIBE HISTORY '/' LIMIT 1"
"""A statement that Spark can parse only with Delta's extension."""
TRANSACTION: Final = "spark.databricks.delta.write.txnAppId"
VERSION: Final = "spark.databricks.delta.write.txnVersion"


@attrs.frozen
class Written:
    """
    The last version of a transaction that a table has.

    Attributes:
        last: Its last version, up to which Delta leaves out what comes again; None for nothing.
        is_restored: Whether the table was restored since, to a version that may be without it.
    """

    last: int | None = None
    is_restored: bool = False


def written_by(spark: SparkSession, table: str, transaction: str) -> Written:
    """
    Return the last version of a transaction that a table has.

    No statement of Delta's says it, so it's read from the log: the last checkpoint of the log, and
    what came after it.
    """
    try:
        (place,) = spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0]
    except PySparkException:
        return Written()  # there is no table yet
    log = f"{place}/_delta_log"
    names = map(os.path.basename, _read(spark, "parquet", f"{log}/*.checkpoint*").inputFiles())
    newest = max((int(name[:DIGITS]) for name in names), default=0)
    recent = _read(spark, "json", f"{log}/{numbers_from(newest, DIGITS)}.json")
    kept = _read(spark, "parquet", f"{log}/{newest:0{DIGITS}}.checkpoint*.parquet")
    own = F.col("txn.appId") == transaction
    (before,) = kept.where(own).agg(F.max("txn.version")).collect()[0]
    at = F.col("_metadata.file_name")
    since, written_at, restored_at = recent.agg(
        F.max(F.when(own, F.col("txn.version"))),
        F.max(F.when(own, at)),
        F.max(F.when(F.col("commitInfo.operation") == RESTORE, at)),
    ).collect()[0]
    versions = [version for version in (before, since) if version is not None]
    is_restored = bool(versions) and restored_at is not None and restored_at > (written_at or "")
    return Written(max(versions, default=None), is_restored)


def _read(spark: SparkSession, kind: str, path: str) -> DataFrame:
    """Return the actions in files; nothing where there are none."""
    reader: Any = spark.read.schema(ACTIONS).format(kind)
    found: DataFrame | None = if_there(lambda: reader.load(path))
    if found is None:
        return spark.createDataFrame([], f"{ACTIONS}, _metadata struct<file_name: string>")
    return found


def check_delta(spark: SparkSession) -> None:
    """Check that a session has Delta Lake."""
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
    """Check that Delta has a type for each column, and that no name is one of the sink's own."""
    for field in schema.fields:
        if field.name.lower().startswith(OWN):
            found = f"the column `{field.name}` has a name as the sink Delta gives to its own"
            raise SpecError(with_hint(found, "rename it"))
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
    """Check that a table has a column for each of the rows, if there is one."""
    try:
        schema = spark.table(sink.identifier).schema
    except PySparkException:
        return  # there is none: the first micro-batch makes it
    check_has_columns(sink.table, route.schema.names, schema.names)
    for field in route.schema.fields:
        own, new = schema[field.name].dataType, field.dataType
        if type(own) is not type(new) and isinstance(own, NESTED) | isinstance(new, NESTED):
            found = f"the column `{field.name}` of the table {sink.table} is {own.simpleString()}"
            kind = new.simpleString()
            hint = f"make it {kind}, or leave the table to the sink to make"
            raise SpecError(with_hint(f"{found}, and the rows have {kind} for it", hint))


@attrs.frozen
class TableWriter:
    """
    Writes micro-batches, of which Delta leaves out those that the table has.

    Attributes:
        sink: The table.
        key: The columns by which a row replaces an earlier one; none where rows are added.
        route: What tells the rows from those that the query writes elsewhere.
        refuses: Whether a second session with the id of another one is an error.
    """

    sink: Delta
    key: tuple[str, ...]
    route: str
    refuses: bool = False
    runs_all: bool = attrs.field(default=False, init=False)

    def ledger(self, spark: SparkSession, query_id: str) -> Ledger | None:
        """Return what the table has of a query; None where its log can't be read."""
        table = self.sink.identifier
        try:
            written = written_by(spark, table, f"{query_id}/{self.route}")
        except PySparkException as error:
            # A catalog may let nobody read the files of its tables.
            reason = str(error).partition("\n")[0]
            LOGGER.warning("the log of %s can't be compared: %s", self.sink.table, reason)
            return None
        anew = f"CREATE TABLE .. USING delta AS SELECT * FROM {table}"  # noqa: S608
        if written.is_restored:
            found = (
                f"the table {self.sink.table} was restored since the query {query_id} wrote to it, "
                f"and Delta would still leave out micro-batches up to {written.last}"
            )
            hint = f"write to a copy, {anew}, with sink_since= the first micro-batch it lacks"
            raise SpecError(with_hint(found, hint))
        return Ledger(
            f"the table {self.sink.table}",
            from_last(written.last),
            lambda number: (
                f"write to a copy of what the table had then, {anew} TIMESTAMP AS OF .., or to a "
                f"new table, with sink_since={number + 1}"
            ),
        )

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
        same, gone, revises = self.key, None, SESSION_ID in self.key and REVISION in rows.columns
        if revises:
            same, gone = (SESSION_ID,), _superseded(rows)
            rows = _latest(rows, gone, None if self.refuses else spark.table(table))
        self._check_unique(rows)
        replaced = rows.select(*map(quoted, same), *([REVISION] if revises else [])).distinct()
        if revises:
            replaced = replaced.withColumnRenamed(REVISION, NEW_REVISION)
        replaced = replaced.withColumn(DELETES, F.lit(True))  # noqa: FBT003
        if gone is not None:
            replaced = replaced.unionByName(gone.withColumn(DELETES, F.lit(True)), True)  # noqa: FBT003
        try:
            with _once(spark, self._transaction(batch), batch.number):
                _replace(table, same, replaced, rows, _when_matched(same, revises, self.refuses))
        except Exception as error:
            # PySpark has no class of its own for every error of a task.
            if SECOND not in str(error):
                raise
            raise self._second(spark.table(table), rows) from None

    def _second(self, table: DataFrame, rows: DataFrame) -> SinkError:
        shown = [name for name in rows.columns if name in {*SESSION_COLUMNS, REVISION}]
        both = table.alias("present").join(rows.alias("new"), [*self.key])
        sides = [
            F.struct(*(F.col(f"{side}.{name}") for name in shown)) for side in ("present", "new")
        ]
        (present, new) = both.select(*sides).limit(1).collect()[0]
        return duplicate_id_error(self.sink.table, present.asDict(), new.asDict())

    def _transaction(self, batch: Batch) -> str:
        return f"{batch.query_id}/{self.route}"

    def _check_unique(self, rows: DataFrame) -> None:
        counted = rows.groupBy(*map(quoted, self.key)).agg(F.count("*").alias(ROWS))
        if counted.where(f"{ROWS} > 1").limit(1).collect():
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
    """Return the ids that rows supersede; None where they have no such column."""
    if SUPERSEDES not in rows.columns:
        return None
    return rows.select(F.explode(SUPERSEDES).alias(SESSION_ID)).distinct()


def _latest(rows: DataFrame, gone: DataFrame | None, table: DataFrame | None) -> DataFrame:
    """Return the rows of each session's highest revision, unless a table has a higher one."""
    newest_first = Window.partitionBy(SESSION_ID).orderBy(F.desc(REVISION))
    latest = rows.withColumn(RANK, F.rank().over(newest_first)).where(f"{RANK} = 1").drop(RANK)
    if gone is not None:
        latest = latest.join(gone, SESSION_ID, "left_anti")
    if table is None:
        return latest
    # The table may be large: only its side isn't shuffled.
    written = latest.select(SESSION_ID, F.col(REVISION).alias(WRITTEN)).distinct()
    present = table.select(SESSION_ID, REVISION).join(F.broadcast(written), SESSION_ID)
    higher = present.where(F.col(REVISION) > F.col(WRITTEN)).select(SESSION_ID).distinct()
    return latest.join(higher, SESSION_ID, "left_anti")


def _when_matched(same: Sequence[str], revises: bool, refuses: bool) -> str:  # noqa: FBT001
    """Return what to do with a row of the table that a new one replaces."""
    if not refuses:
        return "WHEN MATCHED THEN DELETE"
    stop = f"WHEN MATCHED THEN UPDATE SET {quoted(same[0])} = raise_error('{SECOND}')"
    if not revises:
        return stop
    # What is superseded has no new revision.
    earlier = f"new.{NEW_REVISION} IS NULL OR old.{REVISION} < new.{NEW_REVISION}"
    return f"WHEN MATCHED AND ({earlier}) THEN DELETE {stop}"


def _replace(
    table: str,
    same: Sequence[str],
    replaced: DataFrame,
    rows: DataFrame,
    matched: str,
) -> None:
    """Delete what is replaced and add the rows, in one statement."""
    added = rows.withColumn(DELETES, F.lit(False))  # noqa: FBT003
    columns = [*map(quoted, rows.columns)]
    matches = " AND ".join(f"old.{name} <=> new.{name}" for name in map(quoted, same))
    into = f"{table} AS old".replace("{", "{{").replace("}", "}}")
    rows.sparkSession.sql(
        f"MERGE INTO {into} USING {{new}} AS new ON new.{DELETES} AND {matches}"  # noqa: S608
        f" {matched} WHEN NOT MATCHED AND NOT new.{DELETES} THEN"
        f" INSERT ({', '.join(columns)}) VALUES ({', '.join(f'new.{name}' for name in columns)})",
        new=added.unionByName(replaced, allowMissingColumns=True),
    )
