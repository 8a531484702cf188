"""The sink as a value; it needs psycopg only when a query starts."""

from collections.abc import Callable
from typing import Final

import attrs

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.names import names_or_none

__all__ = ["STAGING", "Postgres"]

STAGING: Final = "_staging"
"""What the name of the table is followed by in that of the table beside it."""
LONGEST_NAME: Final = 63 - len(STAGING)
NAMES: Final = ("table", "schema.table")


@attrs.frozen
class Postgres:
    """
    A table of PostgreSQL, to which each row is written exactly once. Needs the extra `postgres`.

    The table is made if there is none. The executors copy the rows of a micro-batch into a table
    beside it; then one transaction moves them, and notes the number of the micro-batch in the table
    `sessionkit_batches`. So a micro-batch that runs again changes nothing. One query owns the
    table: another one is refused, and so is an earlier run of the same query that is still alive.

    Attributes:
        dsn: How to connect, as `postgresql://user@host/database` or `host=... dbname=...`; or a
            function that returns it, called where the connection is made, on the driver and on
            the executors. No message and no plan shows it.
        table: The name of the table, with or without its schema.
        key: The columns by which a row replaces an earlier one. By default it is `session_id` for
            sessions; other rows are added. Of a session that gives several revisions, the rows of
            the highest one stay, and none that another row `supersedes`.

    Raises:
        SpecError: The name of the table is too long, or isn't one.
    """

    dsn: str | Callable[[], str] = attrs.field(repr=False)
    table: str = attrs.field()
    key: tuple[str, ...] | None = attrs.field(default=None, converter=names_or_none)

    @table.validator
    def _check_table(self, _: object, value: str) -> None:
        *schema, name = value.split(".")
        if not all((name, *schema)) or len(schema) > 1:
            found = f"`table` must be a name such as {' or '.join(NAMES)}, found {value!r}"
            raise SpecError(with_hint(found, 'write table="visits"'))
        if len(name.encode()) > LONGEST_NAME:
            found = f"the name of a table may have {LONGEST_NAME} bytes here, and `{name}` has more"
            raise SpecError(with_hint(found, "PostgreSQL would cut it; take a shorter one"))

    @property
    def names(self) -> tuple[str, ...]:
        """The schema, where there is one, and the name."""
        return tuple(self.table.split("."))
