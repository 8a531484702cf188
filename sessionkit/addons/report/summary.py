"""
Count what a report shows, small enough for a page, whatever the number of rows.

A reader filters the page by days and by values: of dimensions, of the first and the last page, and
by the steps of the funnel. So sessions are counted by *cell*: a day and a value of each filter.
Sums over cells answer any choice. Counts of users, which don't add up, and of hours, which would
make many cells, are made for each set of filters. What would make the page large gets coarser, or
doesn't answer to all filters, and the summary says which.
"""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any, Final

import attrs

from sessionkit import SchemaError
from sessionkit.addons.report.columns import Columns, Kind, has_kinds
from sessionkit.addons.report.counts import CELL_VIEWS, CELLS, PAGES, STEP, SessionCounts, upto
from sessionkit.addons.report.engine import ROWS, Engine
from sessionkit.addons.report.sessions import (
    DATED,
    DAY,
    FIRSTS,
    LAST_ROWS,
    LENGTH,
    NEW,
    SESSIONS,
    Days,
    all_pages,
    clock_of,
    filters_of,
    firsts_of,
    goals_of,
    last_rows,
    new_of,
    place_among,
    sessions_of,
    steps_of,
    top_of,
    views_of,
)

VIEWS: Final = "sessionkit_views"
DAYS_APART: Final = 3_653
"""Ten years without a session: what lies beyond has a wrong clock."""
MOST_CELLS: Final = 40_000
MAY_LACK: Final = {
    **dict.fromkeys(("events", "value", "engaged_time", "views"), "it isn't counted"),
    **dict.fromkeys(("engaged", "bounce", "converted"), "its rate doesn't count it"),
    "number": "it doesn't count as its user's first",
}
"""The roles of which a session may have no value, and what the page does then."""
MOST_REASONS: Final = 20
VALUES: Final = (20, 12, 8, 5, 3)
"""The numbers of named values of a filter, tried in this order."""


def summarized(engine: Engine, columns: Columns, zone: str = "UTC") -> dict[str, Any]:
    """
    Return the data of a page. Times are ms since 1970 as clocks of the zone show them.

    Raises:
        SchemaError: The rows lack a column, or have no session.
    """
    kinds = engine.kinds()
    columns = columns.found_in(kinds)
    engine.view(LAST_ROWS, last_rows(columns, kinds, zone))
    time, last, notes = _time(engine)
    end = time.first + time.days * DAY - 1
    engine.view(DATED, f"SELECT * FROM {LAST_ROWS} WHERE clock BETWEEN {time.first} AND {end}")
    notes += _notes(engine, columns)
    # The values of each filter, and the number of all.
    tops = {
        name: top_of(engine, f"top_{name}", f"SELECT {source} FROM {DATED}", VALUES[0])
        for name, source in filters_of(columns).items()
    }
    pages, _ = top_of(engine, "top_pages", all_pages(columns), PAGES[0])
    closings, _ = top_of(engine, "top_closings", f"SELECT closed_by FROM {DATED}", MOST_REASONS)
    engine.keep(SESSIONS, sessions_of(columns, time))
    engine.keep(NEW, new_of(columns))
    engine.keep(FIRSTS, firsts_of(columns))
    filters = _named(engine, columns)
    if columns.views:
        engine.keep(VIEWS, views_of(columns, time, tuple(filters)))
    coarse = [upto(most, name) + f" AS {name}" for name, most in filters.items() if name != STEP]
    for cells, source in ((CELLS, SESSIONS), (CELL_VIEWS, VIEWS))[: 2 if columns.views else 1]:
        replaced = ", ".join(("t AS t", *coarse))
        engine.view(cells, f"SELECT * REPLACE ({replaced}), rowid AS place FROM {source}")
    return {
        "columns": attrs.asdict(columns),
        "zone": zone,
        "notes": notes,
        # The start of the first day, the number of days, and the start of the last session: its
        # hour and its day aren't over as far as the rows show.
        "first": time.first,
        "days": time.days,
        "last": last,
        "ends_with": "last_event_time" if "last_event_time" in kinds else "session_end",
        # What readers can filter by: the most frequent values, and the number of others.
        "filters": list(_filters(columns, tops, filters)),
        # The names of pages, and of the reasons why sessions ended.
        "pages": pages,
        "closings": closings,
        **SessionCounts.of(engine, columns, filters).all(time),
        # Rows that aren't sessions, by unit, kind and reason.
        **_rejected(engine, columns, kinds, time, zone),
    }


