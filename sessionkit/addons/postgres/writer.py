"""Write rows to PostgreSQL exactly once: copy them into a staging table, then move them."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from math import copysign, isfinite
from typing import Any, Final, LiteralString, TypeVar
from uuid import uuid4

import attrs
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Connection
from psycopg.errors import CardinalityViolation, UniqueViolation
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit._for_addons import check_plan, in_utc, other_run
from sessionkit.addons.postgres import Postgres, fits, tables
from sessionkit.addons.postgres.connections import LASTING, Connections, connected
from sessionkit.addons.postgres.tables import RANK, Target, is_json, listed, postgres_type
from sessionkit.addons.tables import Upsert
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import Batch, BatchWriter, Ledger

Result = TypeVar("Result")

DUMPS: Final = partial(json.dumps, ensure_ascii=False)
NUL: Final = "\0"
HAS_NUL: Final = r"a NUL (\u0000) in a text"
LONGEST_SPAN: Final = timedelta(seconds=2**33)
"""Up to here, a float of seconds tells microseconds apart."""
COUNTS: Final = "attempt string, rows bigint"
"""The schema of a task's result: its copies, and the number of rows in each."""
IS_SUPERSEDED: Final = "session_id IN {superseded}"
IS_EARLIER: Final = """\
EXISTS (SELECT FROM {copied}
        WHERE present.session_id = copied.session_id AND present.revision < copied.revision)"""
"""Selects the rows of the table, as `present`, to delete."""
SUPERSEDED: Final = "(SELECT unnest(supersedes) FROM {copied})"
LATEST: Final = """\
(SELECT *, rank() OVER (PARTITION BY session_id ORDER BY revision DESC) AS {rank} FROM {copied})
AS copied WHERE {rank} = 1"""
NO_LATER: Final = """
AND NOT EXISTS (SELECT FROM {table} AS present WHERE present.session_id = copied.session_id
                AND present.revision > copied.revision)"""
NOT_SUPERSEDED: Final = "\nAND session_id NOT IN {superseded}"
INSERT: Final = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {moved}"
MISSING: Final = """\
SELECT count(*) FROM (SELECT {key} FROM {moved}) AS moved
LEFT JOIN {table} AS present USING ({key}) WHERE present IS NULL AND ({key}) IS NOT NULL"""
SAME_IDS: Final = """\
SELECT {present}, {new} FROM {table} AS present
JOIN {copied} ON present.session_id = copied.session_id LIMIT 1"""
SAME_KEYS: Final = """\
SELECT {shown} FROM (SELECT *, count(*) OVER (PARTITION BY {key}) AS sessionkit_same
                     FROM (SELECT {columns} FROM {moved}) AS moved) AS counted
WHERE sessionkit_same > 1 ORDER BY {key} LIMIT 2"""


def check_storable(sink: Postgres, schema: T.StructType) -> None:
    """Check that PostgreSQL has a type for each column, and that each name is free to use."""
    for field in schema.fields:
        postgres_type(field.dataType, field.name)
        if field.name in {tables.ATTEMPT, tables.RANK} or not fits(field.name):
            found = f"no column for the table {sink.table} can have the name `{field.name}`"
            raise SpecError(found, "rename it; PostgreSQL cuts names after 63 bytes")


