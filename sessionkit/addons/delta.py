"""Rows written to a Delta Lake table, each exactly once."""

import json
import logging
import os
import re
from pathlib import PurePosixPath
from typing import Any, Final, cast

import attrs
from attrs.converters import optional
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit.addons.tables import NESTED, REVISION, SESSION_ID, SUPERSEDES, Upsert, names_of
from sessionkit.arguments import explained, quoted
from sessionkit.errors import SpecError, UnsupportedError, with_hint
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger, Rows, from_last

__all__ = ["Delta"]

DEFAULTS: Final = ("spark_catalog", "default")
"""Where Spark looks for a table without a catalog and a schema, by default."""
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


@explained()
@attrs.frozen
class Delta:
    """
    A table of Delta Lake, to which each row is written exactly once. Needs the extra `delta`.

    The table is made if there is none. Each micro-batch is one transaction, which carries the id of
    the query, the kind of the rows and the number of the micro-batch: Delta leaves out one that the
    table has already.

    Example:
        from sessionkit.addons.delta import Delta

        by_path = Delta("/tables/visits")
        by_name = Delta("shop.visits")
        latest_by_user = Delta("shop.latest_visits", key="user")

    Attributes:
        table: The name of a table, or the path of one: a path has a `/`, or is a `Path`.
        key: The columns by which a row replaces an earlier one. By default it is `session_id` for
            sessions; other rows are added. Of a session that gives several revisions, the rows of
            the highest one stay, and none that another row `supersedes`.

    Raises:
        SpecError: There is no name.
    """

    table: str | os.PathLike[str] = attrs.field()
    key: tuple[str, ...] | None = attrs.field(default=None, converter=optional(names_of))

    @table.validator
    def _check_table(self, _: object, value: str | os.PathLike[str]) -> None:
        if not os.fspath(value):
            found = "`table` must be the name or the path of a table, found ''"
            raise SpecError(with_hint(found, 'write Delta("visits") or Delta("/tables/visits")'))

    @property
    def is_path(self) -> bool:
        """Whether the table is named by its path."""
        return not isinstance(self.table, str) or "/" in self.table

    @property
    def identifier(self) -> str:
        """What SQL calls the table."""
        place = os.fspath(self.table)
        return f"delta.{quoted(place)}" if self.is_path else place

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"the table {self.table}"

    @property
    def place(self) -> object:
        """What two sinks of one table share: its path, or its name with catalog and schema."""
        if self.is_path:
            return PurePosixPath(os.fspath(self.table))
        names = os.fspath(self.table).replace("`", "").lower().split(".")
        return tuple([*DEFAULTS, *names][-len(DEFAULTS) - 1 :])

    def writer(self, rows: Rows, spark: SparkSession) -> BatchWriter:
        """Check that Delta is there and the rows fit; return what writes them."""
        upsert = Upsert.of(self, rows)
        check_types(rows.schema)
        check_delta(spark)
        return DeltaWriter(self, upsert, rows.name)


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
    later = F.col("file_name") >= f"{newest:0{DIGITS}}"  # by which Spark chooses the files to read
    recent = _read(spark, "json", f"{log}/*.json").where(later)
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
    try:
        return cast("DataFrame", reader.load(path).select("*", "_metadata.file_name"))
    except PySparkException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return spark.createDataFrame([], f"{ACTIONS}, file_name string")


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
    release = tuple(map(int, spark.version.split(".")[:2]))
    if not _is_connect(spark) or release >= SESSION_OF_ITS_OWN:
        return
    other = spark.conf.get(MERGES, None)
    active = {query.id for query in spark.streams.active}
    if other not in {None, checkpoint} and _query_id_of(spark, other or "") in active:
        found = (
            f"the query of {other} merges rows into a table of Delta in this session, and with "
            f"Connect on Spark {spark.version} both would share the settings by which Delta knows "
            "whose rows they are"
        )
        hint = "start this query from another session, or pass key=() to add rows without a merge"
        raise UnsupportedError(with_hint(found, hint))
    spark.conf.set(MERGES, checkpoint)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _query_id_of(spark: SparkSession, checkpoint: str) -> str | None:
    try:
        ((text,),) = spark.read.text(f"{checkpoint}/metadata", wholetext=True).collect()
        return str(json.loads(text)["id"])
    except (PySparkException, ValueError):
        return None  # its query hasn't begun


def check_types(schema: T.StructType) -> None:
    """Check that Delta has a type for each column, and that no name is one of the sink's own."""
    for field in schema.fields:
        if field.name.lower().startswith(PREFIX):
            found = f"the column `{field.name}` has a name as the sink Delta gives to its own"
            raise SpecError(with_hint(found, "rename it"))
        if INTERVAL.search(field.dataType.simpleString()):
            found = f"Delta has no type for `{field.name}`: {field.dataType.simpleString()}"
            hint = 'cast an interval: col(..).cast("string"); of an event, before the spec reads it'
            raise SpecError(with_hint(found, hint))


