"""Write rows to an Apache Iceberg table, each exactly once."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
from attrs.converters import optional
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit._for_addons import (
    Difference,
    Span,
    check_plan,
    explained,
    names,
    names_of,
    other_run,
    quoted,
)
from sessionkit.addons.merging import Table, check_alone, check_fits, check_types, merge_span
from sessionkit.addons.tables import Upsert
from sessionkit.errors import UnsupportedError
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger, RowsToWrite

__all__ = ["Iceberg"]

CATALOG: Final = "spark.sql.catalog."
PACKAGE: Final = "org.apache.iceberg.spark."
"""The package of Iceberg's catalog classes."""
PROPERTY: Final = "snapshot-property."
"""The prefix of a write option that Iceberg copies into the summary of the snapshot."""
SETTINGS: Final = {PROPERTY: f"spark.sql.iceberg.{PROPERTY}"}
CONFLICTS: Final = re.compile(
    r"(Validation|CommitFailed|CommitStateUnknown)Exception"
    r"|Cannot fast-forward|Cannot use branch|(Branch|Ref) does not exist"
)
"""
The errors of Iceberg for conflicting commits, for commits of unknown outcome, and for a branch that
another run has dropped.
"""
BRANCH: Final = "sessionkit_"
"""How each branch of a run begins."""
NO_NAME: Final = re.compile(r"\W")
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@explained()
@attrs.frozen
class Iceberg:
    """
    A table of Apache Iceberg, to which each row is written exactly once.

    The Spark session needs an Iceberg catalog, the Iceberg runtime for its Spark release, and its
    SQL extensions. The sink creates the table if there is none. Each micro-batch is one snapshot,
    whose summary has the id of the query, the kind of the rows and the number of the micro-batch;
    the sink skips one that the table already has. Keep snapshots for longer than a query may be
    stopped. Of two runs of a query, only one writes a micro-batch, and the other one ends.

    Example:
        from sessionkit.addons.iceberg import Iceberg

        visits = Iceberg("lake.shop.visits")
        latest_by_user = Iceberg("lake.shop.latest_visits", key="user")

    Attributes:
        table: The name of the table, with its catalog unless that is the current catalog.
        key: The columns by which a row replaces an earlier one: by default `session_id` for
            sessions. Rows of other kinds have none, and are appended. If a session has several
            revisions, the table keeps the highest; it drops the sessions that another row
            `supersedes`.

    Raises:
        SpecError: The name is empty, or a path.
    """

    table: str = attrs.field()
    key: tuple[str, ...] | None = attrs.field(
        default=None, converter=optional(names_of), validator=names
    )

    @table.validator
    def _check_table(self, _: object, value: str) -> None:
        named: object = value
        if not isinstance(named, str) or not named or "/" in named:
            shown = os.fspath(named) if isinstance(named, os.PathLike) else named
            found = f"`table` must be the name of a table, found {shown!r}"
            raise SpecError(found, 'write Iceberg("lake.shop.visits")')

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return f"the table {self.table}"

    @property
    def place(self) -> object:
        """The identity of the table, equal for all of its sinks: the parts of its name, a tuple."""
        return tuple(self.table.replace("`", "").split("."))

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """
        Check that Iceberg is installed and that the rows fit, and return their writer.

        `start_query` calls it.
        """
        upsert = Upsert.of(self, rows)
        check_types(rows.schema, "Iceberg")
        catalog = check_catalog(spark, self.table)
        check_extensions(spark, catalog)
        if upsert.key:
            check_merge(spark.version, self.label)
        return IcebergWriter(self, upsert, rows.name)

    def exchange(self, span: Span, *, dry_run: bool) -> Difference:
        """
        Replace the sessions of a span in the table, while its query is stopped.

        `repair` calls it.
        """
        span.rows.sparkSession.catalog.refreshTable(self.table)
        return merge_span(span, Upsert.of_span(self, span), iceberg_table(self), dry_run=dry_run)


def iceberg_table(sink: Iceberg) -> "BranchedTable":
    return BranchedTable(sink.table, sink.label, "iceberg", SETTINGS, CONFLICTS)


