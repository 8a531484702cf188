"""The columns of a table, and those by which a row of it replaces an earlier one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark._output_rules import OutputMode
from sessionkit.spark.sinks.routes import Route
from sessionkit.spark.sinks.tables import Delta, Postgres
from sessionkit.spec.columns import REVISION_COLUMNS, SESSION_COLUMNS

__all__ = [
    "REVISION",
    "SESSION_ID",
    "SUPERSEDES",
    "check_has_columns",
    "check_key",
    "duplicate_id_error",
    "key_of",
    "refuses_duplicate_ids",
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
    """Check that the rows have a key, if they need one, and its columns."""
    names, key = route.schema.names, key_of(sink, route)
    missing = [name for name in key if name not in names]
    if missing:
        found = f"`key` of the table {sink.table} names `{missing[0]}`"
        raise SpecError(with_hint(found, f"name some of {', '.join(names)}"))
    if mode != "append" and not key:
        found = f"mode {mode!r} writes a row again to change it, and {sink.table} has no key"
        raise SpecError(with_hint(found, "pass key=(...) with the columns of the groups"))


def check_has_columns(table: object, needed: Sequence[str], present: Collection[str]) -> None:
    """Check that a table has a column for each of the rows."""
    missing = [name for name in needed if name not in present]
    if missing:
        found = f"the table {table} has no column `{missing[0]}`; it has {', '.join(present)}"
        raise SpecError(with_hint(found, "add the column, or leave the table to the sink to make"))


def refuses_duplicate_ids(sink: Postgres | Delta, route: Route, mode: OutputMode) -> bool:
    """
    Return whether a second session with the id of another one is an error.

    So it is for sessions, by their `session_id`. A key that you name for rows that may be something
    else, and other modes, say that a row replaces an earlier one.
    """
    if mode != "append" or not route.of_results or SESSION_ID not in key_of(sink, route):
        return False
    return sink.key is None or {*SESSION_COLUMNS} <= {*route.schema.names}


def duplicate_id_error(
    table: object, present: Mapping[str, object], new: Mapping[str, object]
) -> SinkError:
    """Return the error for a row of a session whose id a row of the table has already."""
    found = (
        f"the table {table} has a row of a session ({_said(present)}), and another micro-batch has "
        f"a row of the same session_id that doesn't supersede it ({_said(new)})"
    )
    hint = (
        "if another query wrote the first one, empty the table, or write to another one; if the "
        "table or the checkpoint is an older copy, restore both as they were at one time"
    )
    return SinkError(with_hint(found, hint))


def same_key_error(
    table: object, key: Sequence[str], rows: Iterable[Mapping[str, object]] = ()
) -> SinkError:
    """Return the error for two rows of a micro-batch of which neither comes before the other."""
    said = " and ".join(f"({_said(row)})" for row in rows)
    found = (
        f"two rows of a micro-batch have the same ({', '.join(key)}), by which a row of the table "
        f"{table} replaces another" + (f": {said}" if said else "")
    )
    hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
    return SinkError(with_hint(found, hint))


def _said(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())
