"""Write rows to a Delta Lake table, each exactly once."""

import json
import logging
import os
import re
from pathlib import PurePosixPath
from typing import Any, Final

import attrs
from attrs.converters import optional
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SpecError
from sessionkit._for_addons import (
    Difference,
    Span,
    check_plan,
    explained,
    literal_path,
    names,
    names_of,
    other_run,
    quoted,
)
from sessionkit.addons.merging import Table, check_alone, check_fits, check_types, merge_span
from sessionkit.addons.tables import Upsert
from sessionkit.errors import UnsupportedError
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger, RowsToWrite

__all__ = ["Delta"]

DEFAULTS: Final = ("spark_catalog", "default")
"""The default catalog and schema."""
DIGITS: Final = 20
"""The number of digits of the table version at the start of a log file's name."""
ACTIONS: Final = (
    "txn struct<appId: string, version: bigint>, "
    "commitInfo struct<operation: string, userMetadata: string>"
)
LOGGER: Final = logging.getLogger("sessionkit")
CONFLICTS: Final = re.compile(
    "DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|Concurrent(Append|Delete\w+|Transaction|Write)Exception|(Metadata|Protocol)ChangedException"
)
"""The errors of Delta for conflicting commits."""
LATE: Final = 100
"""The number of commits before a checkpoint of the log among which a note is sought first."""
NOTE: Final = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting of the session for the note of a commit, which users may have set for themselves."""
SETTINGS: Final = {"txn": "spark.databricks.delta.write.txn", "userMetadata": NOTE}


@explained()
@attrs.frozen
class Delta:
    """
    A table of Delta Lake, to which each row is written exactly once. Needs the extra `delta`.

    The sink creates the table if there is none. Each micro-batch is one transaction with the id of
    the query, the kind of the rows and its own number: Delta skips one that the table already has.
    If another run of the query has written it, with other rows, this run ends.

    Example:
        from sessionkit.addons.delta import Delta

        by_path = Delta("/tables/visits")
        by_name = Delta("shop.visits")
        latest_by_user = Delta("shop.latest_visits", key="user")

    Attributes:
        table: The name or the path of the table: a path has a `/`, or is a `Path`.
        key: The columns by which a row replaces an earlier one: by default `session_id` for
            sessions. Rows of other kinds have none, and are appended. If a session has several
            revisions, the table keeps the highest; it drops the sessions that another row
            `supersedes`.

    Raises:
        SpecError: `table` is an empty text.
    """

    table: str | os.PathLike[str] = attrs.field()
    key: tuple[str, ...] | None = attrs.field(
        default=None, converter=optional(names_of), validator=names
    )

    @table.validator
    def _check_table(self, _: object, value: str | os.PathLike[str]) -> None:
        named: object = value
        if not isinstance(named, str | os.PathLike) or not os.fspath(named):
            found = f"`table` must be the name or the path of a table, found {value!r}"
            raise SpecError(found, 'write Delta("visits") or Delta("/tables/visits")')

    @property
    def is_path(self) -> bool:
        """Whether the table is named by its path."""
        return not isinstance(self.table, str) or "/" in self.table

    @property
    def identifier(self) -> str:
        """The table's name in SQL: for a path, `delta.` and the path in backticks."""
        place = os.fspath(self.table)
        return f"delta.{quoted(place)}" if self.is_path else place

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return f"the table {self.table}"

    @property
    def place(self) -> object:
        """The identity of the table, equal for all of its sinks: its path, or its full name."""
        if self.is_path:
            return PurePosixPath(os.fspath(self.table))
        names = os.fspath(self.table).replace("`", "").lower().split(".")
        return tuple([*DEFAULTS, *names][-len(DEFAULTS) - 1 :])

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """
        Check that Delta is installed and that the rows fit, and return their writer.

        `start_query` calls it.
        """
        upsert = Upsert.of(self, rows)
        check_types(rows.schema, "Delta")
        check_delta(spark)
        return DeltaWriter(self, upsert, rows.name)

    def exchange(self, span: Span, *, dry_run: bool) -> Difference:
        """
        Replace the sessions of a span in the table, while its query is stopped.

        `repair` calls it.
        """
        return merge_span(span, Upsert.of_span(self, span), delta_table(self), dry_run=dry_run)


