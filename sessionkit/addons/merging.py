"""Merge the rows of a micro-batch into a table of Delta or Iceberg by one SQL statement."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import uniform
from time import sleep
from typing import Final

import attrs
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit._for_addons import (
    Difference,
    Span,
    instant_of,
    is_connect,
    micros_of,
    query_id_of,
    quoted,
    span_us,
)
from sessionkit.addons.tables import (
    CHANGES,
    DAY_ZERO,
    DIFFERENCE,
    DIFFERENCES,
    NESTED,
    REVISION,
    SESSION_COLUMNS,
    SESSION_ID,
    SUPERSEDES,
    Upsert,
    day_numbers,
)
from sessionkit.errors import SinkError, UnsupportedError

PREFIX: Final = "_sessionkit_"
"""The prefix of columns that a merge adds for its own use."""
DELETES: Final = f"{PREFIX}deletes"
NEW_REVISION: Final = f"{PREFIX}revision"
RANK, ROWS, WRITTEN = f"{PREFIX}rank", f"{PREFIX}rows", f"{PREFIX}written"
START, END = SESSION_COLUMNS[1:]
SECOND: Final = "sessionkit: a second session"
"""The error that the merge raises where the table already has a session of the same id."""
INTERVAL: Final = re.compile(r"\binterval (year|month|day|hour|minute|second)( to \w+)?(?![^,>])")
"""A type that is or contains an interval, but not a field name, which a colon follows."""
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.1
"""The longest pause after the first conflict; it doubles with each further one."""
CREATED: Final = "ALREADY_EXISTS|AlreadyExists"
"""In the error where another run creates the table at the same time."""
NOT_THERE: Final = re.compile("NOT_FOUND|NOT_EXIST|MISSING|NOT_A_DELTA|is not a Delta table|NoSuch")
"""In the error where there's no such table."""
UNKNOWN: Final = "CommitStateUnknown"
"""In the error where Iceberg can't know whether a commit holds."""
LOGGER: Final = logging.getLogger("sessionkit")
TIMES: Final = "'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'ignoreNullFields', 'false'"
"""Options of `to_json` that keep microseconds, zones and nulls."""
SESSION_OF_ITS_OWN: Final = (4, 3)
"""The first Spark release whose `foreachBatch` has its own session on Connect."""


