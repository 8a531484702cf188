"""SQL that turns result rows into a table of sessions in small integers, quick to count."""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from sessionkit.addons.report.columns import Columns, Kind, has_kinds
from sessionkit.addons.report.engine import ROWS, Engine
from sessionkit.addons.report.postgres import sql_name

LAST_ROWS: Final = "sessionkit_last_rows"
DATED: Final = "sessionkit_dated"
"""The last rows on the days of the report."""
SESSIONS: Final = "sessionkit_sessions"
NEW: Final = "sessionkit_new"
FIRSTS: Final = "sessionkit_firsts"
HOUR, DAY = 3_600_000, 86_400_000
LENGTH: Final = "CASE WHEN ended >= began THEN ended - began END"
"""SQL for the duration of a row; null where its end isn't known, or lies before its start."""
STEPS: Final = 4
"""The number of pages of a path in the report."""
OTHER, NONE, MORE, END = -1, -2, -3, -4
"""Places without a label: rare values, no value, the path continues, the path ends."""


@attrs.frozen
class Days:
    """The days of the report: the start of the first, in ms of a clock, and their number."""

    first: int
    days: int

    def of(self, at: str) -> str:
        """Return SQL for the day of a time in ms of the clock, from 0."""
        return f"CAST(({at} - {self.first}) // {DAY} AS INT)"

    def week(self, day: str) -> str:
        """Return SQL for the week of a day, from 0; weeks start on Mondays."""
        monday = (self.first // DAY + 3) % 7  # days since Monday; the epoch was a Thursday
        return f"({day} + {monday}) // 7"


def clock_of(instant: str, zone: str) -> str:
    """Return SQL for the ms since 1970 that clocks of a zone show; null for infinity."""
    known = f"CASE WHEN isfinite({instant}) THEN {instant} END"
    shown = known if zone == "UTC" else f"timezone('{zone}', {known})"
    return f"epoch_ms({shown})"


def finite(number: str) -> str:
    """Return SQL for a number; null for NaN, infinity, and numbers too large for a sum."""
    return f"CASE WHEN abs({number}) < 1e15 THEN {number} END"


def last_rows(columns: Columns, kinds: Mapping[str, Kind], zone: str) -> str:
    """Return the query of the last row of each session, in columns of fixed names."""
    end = "last_event_time" if "last_event_time" in kinds else "session_end"
    keys = ", ".join(
        f"len({text}), ':', {text}"
        for text in (f"CAST({sql_name(key)} AS VARCHAR)" for key in columns.keys)
    )
    known = " AND ".join(_is_known(key, kinds) for key in columns.keys)
    chosen = {
        "id": "CAST(session_id AS VARCHAR)",
        "clock": clock_of("CAST(session_start AS TIMESTAMPTZ)", zone),
        "began": clock_of("CAST(session_start AS TIMESTAMPTZ)", "UTC"),
        "ended": clock_of(f"CAST({end} AS TIMESTAMPTZ)", "UTC"),
        # The lengths tell `a b`, `c` from `a`, `b c`; where a key is null, the user isn't known.
        "who": f"CASE WHEN {known} THEN md5_number(concat('', {keys})) END",
        "closed_by": "CAST(closed_by AS VARCHAR)" if "closed_by" in kinds else "NULL::VARCHAR",
        "path": _or_null(columns.path, "VARCHAR[]"),
        "number": _or_null(columns.number, "DOUBLE"),
        "engaged": _or_null(columns.engaged, "BOOLEAN"),
        "views": _views(columns, kinds),
        "far": _far(columns),
    }
    chosen |= {f"d{n}": _or_null(name, "VARCHAR") for n, name in enumerate(columns.dimensions)}
    chosen |= {goal: _or_null(name, "BOOLEAN") for goal, name in goals_of(columns).items()}
    chosen |= {role: _or_null(getattr(columns, role), "VARCHAR") for role in ("entry", "exit")}
    for role in ("bounce", "converted"):
        chosen[role] = _or_null(getattr(columns, role), "BOOLEAN")
    chosen["is_cut"] = _cut(columns) if columns.path else "FALSE"
    steps = [] if columns.steps else [f"{sql_name(step)} IS NULL" for step in columns.funnel]
    chosen["is_far_odd"] = " OR ".join(steps) or "FALSE"
    chosen |= _numbers(columns, kinds)
    listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
    # A second step, since a column of the rows may have one of these names.
    derived = {
        "entry": "path[1]",
        "exit": "CASE WHEN NOT is_cut THEN path[-1] END",
        "bounce": "events = 1",
        "converted": f"far = {len(steps_of(columns))}" if columns.funnel else "NULL::BOOLEAN",
    }
    more = [f"{sql} AS {name}" for name, sql in derived.items() if not getattr(columns, name)]
    rest = f" REPLACE ({', '.join(more)})" if more else ""
    return f"SELECT *{rest} FROM (SELECT {listed} FROM {_latest(columns, kinds)}) AS fixed"


def _numbers(columns: Columns, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return SQL for the numbers of a row: its events, value and engaged time."""
    engaged = sql_name(columns.engaged_time) if columns.engaged_time else "NULL::DOUBLE"
    is_interval = kinds.get(columns.engaged_time or "") == "interval"
    return {
        "events": _or_null(columns.events, "DOUBLE"),
        "value": _or_null(columns.value, "DOUBLE"),
        "engaged_time": f"epoch_ms({engaged})" if is_interval else f"{engaged} * 1000.0",
    }


def steps_of(columns: Columns) -> tuple[str, ...]:
    """Return the names of the steps of the funnel."""
    return columns.steps or columns.funnel


def goals_of(columns: Columns) -> dict[str, str]:
    """Return the columns of the goals, by their names in queries."""
    return {f"goal{n}": name for n, name in enumerate(columns.goals)}


def _is_known(key: str, kinds: Mapping[str, Kind]) -> str:
    """Return SQL for whether a key is known: pandas has NaN for a number that isn't."""
    is_known = f"{sql_name(key)} IS NOT NULL"
    if kinds[key] == "number":
        is_known += f" AND NOT isnan(CAST({sql_name(key)} AS DOUBLE))"
    return is_known


def _far(columns: Columns) -> str:
    """Return SQL for the number of steps reached; a step needs all steps before it."""
    if not columns.funnel:
        return "NULL::INT"
    if columns.steps:
        return f"CAST({sql_name(columns.funnel[0])} AS INT)"
    cases = (
        f"WHEN NOT coalesce({sql_name(s)}, FALSE) THEN {n}" for n, s in enumerate(columns.funnel)
    )
    return f"CASE {' '.join(cases)} ELSE {len(columns.funnel)} END"


def _views(columns: Columns, kinds: Mapping[str, Kind]) -> str:
    views = sql_name(columns.views) if columns.views else "NULL"
    # JSON of PostgreSQL, and structs: a frame of dicts has a column of these. DuckDB casts a map
    # more slowly than its keys and values.
    is_json = columns.views and kinds[columns.views] == "json"
    return f"TRY_CAST(to_json({views}) AS MAP(VARCHAR, DOUBLE))" if is_json else views


def _cut(columns: Columns) -> str:
    """Return SQL for whether a path may lack its end; its limit counts repeats."""
    most = columns.path_at_most
    seen = f"coalesce({sql_name(columns.events)}, 0)" if columns.events else "0"
    return f"coalesce(len({sql_name(columns.path or '')}), 0) >= {most} OR {seen} > {most}"


def _or_null(column: str | None, kind: str) -> str:
    return f"CAST({sql_name(column) if column else 'NULL'} AS {kind})"


def _latest(columns: Columns, kinds: Mapping[str, Kind]) -> str:
    """Return SQL for one row per session: of its last revision, and not superseded."""
    only = "kind = 'session'" if has_kinds(kinds, columns.keys) else "TRUE"
    if "revision" not in kinds:
        return f"(SELECT * FROM {ROWS} WHERE {only}) AS chosen"
    return f"""(
        SELECT * FROM {ROWS} WHERE {only} AND (session_id IS NULL OR session_id NOT IN (
            SELECT gone FROM (SELECT unnest(supersedes) AS gone FROM {ROWS} WHERE {only}) AS merged
            WHERE gone IS NOT NULL
        ))
        QUALIFY session_id IS NULL
            OR row_number() OVER (PARTITION BY session_id ORDER BY revision DESC) = 1
    ) AS chosen"""


def new_of(columns: Columns) -> str:
    """Return the query of the sessions of new users: their rows in the table of sessions."""
    if columns.number:
        return f"SELECT rowid AS is_new FROM {SESSIONS} WHERE number = 1 AND who IS NOT NULL"
    return (
        f"SELECT min_by(rowid, began) AS is_new FROM {SESSIONS} WHERE who IS NOT NULL GROUP BY who"
    )


def firsts_of(columns: Columns) -> str:
    """Return the query of the day of each user's first session; -1 if it's before the rows."""
    first = "CASE WHEN bool_or(number = 1) THEN min(t) ELSE -1 END" if columns.number else "min(t)"
    return f"SELECT who, {first} AS born FROM {SESSIONS} WHERE who IS NOT NULL GROUP BY who"


def all_pages(columns: Columns) -> str:
    """Return the query of the pages of all sessions, with repeats."""
    parts = [f"SELECT {role} FROM {DATED}" for role in ("entry", "exit")]
    if columns.path:
        parts.append(f"SELECT unnest(path[1:{STEPS}]) FROM {DATED}")
    if columns.views:
        parts.append(f"SELECT CAST(unnest(map_keys(views)) AS VARCHAR) FROM {DATED}")
    return " UNION ALL ".join(parts)


def top_of(engine: Engine, name: str, query: str, most: int) -> tuple[list[str], int]:
    """Store the most frequent values of a query by place; return them and the number of others."""
    place = "CAST(row_number() OVER (ORDER BY count(*) DESC, label) - 1 AS INT)"
    engine.keep(
        f"{name}_all",
        f"SELECT label, {place} AS place FROM ({query}) AS one(label) "
        "WHERE label IS NOT NULL GROUP BY label",
    )
    engine.keep(name, f"FROM {name}_all WHERE place < {most}")
    labels = engine.columns(f"SELECT label FROM {name} ORDER BY place")["label"]
    (row,) = engine.ask(f"SELECT count(*) AS n FROM {name}_all")
    return labels, row["n"] - len(labels)


def views_of(columns: Columns, time: Days, by: Sequence[str]) -> str:
    """Return the query of the views of each page, and of its sessions, by the filters of a cell."""
    sources = {name: source for name, source in filters_of(columns).items() if name in by}
    places = {name: place_among(f"top_{name}", source, name) for name, source in sources.items()}
    named = ", ".join(
        [f"{time.of('clock')} AS t", "coalesce(far, 0) AS far"]
        + [f"{place} AS {name}" for name, (place, _) in places.items()]
    )
    page, join = place_among("top_pages", "page", "top")
    by = ("t", *by)
    return f"""
        SELECT {", ".join(by)}, {page} AS page, sum({finite("n")}) AS n, count(*) AS seen_in FROM (
            SELECT {named}, CAST(unnest(map_keys(views)) AS VARCHAR) AS page,
                TRY_CAST(unnest(map_values(views)) AS DOUBLE) AS n
            FROM {DATED} {" ".join(join for _, join in places.values())}
        ) AS viewed {join} WHERE n > 0 GROUP BY ALL"""


def place_among(top: str, value: str, name: str) -> tuple[str, str]:
    """
    Return SQL for the place of a value among the most frequent values, and the named join for it.

    A subquery instead of the join costs DuckDB many times as much.
    """
    place = f"CASE WHEN {value} IS NULL THEN {NONE} ELSE coalesce({name}.place, {OTHER}) END"
    return place, f"LEFT JOIN {top} AS {name} ON {name}.label = {value}"


def _viewed(columns: Columns) -> str:
    """Return SQL for the number of views of a session; null where it isn't known."""
    if not columns.views:
        return "NULL::DOUBLE"
    counts = "TRY_CAST(map_values(views) AS DOUBLE[])"
    counted = f"list_sum([n for n in {counts} if n > 0 AND {finite('n')} IS NOT NULL])"
    return f"CASE WHEN views IS NOT NULL THEN coalesce({counted}, 0) END"


def filters_of(columns: Columns) -> dict[str, str]:
    """Return what readers can filter by, and its column: dimensions, the first and last page."""
    found = {f"d{n}": f"d{n}" for n in range(len(columns.dimensions))}
    ends = [role for role in ("entry", "exit") if getattr(columns, role) or columns.path]
    return found | {f"d{n}": role for n, role in enumerate(ends, len(found))}


def sessions_of(columns: Columns, time: Days) -> str:
    """Return the query of sessions as small numbers."""
    joins: list[str] = []

    def place(top: str, value: str) -> str:
        column, join = place_among(top, value, f"top{len(joins)}")
        joins.append(join)
        return column

    chosen = {
        "t": time.of("clock"),
        "hour": f"CAST(clock % {DAY} // {HOUR} AS TINYINT)",
        "who": "who",
        "id": "id",
        "clock": "clock",
        "length": LENGTH,
        **{name: finite(name) for name in ("engaged_time", "events", "value")},
        "began": "began",
        "number": "number",
        "engaged": "engaged",
        "views": _viewed(columns),
        **{goal: goal for goal in goals_of(columns)},
        "bounced": "bounce",
        "converted": "converted",
        "far": "coalesce(far, 0)",
        "closed_by": place("top_closings", "closed_by"),
    }
    chosen |= {name: place(f"top_{name}", source) for name, source in filters_of(columns).items()}
    chosen |= {role: place("top_pages", role) for role in ("entry", "exit")}
    for n in range(1, STEPS + 1):
        page = place("top_pages", f"path[{n}]")
        chosen[f"p{n}"] = f"CASE WHEN coalesce(len(path), 0) >= {n} THEN {page} ELSE {END} END"
    goes_on = f"is_cut OR coalesce(len(path), 0) > {STEPS}"
    chosen["p_more"] = f"CASE WHEN {goes_on} THEN {MORE} ELSE {END} END"
    listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
    return f"SELECT {listed} FROM {DATED} {' '.join(joins)}"