@attrs.frozen
class DeltaWriter(BatchWriter):
    """Writes micro-batches, of which Delta leaves out those that the table has."""

    sink: Delta
    upsert: Upsert
    route: str

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        if self.upsert.key:
            check_alone(spark, checkpoint)

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        self._check_table(rows)
        if query_id is None:
            return None
        table, transaction = self.sink.identifier, self._transaction(query_id)
        try:
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
            self.sink.label,
            from_last(last),
            lambda number: (
                f"write to a copy of what the table had then, {copy} TIMESTAMP AS OF .., or to a "
                f"new table, with sink_since={number + 1}"
            ),
        )

    def _check_table(self, rows: DataFrame) -> None:
        """Check that the table has a column for each of the rows, if there is one."""
        try:
            schema = rows.sparkSession.table(self.sink.identifier).schema
        except PySparkException:
            return  # there is none: the first micro-batch makes it
        self.upsert.check_columns_of(schema.names)
        for field in rows.schema.fields:
            own, new = schema[field.name].dataType, field.dataType
            if type(own) is not type(new) and isinstance(own, NESTED) | isinstance(new, NESTED):
                raise self.upsert.unfit(field, own.simpleString(), new.simpleString())

    def _transaction(self, query_id: str) -> str:
        return f"{query_id}/{self.route}"

    def write(self, batch: Batch) -> None:
        rows, table = batch.frame, self.sink.identifier
        empty = rows.sparkSession.createDataFrame([], rows.schema)
        empty.write.format("delta").mode("ignore").saveAsTable(table)
        if self.upsert.key:
            self._merge(batch)
            return
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self._transaction(batch.query_id))
        writer.option("txnVersion", batch.number).saveAsTable(table)

    def _merge(self, batch: Batch) -> None:
        """Delete what is replaced and add the rows, in one statement."""
        upsert, rows, spark = self.upsert, batch.frame, batch.frame.sparkSession
        table = spark.table(self.sink.identifier)
        same, revision, gone = upsert.key, [], None
        if upsert.revises:
            same, revision = (SESSION_ID,), [F.col(REVISION).alias(NEW_REVISION)]
            if upsert.supersedes:
                gone = rows.select(F.explode(SUPERSEDES).alias(SESSION_ID)).distinct()
            rows = _latest(rows, gone, None if upsert.refuses_duplicates else table)
        counted = rows.groupBy(*map(quoted, upsert.key)).agg(F.count("*").alias(ROWS))
        if counted.where(f"{ROWS} > 1").limit(1).collect():
            raise upsert.same_key()
        replaced = rows.select(*map(quoted, same), *revision).distinct()
        if gone is not None:
            replaced = replaced.unionByName(gone, allowMissingColumns=True)
        added = rows.withColumn(DELETES, F.lit(False))  # noqa: FBT003
        deleted = replaced.withColumn(DELETES, F.lit(True))  # noqa: FBT003
        columns = [*map(quoted, rows.columns)]
        matches = " AND ".join(f"old.{name} <=> new.{name}" for name in map(quoted, same))
        into = f"{self.sink.identifier} AS old".replace("{", "{{").replace("}", "}}")
        merge = (
            f"MERGE INTO {into} USING {{new}} AS new ON new.{DELETES} AND {matches}"  # noqa: S608
            f" {_when_matched(upsert)} WHEN NOT MATCHED AND NOT new.{DELETES} THEN"
            f" INSERT ({', '.join(columns)}) VALUES ({', '.join(f'new.{one}' for one in columns)})"
        )
        # The statement has no options, so the session has them meanwhile; see `check_alone`.
        spark.conf.set(TRANSACTION, self._transaction(batch.query_id))
        spark.conf.set(VERSION, str(batch.number))
        try:
            spark.sql(merge, new=added.unionByName(deleted, allowMissingColumns=True))
        except Exception as error:
            # PySpark has no class of its own for every error of a task.
            if SECOND not in str(error):
                raise
            sides = [
                F.struct(*(F.col(f"{side}.{quoted(name)}") for name in upsert.shown))
                for side in ("present", "new")
            ]
            both = table.alias("present").join(rows.alias("new"), [*upsert.key]).select(*sides)
            raise upsert.second_session(*both.limit(1).collect()[0]) from None
        finally:
            spark.conf.unset(TRANSACTION)
            spark.conf.unset(VERSION)


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


def _when_matched(upsert: Upsert) -> str:
    """Return what to do with a row of the table that a new one replaces."""
    if not upsert.refuses_duplicates:
        return "WHEN MATCHED THEN DELETE"
    stop = f"WHEN MATCHED THEN UPDATE SET {quoted(SESSION_ID)} = raise_error('{SECOND}')"
    if not upsert.revises:
        return stop
    # What is superseded has no new revision.
    earlier = f"new.{NEW_REVISION} IS NULL OR old.{REVISION} < new.{NEW_REVISION}"
    return f"WHEN MATCHED AND ({earlier}) THEN DELETE {stop}"
