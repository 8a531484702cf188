"""
What a report counts, small enough for a page, whatever the number of rows.

The page shows days and values that a reader chooses, so the counts are made for each smallest part
that can be chosen: a *cell* is a unit of time (a day, or an hour where there are few days) and a
value of each dimension. Sums over cells answer to any choice. What doesn't add up is counted for
each choice of values: users by the time since they were there before, and those who came back.
Where exact counts would make the page large, they get coarser, and the summary says how.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import attrs

from sessionkit.addons.report.columns import Columns, Kind
from sessionkit.addons.report.engine import ROWS, Engine, quoted
from sessionkit.errors import SchemaError, with_hint

Counted: TypeAlias = dict[str, list[Any]]
"""Counts, by the names of their columns."""

LAST_ROWS: Final = "sessionkit_last_rows"
SESSIONS: Final = "sessionkit_sessions"
HOUR, DAY = 3_600_000, 86_400_000
DAYS_OF_HOURS: Final = 4
"""Up to so many days, sessions are counted by the hour."""
MOST_CELLS: Final = 60_000
MOST_COUNTS: Final = 100_000
"""How many counts of one kind a page has at most: some 0.6 MB."""
MOST_LONGEST: Final = 3_000
MOST_REASONS: Final = 20
STEPS: Final = 4
"""How many pages of a path are shown."""
WEEKS: Final = 12
OTHER, NONE, MORE, END = -1, -2, -3, -4
"""Places of what has no label: all rare values, no value, that a path goes on, and that it ends."""
VALUES: Final = (20, 12, 8, 5, 3)
PAGES: Final = (100, 50, 20, 10, 5)
LONGEST: Final = (10, 5, 3, 1)
DIGITS: Final = (None, 3, 2, 1)
"""To how many digits a distribution is counted: to all of them, if there is room."""


@attrs.frozen(kw_only=True)
class Summary:
    """
    What a page shows. Times are milliseconds since the epoch, in UTC; so are lengths.

    Attributes:
        columns: Which columns of the rows said what.
        unit: The length of a unit of time: an hour or a day.
        first: When the first unit begins: a midnight.
        units: How many there are, through the last day.
        ends_with: `last_event_time` or `session_end`: where a length ends.
        digits: To how many digits the distribution of lengths is exact; None for all.
        values: The values of each dimension, the most frequent first.
        rest: How many other values each has.
        pages: The pages that are named.
        pages_shown: How many of them are named for an entry or an exit, and in a path.
        ways: The first pages of paths, by the places of their labels.
        closings: The reasons for which sessions closed.
        cells: What adds up, by unit of time and value of each dimension.
        longest: The longest sessions of each cell.
        longest_shown: How many of each cell.
        users: By unit, and the units since the same users were there before: 0 for never.
        gaps: The most units that `users` tells apart under each choice of dimensions; None for all.
        cohorts: Users by the week of their first session, and the weeks since.
        reasons: The reasons of rows that are no sessions.
        rejected: Such rows, by unit, kind and reason.
    """

    columns: Columns
    unit: int
    first: int
    units: int
    ends_with: str
    digits: int | None
    values: list[list[str]]
    rest: list[int]
    pages: list[str]
    pages_shown: dict[str, int]
    ways: list[tuple[int, ...]]
    closings: list[str]
    cells: Counted
    longest: Counted
    longest_shown: int
    users: Counted
    gaps: dict[str, int | None]
    cohorts: Counted
    reasons: list[str]
    rejected: Counted


def summarized(engine: Engine, columns: Columns) -> Summary:
    """
    Count result rows.

    Raises:
        SchemaError: The rows lack a column, or there is no session.
    """
    kinds = engine.kinds()
    columns = columns.found_in(kinds)
    engine.view(LAST_ROWS, _last_rows(columns, kinds))
    (span,) = engine.ask(
        f"SELECT epoch_ms(min(began)) // {DAY} AS first, epoch_ms(max(began)) // {DAY} AS last "
        f"FROM {LAST_ROWS}"
    )
    if span["first"] is None:
        text = "there is no session in the rows"
        raise SchemaError(with_hint(text, "wait until the query has written some"))
    days = span["last"] - span["first"] + 1
    unit = HOUR if days <= DAYS_OF_HOURS else DAY
    time = _Time(unit, span["first"] * DAY, days * DAY // unit)
    dimensions = [one for one in (columns.dimension, columns.second_dimension) if one]
    tops = [
        _top(engine, f"top_{n}", f"SELECT d{n} FROM {LAST_ROWS}", _most_values(time, dimensions))
        for n in range(len(dimensions))
    ]
    pages, _ = _top(engine, "top_pages", _all_pages(columns), PAGES[0])
    closings, _ = _top(engine, "top_closings", f"SELECT closed_by FROM {LAST_ROWS}", MOST_REASONS)
    engine.keep(SESSIONS, _sessions(columns, time, len(dimensions)))
    counts = _Counts(engine, tuple(f"d{n}" for n in range(len(dimensions))))
    cells = counts.cells(len(columns.funnel))
    digits, cells["lengths"] = counts.distribution("length")
    if columns.events:
        _, cells["sizes"] = counts.distribution("events")
    cells["closings"] = counts.histogram("closed_by")
    shown: dict[str, int] = {}
    for role in ("entry", "exit"):
        shown[role], cells[role] = counts.pages(role)
    shown["path"], ways, cells["ways"] = counts.ways()
    longest_shown, longest = counts.longest()
    gaps, users = counts.users()
    reasons, rejected = _rejected(engine, kinds, time)
    return Summary(
        columns=columns,
        unit=unit,
        first=time.first,
        units=time.units,
        ends_with="last_event_time" if "last_event_time" in kinds else "session_end",
        digits=digits,
        values=[labels for labels, _ in tops],
        rest=[rest for _, rest in tops],
        pages=pages,
        pages_shown=shown,
        ways=ways,
        closings=closings,
        cells=cells,
        longest=longest,
        longest_shown=longest_shown,
        users=users,
        gaps=gaps,
        cohorts=counts.cohorts(time),
        reasons=reasons,
        rejected=rejected,
    )


@attrs.frozen
class _Time:
    """The units of time: how long one is, when the first begins, and how many there are."""

    unit: int
    first: int
    units: int

    def of(self, instant: str) -> str:
        return f"CAST((epoch_ms({instant}) - {self.first}) // {self.unit} AS INT)"

    def week(self, units: str) -> str:
        """Return the week of a unit, from 0: weeks begin on Mondays."""
        monday = (self.first // DAY + 3) % 7  # days since then; the epoch was a Thursday
        return f"({units} // {DAY // self.unit} + {monday}) // 7"


# -- the sessions ---------------------------------------------------------------------------------


def _last_rows(columns: Columns, kinds: Mapping[str, Kind]) -> str:
    """Return the query of all sessions, the last row of each, in columns of known names."""
    end = "last_event_time" if "last_event_time" in kinds else "session_end"
    keys = ", ".join(
        f"len({text}), ':', {text}"
        for text in (f"CAST({quoted(key)} AS VARCHAR)" for key in columns.keys)
    )
    chosen = {
        "id": "CAST(session_id AS VARCHAR)",
        "began": "CAST(session_start AS TIMESTAMPTZ)",
        "ended": f"CAST({end} AS TIMESTAMPTZ)",
        # With their lengths: `a b`, `c` and `a`, `b c` are two users. No value has no length.
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
        given = getattr(columns, role)
        chosen[role] = _or_null(given, "VARCHAR") if given else f"{chosen['path']}[{place}]"
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
    return f"SELECT {listed} FROM {_latest(kinds)}"


def _or_null(column: str | None, kind: str) -> str:
    return f"CAST({quoted(column) if column else 'NULL'} AS {kind})"


def _latest(kinds: Mapping[str, Kind]) -> str:
    """Return what has one row of each session, where there are several revisions too."""
    only = " WHERE kind = 'session'" if "kind" in kinds else ""
    if "revision" not in kinds:
        return f"(SELECT * FROM {ROWS}{only}) AS chosen"
    return f"""(
        SELECT * FROM (
            SELECT *, row_number() OVER latest AS place FROM {ROWS}{only}
            WINDOW latest AS (PARTITION BY session_id ORDER BY revision DESC)
        ) AS numbered
        WHERE place = 1 AND session_id NOT IN (
            SELECT gone FROM (SELECT unnest(supersedes) AS gone FROM {ROWS}{only}) AS merged
            WHERE gone IS NOT NULL
        )
    ) AS chosen"""


def _all_pages(columns: Columns) -> str:
    parts = [
        f"SELECT entry FROM {LAST_ROWS}",
        f"SELECT exit FROM {LAST_ROWS}",
        f"SELECT unnest(path[1:{STEPS}]) FROM {LAST_ROWS}",
    ]
    return " UNION ALL ".join(parts if columns.path else parts[:2])


def _most_values(time: _Time, dimensions: Sequence[str]) -> int:
    """Return how many values of a dimension there may be, so that there aren't too many cells."""
    fits = (n for n in VALUES if time.units * (n + 2) ** len(dimensions) <= MOST_CELLS)
    return next(fits, VALUES[-1])