@attrs.define
class Table:
    """
    A table that one run of a query writes to.

    The run creates it at most once, and only if it had no micro-batch of the query at the start.
    Creating it again after someone dropped it would silently lose the earlier rows.

    Attributes:
        name: Its name in SQL.
        label: Its name in messages.
        kind: The name of its data source.
        settings: The settings of the session, by the prefix of the write options that they stand
            for in a `MERGE`, which has no options.
        conflicts: Matches the error of a commit that conflicts with another one.
        path: The path of a table that no catalog knows.
        is_known: Whether the table has existed in this run, with all rows of the query.
    """

    name: str
    label: str
    kind: str
    settings: Mapping[str, str]
    conflicts: re.Pattern[str]
    path: str | None = None
    is_known: bool = attrs.field(default=False, init=False)

    def write(
        self,
        rows: DataFrame,
        upsert: Upsert,
        mark: Mapping[str, str],
        is_written: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the table if needed, and commit rows; retry after a conflicting commit."""
        spark = rows.sparkSession
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.create(rows)
                self.commit(rows, upsert, mark, is_written)
            except SinkError:
                raise
            except Exception as error:
                if self.is_known and self._is_gone(spark):
                    found = f"{self.label} is gone, to which this query was writing"
                    hint = "restore it, and start the query again"
                    raise SinkError(found, hint) from error
                if not self.is_conflict(error):
                    raise
                if is_written():
                    return
                reason = str(error).partition("\n")[0]
                if attempt == ATTEMPTS:
                    found = (
                        f"{self.label} had another commit during each of {ATTEMPTS} tries to write "
                        f"a micro-batch: {reason}"
                    )
                    hint = "stop what else changes the table, then start the query again"
                    raise SinkError(found, hint) from error
                LOGGER.warning("%s: attempt %d failed: %s", self.label, attempt, reason)
                # By chance, so that two writers don't meet again.
                sleep(uniform(0, PAUSE_S * 2 ** (attempt - 1)))  # noqa: S311
            else:
                return

    def create(self, rows: DataFrame) -> None:
        """Create the table if there is none, and this run knows of none."""
        if not self.is_known:
            empty = rows.sparkSession.createDataFrame([], rows.schema)
            writer = empty.write.format(self.kind).mode("ignore")
            if self.path is None:
                writer.saveAsTable(self.name)
            else:
                writer.save(self.path)  # by its name, Delta takes half a table for a whole one
            self.is_known = True

    def commit(
        self,
        rows: DataFrame,
        upsert: Upsert,
        mark: Mapping[str, str],
        is_written: Callable[[], bool],
    ) -> None:
        """Commit rows with a mark, which is in the same transaction."""
        del is_written  # the format itself skips a micro-batch that the table has
        self.add(rows, upsert, mark)

    def add(
        self, rows: DataFrame, upsert: Upsert, mark: Mapping[str, str], branch: str | None = None
    ) -> None:
        """Add rows to the table, or to a branch of it, in one transaction."""
        target = self.name if branch is None else f"{self.name}.{branch}"
        if upsert.key and not rows.isEmpty():
            settings = {
                option.replace(prefix, setting, 1): value
                for option, value in mark.items()
                for prefix, setting in self.settings.items()
                if option.startswith(prefix)
            }
            merge(rows, upsert, target, settings)
        else:
            rows.writeTo(target).options(**mark).append()

    def is_conflict(self, error: Exception) -> bool:
        text = f"{type(error).__name__}: {error}"
        return re.search(f"{self.conflicts.pattern}|{CREATED}", text) is not None

    def _is_gone(self, spark: SparkSession) -> bool:
        try:
            return spark.table(self.name).schema is None
        except AnalysisException as error:
            return NOT_THERE.search(str(error)) is not None


def merge(rows: DataFrame, upsert: Upsert, table: str, settings: Mapping[str, str]) -> None:
    """
    Add the rows of a micro-batch, and delete the rows that they replace, in one statement.

    There must be at least one row. The settings hold while it runs; see `check_alone`.
    """
    spark, within = rows.sparkSession, _within(rows, upsert)
    matched_by, revision, superseded = upsert.key, [], None
    if upsert.revises:
        matched_by, revision = (SESSION_ID,), [F.col(REVISION).alias(NEW_REVISION)]
        if upsert.supersedes:
            superseded = rows.select(F.explode(SUPERSEDES).alias(SESSION_ID)).distinct()
        present = None if upsert.refuses_duplicates else spark.table(table).alias("old")
        rows = _latest(rows, superseded, None if present is None else present.where(within))
    counted = rows.groupBy(*map(quoted, upsert.key)).agg(F.count("*").alias(ROWS))
    if counted.where(f"{ROWS} > 1").limit(1).collect():
        raise upsert.same_key()
    replaced = rows.select(*map(quoted, matched_by), *revision).distinct()
    if superseded is not None:
        replaced = replaced.unionByName(superseded, allowMissingColumns=True)
    added = rows.withColumn(DELETES, F.lit(False))  # noqa: FBT003
    deleted = replaced.withColumn(DELETES, F.lit(True))  # noqa: FBT003
    matches = " AND ".join(f"old.{name} <=> new.{name}" for name in map(quoted, matched_by))
    statement = merge_statement(table, rows.columns, f"{matches} AND {within}", upsert)
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        spark.sql(statement, new=added.unionByName(deleted, allowMissingColumns=True))
    except Exception as error:
        # PySpark has no exception class for each error of a task.
        if SECOND not in str(error):
            raise
        sides = [
            F.struct(*(F.col(f"{side}.{quoted(name)}") for name in upsert.shown))
            for side in ("present", "new")
        ]
        pairs = spark.table(table).alias("present").join(rows.alias("new"), [*upsert.key])
        raise upsert.second_session(*pairs.select(*sides).limit(1).collect()[0]) from None
    finally:
        for name in settings:
            spark.conf.unset(name)


def merge_statement(table: str, names: Sequence[str], matches: str, upsert: Upsert) -> str:
    """Return the statement of a merge, in which Spark puts the rows in place of `{new}`."""
    columns = [*map(quoted, names)]
    values = [f"new.{name}" for name in columns]
    return (
        f"MERGE INTO {_escaped(table)} AS old USING {{new}} AS new"  # noqa: S608
        f" ON new.{DELETES} AND {_escaped(matches)}"
        f" {_when_matched(upsert)} WHEN NOT MATCHED AND NOT new.{DELETES} THEN"
        f" INSERT ({_escaped(', '.join(columns))}) VALUES ({_escaped(', '.join(values))})"
    )


def merge_span(span: Span, upsert: Upsert, target: Table, *, dry_run: bool) -> Difference:
    """Replace the sessions of a span in one statement, while the query is stopped."""
    spark = span.rows.sparkSession
    if span.finished.query_id in {query.id for query in spark.streams.active}:
        found = f"the query that writes to {upsert.table} is running: one of the two would fail"
        raise SpecError(found, "stop the query, and start it afterwards")
    # Spark can't merge a plan that reads the table into the same table.
    compared = spark.sql(_differences(span, upsert, target.name), new=span.rows).localCheckpoint()
    counts = {row[0]: row[1] for row in compared.groupBy(DIFFERENCE).count().collect()}
    days = compared.where("_unseen_day IS NOT NULL").select("_unseen_day").distinct().count()
    keys = compared.where("_is_unseen_key").select(*map(quoted, span.keys)).distinct().count()
    differing = compared.where(F.col(DIFFERENCE).isin(*CHANGES))
    if not dry_run and any(name in counts for name in CHANGES):
        changes = differing.select(
            SESSION_ID,
            F.col(DIFFERENCE).alias(DELETES),
            (F.coalesce("_revision", F.lit(0)) + 1).cast("bigint").alias(NEW_REVISION),
        )
        new = changes.join(span.rows, SESSION_ID, "left")
        try:
            spark.sql(_replacement(span, upsert, target.name), new=new)
        except Exception as error:
            if not target.is_conflict(error):
                raise
            found = f"another commit to {target.label} came in between, and nothing has changed"
            if UNKNOWN in str(error):
                found = f"nobody knows whether {target.label} is repaired: its catalog didn't say"
            raise SinkError(found, "repair it again, which changes nothing twice") from error
    sessions = differing.drop("_revision", "_unseen_day", "_is_unseen_key")
    return Difference.of(counts, sessions, days=days, keys=keys)


def _differences(span: Span, upsert: Upsert, table: str) -> str:
    """Return the statement that compares the sessions of a table with the new ones."""
    return DIFFERENCES.format(
        old=_escaped(table),
        new="{new}",
        keys=_escaped(", ".join(map(quoted, span.keys))),
        revision=REVISION if upsert.revises else "CAST(1 AS BIGINT)",
        is_final=span.is_final,
        equal=_escaped(" AND ".join(_equal(span.rows.schema[name]) for name in span.compared)),
        start=_literal(span.start),
        end=_literal(span.end),
        settled=_literal(span.settled),
        start_day=_day_of(START),
        end_day=_day_of(END),
        days=day_numbers(span.days),
        delete_unseen=span.delete_unseen,
    )


def _replacement(span: Span, upsert: Upsert, table: str) -> str:
    """Return the statement that deletes, changes and adds sessions."""
    columns = [quoted(name) for name in upsert.columns]
    values = [
        f"new.{NEW_REVISION}" if upsert.revises and name == REVISION else f"new.{quoted(name)}"
        for name in upsert.columns
    ]
    changed = ", ".join(map("old.{} = {}".format, columns, values))
    return (
        f"MERGE INTO {_escaped(table)} AS old USING {{new}} AS new"  # noqa: S608
        f" ON old.{SESSION_ID} = new.{SESSION_ID} AND old.{START} >= {_literal(span.start)}"
        f" WHEN MATCHED AND new.{DELETES} = 'deleted' THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {_escaped(changed)}"
        f" WHEN NOT MATCHED AND new.{DELETES} <> 'deleted' THEN"
        f" INSERT ({_escaped(', '.join(columns))}) VALUES ({_escaped(', '.join(values))})"
    )


def _day_of(column: str) -> str:
    micros = f"unix_micros(CAST({column} AS TIMESTAMP_LTZ))"
    return f"({micros} - ({micros_of(DAY_ZERO)})) DIV {span_us(timedelta(days=1))}"


def _equal(field: T.StructField) -> str:
    old, new = (f"{side}.{quoted(field.name)}" for side in ("old", "new"))
    if "map<" in field.dataType.simpleString():  # Spark can't compare maps
        old, new = (f"to_json(struct({side}), map({TIMES}))" for side in (old, new))
    return f"{old} IS NOT DISTINCT FROM {new}"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _within(rows: DataFrame, upsert: Upsert) -> str:
    """
    Return a SQL condition that each row which these rows may replace satisfies.

    A session's start only moves back, and the sessions that it supersedes lie within it. So each
    replaced row starts within the rows of the micro-batch, and the table skips other files.
    """
    times = {field.name for field in rows.schema if isinstance(field.dataType, T.TimestampType)}
    if SESSION_ID not in upsert.key or not {START, END} <= times:
        return "true"
    micros = rows.agg(F.unix_micros(F.min(START)), F.unix_micros(F.max(END))).collect()[0]
    first, last = (_literal(instant_of(us)) for us in micros)
    return f"old.{START} >= {first} AND old.{START} <= {last}"


def _literal(instant: datetime) -> str:
    """Return an instant as a SQL literal that no setting of the session changes."""
    return f"TIMESTAMP_LTZ '{instant}'"


def _latest(rows: DataFrame, superseded: DataFrame | None, table: DataFrame | None) -> DataFrame:
    """Keep the rows of each session's highest revision, unless the table has a higher one."""
    newest_first = Window.partitionBy(SESSION_ID).orderBy(F.desc(REVISION))
    latest = rows.withColumn(RANK, F.rank().over(newest_first)).where(f"{RANK} = 1").drop(RANK)
    if superseded is not None:
        latest = latest.join(superseded, SESSION_ID, "left_anti")
    if table is None:
        return latest
    # The broadcast spares a shuffle of the table, which may be large.
    written = latest.select(SESSION_ID, F.col(REVISION).alias(WRITTEN)).distinct()
    present = table.select(SESSION_ID, REVISION).join(F.broadcast(written), SESSION_ID)
    higher = present.where(F.col(REVISION) > F.col(WRITTEN)).select(SESSION_ID).distinct()
    # Only a run that a later one has replaced finds any. Spark 4.1 can't merge a plan of the table.
    ids = [row[SESSION_ID] for row in higher.collect()]
    return latest.where(~F.col(SESSION_ID).isin(ids)) if ids else latest


def _when_matched(upsert: Upsert) -> str:
    """Return the `WHEN MATCHED` clauses for a row of the table that a new row replaces."""
    if not upsert.refuses_duplicates:
        return "WHEN MATCHED THEN DELETE"
    stop = f"WHEN MATCHED THEN UPDATE SET {quoted(SESSION_ID)} = raise_error('{SECOND}')"
    if not upsert.revises:
        return stop
    # A superseded session has no new revision.
    earlier = f"new.{NEW_REVISION} IS NULL OR old.{REVISION} < new.{NEW_REVISION}"
    return f"WHEN MATCHED AND ({earlier}) THEN DELETE {stop}"


def check_alone(spark: SparkSession, checkpoint: str, what: str, scope: str) -> None:
    """
    Check that no other query of this Spark session merges into a scope, and claim it.

    On Connect before Spark 4.3, `foreachBatch` shares one session with all queries and the user,
    and so the settings that mark a `MERGE` as the micro-batch of a query. Of two merges at one
    moment, the second would carry the mark of the first: rows would be lost or written twice.
    """
    release = tuple(map(int, spark.version.split(".")[:2]))
    if not is_connect(spark) or release >= SESSION_OF_ITS_OWN:
        return
    setting = f"spark.sessionkit.merges.{scope}"
    other = spark.conf.get(setting, None)
    active = {query.id for query in spark.streams.active}
    if other not in {None, checkpoint} and query_id_of(spark, str(other)) in active:
        found = (
            f"the query of {other} merges rows into {what} in this session, and with Connect on "
            f"Spark {spark.version} both would share the settings that say whose rows they are"
        )
        hint = "start this query from another session, or pass key=() to add rows without a merge"
        raise UnsupportedError(found, hint)
    spark.conf.set(setting, checkpoint)


def check_types(schema: T.StructType, sink: str) -> None:
    """Check that a table can have each column, and that no column has a reserved name."""
    for field in schema.fields:
        if field.name.lower().startswith(PREFIX):
            found = f"the column `{field.name}` has a name as the sink {sink} gives to its own"
            raise SpecError(found, "rename it")
        if INTERVAL.search(field.dataType.simpleString()):
            found = f"{sink} has no type for `{field.name}`: {field.dataType.simpleString()}"
            hint = 'cast an interval: col(..).cast("string"); of an event, before the spec reads it'
            raise SpecError(found, hint)


def check_fits(rows: DataFrame, upsert: Upsert, table: str) -> None:
    """Check that the table, if it exists, has a fitting column for each column of the rows."""
    try:
        schema = rows.sparkSession.table(table).schema
    except PySparkException:
        return  # the first micro-batch creates it
    upsert.check_columns_of(schema.names)
    for field in rows.schema.fields:
        present, new = schema[field.name].dataType, field.dataType
        if type(present) is not type(new) and isinstance(present, NESTED) | isinstance(new, NESTED):
            raise upsert.unfit(field, present.simpleString(), new.simpleString())
