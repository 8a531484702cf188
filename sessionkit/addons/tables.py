"""What the sinks of tables share: by which columns a row replaces another, and their errors."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from pyspark.sql import types as T

from sessionkit.errors import SinkError, SpecError, with_hint
from sessionkit.spark.sinks import Rows

SESSION_COLUMNS: Final = ("session_id", "session_start", "session_end")
SESSION_ID: Final = SESSION_COLUMNS[0]
REVISION, SUPERSEDES = "revision", "supersedes"
NESTED: Final = (T.StructType, T.ArrayType, T.MapType)


class Table(Protocol):
    """A sink that is a table."""

    @property
    def table(self) -> object:
        """Its name."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns by which a row replaces an earlier one, if they are named."""


def names_of(names: Iterable[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def key_of(sink: Table, rows: Rows) -> tuple[str, ...]:
    """Return the columns by which a row replaces an earlier one; none where rows are added."""
    if sink.key is not None:
        return sink.key
    return (SESSION_ID,) if rows.of_results and SESSION_ID in rows.schema.names else ()


def check_key(sink: Table, rows: Rows) -> None:
    """Check that the rows have a key, if they need one, and its columns."""
    names, key = rows.schema.names, key_of(sink, rows)
    missing = [name for name in key if name not in names]
    if missing:
        found = f"`key` of the table {sink.table} names `{missing[0]}`"
        raise SpecError(with_hint(found, f"name some of {', '.join(names)}"))
    if sink.key is None and rows.of_results and REVISION in names and not key:
        found = f"the rows for the table {sink.table} are revisions of sessions, and lack "
        found += f"`{SESSION_ID}`, by which one replaces another; they have {', '.join(names)}"
        raise SpecError(with_hint(found, f"keep `{SESSION_ID}`, or pass key=() to add every row"))
    if rows.mode != "append" and not key:
        found = f"mode {rows.mode!r} writes a row again to change it, and {sink.table} has no key"
        raise SpecError(with_hint(found, "pass key=(...) with the columns of the groups"))


def check_has_columns(table: object, needed: Sequence[str], present: Collection[str]) -> None:
    missing = [name for name in needed if name not in present]
    if missing:
        found = f"the table {table} has no column `{missing[0]}`; it has {', '.join(present)}"
        raise SpecError(with_hint(found, "add the column, or leave the table to the sink to make"))


def unfit_error(table: object, field: T.StructField, there: str, made: str) -> SpecError:
    """Return the error for a column that can't take values of a field."""
    kind = field.dataType.simpleString()
    found = f"the column `{field.name}` of the table {table} is {there}, and the rows have {kind}"
    hint = f"make it {made}, or leave the table to the sink to make"
    return SpecError(with_hint(f"{found} for it", hint))


def refuses_duplicate_ids(sink: Table, rows: Rows) -> bool:
    """
    Return whether a second session with the id of another one is an error.

    So it is for sessions, by their `session_id`. A key that you name for rows that may be something
    else, and other modes, say that a row replaces an earlier one.
    """
    if rows.mode != "append" or not rows.of_results or SESSION_ID not in key_of(sink, rows):
        return False
    return sink.key is None or {*SESSION_COLUMNS} <= {*rows.schema.names}


def duplicate_id_error(
    table: object, present: Mapping[str, object], new: Mapping[str, object]
) -> SinkError:
    """Return the error for a row of a session whose id a row of the table has already."""
    found = (
        f"the table {table} has a row of a session ({_named(present)}), and another micro-batch "
        f"has a row of the same session_id that doesn't supersede it ({_named(new)})"
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
    shown = " and ".join(f"({_named(row)})" for row in rows)
    found = (
        f"two rows of a micro-batch have the same ({', '.join(key)}), by which a row of the table "
        f"{table} replaces another" + (f": {shown}" if shown else "")
    )
    hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
    return SinkError(with_hint(found, hint))


def _named(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())
