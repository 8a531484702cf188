"""Shared parts of the table sinks: which rows replace others, and the errors."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import attrs
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit._for_addons import Span
from sessionkit.errors import SinkError
from sessionkit.spark.sinks import RowsToWrite

SESSION_COLUMNS: Final = ("session_id", "session_start", "session_end")
SESSION_ID: Final = SESSION_COLUMNS[0]
REVISION, SUPERSEDES = "revision", "supersedes"
DIFFERENCE: Final = "difference"
CHANGES: Final = ("changed", "added", "deleted")
REJECTED: Final = frozenset({"kind", "reason", "event_time", "event_id"})
"""The columns that identify a table of rejected rows."""
OF_SESSIONS: Final = "pass the table of the sessions, `session` of Routes"
DIFFERENCES: Final = """\
WITH all_sessions AS (
    SELECT {keys}, session_id, session_start, session_end, {revision} AS _revision,
           TRUE AS _is_old, session_end <= {settled} AS _is_final
    FROM {old} AS old WHERE session_end >= {start}
    UNION ALL
    SELECT {keys}, session_id, session_start, session_end, CAST(NULL AS BIGINT) AS _revision,
           FALSE AS _is_old, {is_final} AS _is_final
    FROM {new} AS new),
on_days AS (
    SELECT *, CASE WHEN session_end <= {settled} THEN
                  {start_day} END AS _first_day,
           CASE WHEN session_end <= {settled} THEN
                  {end_day} END AS _last_day
    FROM all_sessions),
seen AS (
    SELECT *, CASE WHEN _first_day NOT IN ({days}) THEN _first_day
                   WHEN _last_day NOT IN ({days}) THEN _last_day END AS _unseen_day
    FROM on_days),