def check_catalog(spark: SparkSession, table: str) -> str:
    """Return the name of the catalog of a table, and check that it's one of Iceberg's."""
    name = table.replace("`", "").split(".")[0]
    kind = spark.conf.get(f"{CATALOG}{name}", None)
    if kind is None:
        name = spark.catalog.currentCatalog()
        kind = spark.conf.get(f"{CATALOG}{name}", None)
    if kind is not None and kind.startswith(PACKAGE):
        return name
    found = f"the sink Iceberg writes {table}, and the catalog `{name}` isn't one of Iceberg's"
    release = ".".join(spark.version.split(".")[:2])
    hint = (
        f"add the package iceberg-spark-runtime-{release}, if there is one, to Spark's jars, set "
        f"{CATALOG}lake={PACKAGE}SparkCatalog with its type and warehouse, and name the table "
        "lake.<schema>.<table>"
    )
    raise UnsupportedError(found, hint)


def check_extensions(spark: SparkSession, catalog: str) -> None:
    try:
        # Parsed only with the extensions; there is no such table.
        spark.sql(f"ALTER TABLE {quoted(catalog)}.sessionkit.nowhere DROP BRANCH IF EXISTS nothing")
    except Exception as error:  # noqa: BLE001 (whatever a catalog says of a table that isn't there)
        if "PARSE_SYNTAX_ERROR" in str(error):
            found = "the sink Iceberg needs Iceberg's SQL extensions, and this session has none"
            hint = f"set spark.sql.extensions={EXTENSIONS} when Spark starts"
            raise UnsupportedError(found, hint) from None


def check_merge(spark_version: str, label: str) -> None:
    """Check that Iceberg copies settings of the session into the snapshot of a `MERGE`."""
    if spark_version.startswith("3."):
        found = f"Iceberg on Spark {spark_version} can't keep the number of a micro-batch with a "
        found += f"MERGE, so rows could be lost or go to {label} twice"
        raise UnsupportedError(found, "use Spark 4, or pass key=() to add rows without a merge")


@attrs.define
class BranchedTable(Table):
    """
    A table whose `main` only takes the commits of one run, by way of a branch of that run.

    Iceberg appends to a table whatever else has been committed. But it fast-forwards `main` to a
    branch only if `main` is where the branch began. So a run commits to its branch, looks whether
    `main` has the micro-batch, and fast-forwards: of two runs, the second one fails.

    Attributes:
        prefix: How the branches of all runs of the query begin.
        run: The name of this run.
        is_taken: Whether this run has dropped the branches of earlier ones.
    """

    prefix: str = attrs.field(default="", init=False)
    run: str = attrs.field(default="", init=False)
    is_taken: bool = attrs.field(default=False, init=False)

    @property
    def branch(self) -> str:
        """The branch of this run."""
        return self.prefix + self.run

    def commit(
        self,
        rows: DataFrame,
        upsert: Upsert,
        mark: Mapping[str, str],
        is_written: Callable[[], bool],
    ) -> None:
        """Commit rows to the branch, and let `main` follow."""
        spark = rows.sparkSession
        self.take(spark)
        self.fork(spark)
        try:
            self.add(rows, upsert, mark, f"branch_{self.branch}")
            if not is_written():
                self.publish(spark)
        except Exception:
            self.drop(spark, self.branch)
            raise

    def fork(self, spark: SparkSession) -> None:
        """Let the branch begin where `main` is; nothing is committed if it's there."""
        spark.catalog.refreshTable(self.name)
        spark.sql(f"ALTER TABLE {self.name} CREATE OR REPLACE BRANCH {self.branch} RETAIN 1 DAYS")

    def publish(self, spark: SparkSession) -> None:
        """Let `main` follow the branch, unless anything else was committed since it began."""
        name = self.name.replace("'", "\\'")
        catalog = check_catalog(spark, self.name)
        spark.sql(f"CALL {quoted(catalog)}.system.fast_forward('{name}', 'main', '{self.branch}')")

    def take(self, spark: SparkSession) -> None:
        """Drop the branches of earlier runs of the query, once."""
        if self.is_taken:
            return
        found = spark.sql(f"SELECT name FROM {self.name}.refs").collect()  # noqa: S608
        for (name,) in found:
            if name.startswith(self.prefix) and name != self.branch:
                self.drop(spark, name)
        self.is_taken = True

    def drop(self, spark: SparkSession, branch: str) -> None:
        with suppress(PySparkException):  # Iceberg drops it when it's a day old
            spark.sql(f"ALTER TABLE {self.name} DROP BRANCH IF EXISTS {branch}")