def _top(engine: Engine, name: str, query: str, most: int) -> tuple[list[str], int]:
    """Keep the most frequent values of a query by their places; and return them."""
    counted = f"SELECT value, count(*) AS n FROM ({query}) AS one(value) GROUP BY value"
    engine.keep(f"{name}_all", f"SELECT * FROM ({counted}) AS counted WHERE value IS NOT NULL")
    engine.keep(
        name,
        f"SELECT value, CAST(row_number() OVER (ORDER BY n DESC, value) - 1 AS INT) AS place "
        f"FROM {name}_all ORDER BY place LIMIT {most}",
    )
    labels = engine.columns(f"SELECT value FROM {name} ORDER BY place")["value"]
    (row,) = engine.ask(f"SELECT count(*) AS n FROM {name}_all")
    return labels, row["n"] - len(labels)


def _place(top: str, value: str) -> str:
    """Return the place of a value among the most frequent ones, in SQL."""
    found = f"(SELECT max(place) FROM {top} WHERE value = {value})"
    return f"CASE WHEN {value} IS NULL THEN {NONE} ELSE coalesce({found}, {OTHER}) END"


def _sessions(columns: Columns, time: _Time, dimensions: int) -> str:
    """Return the query of sessions as numbers, which are counted again and again."""
    first = "began = min(began) OVER (PARTITION BY who)"
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
        "closed_by": _place("top_closings", "closed_by"),
    }
    chosen |= {f"d{n}": _place(f"top_{n}", f"d{n}") for n in range(dimensions)}
    chosen |= {role: _place("top_pages", role) for role in ("entry", "exit")}
    for n in range(1, STEPS + 1):
        page = _place("top_pages", f"path[{n}]")
        chosen[f"p{n}"] = f"CASE WHEN coalesce(len(path), 0) >= {n} THEN {page} ELSE {END} END"
    chosen["p_more"] = f"CASE WHEN coalesce(len(path), 0) > {STEPS} THEN {MORE} ELSE {END} END"
    reached = "TRUE"
    for n in range(len(columns.funnel)):
        reached += f" AND step_{n}"
        chosen[f"reached_{n}"] = reached
    listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
    return f"SELECT {listed} FROM {LAST_ROWS}"


