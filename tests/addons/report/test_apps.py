"""The reports of the sample apps in a browser: their numbers against SQL on the rows."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import duckdb
import pandas as pd
import pytest

from examples.devices.__main__ import REPORT as OF_DEVICES
from examples.logins.__main__ import REPORT as OF_LOGINS
from examples.logins.events import made_up as log_ins
from examples.logins.spec import LOGINS, Action
from examples.shop.__main__ import REPORT as OF_SHOP
from examples.shop.events import made_up as actions
from examples.shop.spec import VISITS as SHOP_VISITS
from examples.trips.__main__ import REPORT as OF_TRIPS
from examples.trips.__main__ import until
from examples.trips.events import read_flights
from examples.trips.spec import DUTY_DAYS
from examples.web.__main__ import REPORT as OF_WEB
from examples.web.events import made_up as requests
from examples.web.spec import VISITS as WEB_VISITS
from sessionkit.addons.report import Columns, report
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.addons.report.reading import (
    OPEN,
    by_hour,
    cards,
    follow,
    look,
    medians,
    number,
    share,
    span,
    table,
)
from tests.support.browser import Reader

ZONES: Final = ("America/New_York", pytest.param("Asia/Kolkata", marks=pytest.mark.nightly))
END: Final = datetime(2100, 1, 1, tzinfo=UTC)


def shop(size: int) -> pd.DataFrame:
    return _sessions(SHOP_VISITS, actions(20 * size).to_pylist())


def web(size: int) -> pd.DataFrame:
    visits = _sessions(WEB_VISITS, requests(20 * size).to_pylist())
    program = visits["bot_by_name"] | visits["bot_by_rate"] | visits["bot_by_age"]
    return visits.assign(visitor=program.map({True: "program", False: "person"}))


def trips(size: int) -> pd.DataFrame:
    flights = until(read_flights(), size).to_pylist()
    return _sessions(DUTY_DAYS, [row for row in flights if row["departure"] and row["tailnum"]])


def logins(size: int) -> pd.DataFrame:
    driver = StatefulDriver(LOGINS)
    for row in log_ins(10 * size).to_pylist():
        driver.add_row({**row, "action": Action(row["action"])})
    periods = _ended(driver)
    return pd.DataFrame(
        {
            "user": periods["user"],
            "session_id": periods["session"].astype(str),
            "session_start": periods["began"].fillna(periods["ended"]),
            "session_end": periods["ended"],
            "last_event_time": periods["ended"],
            "outcome": periods["outcome"],
        }
    )


def devices(size: int) -> pd.DataFrame:
    """Return outages: the app makes two, as the clock goes."""
    random, noon = Random(1), datetime(2026, 3, 27, 12, tzinfo=UTC)
    starts = [noon + timedelta(hours=random.randrange(240)) for _ in range(10 * size)]
    ends = [start + timedelta(seconds=random.randrange(9_000)) for start in starts]
    rooms = [random.choice(["attic", "cellar", "stairs"]) for _ in starts]
    return pd.DataFrame(
        {
            "sensor": rooms,
            "session_id": [str(n) for n in range(len(starts))],
            "session_start": starts,
            "session_end": ends,
            "last_event_time": ends,
            "outcome": "recovered",
        }
    )


def _sessions(spec: Any, events: list[dict[str, Any]]) -> pd.DataFrame:
    driver = SessionDriver(spec)
    for row in events:
        driver.add_row(row)
    return _ended(driver)


def _ended(driver: Any) -> pd.DataFrame:
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    found: pd.DataFrame = driver.take_frame()
    return found


@attrs.frozen
class App:
    """The rows of an app, what it shows of them, and SQL for what a report calls by one name."""

    rows: Callable[[int], pd.DataFrame]
    shown: Mapping[str, Any]
    sql: Mapping[str, str]


NONE: Final = {
    "who": '"user"',
    "events": "NULL::INT",
    "entry": "NULL::VARCHAR",
    "exit": "NULL::VARCHAR",
    "active": "NULL::BIGINT",
    "engaged": "NULL::BOOLEAN",
    "bounce": "NULL::BOOLEAN",
    "converted": "NULL::BOOLEAN",
    "far": "NULL::INT",
    "views": "NULL::JSON",
    "d1": "NULL::VARCHAR",
}
APPS: Final = {
    "shop": App(
        shop,
        OF_SHOP,
        {
            "events": "events",
            "entry": "path[1]",
            "exit": "path[-1]",
            "engaged": "engaged",
            "active": "epoch_ms(engaged_time)",
            "bounce": "events = 1",
            "far": "far",
            "converted": "far = 4",
            "views": "to_json(views)",
            "d0": "credit",
            "d1": "channel",
        },
    ),
    "web": App(
        web,
        OF_WEB,
        {
            "who": "row(address, agent)",
            "events": "pages",
            "entry": "entry",
            "exit": "exit",
            "engaged": "engaged",
            "active": "epoch_ms(engaged_for)",
            "bounce": "is_bounce",
            "views": "to_json(views)",
            "d0": "visitor",
        },
    ),
    "trips": App(
        trips,
        OF_TRIPS,
        {
            "who": "tailnum",
            "events": "flights",
            "entry": "origin",
            "exit": "dest",
            "bounce": "flights = 1",
            "d0": "origin",
            "d1": "closed_by",
        },
    ),
    "logins": App(logins, OF_LOGINS, {"d0": "outcome"}),
    "devices": App(devices, OF_DEVICES, {"who": "sensor", "d0": "sensor"}),
}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("app", APPS)
def test_the_report_of_an_app_has_the_numbers_of_sql(
    app: str, zone: str, reader: Reader, tmp_path: Path
) -> None:
    """Under five choices of days and filters, in a zone behind and in one half an hour apart."""
    compare(APPS[app], zone, rows_of(app), reader, tmp_path / "report.html")


@cache
def rows_of(app: str) -> pd.DataFrame:
    """Return the rows of an app, which no time zone changes."""
    return APPS[app].rows(3)


def compare(app: App, zone: str, rows: pd.DataFrame, reader: Reader, page: Path) -> list[int]:
    """Compare the numbers of a report with SQL, and return how many there are for each choice."""
    report(rows, out=page, columns=Columns(**app.shown), time_zone=zone)
    look(reader, page)
    sessions = sessions_of(app, rows, zone)
    compared = []
    for choice, where in choices(app, sessions):
        follow(reader, urlencode(choice))
        wanted, shown = by_sql(app, sessions, where, choice["from"]), as_shown(reader)
        # Of a large table the page lists fewer under a narrow filter, and says so.
        wanted["longest"] = wanted["longest"][: max(1, len(shown["longest"]))]
        assert wanted == {name: shown.get(name) for name in wanted}, (zone, choice)
        compared.append(sum(map(_count, wanted.values())))
    return compared


def _count(value: Any) -> int:
    """Return how many numbers there are."""
    values = value.values() if isinstance(value, dict) else value
    return sum(map(_count, values)) if isinstance(value, list | dict) else 1


def sessions_of(app: App, rows: pd.DataFrame, zone: str) -> Any:
    """Return DuckDB with the sessions of an app, as plain SQL has them: the table `s`."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", rows)
    local = f"timezone('{zone}', session_start)"
    listed = ", ".join(f"{sql} AS {name}" for name, sql in {**NONE, **app.sql}.items())
    closed = "closed_by" if "closed_by" in rows.columns else "NULL::VARCHAR"
    connection.execute(
        f"CREATE TABLE s AS SELECT session_id, CAST(CAST({local} AS DATE) AS VARCHAR) AS day, "
        f"session_start AS began, {local} AS local, "
        "epoch_ms(last_event_time) - epoch_ms(session_start) AS length, "
        f"{closed} AS closed, {listed} FROM rows"
    )
    return connection


