"""Rows written to a Delta Lake table, each exactly once."""

import logging
import os
import re
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
from sessionkit.spark._libraries import is_connect, release_of
from sessionkit.spark._logs import if_there, query_id_of
from sessionkit.spark.sinks.batches import Batch, BatchWriter, Ledger, from_last
from sessionkit.spark.sinks.routes import (
    NESTED,
    REVISION,
    SESSION_ID,
    SUPERSEDES,
    check_has_columns,
    duplicate_id_error,
    same_key_error,
    unfit_error,
)
from sessionkit.spark.sinks.values import Delta, described
from sessionkit.spark.sinks.writers import numbers_from
from sessionkit.spec.shared import SESSION_COLUMNS

DIGITS: Final = 20
"""With how many digits the name of a file of the log begins: the version of the table."""
ACTIONS: Final = "txn struct<appId: string, version: bigint>, commitInfo struct<operation: string>"
RESTORE: Final = "RESTORE"
LOGGER: Final = logging.getLogger("sessionkit")
PREFIX: Final = "_sessionkit_"
"""How the names of columns begin that the sink adds to rows for a moment."""
DELETES: Final = f"{PREFIX}deletes"
NEW_REVISION: Final = f"{PREFIX}revision"
RANK, ROWS, WRITTEN = f"{PREFIX}rank", f"{PREFIX}rows", f"{PREFIX}written"
SECOND: Final = "sessionkit: a second session"
"""What Spark says where a row of the table stands in the way of a new one."""
INTERVAL: Final = re.compile(r"\binterval (year|month|day|hour|minute|second)( to \w+)?(?![^,>])")
"""A type with an interval, also inside; not the name of a field, which a colon follows."""
RELEASES: Final = {"3.5": "3.3", "4.0": "4.0", "4.1": "4.3", "4.2": "4.4"}
"""For each release of Spark, the release of delta-spark that its metadata asks for."""
PROBE: Final = "DESCRIBE HISTORY '/' LIMIT 1"
"""A statement that Spark can parse only with Delta's extension."""
TRANSACTION: Final = "spark.databricks.delta.write.txnAppId"
VERSION: Final = "spark.databricks.delta.write.txnVersion"
MERGES: Final = "spark.sessionkit.delta.merges"
"""A setting of our own: the checkpoint of the query of this session that runs `MERGE`."""
SESSION_OF_ITS_OWN: Final = (4, 3)
"""From this release of Spark on, `foreachBatch` has a session of its own on Connect too."""


def _last_written(spark: SparkSession, table: str, transaction: str) -> tuple[int | None, bool]:
    """
    Return the last version of a transaction that a table has, and whether it was restored since.

    No statement of Delta's says it, so it's read from the log: the last checkpoint of the log, and
    what came after it. Up to that version Delta leaves out what comes again, also where the table
    was restored to a version that is without it.
    """
    try:
        (place,) = spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0]
    except PySparkException:
        return None, False  # there is no table yet
    log = f"{place}/_delta_log"
    names = map(os.path.basename, _read(spark, "parquet", f"{log}/*.checkpoint*").inputFiles())
    newest = max((int(name[:DIGITS]) for name in names), default=0)
    kept = _read(spark, "parquet", f"{log}/{newest:0{DIGITS}}.checkpoint*.parquet")
    recent = _read(spark, "json", f"{log}/{numbers_from(newest, DIGITS)}.json")
    own, is_restore = F.col("txn.appId") == transaction, F.col("commitInfo.operation") == RESTORE
    last, written_at, restored_at = (
        kept.union(recent)
        .agg(
            F.max(F.when(own, F.col("txn.version"))),
            F.max(F.when(own, F.col("file_name"))),
            F.max(F.when(is_restore, F.col("file_name"))),
        )
        .collect()[0]
    )
    return last, last is not None and (restored_at or "") > written_at