@attrs.define
class PostgresWriter(BatchWriter):
    """Writes micro-batches to a table, which this run owns from its first micro-batch on."""

    sink: Postgres
    upsert: Upsert
    route: str = "all"
    table: Target | None = None
    last: int = -1
    runs_all = True

    def ledger(self, rows: DataFrame, query_id: str | None) -> Ledger:
        """Return the last micro-batch of a query in the table, without creating or retrying."""
        try:
            with connected(self.sink.dsn) as connection:
                table = tables.target(connection, self.sink, self.upsert, query_id)
                *_, last = tables.check(connection, table, rows.schema)
                (server,) = connection.execute(tables.SERVER)
        except psycopg.Error as error:
            reason, *_ = str(error).splitlines() or [type(error).__name__]
            found = f"PostgreSQL gave no answer about {self.sink.label}: {reason}"
            hint = "start the query again when the server takes connections"
            if not isinstance(error, psycopg.OperationalError):
                hint = "give the role of `dsn` what it lacks, and start the query again"
            elif any(sign in reason for sign in LASTING):
                hint = "change `dsn`, or what the server knows, and start the query again"
            raise SinkError(found, hint) from error
        identity = (*server, table.schema, table.name)

        def rewind(number: int) -> str:
            statement = table.sql(tables.REWIND, number=number).as_string(None)
            new = f"or write to a new table, with sink_since={number + 1}"
            return f"take the table back, and its number: {statement}; {new}"

        return Ledger(f"the table {table.label}", last, rewind, identity=identity)

    def is_written(self, batch: Batch) -> bool:
        self._taken(batch)
        return batch.number <= self.last

    def write(self, batch: Batch) -> None:
        """Copy the rows from the executors, then move them in one transaction."""
        table, plan = self._taken(batch), _plan(batch)
        try:
            types = self._run(partial(_prepare, table=table, last=self.last))
            parts = copied_parts(self.sink, table, types, batch.frame)
            self._run(lambda connection: self._finish(connection, table, batch.number, plan, parts))
        except Exception:
            # A later run may have replaced the staging table.
            with suppress(psycopg.Error), connected(self.sink.dsn) as connection:
                _check_held(connection.execute(table.sql(tables.HELD)).fetchone(), table)
            raise
        self.last = batch.number

    def _run(self, transaction: Callable[[Connection[Any]], Result]) -> Result:
        with closing(Connections(self.sink)) as connections:
            return connections.run(transaction)

    def _taken(self, batch: Batch) -> Target:
        if self.table is None:
            taking = partial(self._take, batch=batch, plan=_plan(batch))
            self.table, self.last = self._run(taking)
        return self.table

    def _take(self, connection: Connection[Any], batch: Batch, plan: str) -> tuple[Target, int]:
        """Create missing tables, claim the table for this run, and return its last micro-batch."""
        schema = batch.frame.schema
        connection.execute(tables.LOCK)
        of_run = {"run_id": batch.run_id, "route": self.route}
        table = tables.target(connection, self.sink, self.upsert, batch.query_id, **of_run)
        ledger, present, _ = tables.check(connection, table, schema)
        if ledger is None:
            connection.execute(table.sql(tables.CREATE_LEDGER))
        if present is None:
            connection.execute(table.create(schema))
        last = connection.execute(table.sql(tables.CLAIM)).fetchone()
        if last is None:
            found = f"another kind of row of this query goes to the table {table.label}"
            raise SinkError(found, "give each kind of row a table of its own")
        number, stored = last
        if number > batch.number:
            raise other_run(f"the table {table.label}", batch.query_id, number)
        if (stored or "").startswith(f"{batch.number} "):
            label = f"the table {table.label}"
            check_plan(label, batch.query_id, batch.number, plan, stored)
        connection.execute(table.sql(tables.CREATE_STAGING))
        return table, int(number)

    def _finish(
        self,
        connection: Connection[Any],
        table: Target,
        number: int,
        plan: str,
        parts: Sequence[Any],
    ) -> None:
        """Move the rows and record the micro-batch, unless an earlier attempt has committed it."""
        if _hold(connection, table, self.last) >= number:
            return
        if parts:
            hint = "start the query again: it repeats the micro-batch"
            copied = checked_copies(connection, table, parts, hint)
            Moving(table, copied).move(connection, sum(part["rows"] for part in parts))
        connection.execute(table.sql(tables.NOTE, number=number, plan=plan))


def _plan(batch: Batch) -> str:
    plan = batch.plan()
    return f"{batch.number} {plan}" if plan else plan


def _prepare(connection: Connection[Any], table: Target, last: int) -> dict[str, str]:
    """Empty the staging table, check that the table still fits, and return its column types."""
    _hold(connection, table, last)
    connection.execute(table.sql(tables.EMPTY_STAGING))
    present = tables.relation(connection, table.identifier)
    if present is None:
        found = f"the table {table.label} is gone, to which this query was writing"
        raise SinkError(found, "restore it, and start the query again")
    table.upsert.check_columns_of(present.types)
    return present.types


def _hold(connection: Connection[Any], table: Target, last: int) -> int:
    """Lock the row of the ledger; return its micro-batch, which is `last` or the next one."""
    row = _check_held(connection.execute(table.sql(tables.HOLD)).fetchone(), table)
    if row[0] < last:
        found = (
            f"the server has lost micro-batches of the table {table.label}, by a failover or a "
            f"restore: it has those to {row[0]}, and had those to {last}"
        )
        raise SinkError(found, "start the query again: it says how to take the checkpoint back too")
    return int(row[0])


def _check_held(row: tuple[Any, ...] | None, table: Target) -> tuple[Any, ...]:
    """Return the row of the ledger, if this run still owns it."""
    if row is None:
        found = (
            f"the table {table.label} was taken from this run of the query {table.query_id}: "
            "a later run has it, or someone gave it away"
        )
        raise SinkError(found, "leave only one run of a query, and one query of a table")
    return row