# -- the counts -----------------------------------------------------------------------------------


@attrs.frozen
class _Counts:
    """What is counted of the sessions, by the columns of the dimensions."""

    engine: Engine
    dimensions: tuple[str, ...]

    @property
    def by(self) -> str:
        """Return the columns of a cell."""
        return ", ".join(("t", *self.dimensions))

    def cells(self, steps: int) -> Counted:
        sums = [
            f"count(*) FILTER (WHERE {name}) AS {name}"
            for name in ("is_new", "engaged", "bounced", "converted")
        ]
        for name in ("length", "engaged_time", "events"):
            sums += [f"CAST(sum({name}) AS BIGINT) AS {name}", f"count({name}) AS {name}_known"]
        sums += [f"count(*) FILTER (WHERE reached_{n}) AS reached_{n}" for n in range(steps)]
        sums += ["max(length) AS longest", "max(events) AS most_events"]
        found = self.engine.columns(
            f"SELECT {self.by}, count(*) AS sessions, {', '.join(sums)} "
            f"FROM {SESSIONS} GROUP BY {self.by} ORDER BY {self.by}"
        )
        cell = ("t", *self.dimensions)
        return {name: values for name, values in found.items() if name in cell or any(values)}

    def histogram(self, value: str, where: str = "TRUE") -> list[list[int]]:
        """Return the values of each cell, each with its count behind it."""
        found: dict[tuple[int, ...], list[int]] = {
            tuple(row.values()): []
            for row in self.engine.ask(
                f"SELECT {self.by} FROM {SESSIONS} GROUP BY {self.by} ORDER BY {self.by}"
            )
        }
        counted = self.engine.ask(
            f"SELECT {self.by}, {value} AS v, count(*) AS n FROM {SESSIONS} "
            f"WHERE {where} GROUP BY {self.by}, v ORDER BY {self.by}, v"
        )
        for row in counted:
            *cell, value_of, count = row.values()
            found[tuple(cell)] += (value_of, count)
        return list(found.values())

    def distribution(self, of: str) -> tuple[int | None, list[list[int]]]:
        """Return to how many digits there is room for a distribution, and the distribution."""
        known = f"CAST({of} AS BIGINT)"
        ways = {digits: _rounded(known, digits) for digits in DIGITS}
        digits = self._fitting({digits: (value,) for digits, value in ways.items()})
        return digits, self.histogram(ways[digits], f"{of} IS NOT NULL")

    def pages(self, role: str) -> tuple[int, list[list[int]]]:
        ways = {n: (_upto(n, role),) for n in PAGES}
        most = self._fitting(ways)
        return most, self.histogram(*ways[most], f"{role} <> {NONE}")

    def ways(self) -> tuple[int, list[tuple[int, ...]], list[list[int]]]:
        """Return how many pages are told apart, the first pages of paths, and their counts."""
        steps = [f"p{n}" for n in range(1, STEPS + 1)]
        places = {n: tuple(_upto(n, step) for step in steps) for n in PAGES}
        most = self._fitting(places)
        way = f"[{', '.join((*places[most], 'p_more'))}]"
        self.engine.keep(
            "sessionkit_ways",
            "SELECT way, CAST(row_number() OVER (ORDER BY way) - 1 AS INT) AS place FROM "
            f"(SELECT DISTINCT {way} AS way FROM {SESSIONS} WHERE p1 <> {END}) AS one",
        )
        rows = self.engine.ask("SELECT way FROM sessionkit_ways ORDER BY place")
        ways = [tuple(page for page in row["way"] if page != END) for row in rows]
        place = f"(SELECT max(place) FROM sessionkit_ways WHERE way = {way})"
        return most, ways, self.histogram(place, f"p1 <> {END}")

    def _fitting(self, ways: Mapping[Any, tuple[str, ...]]) -> Any:
        """Return the first way to tell values apart of which there are few enough in all cells."""
        for name, values in ways.items():
            distinct = f"SELECT DISTINCT {self.by}, {', '.join(values)} FROM {SESSIONS}"
            (row,) = self.engine.ask(f"SELECT count(*) AS n FROM ({distinct}) AS one")
            if row["n"] <= MOST_COUNTS:
                return name
        return next(reversed(ways))

    def longest(self) -> tuple[int, Counted]:
        ranked = (
            f"SELECT {self.by}, id, began, length, events, row_number() OVER "
            f"(PARTITION BY {self.by} ORDER BY length DESC, began, id) AS place FROM {SESSIONS}"
        )
        self.engine.keep(
            "sessionkit_longest",
            f"SELECT * FROM ({ranked}) AS ranked WHERE place <= {LONGEST[0]}",
        )
        for most in LONGEST:
            found = self.engine.columns(
                f"SELECT {self.by}, id, began, length, events FROM sessionkit_longest "
                f"WHERE place <= {most} ORDER BY length DESC, began, id"
            )
            if len(found["id"]) <= MOST_LONGEST:
                break
        return most, found

    def choices(self) -> Iterator[tuple[str, ...]]:
        """Yield the sets of dimensions of which a reader may choose values."""
        for count in range(len(self.dimensions) + 1):
            yield from combinations(self.dimensions, count)

    def users(self) -> tuple[dict[str, int | None], Counted]:
        """
        Return users by unit and the units since they were there before.

        Those of any days are then the ones whose last time before is before these days: three
        users on Monday, two of whom come back on Tuesday, are (t=0, gap=0, 3), (t=1, gap=1, 2).
        Gaps beyond a number are not told apart, if there are too many counts: days up to that
        number can still be chosen.
        """
        gaps: dict[str, int | None] = {}
        found: list[dict[str, Any]] = []
        for chosen in self.choices():
            who = ", ".join((*chosen, "who"))
            by = ", ".join((*chosen, "t"))
            self.engine.keep(
                "sessionkit_gaps",
                f"SELECT {by}, coalesce(t - lag(t) OVER (PARTITION BY {who} ORDER BY t), 0) AS gap,"
                f" FROM (SELECT DISTINCT {who}, t FROM {SESSIONS}) AS one",
            )
            most = self._most_gap(by)
            gap = "gap" if most is None else f"least(gap, {most + 1})"
            gaps["".join(chosen)] = most
            found += self.engine.ask(
                f"SELECT {self._chosen(chosen)} t, {gap} AS g, count(*) AS n "
                f"FROM sessionkit_gaps GROUP BY {by}, g ORDER BY {by}, g"
            )
        return gaps, _nested(found, (*self.dimensions, "t"))

    def _most_gap(self, by: str) -> int | None:
        total = 0
        rows = self.engine.ask(
            f"SELECT gap, count(*) AS n FROM (SELECT DISTINCT {by}, gap FROM sessionkit_gaps) "
            "AS one GROUP BY gap ORDER BY gap"
        )
        for row in rows:
            total += row["n"]
            if total > MOST_COUNTS:
                return int(row["gap"]) - 1
        return None

    def cohorts(self, time: _Time) -> Counted:
        found: list[dict[str, Any]] = []
        for chosen in self.choices():
            who = ", ".join((*chosen, "who"))
            by = ", ".join((*chosen, "first"))
            found += self.engine.ask(
                f"SELECT {self._chosen(chosen)} first, week - first AS g, count(*) AS n FROM ("
                f"SELECT *, min(week) OVER (PARTITION BY {who}) AS first FROM "
                f"(SELECT DISTINCT {who}, {time.week('t')} AS week FROM {SESSIONS}) AS one"
                f") AS two WHERE week - first <= {WEEKS} GROUP BY {by}, g ORDER BY {by}, g"
            )
        return _nested(found, (*self.dimensions, "first"))

    def _chosen(self, chosen: Sequence[str]) -> str:
        """Return the dimensions, in SQL: NULL for those of which all values count."""
        return "".join(
            f"{name if name in chosen else f'NULL AS {name}'}, " for name in self.dimensions
        )