def choices(app: App, sessions: Any) -> list[tuple[dict[str, str], str]]:
    """Return five choices of what there is most of, and what SQL calls them."""

    def top(column: str, count: int = 1) -> list[Any]:
        query = f"SELECT {column} FROM s GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {count}"
        return [value for (value,) in sessions.sql(query).fetchall()]

    (dimension, *_) = Columns(**app.shown).dimensions
    first, *_, last = sorted(top("day", 2) * 2)
    every = {"from": "1990-01-01", "to": "2090-01-01"}
    days = ({"from": first, "to": last}, f"day BETWEEN '{first}' AND '{last}'")
    (value,) = top("d0")
    found = [(every, "TRUE"), days, ({**every, f"is-{dimension}": f"={value}"}, f"d0 = '{value}'")]
    if "entry" not in app.sql:
        more = [({**every, "from": last}, f"day >= '{last}'")]
        return [*found, *more, ({**every, "to": first}, f"day <= '{first}'")]
    (entry,), (leave,) = top("entry"), top("exit")
    found.append(({**every, "entry": f"={entry}"}, f"entry = '{entry}'"))
    if "far" in app.sql:
        return [*found, ({**days[0], "step": "=carted"}, f"far >= 2 AND {days[1]}")]
    return [*found, ({**days[0], "exit": f"={leave}"}, f"exit = '{leave}' AND {days[1]}")]


