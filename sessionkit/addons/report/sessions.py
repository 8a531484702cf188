"""SQL that turns result rows into sessions of small numbers, for many counts."""

from collections.abc import Mapping
from typing import Final

import attrs

from sessionkit.addons.report.columns import Columns, Kind, has_kinds
from sessionkit.addons.report.engine import ROWS, Engine
from sessionkit.addons.report.postgres import quoted

LAST_ROWS: Final = "sessionkit_last_rows"
SESSIONS: Final = "sessionkit_sessions"
HOUR, DAY = 3_600_000, 86_400_000
STEPS: Final = 4
"""The number of pages of a path in the report."""
OTHER, NONE, MORE, END = -1, -2, -3, -4
"""Places without a label: rare values, no value, the path continues, the path ends."""


@attrs.frozen
class Units:
    """The units of time: the length and the first start in ms, and their number."""

    unit: int
    first: int
    units: int

    def of(self, instant: str) -> str:
        """Return SQL for the unit of an instant, from 0."""
        return f"CAST((epoch_ms({instant}) - {self.first}) // {self.unit} AS INT)"

    def week(self, units: str) -> str:
        """Return SQL for the week of a unit, from 0; weeks start on Mondays."""
        monday = (self.first // DAY + 3) % 7  # days since Monday; the epoch was a Thursday
        return f"({units} // {DAY // self.unit} + {monday}) // 7"


def last_rows(columns: Columns, kinds: Mapping[str, Kind]) -> str:
    """Return the query of the last row of each session, in columns of fixed names."""
    end = "last_event_time" if "last_event_time" in kinds else "session_end"
    keys = ", ".join(
        f"len({text}), ':', {text}"
        for text in (f"CAST({quoted(key)} AS VARCHAR)" for key in columns.keys)
    )
    chosen = {
        "id": "CAST(session_id AS VARCHAR)",
        "began": "CAST(session_start AS TIMESTAMPTZ)",
        "ended": f"CAST({end} AS TIMESTAMPTZ)",
        # The lengths tell `a b`, `c` from `a`, `b c`; a null has none.
        "who": f"md5_number(concat('', {keys or 'NULL'}))",
        "closed_by": "CAST(closed_by AS VARCHAR)" if "closed_by" in kinds else "NULL::VARCHAR",
        "d0": _or_null(columns.dimension, "VARCHAR"),
        "d1": _or_null(columns.second_dimension, "VARCHAR"),
        "path": _or_null(columns.path, "VARCHAR[]"),
        "events": _or_null(columns.events, "DOUBLE"),
        "number": _or_null(columns.number, "DOUBLE"),
        "engaged": _or_null(columns.engaged, "BOOLEAN"),
    }
    chosen |= {f"step_{n}": quoted(name) for n, name in enumerate(columns.funnel)}
    for role, place in (("entry", 1), ("exit", -1)):
        column = getattr(columns, role)
        chosen[role] = _or_null(column, "VARCHAR") if column else f"{chosen['path']}[{place}]"
    chosen["bounced"] = _or_null(columns.bounce, "BOOLEAN")
    if columns.events and not columns.bounce:
        chosen["bounced"] = f"{quoted(columns.events)} = 1"
    chosen["converted"] = _or_null(columns.converted, "BOOLEAN")
    if columns.funnel and not columns.converted:
        chosen["converted"] = " AND ".join(map(quoted, columns.funnel))
    engaged = quoted(columns.engaged_time) if columns.engaged_time else "NULL::DOUBLE"
    is_interval = kinds.get(columns.engaged_time or "") == "interval"
    chosen["engaged_time"] = f"epoch_ms({engaged})" if is_interval else f"{engaged} * 1000"
    listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
    return f"SELECT {listed} FROM {_latest(columns, kinds)}"


def _or_null(column: str | None, kind: str) -> str:
    return f"CAST({quoted(column) if column else 'NULL'} AS {kind})"


def _latest(columns: Columns, kinds: Mapping[str, Kind]) -> str:
    """Return SQL for one row per session: of its last revision, and not superseded."""
    only = "kind = 'session'" if has_kinds(kinds, columns.keys) else "TRUE"
    if "revision" not in kinds:
        return f"(SELECT * FROM {ROWS} WHERE {only}) AS chosen"
    return f"""(
        SELECT * FROM {ROWS} WHERE {only} AND session_id NOT IN (
            SELECT gone FROM (SELECT unnest(supersedes) AS gone FROM {ROWS} WHERE {only}) AS merged
            WHERE gone IS NOT NULL
        )
        QUALIFY row_number() OVER (PARTITION BY session_id ORDER BY revision DESC) = 1
    ) AS chosen"""


def all_pages(columns: Columns) -> str:
    parts = [
        f"SELECT entry FROM {LAST_ROWS}",
        f"SELECT exit FROM {LAST_ROWS}",
        f"SELECT unnest(path[1:{STEPS}]) FROM {LAST_ROWS}",
    ]
    return " UNION ALL ".join(parts if columns.path else parts[:2])


def top_of(engine: Engine, name: str, query: str, most: int) -> tuple[list[str], int]:
    """Store the most frequent values of a query by place; return them and the number of others."""
    place = "CAST(row_number() OVER (ORDER BY count(*) DESC, value) - 1 AS INT)"
    engine.keep(
        f"{name}_all",
        f"SELECT value, {place} AS place FROM ({query}) AS one(value) "
        "WHERE value IS NOT NULL GROUP BY value",
    )
    engine.keep(name, f"FROM {name}_all WHERE place < {most}")
    labels = engine.columns(f"SELECT value FROM {name} ORDER BY place")["value"]
    (row,) = engine.ask(f"SELECT count(*) AS n FROM {name}_all")
    return labels, row["n"] - len(labels)


def place_of(top: str, value: str, name: str) -> tuple[str, str]:
    """
    Return SQL for the place of a value among the most frequent values, and the named join for it.

    A subquery instead of the join costs DuckDB many times as much.
    """
    place = f"CASE WHEN {value} IS NULL THEN {NONE} ELSE coalesce({name}.place, {OTHER}) END"
    return place, f"LEFT JOIN {top} AS {name} ON {name}.value = {value}"


def sessions_of(columns: Columns, time: Units, dimensions: int) -> str:
    """Return the query of sessions as small numbers."""
    first = "began = min(began) OVER (PARTITION BY who)"
    joins: list[str] = []

    def place(top: str, value: str) -> str:
        column, join = place_of(top, value, f"top{len(joins)}")
        joins.append(join)
        return column

    chosen = {
        "t": time.of("began"),
        "who": "who",
        "id": "id",
        "began": "epoch_ms(began)",
        "length": "greatest(epoch_ms(ended) - epoch_ms(began), 0)",
        "engaged_time": "engaged_time",
        "events": "events",
        "is_new": "number = 1" if columns.number else first,
        "engaged": "engaged",
        "bounced": "bounced",
        "converted": "converted",
        "closed_by": place("top_closings", "closed_by"),
    }
    chosen |= {f"d{n}": place(f"top_{n}", f"d{n}") for n in range(dimensions)}
    chosen |= {role: place("top_pages", role) for role in ("entry", "exit")}
    for n in range(1, STEPS + 1):
        page = place("top_pages", f"path[{n}]")
        chosen[f"p{n}"] = f"CASE WHEN coalesce(len(path), 0) >= {n} THEN {page} ELSE {END} END"
    chosen["p_more"] = f"CASE WHEN coalesce(len(path), 0) > {STEPS} THEN {MORE} ELSE {END} END"
    reached = "TRUE"
    for n in range(len(columns.funnel)):
        reached += f" AND step_{n}"
        chosen[f"reached_{n}"] = reached
    listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
    return f"SELECT {listed} FROM {LAST_ROWS} {' '.join(joins)}"