def _time(engine: Engine) -> tuple[Days, int, list[str]]:
    """Return the days of the report, the last time in them, and what is left out."""
    found = engine.ask(
        f"SELECT clock // {DAY} AS day, count(*) AS n, max(clock) AS last FROM {LAST_ROWS} "
        "GROUP BY day ORDER BY day"
    )
    days = [row for row in found if row["day"] is not None]
    if not days and found:
        text = f"{_sessions(sum(row['n'] for row in found))} no session_start, so no day to be on"
        raise SchemaError(text, "look at what changes this column after sessionkit has written it")
    if not days:
        text = "there is no session in the rows"
        raise SchemaError(text, "wait until the query has written some")
    parts = [[days[0]]]
    for row in days[1:]:
        if row["day"] - parts[-1][-1]["day"] > DAYS_APART:
            parts.append([])
        parts[-1].append(row)
    shown = max(parts, key=lambda part: sum(row["n"] for row in part))
    notes = []
    if none := sum(row["n"] for row in found if row["day"] is None):
        notes.append(f"{_sessions(none)} no session_start, and can't be counted on any day.")
    if far := [row for part in parts if part is not shown for row in part]:
        dates = ", ".join(dict.fromkeys(_date(row["day"]) for row in (far[0], far[-1])))
        lie = f"{_sessions(sum(row['n'] for row in far))} a session_start more than ten years away"
        notes.append(f"{lie} from the others ({dates}), and can't be counted.")
    first, count = shown[0]["day"], shown[-1]["day"] - shown[0]["day"] + 1
    return Days(first * DAY, count), shown[-1]["last"], notes