def delta_table(sink: Delta) -> Table:
    path = os.fspath(sink.table) if sink.is_path else None
    return Table(sink.identifier, sink.label, "delta", SETTINGS, CONFLICTS, path)


def _last_written(spark: SparkSession, table: str, transaction: str) -> tuple[int | None, bool]:
    """
    Return the last version of a transaction in a table, and whether the table was restored since.

    Delta has no SQL for it, so this reads the last checkpoint of the log and the later commits.
    Delta skips repeats up to that version even in a table restored to a version without them.
    """
    log = _log_of(spark, table)
    if log is None:
        return None, False  # the table doesn't exist yet
    newest = _newest_checkpoint(spark, log)
    kept = _read(spark, "parquet", f"{log}/{newest:0{DIGITS}}.checkpoint*.parquet")
    recent = _commits(spark, log, newest)
    is_ours = F.col("txn.appId") == transaction
    is_restore = F.col("commitInfo.operation") == "RESTORE"
    version, file = F.col("txn.version"), F.col("file_name")
    kinds = (is_ours, version), (is_ours, file), (is_restore, file)
    highest = [F.max(F.when(is_kind, value)) for is_kind, value in kinds]
    last, written_at, restored_at = kept.union(recent).agg(*highest).collect()[0]
    return last, last is not None and (restored_at or "") > written_at


def _notes(spark: SparkSession, table: str, transaction: str, number: int) -> dict[int, str | None]:
    """Return the notes of the commits of a transaction, by version, from this one on."""
    log = _log_of(spark, table)
    if log is None:
        return {}
    of_query = F.when(F.col("txn.appId") == transaction, F.col("txn.version"))
    notes: dict[int, str | None] = {}
    for first in (_newest_checkpoint(spark, log) - LATE, 0):  # all commits only if it must be
        by_commit = (
            _commits(spark, log, first)
            .groupBy("file_name")
            .agg(F.max(of_query).alias("number"), F.max("commitInfo.userMetadata").alias("note"))
        )
        rows = by_commit.where(F.col("number") >= number).collect()
        notes = {row.number: row.note for row in rows}
        if notes or first <= 0:
            break
    return notes


def _log_of(spark: SparkSession, table: str) -> str | None:
    """Return the folder with the log of a table; None if there is no table."""
    try:
        (place,) = spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0]
    except PySparkException:
        return None
    return f"{literal_path(place)}/_delta_log"


def _newest_checkpoint(spark: SparkSession, log: str) -> int:
    names = map(os.path.basename, _read(spark, "parquet", f"{log}/*.checkpoint*").inputFiles())
    return max((int(name[:DIGITS]) for name in names), default=0)


def _commits(spark: SparkSession, log: str, first: int) -> DataFrame:
    """Return the actions of the commits from a version on."""
    later = F.col("file_name") >= f"{max(first, 0):0{DIGITS}}"  # Spark prunes the files by it
    return _read(spark, "json", f"{log}/{'[0-9]' * DIGITS}.json").where(later)


def _read(spark: SparkSession, kind: str, path: str) -> DataFrame:
    """Return the actions of log files with the file names; no rows if there is no file."""
    reader: Any = spark.read.schema(ACTIONS).format(kind)
    try:
        actions: DataFrame = reader.load(path).select("*", "_metadata.file_name")
        _ = actions.columns  # Connect looks for the files only now
    except PySparkException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return spark.createDataFrame([], f"{ACTIONS}, file_name string")
    return actions