def _upto(most: int, place: str) -> str:
    return f"CASE WHEN {place} >= {most} THEN {OTHER} ELSE {place} END"


def _rounded(value: str, digits: int | None) -> str:
    """Return a number down to its first digits, in SQL: 1,234 to two digits is 1,200."""
    if digits is None:
        return value
    power = f"pow(10, floor(log10(greatest({value}, 1))) - {digits - 1})"
    step = f"CAST(greatest({power}, 1) AS BIGINT)"
    return f"{value} // {step} * {step}"


def _nested(rows: Iterable[Mapping[str, Any]], by: Sequence[str]) -> Counted:
    """Return rows by columns; a group is one, with its `g` and `n` in turn in a list."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).extend((row["g"], row["n"]))
    return {
        **{name: [group[n] for group in found] for n, name in enumerate(by)},
        "counts": list(found.values()),
    }


def _rejected(engine: Engine, kinds: Mapping[str, Kind], time: _Time) -> tuple[list[str], Counted]:
    """Return the reasons of rows that are no sessions, and counts; those without a day too."""
    if "kind" not in kinds:
        return [], {}
    at = "coalesce(event_time, session_start)" if "event_time" in kinds else "session_start"
    # Text: where no row has a reason, the column may have any type.
    reason = "coalesce(CAST(reason AS VARCHAR), kind)" if "reason" in kinds else "kind"
    rows = f"FROM {ROWS} WHERE kind NOT IN ('session', 'event')"
    labels, _ = _top(engine, "top_reasons", f"SELECT {reason} {rows}", MOST_REASONS)
    unit = time.of(f"CAST({at} AS TIMESTAMPTZ)")
    return labels, engine.columns(
        f"SELECT CASE WHEN {unit} BETWEEN 0 AND {time.units - 1} THEN {unit} END AS t, kind, "
        f"{_place('top_reasons', reason)} AS reason, count(*) AS counted {rows} "
        "GROUP BY ALL ORDER BY ALL"
    )
