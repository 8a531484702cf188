"""The columns of a table, and those by which a row of it replaces an earlier one."""

from collections.abc import Collection, Sequence
from typing import Final

from sessionkit._session_columns import REVISION_COLUMNS, SESSION_COLUMNS
from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark.query.rules import OutputMode
from sessionkit.spark.sinks.delta.sink import Delta
from sessionkit.spark.sinks.postgres.sink import Postgres
from sessionkit.spark.sinks.routes import Route

__all__ = [
    "REVISION",
    "SESSION_ID",
    "SUPERSEDES",
    "check_has_columns",
    "check_key",
    "key_of",
    "same_key_error",
]

SESSION_ID: Final = SESSION_COLUMNS[0]
REVISION, _, SUPERSEDES = REVISION_COLUMNS


def key_of(sink: Postgres | Delta, route: Route) -> tuple[str, ...]:
    """Return the columns by which a row replaces an earlier one; none where rows are added."""
    if sink.key is not None:
        return sink.key
    return (SESSION_ID,) if route.of_results and SESSION_ID in route.schema.names else ()


def check_key(sink: Postgres | Delta, route: Route, mode: OutputMode) -> None:
    """
    Check that the rows have a key, if they need one, and its columns.

    Raises:
        SpecError: They haven't.
    """
    names, key = route.schema.names, key_of(sink, route)
    missing = [name for name in key if name not in names]
    if missing:
        found = f"`key` of the table {sink.table} names `{missing[0]}`"
        raise SpecError(with_hint(found, f"name some of {', '.join(names)}"))
    if mode != "append" and not key:
        found = f"mode {mode!r} writes a row again to change it, and {sink.table} has no key"
        raise SpecError(with_hint(found, "pass key=(...) with the columns of the groups"))


def check_has_columns(table: object, needed: Sequence[str], present: Collection[str]) -> None:
    """
    Check that a table has a column for each of the rows.

    Raises:
        SpecError: It hasn't.
    """
    missing = [name for name in needed if name not in present]
    if missing:
        found = f"the table {table} has no column `{missing[0]}`; it has {', '.join(present)}"
        raise SpecError(with_hint(found, "add the column, or leave the table to the sink to make"))


def same_key_error(table: object, key: Sequence[str]) -> SinkError:
    """Return the error for two rows of a micro-batch of which neither comes before the other."""
    found = (
        f"two rows of a micro-batch have the same ({', '.join(key)}), by which a row of the table "
        f"{table} replaces another"
    )
    hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
    return SinkError(with_hint(found, hint))