def _read(spark: SparkSession, kind: str, path: str) -> DataFrame:
    """Return the actions in files, with the names of these; nothing where there are none."""
    reader: Any = spark.read.schema(ACTIONS).format(kind)
    found: DataFrame | None = if_there(lambda: reader.load(path).select("*", "_metadata.file_name"))
    return spark.createDataFrame([], f"{ACTIONS}, file_name string") if found is None else found


def check_delta(spark: SparkSession) -> None:
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


def check_alone(spark: SparkSession, checkpoint: str) -> None:
    """
    Check that no other query of a session merges rows into tables, and note that this one does.

    On Connect before Spark 4.3, `foreachBatch` has the session that all queries and the user share.
    A second `MERGE` at the same moment would run as a transaction of the first query: Delta would
    leave out its rows, or write those of the first one again.
    """
    if not is_connect(spark) or release_of(spark.version) >= SESSION_OF_ITS_OWN:
        return
    other = spark.conf.get(MERGES, None)
    active = {query.id for query in spark.streams.active}
    if other not in {None, checkpoint} and query_id_of(spark, other or "") in active:
        found = (
            f"the query of {other} merges rows into a table of Delta in this session, and with "
            f"Connect on Spark {spark.version} both would share the settings by which Delta knows "
            "whose rows they are"
        )
        hint = "start this query from another session, or pass key=() to add rows without a merge"
        raise UnsupportedError(with_hint(found, hint))
    spark.conf.set(MERGES, checkpoint)


def check_columns(schema: T.StructType) -> None:
    """Check that Delta has a type for each column, and that no name is one of the sink's own."""
    for field in schema.fields:
        if field.name.lower().startswith(PREFIX):
            found = f"the column `{field.name}` has a name as the sink Delta gives to its own"
            raise SpecError(with_hint(found, "rename it"))
        if INTERVAL.search(field.dataType.simpleString()):
            found = f"Delta has no type for `{field.name}`: {field.dataType.simpleString()}"
            hint = 'cast an interval: col(..).cast("string"); of an event, before the spec reads it'
            raise SpecError(with_hint(found, hint))


def _check_table(sink: Delta, rows: DataFrame) -> None:
    """Check that a table has a column for each of the rows, if there is one."""
    try:
        schema = rows.sparkSession.table(sink.identifier).schema
    except PySparkException:
        return  # there is none: the first micro-batch makes it
    check_has_columns(sink.table, rows.columns, schema.names)
    for field in rows.schema.fields:
        own, new = schema[field.name].dataType, field.dataType
        if type(own) is not type(new) and isinstance(own, NESTED) | isinstance(new, NESTED):
            raise unfit_error(sink.table, field, own.simpleString(), new.simpleString())


