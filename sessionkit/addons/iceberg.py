"""Write rows to an Apache Iceberg table, each exactly once."""

import os
import re
from functools import partial
from typing import Final

import attrs
from attrs.converters import optional
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SpecError
from sessionkit._for_addons import Difference, Span, explained, names, names_of
from sessionkit.addons.merging import Table, check_alone, check_fits, check_types, exchange
from sessionkit.addons.tables import Upsert
from sessionkit.errors import UnsupportedError
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger, RowsToWrite

__all__ = ["Iceberg"]

CATALOG: Final = "spark.sql.catalog."
PACKAGE: Final = "org.apache.iceberg.spark."
"""The package of Iceberg's catalog classes."""
PROPERTY: Final = "snapshot-property."
"""The prefix of a write option that Iceberg copies into the summary of the snapshot."""
SETTINGS: Final = "spark.sql.iceberg."
CONFLICTS: Final = re.compile(r"(Validation|CommitFailed|CommitStateUnknown)Exception")
"""The errors of Iceberg for conflicting commits, and for commits of unknown outcome."""


@explained()
@attrs.frozen
class Iceberg:
    """
    A table of Apache Iceberg, to which each row is written exactly once.

    The Spark session needs an Iceberg catalog, and the Iceberg runtime for its Spark release. The
    sink creates the table if there is none. Each micro-batch is one snapshot, whose summary has the
    id of the query, the kind of the rows and the number of the micro-batch; the sink skips one that
    the table already has. Keep snapshots for longer than a query may be stopped.

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
        """The identity of the table, equal for all of its sinks: its name."""
        return tuple(self.table.replace("`", "").split("."))

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """
        Check that Iceberg is installed and that the rows fit, and return their writer.

        `start_query` calls it.
        """
        upsert = Upsert.of(self, rows)
        check_types(rows.schema, "Iceberg")
        check_catalog(spark, self.table)
        if upsert.key:
            check_merge(spark.version, self.label)
        return IcebergWriter(self, upsert, rows.name)

    def exchange(self, span: Span, *, dry_run: bool) -> Difference:
        """
        Replace the sessions of a span in the table, while its query is stopped.

        `repair` calls it.
        """
        span.rows.sparkSession.catalog.refreshTable(self.table)
        return exchange(span, Upsert.of_span(self, span), table_of(self), dry_run=dry_run)


def table_of(sink: Iceberg) -> Table:
    return Table(sink.table, sink.label, "iceberg", SETTINGS, CONFLICTS)


def check_catalog(spark: SparkSession, table: str) -> None:
    name = table.replace("`", "").split(".")[0]
    kind = spark.conf.get(f"{CATALOG}{name}", None)
    if kind is None:
        name = spark.catalog.currentCatalog()
        kind = spark.conf.get(f"{CATALOG}{name}", None)
    if kind is not None and kind.startswith(PACKAGE):
        return
    found = f"the sink Iceberg writes {table}, and the catalog `{name}` isn't one of Iceberg's"
    release = ".".join(spark.version.split(".")[:2])
    hint = (
        f"add the package iceberg-spark-runtime-{release}, if there is one, to Spark's jars, set "
        f"{CATALOG}lake={PACKAGE}SparkCatalog with its type and warehouse, and name the table "
        "lake.<schema>.<table>"
    )
    raise UnsupportedError(found, hint)


def check_merge(spark_version: str, label: str) -> None:
    """Check that Iceberg copies settings of the session into the snapshot of a `MERGE`."""
    if spark_version.startswith("3."):
        found = f"Iceberg on Spark {spark_version} can't keep the number of a micro-batch with a "
        found += f"MERGE, so rows could be lost or go to {label} twice"
        raise UnsupportedError(found, "use Spark 4, or pass key=() to add rows without a merge")


@attrs.frozen
class IcebergWriter(BatchWriter):
    """Writes micro-batches, each as one snapshot whose summary has its number."""

    sink: Iceberg
    upsert: Upsert
    route: str
    table: Table = attrs.Factory(lambda self: table_of(self.sink), takes_self=True)

    def start(self, spark: SparkSession, checkpoint: str) -> None:
        if self.upsert.key:
            check_alone(spark, checkpoint, self.sink.label, self.sink.table)

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger | None:
        check_fits(rows, self.upsert, self.sink.table)
        if query_id is None:
            return None
        last = self._last_written(rows.sparkSession, query_id)
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
        last = self._last_written(batch.frame.sparkSession, batch.query_id)
        return last is not None and last >= batch.number

    def write(self, batch: Batch) -> None:
        mark = {f"{PROPERTY}{self._mark(batch.query_id)}": str(batch.number)}
        self.table.write(batch.frame, self.upsert, mark, partial(self.is_written, batch))

    def _mark(self, query_id: str) -> str:
        return f"sessionkit.{query_id}.{self.route}"

    def _last_written(self, spark: SparkSession, query_id: str) -> int | None:
        """Return the last micro-batch of a query in the current snapshot and its ancestors."""
        table, mark = self.sink.table, self._mark(query_id)
        try:
            # Each query has its own catalog, which caches tables for a while.
            spark.catalog.refreshTable(table)
            last: int | None = spark.sql(
                f"SELECT max(CAST(try_element_at(summary, '{mark}') AS BIGINT)) "  # noqa: S608
                f"FROM {table}.snapshots JOIN {table}.history USING (snapshot_id) "
                "WHERE is_current_ancestor"
            ).collect()[0][0]
        except PySparkException as error:
            if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
                raise
            return None  # the table doesn't exist yet
        return last