def _date(day: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    except OverflowError:
        return f"the year {1970 + day * 400 // 146_097}"


def _sessions(count: int) -> str:
    return f"{count:,} {'session has' if count == 1 else 'sessions have'}"


def _notes(engine: Engine, columns: Columns) -> list[str]:
    """Return what is odd about the rows, and how the page counts it."""
    numbers = {name: getattr(columns, name) for name in ("events", "value", "engaged_time")}
    end = "last_event_time" if "last_event_time" in engine.kinds() else "session_end"
    odd = {"ended": f"({LENGTH}) IS NULL", "who": "who IS NULL", "id": "id IS NULL"}
    odd |= {f"{name}_odd": f"NOT abs({name}) < 1e15" for name, column in numbers.items() if column}
    may_lack = {name: getattr(columns, name) for name in MAY_LACK}
    odd |= {f"{name}_none": f"{name} IS NULL" for name, column in may_lack.items() if column}
    odd |= {f"{name}_none": f"{name} IS NULL" for name in goals_of(columns)}
    if columns.funnel:
        odd["far_odd"] = "far IS NULL" if columns.steps else "is_far_odd"
    if columns.path and not columns.exit:
        odd["cut"] = "is_cut"
    counted = [f"count(*) FILTER (WHERE {test}) AS {name}" for name, test in odd.items()]
    repeated = "count(id) - count(DISTINCT id) AS repeated"
    most = "coalesce(max(far), 0) AS most"
    (found,) = engine.ask(f"SELECT {', '.join((*counted, repeated, most))} FROM {DATED}")
    if columns.steps and found["most"] > len(columns.steps):
        text = f"`{columns.funnel[0]}` counts up to {found['most']} steps, and `steps` names "
        raise SchemaError(f"{text}{len(columns.steps)}", "name all steps of agg.funnel, in order")
    notes = {
        "ended": f"no {end}, or one before session_start, and so no duration.",
        "who": f"no {' or '.join(f'`{key}`' for key in columns.keys)}, and so no user.",
        "id": "no session_id, and so no other revision.",
        **{
            f"{name}_none": f"no `{column}`: {MAY_LACK[name]}." for name, column in may_lack.items()
        },
        **{
            f"{name}_none": f"no `{column}`: {MAY_LACK['converted']}."
            for name, column in goals_of(columns).items()
        },
        **{
            f"{name}_odd": f"a `{column}` that is NaN, infinite or too large: it isn't counted."
            for name, column in numbers.items()
        },
        "far_odd": f"no {' or '.join(f'`{name}`' for name in columns.funnel)}, as if they didn't "
        "reach the step.",
        "cut": f"a path that may go on: it is at its limit of {columns.path_at_most} pages. Their "
        "exit page isn't known.",
        "repeated": "the session_id of another one: they are counted again.",
    }
    return [f"{_sessions(found[name])} {text}" for name, text in notes.items() if found.get(name)]


def _named(engine: Engine, columns: Columns) -> dict[str, int]:
    """Return how many values each filter names: few enough to keep the cells few."""
    of_rows = [f"d{n}" for n in range(len(columns.dimensions))]
    ends = [name for name in filters_of(columns) if name not in of_rows]
    steps = [STEP] if columns.funnel else []

    def fits(filters: Mapping[str, int]) -> bool:
        values = (name if name == STEP else upto(most, name) for name, most in filters.items())
        distinct = f"SELECT DISTINCT {', '.join(('t', *values))} FROM {SESSIONS}"
        (row,) = engine.ask(f"SELECT count(*) AS n FROM ({distinct}) AS one")
        return bool(row["n"] <= MOST_CELLS)

    shown: dict[str, int] = {}
    for most in VALUES:
        shown = dict.fromkeys(of_rows, most)
        if fits(shown):
            break
    for more in ([*steps, *ends], steps):
        for most in VALUES[::2]:
            every = {**shown, **dict.fromkeys(more, most)}
            if fits(every):
                return every
    return shown


def _filters(
    columns: Columns, tops: Mapping[str, tuple[list[str], int]], filters: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield what readers can filter by; a funnel step selects the sessions that reached it."""
    sources = filters_of(columns)
    for name, most in filters.items():
        if name == STEP:
            yield {"column": STEP, "role": "step", "name": "reached", "values": steps_of(columns)}
            continue
        labels, rest = tops[name]
        source = sources[name]
        is_end = source in {"entry", "exit"}
        yield {
            "column": name,
            "role": source if is_end else "dimension",
            "name": f"{source} page" if is_end else columns.dimensions[int(name[1:])],
            "values": labels[:most],
            "rest": rest + len(labels[most:]),
        }


def _rejected(
    engine: Engine, columns: Columns, kinds: Mapping[str, Kind], time: Days, zone: str
) -> dict[str, Any]:
    """Return why rows aren't sessions, with counts, which include rows without a day."""
    if not has_kinds(kinds, columns.keys):
        return {"reasons": [], "rejected": {}}
    at = "coalesce(event_time, session_start)" if "event_time" in kinds else "session_start"
    # If no row has a reason, the column may have any type.
    kind = "coalesce(kind, 'no kind')"
    reason = f"coalesce(CAST(reason AS VARCHAR), {kind})" if "reason" in kinds else kind
    only = "WHERE coalesce(kind, '') NOT IN ('session', 'event')"
    query = f"SELECT {reason} FROM {ROWS} {only}"
    labels, _ = top_of(engine, "top_reasons", query, MOST_REASONS)
    place, join = place_among("top_reasons", reason, "top")
    unit = time.of(clock_of(f"CAST({at} AS TIMESTAMPTZ)", zone))
    counts = engine.columns(
        f"SELECT CASE WHEN {unit} BETWEEN 0 AND {time.days - 1} THEN {unit} END AS t, "
        f"{kind} AS kind, "
        f"{place} AS reason, count(*) AS counted FROM {ROWS} {join} {only} "
        "GROUP BY ALL ORDER BY ALL"
    )
    return {"reasons": labels, "rejected": counts}
