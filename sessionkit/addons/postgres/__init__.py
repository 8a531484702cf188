"""Write rows to a PostgreSQL table, each exactly once. Needs the extra `postgres`."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import attrs
from attrs.converters import optional
from pyspark.sql import SparkSession

from sessionkit import SpecError
from sessionkit._for_addons import (
    Difference,
    Span,
    check_extra,
    check_text,
    duration_of,
    explained,
    names,
    names_of,
)
from sessionkit.addons.tables import Upsert
from sessionkit.spark.sinks import BatchWriter, RowsToWrite

__all__ = ["Postgres"]

LEDGER: Final = "sessionkit_batches"
"""The table that records the last micro-batch of each table of its schema."""
STAGING: Final = "sessionkit_staging_"
"""The prefix of staging tables."""
LONGEST_NAME: Final = 63
PART: Final = r'"(?:[^"]|"")+"|[^".]+'
ADDRESS: Final = re.compile(r"://|\b(?:host|dbname|password)\s*=")
"""What only the address of a server has."""
NAME: Final = re.compile(rf"(?:({PART})\.)?({PART})")
URI: Final = re.compile(r"postgres(?:ql)?://([^?]*)")


def _retry_for(value: object) -> timedelta:
    return duration_of(value, "retry_for", zero_allowed=True)


@explained()
@attrs.frozen
class Postgres:
    """
    A table of PostgreSQL, to which each row is written exactly once. Needs the extra `postgres`.

    The sink creates the table if there is none. The executors copy the rows of a micro-batch into a
    staging table of the query; then one transaction moves them, and records the number of the
    micro-batch in the table `sessionkit_batches`. So a repeated micro-batch changes nothing. One
    query owns the table: other queries are refused, and so is an earlier run of the same query that
    is still alive.

    Example:
        import os
        from sessionkit.addons.postgres import Postgres

        visits = Postgres("postgresql://etl@db.example/shop", "web.visits")
        with_password = Postgres(lambda: os.environ["SHOP_DSN"], "web.visits")

    Attributes:
        dsn: The connection, as `postgresql://user@host/database` or `host=... dbname=...`; or a
            function that returns it, called on the driver and on the executors when they connect.
            No message, no `repr` and no plan of Spark shows it.
        table: The name of the table, with or without its schema: `visits`, `web.visits`. Case
            counts. Put a part that has a dot in double quotes: `web."visits.v2"`.
        key: The columns by which a row replaces an earlier one: by default `session_id` for
            sessions. Rows of other kinds have none, and are appended. If a session has several
            revisions, the table keeps the highest; it drops the sessions that another row
            `supersedes`. A second session with the same `session_id` is refused.
        retry_for: How long a running query tries to reconnect after it lost the server, in
            processing time; zero gives up at once. The start of a query never retries.

    Raises:
        SpecError: The table's name is invalid, longer than PostgreSQL allows, or reserved by
            sessionkit; in `dsn`, an `@` or `/` of the password isn't written as `%40` or `%2F`;
            `table` is an address; or `retry_for` isn't a duration.
    """

    dsn: str | Callable[[], str] = attrs.field(repr=False)
    table: str = attrs.field()
    key: tuple[str, ...] | None = attrs.field(
        default=None, converter=optional(names_of), validator=names
    )
    retry_for: timedelta = attrs.field(
        default=timedelta(minutes=2), converter=_retry_for, kw_only=True
    )

    @dsn.validator
    def _check_dsn(self, _: object, value: str | Callable[[], str]) -> None:
        if isinstance(value, str):
            check_readable(value)

    @table.validator
    def _check_table(self, _: object, value: str) -> None:
        check_text("table", value)
        if ADDRESS.search(value):
            # It may have a password, so no message shows it.
            found = "`table` is an address, so the address and the table are swapped"
            raise SpecError(found, 'write Postgres("postgresql://user@host/database", "visits")')
        if NAME.fullmatch(value) is None or "\0" in value:
            found = f"`table` must be a name such as visits or web.visits, found {value!r}"
            hint = 'write table="visits"; put a part that has a dot in double quotes'
            raise SpecError(found, hint)
        for name in self.names:
            if not fits(name):
                found = f"a table's name may have {LONGEST_NAME} bytes, and `{name}` has more"
                raise SpecError(found, "PostgreSQL would cut it; take a shorter one")
        if self.names[-1] == LEDGER or self.names[-1].startswith(STAGING):
            found = f"sessionkit keeps its own notes in tables such as {self.names[-1]}"
            raise SpecError(found, "give the rows a table of another name")

    @property
    def names(self) -> tuple[str, ...]:
        """The schema, if the name has one, and the name."""
        match = NAME.fullmatch(self.table)
        return tuple(_unquoted(part) for part in match.groups() if part) if match else ()

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return f"the table {self.table}"

    @property
    def place(self) -> object:
        """The identity of the table, equal for all of its sinks, as far as the arguments show."""
        return (self.dsn, ("public", *self.names)[-2:])

    def writer(self, rows: RowsToWrite, spark: SparkSession) -> BatchWriter:
        """
        Check that psycopg is installed and that the rows fit, and return their writer.

        `start_query` calls it.
        """
        del spark
        upsert = Upsert.of(self, rows)
        check_extra("postgres", "psycopg", "the sink Postgres")
        from sessionkit.addons.postgres import writer  # noqa: PLC0415 (an extra)

        writer.check_storable(self, rows.schema)
        return writer.PostgresWriter(self, upsert, rows.name)

    def exchange(self, span: Span, *, dry_run: bool) -> Difference:
        """
        Replace the sessions of a span in the table, also while its query runs.

        `repair` calls it.
        """
        check_extra("postgres", "psycopg", "the sink Postgres")
        from sessionkit.addons.postgres import exchange  # noqa: PLC0415 (an extra)

        return exchange.exchanged(self, span, Upsert.of_span(self, span), dry_run=dry_run)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def fits(name: str) -> bool:
    """Return whether a name is short enough that PostgreSQL doesn't cut it."""
    return len(name.encode()) <= LONGEST_NAME


def check_readable(dsn: str) -> None:
    """Check that PostgreSQL can't mistake a part of the password for another part, and show it."""
    uri = URI.match(dsn)
    if uri and (uri[1].count("@") > 1 or "@" in uri[1].partition("/")[2]):
        raise dsn_error()


def dsn_error() -> SpecError:
    """Return the error for an unreadable `dsn`, without its text."""
    found = "PostgreSQL can't read `dsn`, which isn't shown here: it may have a password"
    hint = (
        "write it as postgresql://user@host/database, with %40 for an @ in the password and %2F "
        "for a /, or as host=... dbname=... user=..."
    )
    return SpecError(found, hint)
