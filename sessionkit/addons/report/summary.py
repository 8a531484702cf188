"""
Count what a report shows, small enough for a page, whatever the number of rows.

A reader filters the page by days and by values of dimensions. So sessions are counted by *cell*: a
unit of time (a day, or an hour if there are few days) and a value of each dimension. Sums over
cells answer any filter. Counts that don't add up are made for each set of dimensions: users by the
time since their last visit, and returning users. Counts that would make the page large get coarser,
and the summary says how.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import attrs

from sessionkit import SchemaError
from sessionkit.addons.report.columns import Columns, Kind, has_kinds
from sessionkit.addons.report.engine import ROWS, Engine
from sessionkit.addons.report.sessions import (
    DAY,
    END,
    HOUR,
    LAST_ROWS,
    NONE,
    OTHER,
    SESSIONS,
    STEPS,
    Units,
    all_pages,
    last_rows,
    place_of,
    sessions_of,
    top_of,
)

Counted: TypeAlias = dict[str, list[Any]]
"""Columns of counts, by name."""

DAYS_OF_HOURS: Final = 4
"""The most days for which sessions are counted by the hour."""
MOST_CELLS: Final = 60_000
MOST_COUNTS: Final = 100_000
"""The most counts of one kind in a page: about 0.6 MB."""
MOST_LONGEST: Final = 5_000
MOST_REASONS: Final = 20
WEEKS: Final = 12
VALUES: Final = (20, 12, 8, 5, 3)
PAGES: Final = (2_000, 500, 100, 50, 20, 10, 5)
"""The numbers of named values of a dimension, and of named pages, tried in this order."""
LONGEST: Final = (10, 5, 3, 1)
DIGITS: Final = (None, 3, 2, 1)
"""The significant digits of a distribution, tried in this order; None for all."""


def summarized(engine: Engine, columns: Columns) -> dict[str, Any]:
    """
    Return the data of a page. Times are milliseconds since 1970 in UTC, lengths milliseconds.

    Raises:
        SchemaError: The rows lack a column, or have no session.
    """
    kinds = engine.kinds()
    columns = columns.found_in(kinds)
    engine.view(LAST_ROWS, last_rows(columns, kinds))
    (span,) = engine.ask(
        f"SELECT epoch_ms(min(began)) // {DAY} AS first, epoch_ms(max(began)) // {DAY} AS last "
        f"FROM {LAST_ROWS}"
    )
    if span["first"] is None:
        text = "there is no session in the rows"
        raise SchemaError(text, "wait until the query has written some")
    days = span["last"] - span["first"] + 1
    unit = HOUR if days <= DAYS_OF_HOURS else DAY
    time = Units(unit, span["first"] * DAY, days * DAY // unit)
    dimensions = [name for name in (columns.dimension, columns.second_dimension) if name]
    tops = [
        top_of(engine, f"top_{n}", f"SELECT d{n} FROM {LAST_ROWS}", _most_values(time, dimensions))
        for n in range(len(dimensions))
    ]
    pages, _ = top_of(engine, "top_pages", all_pages(columns), PAGES[0])
    closings, _ = top_of(engine, "top_closings", f"SELECT closed_by FROM {LAST_ROWS}", MOST_REASONS)
    engine.keep(SESSIONS, sessions_of(columns, time, len(dimensions)))
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
    reasons, rejected = _rejected(engine, columns, kinds, time)
    return {
        "columns": attrs.asdict(columns),
        # The length of a unit of time, the start of the first unit, and the number of units.
        "unit": unit,
        "first": time.first,
        "units": time.units,
        "ends_with": "last_event_time" if "last_event_time" in kinds else "session_end",
        # The exact digits of lengths; None for all.
        "digits": digits,
        # The most frequent values of each dimension, and the number of others.
        "values": [labels for labels, _ in tops],
        "rest": [rest for _, rest in tops],
        # The named pages, and how many of them are told apart as entry, as exit and in a path.
        "pages": pages,
        "pages_shown": shown,
        # The first pages of paths, as places in `pages`.
        "ways": ways,
        "closings": closings,
        # Counts that add up, by unit of time and value of each dimension.
        "cells": cells,
        # The longest sessions of each cell, and their number per cell.
        "longest": longest,
        "longest_shown": longest_shown,
        # Users by unit and by the units since their last visit, 0 for none; and for each set of
        # dimensions, the most units that are told apart, None for all.
        "users": users,
        "gaps": gaps,
        # Users by the week of their first session, and the weeks since.
        "cohorts": counts.cohorts(time),
        # Rows that aren't sessions, by unit, kind and reason.
        "reasons": reasons,
        "rejected": rejected,
    }


def _most_values(time: Units, dimensions: Sequence[str]) -> int:
    """Return the number of named values of a dimension that keeps the number of cells small."""
    fits = (n for n in VALUES if time.units * (n + 2) ** len(dimensions) <= MOST_CELLS)
    return next(fits, VALUES[-1])


@attrs.frozen
class _Counts:
    """Counts of sessions by the columns of the dimensions."""

    engine: Engine
    dimensions: tuple[str, ...]

    @property
    def by(self) -> str:
        """The columns of a cell, in SQL."""
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
        """Return a list for each cell: each value followed by its count."""
        counted = (
            f"SELECT {self.by}, CASE WHEN {where} THEN {value} END AS v, count(*) AS n "
            f"FROM {SESSIONS} GROUP BY ALL"
        )
        pairs = "flatten(list([v, n] ORDER BY v) FILTER (v IS NOT NULL))"
        return self.engine.columns(
            f"SELECT {self.by}, coalesce({pairs}, []) AS counts FROM ({counted}) AS one "
            f"GROUP BY {self.by} ORDER BY {self.by}"
        )["counts"]

    def distribution(self, of: str) -> tuple[int | None, list[list[int]]]:
        """Return a distribution, rounded to the most digits that fit, and these digits."""
        known = f"CAST({of} AS BIGINT)"
        ways = {digits: _rounded(known, digits) for digits in DIGITS}
        digits = self._fitting({digits: (value,) for digits, value in ways.items()})
        return digits, self.histogram(ways[digits], f"{of} IS NOT NULL")

    def pages(self, role: str) -> tuple[int, list[list[int]]]:
        ways = {n: (_upto(n, role),) for n in PAGES}
        most = self._fitting(ways)
        return most, self.histogram(*ways[most], f"{role} <> {NONE}")

    def ways(self) -> tuple[int, list[tuple[int, ...]], list[list[int]]]:
        """Return the number of distinct pages, the first pages of paths, and their counts."""
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
        """Return the first way of grouping that gives few enough counts."""
        for name, values in ways.items():
            distinct = f"SELECT DISTINCT {self.by}, {', '.join(values)} FROM {SESSIONS}"
            (row,) = self.engine.ask(f"SELECT count(*) AS n FROM ({distinct}) AS one")
            if row["n"] <= MOST_COUNTS:
                return name
        return next(reversed(ways))

    def longest(self) -> tuple[int, Counted]:
        self.engine.keep(
            "sessionkit_longest",
            f"SELECT {self.by}, id, began, length, events, row_number() OVER "
            f"(PARTITION BY {self.by} ORDER BY length DESC, began, id) AS place FROM {SESSIONS} "
            f"QUALIFY place <= {LONGEST[0]}",
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
        """Yield the sets of dimensions by which a reader may filter."""
        for count in range(len(self.dimensions) + 1):
            yield from combinations(self.dimensions, count)

    def users(self) -> tuple[dict[str, int | None], Counted]:
        """
        Return the numbers of users by unit and by the units since their last visit.

        The users of a range of days are those whose visit before is earlier than the range: three
        users on Monday, two of whom return on Tuesday, are (t=0, gap=0, 3), (t=1, gap=1, 2). If
        there are too many counts, gaps beyond a number are merged: a reader can filter by up to
        that number of days.
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
            (row,) = self.engine.ask(
                "SELECT min(gap) - 1 AS most FROM (SELECT gap, sum(count(*)) OVER (ORDER BY gap) "
                f"AS total FROM (SELECT DISTINCT {by}, gap FROM sessionkit_gaps) AS one "
                f"GROUP BY gap) AS two WHERE total > {MOST_COUNTS}"
            )
            most = gaps["".join(chosen)] = row["most"]
            gap = "gap" if most is None else f"least(gap, {most + 1})"
            found += self._grouped(f"SELECT {by}, {gap} AS g FROM sessionkit_gaps", chosen, "t")
        return gaps, _columns(found, (*self.dimensions, "t"))

    def cohorts(self, time: Units) -> Counted:
        found: list[dict[str, Any]] = []
        for chosen in self.choices():
            who = ", ".join((*chosen, "who"))
            week = f"SELECT DISTINCT {who}, {time.week('t')} AS week FROM {SESSIONS}"
            found += self._grouped(
                f"SELECT *, week - first AS g FROM (SELECT *, min(week) OVER (PARTITION BY {who}) "
                f"AS first FROM ({week}) AS one) AS two WHERE g <= {WEEKS}",
                chosen,
                "first",
            )
        return _columns(found, (*self.dimensions, "first"))

    def _grouped(self, rows: str, chosen: Sequence[str], unit: str) -> list[dict[str, Any]]:
        """
        Return the groups of rows by the chosen dimensions and a unit of time.

        `counts` has each value of `g` followed by its count.
        """
        by = ", ".join((*chosen, unit))
        return self.engine.ask(
            f"SELECT {by}, flatten(list([g, n] ORDER BY g)) AS counts FROM "
            f"(SELECT {by}, g, count(*) AS n FROM ({rows}) AS one GROUP BY ALL) AS two "
            f"GROUP BY {by} ORDER BY {by}"
        )