@attrs.define
class IcebergWriter(BatchWriter):
    """
    Writes micro-batches, each as one snapshot whose summary has its number and its plan.

    Attributes:
        last: The last micro-batch of each query that this run has written.
    """

    sink: Iceberg
    upsert: Upsert
    route: str
    table: BranchedTable = attrs.Factory(lambda self: iceberg_table(self.sink), takes_self=True)
    last: dict[str, int] = attrs.field(factory=dict, init=False)

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        if self.upsert.key:
            check_alone(spark, checkpoint, self.sink.label, self.sink.table)

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        check_fits(rows, self.upsert, self.sink.table)
        if query_id is None:
            return None
        last, _ = self._written(rows.sparkSession, query_id)
        self.table.is_known = last is not None
        return Ledger(
            self.sink.label,
            last,
            lambda number: (
                f"roll the table back to the snapshot of micro-batch {number}, or write to a new "
                f"table with sink_since={number + 1}"
            ),
        )

    def is_written(self, batch: Batch) -> bool:
        """Return whether the table has a micro-batch; once this run writes, `write` looks."""
        last = self.last.get(batch.query_id)
        return self._has(batch) if last is None else last >= batch.number

    def write(self, batch: Batch) -> None:
        mark = self._mark(batch.query_id)
        self.table.prefix = BRANCH + NO_NAME.sub("", f"{batch.query_id}_{self.route}_")
        self.table.run = NO_NAME.sub("", batch.run_id)
        plan = batch.plan()
        marks = {f"{PROPERTY}{mark}": str(batch.number)}
        if plan:
            marks[f"{PROPERTY}{mark}.plan"] = plan
        self.table.write(batch.frame, self.upsert, marks, partial(self._has, batch))
        self.last[batch.query_id] = batch.number

    def _mark(self, query_id: str) -> str:
        return f"sessionkit.{query_id}.{self.route}"

    def _has(self, batch: Batch) -> bool:
        """Return whether the table has a micro-batch, and check that it's this one."""
        spark = batch.frame.sparkSession
        last, plan = self._written(spark, batch.query_id, batch.number)
        if last is None or last < batch.number:
            return False
        if last > batch.number and plan is None:
            raise other_run(self.sink.label, batch.query_id, last)
        own = batch.plan()
        check_plan(self.sink.label, batch.query_id, batch.number, own, plan)
        return True

    def _written(
        self, spark: SparkSession, query_id: str, number: int = -1
    ) -> tuple[int | None, str | None]:
        """
        Return the last micro-batch of a query in the current snapshot and its ancestors.

        Also return the plan of the micro-batch with this number; None if it's unknown.
        """
        table, mark = self.sink.table, self._mark(query_id)
        try:
            # Each query has its own catalog, which caches tables for a while.
            spark.catalog.refreshTable(table)
            row = spark.sql(
                f"SELECT max(number), max(plan) FILTER (WHERE number = {number}) FROM "  # noqa: S608
                f"(SELECT CAST(try_element_at(summary, '{mark}') AS BIGINT) AS number, "
                f"try_element_at(summary, '{mark}.plan') AS plan "
                f"FROM {table}.snapshots JOIN {table}.history USING (snapshot_id) "
                "WHERE is_current_ancestor)"
            ).collect()[0]
        except PySparkException as error:
            if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
                raise
            return None, None  # the table doesn't exist yet
        return row[0], row[1]