def check_delta(spark: SparkSession) -> None:
    try:
        spark.sql("DESCRIBE HISTORY '/' LIMIT 1")  # parsed only with Delta's extension
    except PySparkException as error:
        if "PARSE_SYNTAX_ERROR" in str(error):
            found = f"this session of Spark {spark.version} runs without Delta Lake"
            hint = (
                "use a Spark for which there is a delta-spark, with its session extension and "
                "catalog in `spark.sql.extensions` and `spark.sql.catalog.spark_catalog`"
            )
            raise UnsupportedError(found, hint) from None


@attrs.define
class DeltaWriter(BatchWriter):
    """
    Writes micro-batches; Delta skips one that the table already has.

    It says nothing of that, so the note of each commit has the plan of its micro-batch.
    """

    sink: Delta
    upsert: Upsert
    route: str
    table: Table = attrs.Factory(lambda self: delta_table(self.sink), takes_self=True)

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        if self.upsert.key:
            check_alone(spark, checkpoint, "a table of Delta", "delta")

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        check_fits(rows, self.upsert, self.table.name)
        if query_id is None:
            return None
        table, transaction = self.table.name, self._transaction(query_id)
        try:
            last, is_restored = _last_written(rows.sparkSession, table, transaction)
        except PySparkException as error:
            # A catalog may forbid direct reads of a table's files.
            reason = str(error).partition("\n")[0]
            LOGGER.warning("the log of %s can't be compared: %s", self.sink.table, reason)
            return None
        self.table.is_known = last is not None
        copy = f"CREATE TABLE .. USING delta AS SELECT * FROM {table}"  # noqa: S608
        if is_restored:
            found = (
                f"the table {self.sink.table} was restored since the query {query_id} wrote to it, "
                f"and Delta would still leave out micro-batches up to {last}"
            )
            hint = f"write to a copy, {copy}, with sink_since= the first micro-batch it lacks"
            raise SpecError(found, hint)
        return Ledger(
            self.sink.label,
            last,
            lambda number: (
                f"write to a copy of what the table had then, {copy} TIMESTAMP AS OF .., or to a "
                f"new table, with sink_since={number + 1}"
            ),
        )

    def _transaction(self, query_id: str) -> str:
        return f"{query_id}/{self.route}"

    def write(self, batch: Batch) -> None:
        spark, transaction = batch.frame.sparkSession, self._transaction(batch.query_id)
        mark = {"txnAppId": transaction, "txnVersion": str(batch.number)}
        plan = batch.plan()
        if not plan or spark.conf.get(NOTE, None) is not None:  # the note is the user's
            self.table.write(batch.frame, self.upsert, mark)
            return
        note = json.dumps({"sessionkit": transaction, "batch": batch.number, "plan": plan})
        self.table.write(batch.frame, self.upsert, {**mark, "userMetadata": note})
        newest = spark.sql(f"DESCRIBE HISTORY {self.table.name} LIMIT 1").select("userMetadata")
        if [(note,)] != newest.collect():
            self._check_own(batch, transaction, plan)

    def _check_own(self, batch: Batch, transaction: str, plan: str) -> None:
        """Check that the table has this micro-batch, not that of another run."""
        label, query_id, number = self.sink.label, batch.query_id, batch.number
        try:
            notes = _notes(batch.frame.sparkSession, self.table.name, transaction, number)
        except PySparkException as error:
            # A catalog may forbid direct reads of a table's files.
            reason = str(error).partition("\n")[0]
            LOGGER.warning("the log of %s can't be compared: %s", self.sink.table, reason)
            return
        if number in notes:
            check_plan(label, query_id, number, plan, plan_in(notes[number]))
        elif notes:
            raise other_run(label, query_id, max(notes))


def plan_in(note: str | None) -> str | None:
    """Return the plan of a micro-batch in the note of its commit; None if it has none."""
    try:
        return str(json.loads(note or "")["plan"])
    except (ValueError, LookupError, TypeError):
        return None