def by_sql(app: App, database: Any, where: str, first: str) -> dict[str, Any]:
    """Return the numbers of the sessions from a day on that are chosen, as SQL counts them."""
    database.execute(f"CREATE OR REPLACE TEMP VIEW c AS SELECT * FROM s WHERE {where}")

    def sql(query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = database.sql(query).fetchall()
        return found

    figures = sql(
        "SELECT count(*), count(DISTINCT who), count(*) FILTER (WHERE session_id IN (SELECT "
        "arg_min(session_id, began) FROM s GROUP BY who)), avg(length), avg(active), avg(events), "
        "count(*) FILTER (WHERE bounce), count(*) FILTER (WHERE engaged), "
        "count(*) FILTER (WHERE converted), max(length), max(events) FROM c"
    )[0]
    sessions, people, new, length, active, events, bounced, engaged, won, most, _ = figures
    found: dict[str, Any] = {
        "Sessions": f"{sessions:,}",
        "Users": f"{people:,}",
        "New users": f"{new:,}",
        "Users seen before": "{:,}".format(
            *sql(
                "SELECT count(DISTINCT who) FROM c "
                f"WHERE who IN (SELECT who FROM s WHERE day < '{first}')"
            )[0]
        ),
        "Users with 2+ sessions": "{:,}".format(
            *sql("SELECT count(*) FROM (FROM c SELECT who GROUP BY who HAVING count(*) > 1)")[0]
        ),
        "Duration": span(length),
    }
    known = app.sql.keys()
    found |= {"Engaged time": span(active)} if "active" in known else {}
    found |= {"Events per session": number(events)} if "events" in known else {}
    found |= {"Bounce rate": share(bounced, sessions)} if "bounce" in known else {}
    found |= {"Engagement rate": share(engaged, sessions)} if "engaged" in known else {}
    found |= {"Conversion rate": share(won, sessions)} if "converted" in known else {}
    parts = sql("SELECT quantile_disc(length, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]) FROM c")[0][0]
    found["quantiles"] = [ms / 1000 for ms in (*parts, most)]
    hours = "SELECT dayname(local), hour(local), count(*) FROM c GROUP BY 1, 2"
    found["hours"] = {(day, hour): count for day, hour, count in sql(hours)}
    mid = (
        "SELECT quantile_disc(length, 0.5), quantile_disc(active, 0.5), quantile_disc(events, 0.5)"
    )
    middle = dict(zip(("length", "active", "events"), sql(f"{mid} FROM c")[0], strict=True))
    found["medians"] = {"Duration": span(middle["length"])}
    found["medians"] |= {"Engaged time": span(middle["active"])} if "active" in known else {}
    found["medians"] |= (
        {"Events per session": number(middle["events"])} if "events" in known else {}
    )
    found["days"] = dict(sql("SELECT day, count(*) FROM c GROUP BY 1"))
    found["by"] = {
        value or "no value": numbers
        for value, *numbers in sql("SELECT d0, count(*), count(DISTINCT who) FROM c GROUP BY d0")
    }
    found["longest"] = [ms / 1000 for (ms,) in sql("SELECT length FROM c ORDER BY 1 DESC LIMIT 10")]
    if any(row != (None,) for row in sql("SELECT DISTINCT closed FROM c")):
        found["closings"] = dict(sql("SELECT closed, count(*) FROM c GROUP BY 1"))
    for role in {"entry", "exit"} & known:
        top = f"SELECT {role}, count(*) FROM c WHERE {role} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC"
        found[role] = _first(dict(sql(f"{top} LIMIT 10")))
    if "far" in known:
        steps = ", ".join(f"count(*) FILTER (WHERE far >= {n})" for n in range(5))
        found["funnel"] = [*sql(f"SELECT {steps} FROM c")[0]]
    if "views" in known:
        counts = "CAST(views AS MAP(VARCHAR, BIGINT))"
        pages = (
            f"(SELECT unnest(map_keys({counts})) AS page, unnest(map_values({counts})) AS n FROM c)"
        )
        seen = sql(f"SELECT page, sum(n) FROM {pages} WHERE n > 0 GROUP BY 1")
        found["views"] = {page: int(n) for page, n in seen}
        found["Page views"] = f"{sum(found['views'].values()):,}"
    return found


def _first(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of ten but the least, whose place others may share."""
    least = min(counts.values()) if len(counts) == 10 else 0
    return {name: count for name, count in counts.items() if count > least}


def as_shown(reader: Reader) -> dict[str, Any]:
    """Return the numbers of the page, by the same names."""
    heads = reader.run("[...document.querySelectorAll('#by th')].map(one => one.textContent)")
    users = heads.index("Users")
    others = ("all other pages", "no value")
    days: Counter[str] = Counter()
    for name, count, *_ in table(reader, "time"):
        days[name.removesuffix(OPEN)[:10]] += int(count)

    def counts(name: str) -> dict[str, int]:
        return {line[0]: int(line[1]) for line in table(reader, name) if line[0] not in others}

    return {
        **cards(reader),
        "quantiles": [float(line[1]) for line in table(reader, "quantiles")],
        "hours": by_hour(reader),
        "medians": medians(reader),
        "days": dict(+days),
        "by": {
            line[0]: [int(line[1]), int(line[users])]
            for line in table(reader, "by")
            if line[1] != "0"
        },
        "longest": [float(line[2]) for line in table(reader, "longest")],
        **{name: counts(name) for name in ("closings", "views")},
        **{name: _first(counts(name)) for name in ("entry", "exit")},
        "funnel": [int(line[1]) for line in table(reader, "funnel")],
    }
