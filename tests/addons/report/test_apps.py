"""The pages of the apps in a browser: their numbers against SQL on the rows that they wrote."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples.devices import __main__ as devices
from examples.embedded_postgres import PostgresMissingError, running_postgres
from examples.logins import __main__ as logins
from examples.logins import events as records
from examples.shop import __main__ as shop
from examples.shop import events as actions
from examples.trips import __main__ as trips
from examples.trips.events import read_flights
from examples.web import __main__ as web
from examples.web import events as requests
from tests.addons.report.reading import cards, look, share, span, table
from tests.addons.report.visits import asked
from tests.support.browser import Reader

pytestmark = pytest.mark.long

EVER: Final = {"from": "1990-01-01", "to": "2100-01-01"}


@attrs.frozen
class App:
    """
    An app: what runs it, and its rows as SQL reads them.

    `run` returns the table `rows`, or a folder of them. The columns are those of `COLUMNS`.
    """

    run: Callable[[SparkSession, Path], pa.Table | Path]
    columns: Mapping[str, str]


COLUMNS: Final = {
    "who": "NULL",
    "began": "session_start",
    "length": "epoch_ms(last_event_time) - epoch_ms(session_start)",
    "active": "NULL::BIGINT",
    "events": "NULL::BIGINT",
    "converted": "NULL::BOOLEAN",
    "first": "NULL::VARCHAR",
    "second": "NULL::VARCHAR",
    "entry": "NULL::VARCHAR",
    "exit": "NULL::VARCHAR",
}


def run_shop(spark: SparkSession, out: Path) -> pa.Table:
    names = ["user", "session_start", "last_event_time", "engaged_time", "events", "credit"]
    names += ["channel", "viewed", "carted", "shipped", "paid", "path"]
    listed = ", ".join(f'"{name}"' for name in names)
    try:
        with running_postgres() as server:
            shop.run(spark, actions.made_up(60), server.dsn, out, files=2)
            shop.conclude(server.dsn, out)
            rows = server.rows(f"SELECT {listed} FROM visits")
    except PostgresMissingError as error:
        pytest.skip(f"not run: {error}")
    return pa.table([*zip(*rows, strict=True)], names)


def run_web(spark: SparkSession, out: Path) -> Path:
    web.run(spark, requests.made_up(60), out, files=2)
    return out / "visits"


def run_trips(spark: SparkSession, out: Path) -> Path:
    trips.run(spark, trips.until(read_flights(), 7), out, files=2)
    return out / "duties"


def run_logins(spark: SparkSession, out: Path) -> Path:
    logins.run(spark, records.made_up(60), out, files=2)
    return out / "periods"


def run_devices(spark: SparkSession, out: Path) -> pa.Table:
    return pa.Table.from_pylist(devices.run(spark, out, silence=timedelta(seconds=1)))


APPS: Final = {
    "shop": App(
        run_shop,
        {
            "who": '"user"',
            "active": "epoch_ms(engaged_time)",
            "events": "events",
            "converted": "viewed AND carted AND shipped AND paid",
            "first": "credit",
            "second": "channel",
            "entry": "path[1]",
            "exit": "path[-1]",
        },
    ),
    "web": App(
        run_web,
        {
            "who": "row(address, agent)",
            "active": "engaged_for // 1000",  # an interval of Spark: Parquet has a number
            "events": "hits",
            "first": "visitor",
            "entry": "entry",
            "exit": "exit",
        },
    ),
    "trips": App(
        run_trips,
        {
            "who": "tailnum",
            "events": "flights",
            "first": "origin",
            "second": "closed_by",
            "entry": "origin",
            "exit": "dest",
        },
    ),
    "logins": App(
        run_logins,
        {
            "who": '"user"',
            "began": "coalesce(began, ended)",
            "length": "epoch_ms(ended) - epoch_ms(coalesce(began, ended))",
            "first": "outcome",
        },
    ),
    "devices": App(run_devices, {"who": "sensor", "first": "sensor"}),
}


def choices(rows: pa.Table) -> Iterator[tuple[dict[str, str], str]]:
    """Yield five choices of a reader, and which rows they are."""
    days = [day for (day,) in asked(rows, "SELECT DISTINCT day FROM rows ORDER BY day")]
    middle = days[len(days) // 2]
    values = [
        value
        for (value,) in asked(
            rows,
            f"SELECT first FROM rows WHERE day >= '{middle}' AND first IS NOT NULL "
            "GROUP BY 1 ORDER BY count(*) DESC, 1",
        )
    ]
    most, least = values[0], values[min(2, len(values) - 1)]
    yield {}, "TRUE"
    yield {"from": middle, "to": middle}, f"day = '{middle}'"
    yield {"from": middle}, f"day >= '{middle}'"
    yield {"first": f"={most}"}, f"first = '{most}'"
    others = asked(rows, f"SELECT second FROM rows WHERE first = '{most}' ORDER BY second")
    if others[0][0] is None:
        yield {"first": f"={least}", "from": middle}, f"first = '{least}' AND day >= '{middle}'"
    else:
        second = others[0][0]
        where = f"first = '{most}' AND second = '{second}'"
        yield {"first": f"={most}", "second": f"={second}"}, where


@pytest.mark.parametrize("name", APPS)
def test_twenty_numbers_are_those_of_sql_under_five_filters(
    name: str, spark: SparkSession, reader: Reader, tmp_path: Path
) -> None:
    """Cards, percentiles, values, times, entries and exits."""
    app = APPS[name]
    source = app.run(spark, tmp_path)
    columns = ", ".join(f"{sql} AS {as_}" for as_, sql in {**COLUMNS, **app.columns}.items())
    of = "rows" if isinstance(source, pa.Table) else f"read_parquet('{source}/*.parquet')"
    query = "SELECT * REPLACE (md5(who::VARCHAR) AS who), strftime(began, '%Y-%m-%d') AS day "
    query += f"FROM (SELECT {columns} FROM {of})"
    rows = arrow(source, query)
    checked = 0
    for choice, where in choices(rows):
        look(reader, tmp_path / "report.html", urlencode({**EVER, "each": "hour", **choice}))
        numbers = [*compared(reader, rows, where)]
        assert [wanted for wanted, _ in numbers] == [found for _, found in numbers]
        assert len(numbers) >= 20
        checked += 1
    assert checked == 5


def arrow(source: pa.Table | Path, query: str) -> pa.Table:
    given = source if isinstance(source, pa.Table) else pa.table({"none": [0]})
    names = [*COLUMNS, "day"]
    return pa.table([*zip(*asked(given, query), strict=True)], names)


def compared(reader: Reader, rows: pa.Table, where: str) -> Iterator[tuple[Any, Any]]:
    """Yield numbers of SQL, each with that of the page."""
    chosen = f"FROM rows WHERE {where}"
    ((count, users, length, active, converted, known, events),) = asked(
        rows,
        "SELECT count(*), count(DISTINCT who), avg(length), avg(active), "
        f"count(*) FILTER (WHERE converted), count(converted), avg(events) {chosen}",
    )
    shown = cards(reader)
    yield f"{count:,}", shown["Sessions"]
    yield f"{users:,}", shown["Users"]
    yield span(length), shown["Length"]
    if active is not None:
        yield span(active), shown["Engaged time"]
    if known:
        yield share(converted, count), shown["Conversion"]
    if events is not None:
        yield f"{events:.2f}".rstrip("0").rstrip("."), shown["Events a session"]

    ((quantiles, longest),) = asked(
        rows,
        "SELECT quantile_disc(length, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]), max(length) " + chosen,
    )
    found = [float(line[1]) for line in table(reader, "quantiles")]
    yield from zip([ms / 1000 for ms in (*quantiles, longest)], found, strict=True)
    yield longest / 1000, float(table(reader, "longest")[0][2])
    yield count, sum(int(line[1]) for line in table(reader, "lengths"))

    lines = table(reader, "time")
    unit = "%Y-%m-%d" if len(lines[0][0]) == len("2026-01-01") else "%Y-%m-%d %H:00"
    counts = dict(asked(rows, f"SELECT strftime(began, '{unit}'), count(*) {chosen} GROUP BY 1"))
    yield from ((str(counts.pop(at, 0)), found) for at, found, *_ in lines)
    yield {}, counts

    heads = reader.run("[...document.querySelectorAll('#by th')].map(one => one.textContent)")
    places = [heads.index(head) for head in ("Sessions", "Users", "Length")]
    by = {line[0]: [line[place] for place in places] for line in table(reader, "by")}
    for value, *of_value, mean in asked(
        rows,
        "SELECT coalesce(first, 'no value'), count(*), count(DISTINCT who), avg(length) / 1000 "
        f"{chosen} GROUP BY 1",
    ):
        yield [*map(str, of_value)], by[value][:2]
        yield pytest.approx(mean), float(by[value][2])
    for role in ("entry", "exit"):
        pages = {line[0].removeprefix("'"): line[1] for line in table(reader, role)}
        wanted = asked(rows, f"SELECT {role}, count(*) {chosen} AND {role} IS NOT NULL GROUP BY 1")
        yield from ((str(n), pages[page]) for page, n in wanted if page in pages)