begun AS (
    SELECT *, CASE WHEN session_start < max(session_end) OVER (
        PARTITION BY {keys} ORDER BY session_start, session_end, session_id, _is_old
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS _begins
    FROM seen),
numbered AS (
    SELECT *, sum(_begins) OVER (
        PARTITION BY {keys} ORDER BY session_start, session_end, session_id, _is_old
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _island
    FROM begun),
judged AS (
    SELECT *, min(session_start) OVER (PARTITION BY {keys}, _island) AS _begins_at,
           bool_and(_is_final) OVER (PARTITION BY {keys}, _island) AS _all_final,
           bool_and(_unseen_day IS NULL) OVER (PARTITION BY {keys}, _island) AS _all_days_seen,
           bool_or(NOT _is_old) OVER (PARTITION BY {keys}) AS _key_seen
    FROM numbered),
spanned AS (
    SELECT {keys}, session_id, min(session_start) AS session_start, max(session_end) AS session_end,
           max(_revision) AS _revision, bool_and(_all_final) AS _all_final,
           bool_and(_all_days_seen AND _key_seen) AS _all_seen,
           bool_and(_key_seen) AS _key_seen, min(_unseen_day) AS _unseen_day,
           bool_or(_is_old) AS _in_old, bool_or(NOT _is_old) AS _in_new
    FROM judged WHERE _begins_at >= {start} AND _begins_at < {end} GROUP BY {keys}, session_id),
same AS (
    SELECT old.session_id AS _same_id
    FROM {old} AS old JOIN {new} AS new ON old.session_id = new.session_id WHERE {equal})
SELECT {keys}, session_id, session_start, session_end, _revision,
       CASE WHEN _in_old AND _all_final THEN _unseen_day END AS _unseen_day,
       _in_old AND _all_final AND NOT _key_seen AS _is_unseen_key,
       CASE WHEN NOT _all_final OR NOT ({delete_unseen} OR _all_seen) THEN 'left'
            WHEN NOT _in_new THEN 'deleted' WHEN NOT _in_old THEN 'added'
            WHEN _same_id IS NULL THEN 'changed' ELSE 'unchanged' END AS difference
FROM spanned LEFT JOIN same ON session_id = _same_id"""
"""
SQL, for Spark and PostgreSQL, that compares the sessions of a table with new ones.

Overlapping sessions of a key, old or new, form an island. An island belongs to the span in which it
starts, so adjacent spans never share an island. Days count from `DAY_ZERO`; history may lack the
rest of a session that ends on a day without an event.
"""
DAY_ZERO: Final = datetime(1, 1, 1, tzinfo=UTC)
DAY_OF: Final = "CAST(extract(DAY FROM {} - {}) AS BIGINT)"
"""PostgreSQL for the day number of a column; Spark would use the time zone of the session."""
NESTED: Final = (T.StructType, T.ArrayType, T.MapType)


@attrs.frozen
class Upsert:
    """
    How rows enter a table.

    Attributes:
        table: The name of the table in messages.
        key: The columns by which a row replaces an earlier one; empty if rows are only added.
        refuses_duplicates: Whether a second session with the same id is an error: true for
            sessions by `session_id` in append mode. Otherwise a row replaces an earlier one.
    """

    table: object
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    refuses_duplicates: bool = False

    @classmethod
    def of(cls, sink: Any, rows: RowsToWrite) -> "Upsert":
        """Return how rows enter the `table` of a sink, and check that its `key` fits them."""
        names, key = tuple(rows.schema.names), sink.key
        are_sessions = rows.of_results and SESSION_ID in names
        if key is None:
            key = (SESSION_ID,) if are_sessions else ()
        missing = [name for name in key if name not in names]
        if missing:
            found = f"`key` of the table {sink.table} names `{missing[0]}`"
            hint = f"name some of {', '.join(names)}"
            if are_sessions and missing[0] in REJECTED:
                found += ", a column of rejected rows, for rows that are sessions"
                hint = OF_SESSIONS
            raise SpecError(found, hint)
        if sink.key is None and rows.of_results and REVISION in names and not key:
            found = f"the rows for the table {sink.table} are revisions of sessions, and lack "
            found += f"`{SESSION_ID}`, by which one replaces another; they have {', '.join(names)}"
            raise SpecError(found, f"keep `{SESSION_ID}`, or pass key=() to add every row")
        if rows.mode != "append" and not key:
            found = f"mode {rows.mode!r} writes changed rows again, and {sink.table} has no key"
            raise SpecError(found, "pass key=(...) with the columns of the groups")
        are_certain = sink.key is None or {*SESSION_COLUMNS} <= {*names}
        refuses = are_sessions and SESSION_ID in key and rows.mode == "append" and are_certain
        return cls(sink.table, names, key, refuses)

    @classmethod
    def of_span(cls, sink: Any, span: Span) -> "Upsert":
        """Return how rows of a span enter a table, which must have one row per session id."""
        upsert = cls.of(sink, RowsToWrite(span.rows.drop(span.is_final).schema))
        if upsert.key != (SESSION_ID,) or not upsert.refuses_duplicates:
            found = f"the table {sink.table} has the key ({', '.join(upsert.key)}), not the id"
            raise SpecError(found, "repair tables of sessions by their `session_id`")
        return upsert

    @property
    def revises(self) -> bool:
        """Whether sessions may have several revisions; the table keeps the highest."""
        return SESSION_ID in self.key and REVISION in self.columns

    @property
    def supersedes(self) -> bool:
        """Whether a row may name other sessions that it replaces."""
        return self.revises and SUPERSEDES in self.columns

    @property
    def shown(self) -> list[str]:
        """The columns that identify a session in messages: its key, id, times and revision."""
        key = self.columns[: self.columns.index(SESSION_ID)]
        return [name for name in self.columns if name in {*key, *SESSION_COLUMNS, REVISION}]

    def check_columns_of(self, present: Collection[str]) -> None:
        """Check that a table with these columns has each column of the rows."""
        if SESSION_ID in self.key and not REJECTED & {*self.columns} and {*present} >= REJECTED:
            found = f"the table {self.table} also has rejected rows, and takes no sessions alone"
            raise SpecError(found, OF_SESSIONS)
        missing = [name for name in self.columns if name not in present]
        if missing:
            found = f"the table {self.table} has no column `{missing[0]}`; it has "
            hint = "add the column, or leave the table to the sink to make"
            raise SpecError(f"{found}{', '.join(present)}", hint)

    def unfit(self, field: T.StructField, present: str, expected: str) -> SpecError:
        """Return the error for a column whose type can't take the values of a field."""
        kind = field.dataType.simpleString()
        found = f"the column `{field.name}` of the table {self.table} is {present}, not {kind}"
        hint = f"make it {expected}, or leave the table to the sink to make"
        return SpecError(found, hint)

    def second_session(self, present: Sequence[object], new: Sequence[object]) -> SinkError:
        """Return the error for two sessions with one id, from the `shown` columns of both."""
        before, added = (dict(zip(self.shown, row, strict=True)) for row in (present, new))
        found = (
            f"the table {self.table} has a row of a session ({_described(before)}), and another "
            f"micro-batch has a row of the same session_id that doesn't supersede it "
            f"({_described(added)})"
        )
        hint = (
            "if another query wrote the first one, empty the table, or write to another one; if "
            "the table or the checkpoint is an older copy, restore both as they were at one time"
        )
        return SinkError(found, hint)

    def same_key(self, rows: Iterable[Sequence[object]] = ()) -> SinkError:
        """Return the error for two rows of a micro-batch with the same key."""
        sessions = (dict(zip(self.shown, row, strict=True)) for row in rows)
        pair = " and ".join(f"({_described(row)})" for row in sessions)
        found = (
            f"two rows of a micro-batch have the same ({', '.join(self.key)}), by which a row of "
            f"the table {self.table} replaces another" + (f": {pair}" if pair else "")
        )
        hint = "pass key=(...) with columns that tell them apart, or key=() to add every row"
        return SinkError(found, hint)


def day_numbers(days: Iterable[date]) -> str:
    """Return the numbers of days for `DIFFERENCES`; -1, the number of no day, for none."""
    return ", ".join(str(day.toordinal() - DAY_ZERO.toordinal()) for day in days) or "-1"


def _described(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in row.items())