def _upto(most: int, place: str) -> str:
    return f"CASE WHEN {place} >= {most} THEN {OTHER} ELSE {place} END"


def _rounded(value: str, digits: int | None) -> str:
    """Return SQL that rounds a number down to its first digits: 1,234 to two digits is 1,200."""
    if digits is None:
        return value
    power = f"pow(10, floor(log10(greatest({value}, 1))) - {digits - 1})"
    step = f"CAST(greatest({power}, 1) AS BIGINT)"
    return f"{value} // {step} * {step}"


def _columns(groups: Iterable[Mapping[str, Any]], by: Sequence[str]) -> Counted:
    return {name: [group.get(name) for group in groups] for name in (*by, "counts")}


def _rejected(
    engine: Engine, columns: Columns, kinds: Mapping[str, Kind], time: Units
) -> tuple[list[str], Counted]:
    """Return the reasons of rows that aren't sessions, and counts, also of rows without a day."""
    if not has_kinds(kinds, columns.keys):
        return [], {}
    at = "coalesce(event_time, session_start)" if "event_time" in kinds else "session_start"
    # If no row has a reason, the column may have any type.
    reason = "coalesce(CAST(reason AS VARCHAR), kind)" if "reason" in kinds else "kind"
    only = "WHERE kind NOT IN ('session', 'event')"
    query = f"SELECT {reason} FROM {ROWS} {only}"
    labels, _ = top_of(engine, "top_reasons", query, MOST_REASONS)
    place, join = place_of("top_reasons", reason, "top")
    unit = time.of(f"CAST({at} AS TIMESTAMPTZ)")
    return labels, engine.columns(
        f"SELECT CASE WHEN {unit} BETWEEN 0 AND {time.units - 1} THEN {unit} END AS t, kind, "
        f"{place} AS reason, count(*) AS counted FROM {ROWS} {join} {only} "
        "GROUP BY ALL ORDER BY ALL"
    )