@attrs.frozen
class TableWriter(BatchWriter):
    """Writes micro-batches, of which Delta leaves out those that the table has."""

    sink: Delta
    key: tuple[str, ...]
    route: str
    refuses_duplicates: bool = False

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        _check_table(self.sink, rows)
        if query_id is None:
            return None
        table = self.sink.identifier
        try:
            transaction = self._transaction(query_id)
            last, is_restored = _last_written(rows.sparkSession, table, transaction)
        except PySparkException as error:
            # A catalog may let nobody read the files of its tables.
            reason = str(error).partition("\n")[0]
            LOGGER.warning("the log of %s can't be compared: %s", self.sink.table, reason)
            return None
        copy = f"CREATE TABLE .. USING delta AS SELECT * FROM {table}"  # noqa: S608
        if is_restored:
            found = (
                f"the table {self.sink.table} was restored since the query {query_id} wrote to it, "
                f"and Delta would still leave out micro-batches up to {last}"
            )
            hint = f"write to a copy, {copy}, with sink_since= the first micro-batch it lacks"
            raise SpecError(with_hint(found, hint))
        return Ledger(
            described(self.sink),
            from_last(last),
            lambda number: (
                f"write to a copy of what the table had then, {copy} TIMESTAMP AS OF .., or to a "
                f"new table, with sink_since={number + 1}"
            ),
        )

    def write(self, batch: Batch) -> None:
        rows, table = batch.frame, self.sink.identifier
        spark = rows.sparkSession
        empty = spark.createDataFrame([], rows.schema)
        empty.write.format("delta").mode("ignore").saveAsTable(table)
        if not self.key:
            writer = rows.write.format("delta").mode("append")
            writer = writer.option("txnAppId", self._transaction(batch.query_id))
            writer.option("txnVersion", batch.number).saveAsTable(table)
            return
        revises, gone = SESSION_ID in self.key and REVISION in rows.columns, None
        if revises:
            if SUPERSEDES in rows.columns:
                gone = rows.select(F.explode(SUPERSEDES).alias(SESSION_ID)).distinct()
            rows = _latest(rows, gone, None if self.refuses_duplicates else spark.table(table))
        self._check_unique(rows)
        same = (SESSION_ID,) if revises else self.key
        revision = [F.col(REVISION).alias(NEW_REVISION)] if revises else []
        replaced = rows.select(*map(quoted, same), *revision).distinct()
        if gone is not None:
            replaced = replaced.unionByName(gone, allowMissingColumns=True)
        matched = _when_matched(same, revises, self.refuses_duplicates)
        try:
            with self._once(batch):
                _replace(table, same, replaced, rows, matched)
        except Exception as error:
            # PySpark has no class of its own for every error of a task.
            if SECOND not in str(error):
                raise
            raise self._second(spark.table(table), rows) from None

    def _check_unique(self, rows: DataFrame) -> None:
        counted = rows.groupBy(*map(quoted, self.key)).agg(F.count("*").alias(ROWS))
        if counted.where(f"{ROWS} > 1").limit(1).collect():
            raise same_key_error(self.sink.table, self.key)

    def _transaction(self, query_id: str) -> str:
        return f"{query_id}/{self.route}"

    @contextmanager
    def _once(self, batch: Batch) -> Iterator[None]:
        """
        Let Delta leave out a `MERGE` of a micro-batch that the table has.

        The statement has no options, so the session has them meanwhile; see `check_alone`.
        """
        conf = batch.frame.sparkSession.conf
        conf.set(TRANSACTION, self._transaction(batch.query_id))
        conf.set(VERSION, str(batch.number))
        try:
            yield
        finally:
            conf.unset(TRANSACTION)
            conf.unset(VERSION)

    def _second(self, table: DataFrame, rows: DataFrame) -> SinkError:
        """Return the error for a session with the id of another session."""
        shown = [name for name in rows.columns if name in {*SESSION_COLUMNS, REVISION}]
        both = table.alias("present").join(rows.alias("new"), [*self.key])
        sides = [
            F.struct(*(F.col(f"{side}.{name}") for name in shown)) for side in ("present", "new")
        ]
        (present, new) = both.select(*sides).limit(1).collect()[0]
        return duplicate_id_error(self.sink.table, present.asDict(), new.asDict())


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
    table: str, same: Sequence[str], replaced: DataFrame, rows: DataFrame, matched: str
) -> None:
    """Delete what is replaced and add the rows, in one statement."""
    added = rows.withColumn(DELETES, F.lit(False))  # noqa: FBT003
    deleted = replaced.withColumn(DELETES, F.lit(True))  # noqa: FBT003
    columns = [*map(quoted, rows.columns)]
    matches = " AND ".join(f"old.{name} <=> new.{name}" for name in map(quoted, same))
    into = f"{table} AS old".replace("{", "{{").replace("}", "}}")
    rows.sparkSession.sql(
        f"MERGE INTO {into} USING {{new}} AS new ON new.{DELETES} AND {matches}"  # noqa: S608
        f" {matched} WHEN NOT MATCHED AND NOT new.{DELETES} THEN"
        f" INSERT ({', '.join(columns)}) VALUES ({', '.join(f'new.{name}' for name in columns)})",
        new=added.unionByName(deleted, allowMissingColumns=True),
    )
