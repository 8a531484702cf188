"""The small tables that a report shows: counts by time and dimension, whatever the rows' number."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from sessionkit.addons.report.columns import Columns, Kind
from sessionkit.addons.report.engine import ROWS, Engine
from sessionkit.errors import SchemaError, with_hint

Table: TypeAlias = list[dict[str, Any]]

SESSIONS: Final = "sessionkit_sessions"
"""The view of the sessions: the last row of each."""
DAY: Final = 86_400_000
UNITS: Final = (("hour", 4 * DAY), ("day", 120 * DAY), ("week", 800 * DAY))
"""What is counted by, up to which span of the data in milliseconds; beyond the last, months."""
MOST_VALUES: Final = 6
MOST_PAGES: Final = 8
SHOWN_SESSIONS: Final = 12
LENGTHS: Final = (0, 1, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
"""Where the bins of the length of a session begin, in seconds."""
COUNTS: Final = (0, 1, 2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1_000)
QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
OTHER: Final = "other"
NONE: Final = "(none)"


@attrs.frozen(kw_only=True)
class Summary:
    """
    What a report shows. Times are milliseconds since the epoch, in UTC; lengths are seconds.

    Attributes:
        columns: Which columns of the rows said what.
        unit: By what sessions are counted: `hour`, `day`, `week` or `month` of their start.
        totals: By time and dimension: sessions, users, new ones, engaged and bounced sessions.
        lengths: Sessions by bin of their length, by time and dimension.
        counts: Sessions by bin of their events.
        quantiles: Length and events at some quantiles.
        reasons: Sessions by why they closed.
        pages: Sessions by entry and by exit page.
        funnel: Sessions by the step of the funnel that they reached.
        kinds: Rows that aren't sessions, by kind and reason.
        longest: The longest sessions.
    """

    columns: Columns
    unit: str
    totals: Table
    lengths: Table
    counts: Table
    quantiles: Table
    reasons: Table
    pages: Table
    funnel: Table
    kinds: Table
    longest: Table


def summarized(engine: Engine, columns: Columns) -> Summary:
    """
    Aggregate result rows.

    Raises:
        SchemaError: The rows lack a column, or there is no session.
    """
    kinds = engine.kinds()
    columns = columns.found_in(kinds)
    asked = _Asked(engine, columns, kinds)
    engine.define(SESSIONS, asked.sessions())
    unit = asked.unit()
    return Summary(
        columns=columns,
        unit=unit,
        totals=asked.totals(unit),
        lengths=asked.binned(unit, "length", LENGTHS),
        counts=asked.binned(unit, "events", COUNTS) if columns.events else [],
        quantiles=asked.quantiles(),
        reasons=asked.by(unit, "closed_by") if "closed_by" in kinds else [],
        pages=asked.pages(unit),
        funnel=asked.funnel(unit),
        kinds=asked.kinds_of_rows(unit),
        longest=asked.longest(),
    )


@attrs.frozen
class _Asked:
    """The queries."""

    engine: Engine
    columns: Columns
    kinds: Mapping[str, Kind]

    def name(self, column: str) -> str:
        return '"' + column.replace('"', '""') + '"'

    def sessions(self) -> str:
        """Return the query of all sessions, the last row of each, in columns of known names."""
        columns = self.columns
        keys = ", ".join(f"CAST({self.name(key)} AS VARCHAR)" for key in columns.keys) or "'-'"
        chosen = {
            "id": self.name("session_id"),
            "began": self.name("session_start"),
            "ended": self.name("session_end"),
            "who": f"concat_ws(' ', {keys})",
            "length": "(epoch_us(session_end) - epoch_us(session_start)) / 1e6",
        }
        roles = ("events", "path", "engaged", "bounce", "number", "dimension")
        chosen |= {
            role: self.name(getattr(columns, role)) for role in roles if getattr(columns, role)
        }
        if columns.events and not columns.bounce:
            chosen["bounce"] = f"{chosen['events']} = 1"
        for role, place in (("entry", 1), ("exit", -1)):
            if getattr(columns, role):
                chosen[role] = self.name(getattr(columns, role))
            elif columns.path:
                chosen[role] = f"{chosen['path']}[{place}]"
        chosen |= {f"step_{n}": self.name(name) for n, name in enumerate(columns.funnel)}
        if "closed_by" in self.kinds:
            chosen["closed_by"] = self.name("closed_by")
        listed = ", ".join(f"{source} AS {name}" for name, source in chosen.items())
        return f"SELECT {listed} FROM {self._last_rows()}"

    def _last_rows(self) -> str:
        """Return what has one row of each session, where there are several revisions too."""
        only = " WHERE kind = 'session'" if "kind" in self.kinds else ""
        if "revision" not in self.kinds:
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

    def unit(self) -> str:
        (found,) = self.engine.ask(
            f"SELECT epoch_ms(min(began)) AS first, epoch_ms(max(began)) AS last FROM {SESSIONS}"
        )
        if found["first"] is None:
            text = "there is no session in the rows"
            raise SchemaError(with_hint(text, "wait until the query has written some"))
        span = found["last"] - found["first"]
        return next((unit for unit, most in UNITS if span <= most), "month")

    def _at(self, unit: str, time: str = "began") -> str:
        """Return the milliseconds of the start of the unit of a time, in UTC."""
        return f"epoch_ms(date_trunc('{unit}', {time}))"

    def _grouped(self) -> str:
        """Return the sessions, each with its value of the dimension; rare values are one."""
        if self.columns.dimension is None:
            return f"(SELECT *, 'all' AS value FROM {SESSIONS}) AS grouped"
        return f"""(
            SELECT sessions.*, CASE WHEN dimension IS NULL THEN '{NONE}'
                WHEN frequent IS NULL THEN '{OTHER}' ELSE dimension END AS value
            FROM {SESSIONS} AS sessions LEFT JOIN (
                SELECT dimension AS frequent FROM {SESSIONS} WHERE dimension IS NOT NULL
                GROUP BY dimension ORDER BY count(*) DESC, dimension LIMIT {MOST_VALUES}
            ) AS top ON dimension = frequent
        ) AS grouped"""

    def totals(self, unit: str) -> Table:
        columns = self.columns
        new = "CAST(number = 1 AS INT)" if columns.number else "CAST(began = first AS INT)"
        firsts = f"(SELECT who AS one, min(began) AS first FROM {SESSIONS} GROUP BY who) AS firsts"
        joined = "" if columns.number else f" JOIN {firsts} ON who = one"
        engaged = "CAST(engaged AS INT)" if columns.engaged else "NULL"
        bounced = "CAST(bounce AS INT)" if columns.bounce or columns.events else "NULL"
        return self.engine.ask(
            f"SELECT {self._at(unit)} AS at, value, count(*) AS sessions, "
            f"count(DISTINCT who) AS users, sum({new}) AS new, "
            f"sum({engaged}) AS engaged, sum({bounced}) AS bounced "
            f"FROM {self._grouped()}{joined} GROUP BY 1, 2 ORDER BY 1, 2"
        )

    def binned(self, unit: str, column: str, starts: Sequence[int]) -> Table:
        cases = " ".join(
            f"WHEN {column} >= {start} THEN {place}"
            for place, start in reversed(list(enumerate(starts)))
        )
        return self.by(unit, f"CASE {cases} ELSE 0 END", name="bin")

    def by(self, unit: str, expression: str, *, name: str = "what") -> Table:
        return self.engine.ask(
            f"SELECT {self._at(unit)} AS at, value, {expression} AS {name}, count(*) AS sessions "
            f"FROM {self._grouped()} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )

    def quantiles(self) -> Table:
        return [row for what in ("length", "events") for row in self._quantiles(what)]

    def _quantiles(self, what: str) -> Iterator[dict[str, Any]]:
        if what == "events" and self.columns.events is None:
            return
        listed = ", ".join(
            f"approx_quantile({what}, {q}) AS q{place}" for place, q in enumerate(QUANTILES)
        )
        for row in self.engine.ask(f"SELECT value, {listed} FROM {self._grouped()} GROUP BY 1"):
            for place, q in enumerate(QUANTILES):
                amount = float(row[f"q{place}"])
                yield {"value": row["value"], "of": what, "quantile": q, "amount": amount}

    def pages(self, unit: str) -> Table:
        return [
            {"role": role, **row}
            for role in ("entry", "exit")
            if getattr(self.columns, role) or self.columns.path
            for row in self.by(unit, self._frequent(role), name="page")
        ]

    def _frequent(self, role: str) -> str:
        top = (
            f"SELECT {role} FROM {SESSIONS} WHERE {role} IS NOT NULL "
            f"GROUP BY {role} ORDER BY count(*) DESC, {role} LIMIT {MOST_PAGES}"
        )
        return f"CASE WHEN {role} IN ({top}) THEN {role} ELSE '{OTHER}' END"

    def funnel(self, unit: str) -> Table:
        steps = range(len(self.columns.funnel))
        reached = [" AND ".join(f"step_{before}" for before in range(n + 1)) for n in steps]
        sums = ", ".join(
            f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS reached_{n}"
            for n, condition in enumerate(reached)
        )
        if not sums:
            return []
        found = self.engine.ask(
            f"SELECT {self._at(unit)} AS at, value, {sums} FROM {self._grouped()} "
            "GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return [
            {"at": row["at"], "value": row["value"], "step": n, "sessions": row[f"reached_{n}"]}
            for row in found
            for n in steps
        ]

    def kinds_of_rows(self, unit: str) -> Table:
        if "kind" not in self.kinds:
            return []
        time = "coalesce(event_time, session_start)"
        time = time if "event_time" in self.kinds else "session_start"
        # Text: where no row has a reason, the column may have any type.
        reason = "coalesce(CAST(reason AS VARCHAR), kind)" if "reason" in self.kinds else "kind"
        return self.engine.ask(
            f"SELECT {self._at(unit, time)} AS at, kind, {reason} AS reason, "
            f"count(*) AS counted FROM {ROWS} WHERE kind NOT IN ('session', 'event') "
            "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )

    def longest(self) -> Table:
        events = "events" if self.columns.events else "NULL"
        return self.engine.ask(
            f"SELECT id, who, epoch_ms(began) AS began, epoch_ms(ended) AS ended, length, "
            f"{events} AS events FROM {SESSIONS} ORDER BY length DESC, began, id "
            f"LIMIT {SHOWN_SESSIONS}"
        )
