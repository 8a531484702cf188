"""Counts of sessions and users by cell, few enough for a page."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import attrs

from sessionkit.addons.report.columns import Columns
from sessionkit.addons.report.engine import Engine
from sessionkit.addons.report.sessions import (
    END,
    FIRSTS,
    NEW,
    NONE,
    OTHER,
    SESSIONS,
    STEPS,
    Days,
    goals_of,
    steps_of,
)

Counted: TypeAlias = dict[str, list[Any]]
"""Columns of counts, by name."""
CELLS: Final = "sessionkit_cells"
CELL_VIEWS: Final = "sessionkit_cell_views"
VISITS: Final = "sessionkit_visits"
STEP: Final = "far"
"""The filter by the steps of the funnel: the number of steps reached."""
MOST_COUNTS: Final = 100_000
"""The most counts of one kind in a page: about 0.6 MB."""
PART: Final = 4
"""One row in this number is read first, to see whether there are too many counts."""
MOST_USERS: Final = 400_000
"""The most counts of users, of all sets of filters."""
MOST_ROWS: Final = 4_000_000
"""The most rows that are read to count users by sets of filters."""
MOST_HOURS: Final = 30_000
"""The most cells of a day and an hour of which all sums are in a page."""
MOST_BUSY: Final = 150_000
"""The most of which sessions and users are, of all sets of filters."""
MOST_CHOSEN: Final = 3
"""The most filters by which users are counted together."""
MOST_LONGEST: Final = 5_000
WEEKS: Final = 12
BLOCK: Final = 28
"""The days of a block."""
PAGES: Final = (2_000, 500, 100, 50, 20, 10, 5)
"""The numbers of named pages, tried in this order."""
PATH_BASE: Final = PAGES[0] - END
LONGEST: Final = (1_000, 100, 30, 10, 3, 1)
"""The numbers of listed sessions of each block of days and dimensions."""
DIGITS: Final = (None, 3, 2, 1)
"""The significant digits of a distribution, tried in this order; None for all."""
_List: TypeAlias = tuple["SessionCounts", int | None, list[list[int]]]
"""By which filters a list is counted, how exactly, and the counts of each cell."""


@attrs.frozen
class SessionCounts:
    """Counts of sessions by the values of filters: all of them, or dimensions alone."""

    engine: Engine
    columns: Columns
    filters: tuple[str, ...]
    coarser: "SessionCounts | None"

    @classmethod
    def of(cls, engine: Engine, columns: Columns, filters: Mapping[str, int]) -> "SessionCounts":
        of_rows = tuple(f"d{n}" for n in range(len(columns.dimensions)))
        coarser = cls(engine, columns, of_rows, None) if len(filters) > len(of_rows) else None
        return cls(engine, columns, tuple(filters), coarser)

    def all(self, time: Days) -> dict[str, Any]:
        """Return all counts of sessions and users."""
        of, _ = self.fitting({None: ("closed_by",)})
        of_paths, pages, paths, counts = self.paths()
        lists: dict[str, _List] = {
            "lengths": self.distribution("length"),
            "closings": (of, None, of.histogram("closed_by")),
            "entry": self.pages("entry"),
            "exit": self.pages("exit"),
            "paths": (of_paths, pages, counts),
        }
        if self.columns.events:
            lists["sizes"] = self.distribution("events")
        if self.columns.engaged_time:
            lists["engaged_times"] = self.distribution("engaged_time")
        if self.columns.views:
            lists["viewed"] = self.views()
        longest, unlisted = self.longest()
        cubes = {self.filters: {**self.cells(), "unlisted": unlisted}}
        for name, (of, _, listed) in lists.items():
            cubes.setdefault(of.filters, of.cube())[name] = listed
        return {
            # Counts that add up, by day and value of each filter: all figures are in the
            # first cube; of what would be too many counts there, the second has those by dimension.
            "cubes": [{"by": by, "cells": cells} for by, cells in cubes.items()],
            # How exact each list of counts is: digits of lengths, named pages; None for all.
            "shown": {name: shown for name, (_, shown, _) in lists.items()},
            # The first pages of paths, as places in `pages`.
            "paths": paths,
            # The longest sessions; a cell's `unlisted` is the longest that isn't among them.
            "longest": longest,
            # Figures by day and hour: sums as in the cubes, and sessions and users for sets of
            # filters.
            "hours": self.hours(),
            # Users by day, for sets of filters: see `of_users`.
            **self.of_users(time),
        }

    @property
    def by(self) -> str:
        """The columns of a cell, in SQL."""
        return ", ".join(("t", *self.filters))

    def cube(self) -> Counted:
        query = f"SELECT DISTINCT {self.by} FROM {CELLS} ORDER BY {self.by}"
        return self.engine.columns(query)

    def cells(self) -> Counted:
        most = ("max(length) AS longest", "max(events) AS most_events")
        return self._summed(("t", *self.filters), (*self.sums(), *most), CELLS)

    def sums(self) -> Iterator[str]:
        """Yield SQL for the figures that add up; of sessions that aren't known, their number."""
        yield "count(*) AS sessions"
        yield "count(is_new) AS is_new"
        for name in ("engaged", "bounced", "converted", *goals_of(self.columns)):
            yield f"count(*) FILTER (WHERE {name}) AS {name}"
            yield unknown(name)
        for name in ("length", "engaged_time", "events"):
            yield f"CAST(sum({name}) AS HUGEINT) AS {name}"
            yield f"count({name}) AS {name}_known"
        yield "round(sum(value), 6) AS value"
        yield unknown("value")
        # Revenue per user leaves it out.
        yield "round(sum(value) FILTER (WHERE who IS NULL), 6) AS value_of_nobody"
        yield "CAST(sum(views) AS HUGEINT) AS views"
        yield unknown("views")
        for n in range(len(steps_of(self.columns))):
            yield f"count(*) FILTER (WHERE {STEP} > {n}) AS reached_{n}"

    def _summed(self, cell: Sequence[str], sums: Sequence[str], rows: str) -> Counted:
        """Return sums for each cell; a sum that is nothing in all of them is left out."""
        by = ", ".join(cell)
        found = self.engine.columns(
            f"SELECT {by}, {', '.join(sums)} FROM {rows} "
            f"LEFT JOIN {NEW} ON place = is_new GROUP BY {by} ORDER BY {by}"
        )
        return {name: values for name, values in found.items() if name in cell or any(values)}

    def hours(self) -> dict[str, Any]:
        """Return figures by day and hour, by as many filters as there is room for."""
        tried = (self, self.coarser or self, attrs.evolve(self, filters=(), coarser=None))
        cells = ({"by": of.filters, "of": ("t", "hour", *of.filters)} for of in tried)
        fits = next((cell for cell in cells if self._cells(cell["of"], CELLS) <= MOST_HOURS), None)
        cubes = []
        if fits:
            cubes = [{"by": fits["by"], "cells": self._summed(fits["of"], [*self.sums()], CELLS)}]
        # Users don't add up.
        sets, room = [], MOST_BUSY
        for chosen, rows in self.choices():
            by = ", ".join((*chosen, "t"))
            size = self._cells((*chosen, "t", "hour"), rows)
            if size <= room:
                room -= size
                counts = (
                    f"SELECT {by}, hour, count(*) AS n, count(DISTINCT who) AS people "
                    f"FROM {rows} GROUP BY ALL"
                )
                sets.append(self._listed(counts, chosen, "t", "hour, n, people"))
        return {"cubes": cubes, "sets": sets}

    def _cells(self, cell: Sequence[str], rows: str) -> int:
        """Return the number of cells that have sessions."""
        distinct = f"SELECT DISTINCT {', '.join(cell)} FROM {rows}"
        (row,) = self.engine.ask(f"SELECT count(*) AS n FROM ({distinct}) AS one")
        return int(row["n"])

    def with_all_cells(self, rows: str, none: str) -> str:
        """Return rows, and an empty row for each cell."""
        return f"({rows} UNION ALL SELECT DISTINCT {self.by}, {none} FROM {CELLS}) AS every"

    def histogram(
        self, value: str, *more: str, where: str = "TRUE", source: str = CELLS
    ) -> list[list[int]]:
        """Return a list for each cell: each value, followed by its count or counts."""
        counts = [f"n{n}" for n in range(len(more) or 1)]
        summed = (f"{sql} AS {n}" for sql, n in zip(more or ["count(*)"], counts, strict=True))
        counted = (
            f"SELECT {self.by}, CASE WHEN {where} THEN {value} END AS v, {', '.join(summed)} "
            f"FROM {source} GROUP BY ALL"
        )
        listed = f"flatten(list([v, {', '.join(counts)}] ORDER BY v) FILTER (v IS NOT NULL))"
        return self.engine.columns(
            f"SELECT {self.by}, coalesce({listed}, []) AS counts FROM ({counted}) AS one "
            f"GROUP BY {self.by} ORDER BY {self.by}"
        )["counts"]

    def fitting(
        self, ways: Mapping[Any, tuple[str, ...]], source: str = CELLS
    ) -> tuple["SessionCounts", Any]:
        """Return the counts, and the way of grouping, that are exact enough and few enough."""

        def is_large(way: tuple[SessionCounts, Any]) -> bool:
            of, name = way
            distinct = f"SELECT DISTINCT {of.by}, {', '.join(ways[name])} FROM {source}"
            # A part of the rows often has too many, which takes less time to see.
            for part in (f"place % {PART} = 0", "TRUE"):
                query = f"SELECT count(*) AS n FROM ({distinct} WHERE {part}) AS one"
                if self.engine.ask(query)[0]["n"] > MOST_COUNTS:
                    return True
            return False

        exact, *rest = ways
        if not (rest or self.coarser) or not is_large((self, exact)):
            return self, exact
        tried = [(self.coarser or self, name) for name in ways]
        # Each way has fewer counts than the one before it.
        fits = bisect_left(tried, 0, key=lambda way: -is_large(way))
        return tried[min(fits, len(tried) - 1)]

    def distribution(self, value: str) -> _List:
        """Return a distribution, rounded to the most digits that fit, and these digits."""
        known = f"CAST({value} AS BIGINT)"
        ways = {digits: _rounded(known, digits) for digits in DIGITS}
        of, digits = self.fitting({digits: (way,) for digits, way in ways.items()})
        return of, digits, of.histogram(ways[digits], where=f"{value} IS NOT NULL")

    def pages(self, role: str) -> _List:
        """Return the sessions of each first or last page, and of how many is known which did."""
        ways = {n: (upto(n, role),) for n in PAGES}
        of, most = self.fitting(ways)
        counts = ("count(*)", "count(*) FILTER (WHERE converted)", "count(converted)")
        return of, most, of.histogram(*ways[most], *counts, where=f"{role} <> {NONE}")

    def views(self) -> _List:
        """Return the views of each page, and the sessions that have them."""
        ways = {n: (upto(n, "page"),) for n in PAGES}
        of, most = self.fitting(ways, CELL_VIEWS)
        seen = f"SELECT {of.by}, page, n, seen_in FROM {CELL_VIEWS}"
        every = of.with_all_cells(seen, "NULL, 0, 0")
        sums = ("CAST(sum(n) AS BIGINT)", "CAST(sum(seen_in) AS BIGINT)")
        return of, most, of.histogram(*ways[most], *sums, where="page IS NOT NULL", source=every)

    def paths(self) -> tuple["SessionCounts", int, list[tuple[int, ...]], list[list[int]]]:
        """Return the number of distinct pages, the first pages of paths, and their counts."""
        steps = [f"p{n}" for n in range(1, STEPS + 1)]
        places = {n: tuple(upto(n, step) for step in steps) for n in PAGES}
        of, most = self.fitting(places)
        # A path is one number, whose digits are its pages.
        code = "0::BIGINT"
        for page in (*places[most], "p_more"):
            code = f"({code}) * {PATH_BASE} + ({page}) - ({END})"
        counts = of.histogram(code, where=f"p1 <> {END}")
        codes = sorted({code for listed in counts for code in listed[::2]})
        place = {code: n for n, code in enumerate(codes)}
        for listed in counts:
            listed[::2] = [place[code] for code in listed[::2]]
        return of, most, [_path(code) for code in codes], counts

    def longest(self) -> tuple[Counted, list[int | None]]:
        """
        Return the longest sessions, and for each cell a length that its unlisted ones don't exceed.

        No session of a choice is longer than those listed that are at least as long as this, for
        all its cells. A number of sessions is listed of each block of days and dimensions.
        """
        dimensions = (self.coarser or self).filters
        block = ", ".join((f"t // {BLOCK} AS block", *dimensions))
        sizes = f"(SELECT {block}, count(length) AS n FROM {CELLS} GROUP BY ALL) AS one"
        totals = ", ".join(f"sum(least(n, {most}))" for most in LONGEST)
        (found,) = self.engine.connection.sql(f"SELECT {totals} FROM {sizes}").fetchall()
        fits = [most for most, total in zip(LONGEST, found, strict=True) if total <= MOST_LONGEST]
        most = fits[0] if fits else LONGEST[-1]
        # All sessions of a small block are listed.
        known = f"CASE WHEN count(length) > {most} THEN list_min(max(length, {most})) ELSE -1 END"
        least = f"SELECT {block}, {known} AS least FROM {CELLS} GROUP BY ALL"
        using = ", ".join(("block", *dimensions))
        cells = f"(SELECT *, t // {BLOCK} AS block FROM {CELLS}) AS cells"
        self.engine.keep("sessionkit_least", least)
        joined = f"FROM {cells} JOIN sessionkit_least USING ({using})"
        order = "ORDER BY length DESC, clock, id"
        listed = self.engine.columns(
            f"SELECT {self.by}, id, clock, length, events {joined} WHERE length >= least "
            f"QUALIFY row_number() OVER (PARTITION BY {using} {order}) <= {most} {order}"
        )
        unlisted = self.engine.columns(
            f"SELECT {self.by}, max(length) FILTER (length <= least) AS length {joined} "
            f"GROUP BY {self.by} ORDER BY {self.by}"
        )
        return listed, unlisted["length"]

    def choices(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield sets of filters by which users are counted, and the rows: few sets of many rows."""
        (row,) = self.engine.ask(f"SELECT count(*) AS n FROM {SESSIONS}")
        dimensions = {*(self.coarser or self).filters}
        every = [
            chosen
            for size in range(min(len(self.filters), MOST_CHOSEN) + 1)
            for chosen in combinations(self.filters, size)
        ]
        every.sort(key=lambda chosen: not dimensions.issuperset(chosen))
        for chosen in every[: max(4, MOST_ROWS // row["n"])]:
            # Who got to a step is at all steps before it.
            steps = f"(SELECT * REPLACE (unnest(range(1, {STEP} + 1)) AS {STEP}) FROM {CELLS})"
            yield chosen, f"{steps} AS cells" if STEP in chosen else CELLS

    def of_users(self, time: Days) -> dict[str, list[dict[str, Any]]]:
        """
        Return the numbers of users by day, from which a page has those of any range of days.

        In `users`, a visit is a day on which a user has sessions, with the days since the visit
        before. A user counts in a range if that is before the range: three users on Monday, two
        of whom return on Tuesday, are (t=0, g=0, 3), (t=1, g=1, 2). The first visit under the
        filters has the days since the user's first session under none, with a minus.

        In `twice`, a user has two sessions in a range up to each visit, if it begins on a certain
        day or before. Where that day is another one than at the visit before, the user counts
        for the days since the new one, and not for those since the old one.

        In `cohorts`, users count by the week of their first session, and the weeks since.
        """
        choices = list(self.choices())
        most = MOST_USERS // len(choices)
        found: dict[str, list[dict[str, Any]]] = {"users": [], "twice": [], "cohorts": []}
        for chosen, rows in choices:
            who, by = ", ".join((*chosen, "who")), ", ".join((*chosen, "t"))
            self.engine.keep(
                VISITS,
                f"SELECT {who}, t, coalesce(t - lag(t) OVER visits, 0) AS g, "
                "first_value(t) OVER visits AS first, "
                "CASE WHEN n > 1 THEN t ELSE lag(t) OVER visits END AS two, "
                "CASE WHEN lag(n) OVER visits > 1 THEN lag(t) OVER visits "
                "ELSE lag(t, 2) OVER visits END AS two_before "
                f"FROM (SELECT {who}, t, count(*) AS n FROM {rows} WHERE who IS NOT NULL "
                f"GROUP BY ALL) AS one WINDOW visits AS (PARTITION BY {who} ORDER BY t)",
            )
            # From before the rows is more days ago than there are.
            ago = f"CASE WHEN born < 0 THEN {-time.days} ELSE born - t END"
            users = (
                f"SELECT {by}, g, count(*) AS n FROM {VISITS} WHERE g > 0 GROUP BY ALL UNION ALL "
                f"SELECT {by}, {ago} AS g, count(*) AS n FROM {VISITS} JOIN {FIRSTS} USING (who) "
                "WHERE g = 0 GROUP BY ALL"
            )
            moved = f"FROM {VISITS} WHERE two IS DISTINCT FROM two_before"
            twice = (
                f"SELECT {by}, t - two AS g, count(*) AS n {moved} GROUP BY ALL UNION ALL "
                f"SELECT {by}, t - two_before AS g, -count(*) AS n {moved} "
                "AND two_before IS NOT NULL GROUP BY ALL"
            )
            found["users"] += self._gaps(users, chosen, most, time)
            found["twice"] += self._gaps(twice, chosen, most, time)
            found["cohorts"] += self._cohorts(chosen, most, time)
        return found

    def _gaps(
        self, counts: str, chosen: Sequence[str], most: int, time: Days
    ) -> Iterator[dict[str, Any]]:
        """
        Yield the numbers of users by day and by the days since an earlier one.

        If there are too many counts, gaps beyond a number are merged: a reader can filter by up to
        that number of days.
        """
        by = ", ".join((*chosen, "t"))
        gaps = f"SELECT {by}, g, sum(n) AS n FROM ({counts}) AS one GROUP BY ALL HAVING sum(n) <> 0"
        self.engine.keep("sessionkit_gaps", gaps)
        (row,) = self.engine.ask(
            "SELECT min(g) - 1 AS longest FROM (SELECT abs(g) AS g, sum(count(*)) OVER (ORDER BY "
            f"abs(g)) AS total FROM sessionkit_gaps WHERE g > {-time.days} GROUP BY abs(g)) AS one "
            f"WHERE total > {most}"
        )
        longest = row["longest"]
        if longest is None or longest > 0:
            end = time.days if longest is None else longest + 1
            gap = f"CASE WHEN g = {-time.days} THEN g ELSE greatest(least(g, {end}), {-end}) END"
            merged = f"SELECT {by}, {gap} AS g, sum(n) AS n FROM sessionkit_gaps GROUP BY ALL"
            yield {"most": longest, **self._listed(merged, chosen, "t")}

    def _cohorts(self, chosen: Sequence[str], most: int, time: Days) -> Iterator[dict[str, Any]]:
        """Yield the numbers of users by the week of their first session, and the weeks since."""
        first, week = time.week("first"), time.week("t")
        # A user's first visit of a week, which follows one of an earlier week or none.
        weeks = f"(g = 0 OR {time.week('t - g')} < {week}) AND {week} - {first} <= {WEEKS}"
        self.engine.keep(
            "sessionkit_cohorts",
            f"SELECT {', '.join((*chosen, f'{first} AS first'))}, {week} - {first} AS g, "
            f"count(*) AS n FROM {VISITS} WHERE {weeks} GROUP BY ALL",
        )
        (row,) = self.engine.ask("SELECT count(*) AS n FROM sessionkit_cohorts")
        if row["n"] <= most:
            yield self._listed("FROM sessionkit_cohorts", chosen, "first")

    def _listed(
        self, counts: str, chosen: Sequence[str], unit: str, listed: str = "g, n"
    ) -> dict[str, Any]:
        """Return counts by the chosen filters and a unit: lists of the columns in turn."""
        by = ", ".join((*chosen, unit))
        found = self.engine.columns(
            f"SELECT {by}, flatten(list([{listed}] ORDER BY {listed})) AS counts "
            f"FROM ({counts}) AS one GROUP BY {by} ORDER BY {by}"
        )
        return {"by": chosen, **found}


def unknown(name: str) -> str:
    """Return SQL for the number of sessions of which a figure isn't known: few cells have any."""
    return f"count(*) - count({name}) AS {name}_unknown"


def _path(code: int) -> tuple[int, ...]:
    """Return the pages that are the digits of a number; MORE comes last."""
    pages: list[int] = []
    for _ in range(STEPS + 1):
        code, page = divmod(code, PATH_BASE)
        pages.append(page + END)
    return tuple(page for page in reversed(pages) if page != END)


def upto(most: int, place: str) -> str:
    """Return SQL for a place in which all places from `most` on are one."""
    return f"CASE WHEN {place} >= {most} THEN {OTHER} ELSE {place} END"


def _rounded(value: str, digits: int | None) -> str:
    """Return SQL that rounds a number down to its first digits: 1,234 to two digits is 1,200."""
    if digits is None:
        return value
    power = f"pow(10, floor(log10(greatest({value}, 1))) - {digits - 1})"
    step = f"CAST(greatest({power}, 1) AS BIGINT)"
    return f"{value} // {step} * {step}"