# ----------------------------------------------------------------------- into the staging table


def copied_parts(
    sink: Postgres, table: Target, types: Mapping[str, str], rows: DataFrame
) -> list[Any]:
    """Copy rows into the staging table; return the copies with their numbers of rows."""
    as_json = tuple(is_json(types[name]) for name in table.upsert.columns)
    copying = Copying(sink, table.sql(tables.COPY).as_string(None), as_json)
    return rows.mapInArrow(copying.copy, COUNTS).collect()


def checked_copies(
    connection: Connection[Any], table: Target, parts: Sequence[Any], hint: str
) -> Composed:
    """Return SQL for the copied rows, and check that the staging table still has all of them."""
    copied = table.sql(tables.COPIED, attempts=[part.attempt for part in parts])
    rows = sum(part["rows"] for part in parts)
    ((kept,),) = connection.execute(table.sql("SELECT count(*) FROM {copied}", copied=copied))
    if kept != rows:
        found = (
            f"{rows} rows were copied for the table {table.label}, and {kept} are there: the "
            "server has lost them, one that lags has taken its place, or they were deleted"
        )
        raise SinkError(found, hint)
    return copied


@attrs.frozen
class Copying:
    """
    Copies the rows of a task.

    Each Arrow batch is copied in a separate transaction, which is repeated after a lost connection.
    Rows of a failed attempt, or of a task that Spark ran twice, are never moved: the driver only
    moves the copies of the task attempts that Spark accepted.
    """

    sink: Postgres
    statement: str
    json: tuple[bool, ...]

    def copy(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the rows, and yield the id and the size of each copy."""
        with closing(Connections(self.sink)) as connections:
            for batch in batches:
                if batch.num_rows:
                    copy = partial(self._copy, batch)
                    copied = {"attempt": [connections.run(copy)], "rows": [batch.num_rows]}
                    yield pa.RecordBatch.from_pydict(copied)

    def _copy(self, batch: pa.RecordBatch, connection: Connection[Any]) -> str:
        attempt = str(uuid4())
        with connection.cursor() as cursor, cursor.copy(self.statement.encode()) as copy:
            columns = map(_values, batch.schema.names, batch.columns, self.json)
            for row in zip(*columns, strict=True):
                copy.write_row((attempt, *row))
        return attempt


def _values(name: str, column: pa.Array, as_json: bool) -> Iterator[Any]:  # noqa: FBT001 (mapped)
    values: list[Any] = column.cast(in_utc(column.type)).to_pylist(maps_as_pydicts="strict")
    texts = column.flatten() if pa.types.is_list(column.type) else column
    if pa.types.is_string(texts.type) and pc.any(pc.match_substring(texts, NUL)).as_py():
        raise _unstorable(name, HAS_NUL)
    return iter(values) if not as_json else _as_json(name, values)


def _as_json(name: str, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        try:
            yield None if value is None else Jsonb(_plain(value), dumps=DUMPS)
        except UnstorableError as error:
            raise _unstorable(name, str(error)) from None


class UnstorableError(Exception):
    """A part of a value has no form in JSON that PostgreSQL keeps; the message says which."""


def _unstorable(name: str, what: str) -> SinkError:
    found = f"`{name}` has {what}, which PostgreSQL can't hold"
    return SinkError(found, f"replace it before the sink, or leave `{name}` out")


def _plain(value: Any) -> Any:
    """Return a value in JSON types; other types become text."""
    match value:
        case str() if NUL in value:
            raise UnstorableError(HAS_NUL)
        case dict():
            names = [key if isinstance(key, str) else json.dumps(key) for key in map(_plain, value)]
            return dict(zip(names, map(_plain, value.values()), strict=True))
        case list() | tuple():
            return [*map(_plain, value)]
        case bytes():
            return base64.b64encode(value).decode()
        case date():  # or a datetime
            return value.isoformat()
        case timedelta():
            if abs(value) > LONGEST_SPAN:
                raise UnstorableError("a duration of more than 272 years in JSON")
            return value.total_seconds()
        case Decimal():
            return format(value, "f")
        # A number of JSON is finite, and PostgreSQL's has no negative zero.
        case float() if not isfinite(value) or (value == 0 and copysign(1, value) < 0):
            return str(value)
    return value


# ------------------------------------------------------------------------------ into the table


@attrs.frozen
class Moving:
    """Moves rows from the staging table into the table."""

    table: Target
    copied: Composed

    def move(self, connection: Connection[Any], rows: int) -> None:
        """Move the rows in the open transaction, and check that the table takes this many."""
        upsert = self.table.upsert
        if upsert.supersedes:
            self._delete(connection, IS_SUPERSEDED)
        if upsert.revises:
            self._delete(connection, IS_EARLIER)
        # If the id alone is the key, the unique index refuses a second row.
        if upsert.refuses_duplicates and len(upsert.key) > 1:
            self._check_new(connection)
        try:
            with connection.transaction():
                moved = connection.execute(self._insert()).rowcount
        except UniqueViolation:
            if upsert.refuses_duplicates:
                self._check_new(connection)
                self._check_unique(connection)
            raise
        except CardinalityViolation:
            raise upsert.same_key() from None
        if moved != rows:
            self._check_taken(connection, rows, moved)

    def _delete(self, connection: Connection[Any], which: LiteralString) -> None:
        """Delete rows of the table, and check that no trigger keeps them."""
        selected: LiteralString = " FROM {table} AS present WHERE " + which
        connection.execute(self._sql("DELETE" + selected))
        kept = self._count(connection, "SELECT count(*)" + selected)
        if kept:
            label = self.table.label
            found = f"a trigger or rule of the table {label} keeps {kept} of the replaced rows"
            raise SinkError(found, "let a trigger before DELETE return OLD")

    def _check_taken(self, connection: Connection[Any], rows: int, taken: int) -> None:
        if self._replaces and not self._others:
            # DO NOTHING skips rows that the table already has; nulls in a key never conflict.
            rows = taken + self._count(connection, MISSING)
        elif self.table.upsert.revises:
            rows = self._count(connection, "SELECT count(*) FROM {moved}")
        if taken != rows:
            found = f"a trigger or rule of the table {self.table.label} took {taken} of {rows} rows"
            hint = "let the trigger return NEW; partition the table with PARTITION BY instead"
            raise SinkError(found, hint)

    def _count(self, connection: Connection[Any], text: LiteralString) -> int:
        ((count,),) = connection.execute(self._sql(text))
        return int(count)

    @property
    def _replaces(self) -> bool:
        return bool(self.table.upsert.key) and not self.table.upsert.refuses_duplicates

    @property
    def _others(self) -> list[str]:
        return [name for name in self.table.upsert.columns if name not in self.table.upsert.key]

    def _sql(self, text: LiteralString, **more: object) -> Composed:
        superseded = SQL(SUPERSEDED).format(copied=self.copied)
        filled = {"copied": self.copied, "superseded": superseded, "rank": Identifier(RANK)}
        return self.table.sql(text, **filled, moved=self._moved(filled), **more)

    def _moved(self, filled: Mapping[str, Any]) -> Composed:
        """Return the rows to insert: of the highest revision, and not superseded."""
        upsert = self.table.upsert
        if not upsert.revises:
            return self.copied
        later = "" if upsert.refuses_duplicates else NO_LATER
        text = LATEST + later + (NOT_SUPERSEDED if upsert.supersedes else "")
        return self.table.sql(text, **filled)

    def _insert(self) -> Composed:
        """Return the statement that inserts the rows, or updates rows with the same keys."""
        if not self._replaces:
            return self._sql(INSERT)
        if not self._others:
            return self._sql(INSERT + " ON CONFLICT ({key}) DO NOTHING")
        same = SQL("{0} = excluded.{0}")
        changes = SQL(", ").join(same.format(Identifier(name)) for name in self._others)
        return self._sql(INSERT + " ON CONFLICT ({key}) DO UPDATE SET {changes}", changes=changes)

    # -------------------------------------------------------------------- two sessions with one id

    def _check_new(self, connection: Connection[Any]) -> None:
        """Check that no session is in the table already, once earlier revisions are deleted."""
        shown = self.table.upsert.shown
        present, new = (
            SQL(", ").join(Identifier(table, name) for name in shown)
            for table in ("present", "copied")
        )
        pair = connection.execute(self._sql(SAME_IDS, present=present, new=new)).fetchone()
        if pair is not None:
            raise self.table.upsert.second_session(pair[: len(shown)], pair[len(shown) :])

    def _check_unique(self, connection: Connection[Any]) -> None:
        counted = self._sql(SAME_KEYS, shown=listed(self.table.upsert.shown))
        rows = connection.execute(counted).fetchall()
        if rows:
            raise self.table.upsert.same_key(rows)
