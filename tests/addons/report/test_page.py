"""The page of a report in a browser: every number against SQL on the rows, whatever is chosen."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionkit.__main__ import main
from sessionkit.addons.report import Columns, Page, report
from tests.addons.report.reading import (
    ALL,
    OPEN,
    by_hour,
    cards,
    follow,
    heads,
    look,
    medians,
    money,
    number,
    share,
    span,
    table,
)
from tests.addons.report.visits import (
    COLUMNS,
    FUNNEL,
    HOSTILE,
    PAGES,
    asked,
    database_of,
    rejected,
    table_of,
    visits,
)
from tests.support.axe import violations
from tests.support.browser import Reader

ROWS: Final = table_of(visits(), rejected())
DATES: Final = tuple(datetime(year, 3, 1, tzinfo=UTC) for year in (2022, 2023, 2024))
LENGTH: Final = "epoch_ms(last_event_time) - epoch_ms(session_start)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report(ROWS, out=path, title="Visits & more", columns=COLUMNS)
    return path


# -- every number against SQL ---------------------------------------------------------------------

CHOICES: Final[Mapping[str, tuple[dict[str, str], str]]] = {
    "all": ({}, "TRUE"),
    "a day": ({"from": "2026-06-01", "to": "2026-06-01"}, "day = '2026-06-01'"),
    "a day without sessions": ({"from": "2026-06-03", "to": "2026-06-03"}, "day = '2026-06-03'"),
    "days and a value": (
        {"from": "2026-06-10", "to": "2026-08-20", "is-channel": "=search"},
        "day BETWEEN '2026-06-10' AND '2026-08-20' AND channel = 'search'",
    ),
    "a real `other`": ({"is-channel": "=other"}, "channel = 'other'"),
    "our other": (
        {"is-channel": "other", "from": "2026-05-20"},
        "channel IN (SELECT value FROM rare) AND day >= '2026-05-20'",
    ),
    "a real `(none)` of a device": (
        {"is-channel": "=(none)", "is-device": "=phone"},
        "channel = '(none)' AND device = 'phone'",
    ),
    "no value of both": (
        {"is-channel": "none", "is-device": "none"},
        "channel IS NULL AND device IS NULL",
    ),
    "what would like to be a comment": ({"is-channel": f"={HOSTILE}"}, f"channel = '{HOSTILE}'"),
    "three dimensions": (
        {"is-channel": "=search", "is-device": "=phone", "is-country": "=DE"},
        "channel = 'search' AND device = 'phone' AND country = 'DE'",
    ),
    "an entry page": ({"entry": "=/cart"}, "path[1] = '/cart'"),
    "an exit page and a step": (
        {"exit": "=/", "step": "=carted", "from": "2026-06-01"},
        "path[-1] = '/' AND viewed AND carted AND day >= '2026-06-01'",
    ),
    "a value, and no entry page": (
        {"is-device": "=tablet", "entry": "none"},
        "device = 'tablet' AND path[1] IS NULL",
    ),
}
SESSIONS: Final = f"""
    (SELECT *, CAST(CAST(session_start AS DATE) AS VARCHAR) AS day, row(site, "user") AS who,
        {LENGTH} AS length, epoch_ms(engaged_time) AS active,
        viewed AND carted AND bought AS converted
     FROM rows WHERE kind = 'session') AS sessions
"""


def sql(query: str, where: str) -> list[tuple[Any, ...]]:
    """Return what SQL says of the sessions that are chosen: the table `chosen`."""
    rare = (
        "rare AS (SELECT channel AS value FROM rows WHERE channel IS NOT NULL "
        "GROUP BY 1 ORDER BY count(*) DESC, 1 OFFSET 20)"
    )
    chosen = f"chosen AS (SELECT * FROM {SESSIONS} WHERE {where})"
    found: list[tuple[Any, ...]] = database().sql(f"WITH {rare}, {chosen} {query}").fetchall()
    return found


@cache
def database() -> Any:
    """Return the database that all tests ask."""
    return database_of(ROWS)


@pytest.mark.parametrize("name", CHOICES)
def test_every_number_is_that_of_sql(name: str, reader: Reader, page: Path) -> None:
    """In the days and of the values that are chosen, on 200 days of which some are empty."""
    choice, where = CHOICES[name]
    look(reader, page, urlencode({**ALL, **choice}))
    check_cards(reader, where, {**ALL, **choice}["from"])
    if name == "a day without sessions":
        hidden = reader.run("[...document.querySelectorAll('article[hidden]')].map(one => one.id)")
        assert {"paths", "views", "entry", "exit", "lengths", "longest", "busy"} <= {*hidden}
        return
    check_hours(reader, where)
    check_lengths(reader, where)
    check_days_and_values(reader, where)
    check_paths(reader, where)


def check_cards(reader: Reader, where: str, first_day: str) -> None:
    (figures,) = sql(
        """SELECT count(*), count(DISTINCT who), count(*) FILTER (WHERE (who, session_start) IN
            (SELECT who, min(session_start) FROM """
        + SESSIONS
        + """ GROUP BY who)), avg(events), count(*) FILTER (WHERE engaged),
            count(*) FILTER (WHERE events = 1), count(*) FILTER (WHERE converted),
            avg(length), avg(active), coalesce(sum(value), 0),
            coalesce(sum(list_sum(map_values(views))), 0), count(events), count(views)
            FROM chosen""",
        where,
    )
    sessions, people, new, events, engaged, bounced, converted, *rest = figures
    length, active, value, views, with_events, with_views = rest
    shown = cards(reader)
    assert f"{sessions:,}" == shown["Sessions"]
    assert f"{people:,}" == shown["Users"]
    assert f"{new:,}" == shown["New users"]
    ((seen_before, twice),) = sql(
        f"""SELECT count(DISTINCT who) FILTER (WHERE who IN (SELECT who FROM {SESSIONS}
            WHERE day < '{first_day}')), count(DISTINCT who) FILTER (WHERE who IN
            (SELECT who FROM chosen GROUP BY who HAVING count(*) > 1)) FROM chosen""",
        where,
    )
    assert f"{seen_before:,}" == shown["Users seen before"]
    assert f"{twice:,}" == shown["Users with 2+ sessions"]
    assert share(engaged, sessions) == shown["Engagement rate"]
    assert share(bounced, with_events) == shown["Bounce rate"]
    assert share(converted, sessions) == shown["Conversion rate"]
    assert number(events) == shown["Events per session"]
    assert f"{value:,.2f}" == shown["Revenue"]
    assert money(value, sessions) == shown["Revenue per session"]
    assert money(value, people) == shown["Revenue per user"]
    assert f"{views:,}" == shown["Page views"]
    assert number(views / with_views if with_views else None) == shown["Views per session"]
    assert span(length) == shown["Duration"]
    assert span(active) == shown["Engaged time"]
    ((length, active, events),) = sql(
        "SELECT quantile_disc(length, 0.5), quantile_disc(active, 0.5), quantile_disc(events, 0.5) "
        "FROM chosen",
        where,
    )
    wanted = {"Duration": span(length), "Engaged time": span(active)}
    assert {**wanted, "Events per session": number(events)} == medians(reader)


def check_hours(reader: Reader, where: str) -> None:
    wanted = sql(
        "SELECT dayname(session_start), hour(session_start), count(*) FROM chosen GROUP BY 1, 2",
        where,
    )
    assert {(day, hour): n for day, hour, n in wanted} == by_hour(reader)


def check_lengths(reader: Reader, where: str) -> None:
    wanted = sql(
        """SELECT quantile_disc(length, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]), max(length),
            quantile_disc(events, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]), max(events) FROM chosen""",
        where,
    )[0]
    found = table(reader, "quantiles")
    assert [n / 1000 for n in (*wanted[0], wanted[1])] == [float(line[1]) for line in found]
    sizes = [*wanted[2], wanted[3]] if wanted[2] else [""] * 6 + ["0"]
    assert [str(n) for n in sizes] == [line[2] for line in found]
    reasons = sql("SELECT closed_by, count(*) FROM chosen GROUP BY 1", where)
    assert {a: str(b) for a, b in reasons} == {a: b for a, b, _ in table(reader, "closings")}
    ((under,),) = sql("SELECT count(*) FROM chosen WHERE length < 1000", where)
    lengths = {line[0]: int(line[1]) for line in table(reader, "lengths")}
    assert under == lengths.get("0s to 1s", 0)
    assert [(sum(lengths.values()),)] == sql("SELECT count(*) FROM chosen", where)
    longest = sql(
        "SELECT session_id FROM chosen ORDER BY length DESC, session_start LIMIT 3", where
    )
    assert [row[0] for row in longest] == [line[0] for line in table(reader, "longest")][:3]


def check_days_and_values(reader: Reader, where: str) -> None:
    days: Counter[str] = Counter()
    for name, count, *_ in table(reader, "time"):
        days[name[:10]] += int(count)
    assert dict(sql("SELECT day, count(*) FROM chosen GROUP BY 1", where)) == dict(+days)

    by = sql(
        """SELECT CASE WHEN channel IS NULL THEN 'no value' WHEN channel = '' THEN 'empty text'
            WHEN channel IN (SELECT value FROM rare) THEN '18 other values'
            WHEN channel = '=1+1' THEN '''=1+1' ELSE channel END,
            count(*), count(DISTINCT who), avg(converted::INT) FROM chosen GROUP BY 1""",
        where,
    )
    titles, lines = heads(reader, "by"), table(reader, "by")
    places = [titles.index(name) for name in ("channel", "Sessions", "Users", "Conversion rate")]
    found = sorted(tuple(line[n] for n in places) for line in lines if line[places[1]] != "0")
    assert [row[:3] for row in found] == sorted((a, str(b), str(c)) for a, b, c, _ in by)
    shares = {row[0]: row[3] for row in by}
    assert all(abs(float(row[3]) - shares[row[0]]) < 1e-9 for row in found)


def check_paths(reader: Reader, where: str) -> None:
    steps = sql(
        "SELECT count(*), count(*) FILTER (WHERE viewed), count(*) FILTER (WHERE viewed AND "
        "carted), count(*) FILTER (WHERE converted) FROM chosen",
        where,
    )[0]
    assert [str(n) for n in steps] == [line[1] for line in table(reader, "funnel")]

    for role, place in (("entry", 1), ("exit", -1)):
        pages = sql(
            f"SELECT path[{place}], count(*) FROM chosen WHERE len(path) > 0 GROUP BY 1", where
        )
        assert {p: str(n) for p, n in pages} == {line[0]: line[1] for line in table(reader, role)}
    won = sql(
        "SELECT path[1], avg(converted::INT) FROM chosen WHERE len(path) > 0 GROUP BY 1", where
    )
    assert dict(won) == {line[0]: float(line[3]) for line in table(reader, "entry")}
    views = sql(
        """SELECT page, sum(n), count(*) FROM (SELECT unnest(map_keys(views)) AS page,
            unnest(map_values(views)) AS n FROM chosen) AS one GROUP BY page""",
        where,
    )
    assert {page: (n, seen) for page, n, seen in views} == {
        line[0]: (int(line[1]), int(line[3])) for line in table(reader, "views")
    }

    paths = {line[0]: line for line in table(reader, "paths")}
    for path in [path for path in paths if "all other pages" not in path]:
        so = path.removeprefix("'").split(" → ")
        ((count, left),) = sql(
            f"SELECT count(*), count(*) FILTER (WHERE len(path) = {len(so)}) FROM chosen "
            f"WHERE path[1:{len(so)}] = {so}",
            where,
        )
        assert (count, left) == (int(paths[path][1]), int(paths[path][4])), path


# -- other days, and those who come back ----------------------------------------------------------


def test_figures_stand_next_to_the_period_before(reader: Reader, page: Path) -> None:
    """As many days before the first of them; where the rows don't reach back so far, none."""
    look(reader, page, "from=2026-07-01&to=2026-07-10&is-channel=%3Dsearch")
    where = "day BETWEEN '{}' AND '{}' AND channel = 'search'"
    ((then,),) = sql("SELECT count(*) FROM chosen", where.format("2026-06-21", "2026-06-30"))
    ((now,),) = sql("SELECT count(*) FROM chosen", where.format("2026-07-01", "2026-07-10"))
    card = reader.run("document.querySelector('[data-measure=sessions]').innerText")
    moved = abs(100 * (now - then) / then)
    assert f"before: {then}" in card
    assert f"{moved:.0f}%" in card or f"{moved:.1f}%" in card
    lines = table(reader, "time")
    assert (now, then) == (sum(int(line[1]) for line in lines), sum(int(line[2]) for line in lines))

    look(reader, page, "from=2026-05-14&to=2026-07-10")
    assert "before:" not in reader.run("document.querySelector('#cards').innerText")
    assert "don't reach back" in reader.run("document.querySelector('#period').innerText")


@pytest.mark.parametrize("each", ["week", "month"])
def test_users_of_longer_times_count_once_in_each(each: str, reader: Reader, page: Path) -> None:
    choice = {"from": "2026-06-10", "to": "2026-09-20", "measure": "users", "each": each}
    look(reader, page, urlencode(choice))
    wanted = sql(
        f"SELECT count(DISTINCT who) FROM chosen GROUP BY date_trunc('{each}', session_start) "
        f"ORDER BY date_trunc('{each}', min(session_start))",
        "day BETWEEN '2026-06-10' AND '2026-09-20'",
    )
    assert [str(n) for (n,) in wanted] == [line[1] for line in table(reader, "time")]


@pytest.mark.parametrize(
    ("choice", "where"), [({}, "TRUE"), ({"is-channel": "=search"}, "channel = 'search'")]
)
def test_returning_users_are_counted_by_the_week_of_their_first_session(
    choice: dict[str, str], where: str, reader: Reader, page: Path
) -> None:
    look(reader, page, urlencode({"from": "2026-05-01", "to": "2026-07-05", **choice}))
    wanted = sql(
        """, weeks AS (SELECT DISTINCT who, date_trunc('week', session_start) AS week FROM chosen),
        firsts AS (SELECT *, min(week) OVER (PARTITION BY who) AS first FROM weeks)
        SELECT strftime(first, '%Y-%m-%d'), date_diff('week', first, week), count(*) FROM firsts
        WHERE week <= '2026-07-05' GROUP BY 1, 2 ORDER BY 1, 2""",
        where,
    )
    counts = {(first, after): count for first, after, count in wanted}
    lines = table(reader, "cohorts")
    assert len(lines) == 8
    for week, size, *later in lines:
        assert counts[week.removesuffix(OPEN), 0] == int(size)
        for after, found in enumerate(later, 1):
            count = counts.get((week, after), 0)
            assert found == "" or abs(float(found) - count / int(size)) < 1e-9


def test_rejected_rows_answer_to_days_and_say_so(reader: Reader, page: Path) -> None:
    look(reader, page, "from=2026-06-01&to=2026-06-30&is-channel=%3Dsearch")
    assert table(reader, "rejected") == [
        ["late", f"reason {n}", when, "1"]
        for when in ("in the chosen days", "outside the days of the sessions")
        for n in range(3)
    ]
    note = reader.run("document.querySelector('#rejected .note').innerText")
    assert "filters don't apply" in note


def test_a_reader_chooses_by_clicks(reader: Reader, page: Path) -> None:
    """A measure, a value in the table, and days; the address shows it again."""
    look(reader, page)
    reader.run("document.querySelector('[data-measure=users]').click()")
    reader.run("document.querySelector('#by tbody button').click()")
    reader.run('document.querySelector("[data-days=\\"7\\"]").click()')
    address = reader.run("location.hash.slice(1)")
    assert "measure=users" in address
    shown = cards(reader)
    ((sessions,),) = sql(
        "SELECT count(*) FROM chosen",
        "day > '2026-11-21' AND channel IN (SELECT value FROM rare)",
    )
    assert f"{sessions}" == shown["Sessions"]
    look(reader, page, address)
    assert shown == cards(reader)


def test_a_click_on_a_page_or_a_step_filters_by_it(reader: Reader, page: Path) -> None:
    """And one on it again doesn't; the back button goes back to what was shown."""
    look(reader, page)
    buttons = "[...document.querySelectorAll('#{} td button')]"
    click = buttons + ".find(one => one.innerText === '{}').click()"
    wanted = "path[1] = '/cart'"
    for table_id, name, where in (
        ("entry", "/cart", wanted),
        ("exit", "/", f"{wanted} AND path[-1] = '/'"),
        ("funnel", "carted", f"{wanted} AND path[-1] = '/' AND viewed AND carted"),
    ):
        reader.run(click.format(table_id, name))
        ((sessions, people),) = sql("SELECT count(*), count(DISTINCT who) FROM chosen", where)
        assert (f"{sessions}", f"{people}") == (cards(reader)["Sessions"], cards(reader)["Users"])
    drawn = reader.run("document.body.dataset.drawn")
    reader.run("history.go(-2)")
    reader.wait_for(f"document.body.dataset.drawn !== '{drawn}'")
    ((sessions,),) = sql("SELECT count(*) FROM chosen", wanted)
    assert f"{sessions}" == cards(reader)["Sessions"]
    reader.run(click.format("entry", "/cart"))
    assert "3,000" == cards(reader)["Sessions"]


@pytest.mark.parametrize(
    ("compare", "first", "last"),
    [
        ("previous", "2026-10-31", "2026-11-09"),
        ("weekdays", "2026-10-27", "2026-11-05"),
        ("year_weekdays", None, None),
        ("none", None, None),
    ],
)
def test_a_reader_chooses_what_to_compare_with(
    compare: str, first: str | None, last: str | None, reader: Reader, page: Path
) -> None:
    """Weekdays match where the days are earlier by whole weeks; the rows reach back 200 days."""
    look(reader, page, f"from=2026-11-10&to=2026-11-19&compare={compare}")
    before = reader.run("document.querySelector('[data-measure=sessions]').innerText")
    if first is None:
        assert "before" not in before
        return
    ((then,),) = sql("SELECT count(*) FROM chosen", f"day BETWEEN '{first}' AND '{last}'")
    assert f"before: {then}" in before


def test_a_year_before_has_the_same_dates(reader: Reader, tmp_path: Path) -> None:
    """March 1 stays March 1 after a leap day."""
    rows = table_of(
        [
            {**row, "session_start": start, "session_end": start, "last_event_time": start}
            for row, start in zip(visits(3), DATES, strict=True)
        ]
    )
    report(rows, out=tmp_path / "years.html")
    look(reader, tmp_path / "years.html", "from=2024-03-01&to=2024-03-01&compare=year")
    card = reader.run("document.querySelector('[data-measure=sessions]').innerText")
    assert "before: 1" in card
    assert "1 Mar 2023" in reader.run("document.querySelector('#period').innerText")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("is-channel=%3Dgone", "channel gone"),
        ("is-planet=%3DMars", "planet"),
        ("entry=%3D%2Fnever", "Entry page /never"),
        ("step=%3Dpaid", "Reached step paid"),
        ("from=2025-01-01&to=2025-02-01", "days 2025-01-01 to 2025-02-01"),
        ("measure=love", "measure love"),
        ("compare=mars", "compare mars"),
        ("by=planet", "by planet"),
    ],
)
def test_a_link_to_what_is_gone_says_so(choice: str, said: str, reader: Reader, page: Path) -> None:
    """Its numbers would be taken for those of the value."""
    look(reader, page, choice)
    notes = reader.run("document.querySelector('#notes').innerText")
    assert f"The address asks for {said}, which these rows don't have" in notes


def test_a_day_week_or_month_that_is_not_over_is_hatched(reader: Reader, page: Path) -> None:
    """The last day with a session, and the weeks and months that reach it; in cohorts too."""
    open_cells = "[...document.querySelectorAll('#{} td.open')].length"
    for each, count in (("day", 1), ("week", 1), ("month", 1)):
        look(reader, page, f"from=2026-09-01&to=2026-11-28&each={each}")
        assert count == reader.run(open_cells.format("time"))
        assert count == reader.run("document.querySelectorAll('#time rect.now.open').length")
        assert table(reader, "time")[-1][0].endswith(OPEN)
    look(reader, page, "from=2026-10-26&to=2026-11-28")
    weeks = len(table(reader, "cohorts"))
    assert weeks == reader.run(open_cells.format("cohorts"))
    look(reader, page, "from=2026-09-01&to=2026-11-15")
    assert 0 == reader.run(open_cells.format("time")) == reader.run(open_cells.format("cohorts"))


# -- what a page must not do ----------------------------------------------------------------------


def test_values_of_rows_are_shown_as_text_not_as_html(reader: Reader, page: Path) -> None:
    """A page of a visitor's choice can't run, nor blank the page; nor get into a spreadsheet."""
    text = page.read_text(encoding="utf-8")
    given = text[text.index('id="given">') + 11 : text.index('</script>\n<script type="module">')]
    assert not set("<>&") & set(given)
    look(reader, page)
    dom = reader.run("document.querySelector('#by').innerText")
    assert HOSTILE in dom
    assert "</script><b>" in dom
    assert PAGES[-1] in reader.run("document.querySelector('#entry').innerText")
    assert ["'=1+1"] == [line[0] for line in table(reader, "by") if "1+1" in line[0]]


def test_no_key_of_a_user_is_in_the_page(page: Path) -> None:
    """It may be sent by mail."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'"(?:u\d+|a b|b c|s[012])"', text)


def test_the_page_sends_no_request(page: Path) -> None:
    """A policy in the page forbids it, and allows its own script alone."""
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'; script-src 'sha256-" in text
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", text)


@pytest.mark.parametrize("width", [1280, 390])
def test_wide_tables_scroll_on_a_screen_and_fit_on_paper(
    width: int, reader: Reader, page: Path
) -> None:
    """Wide tables scroll in themselves, and on paper they fit."""
    look(reader, page, width=width)
    assert reader.run("document.documentElement.scrollWidth") <= width
    if width == 390:
        return
    paper = 698  # pixels: A4 without the margins of the page
    reader.ask("Emulation.setEmulatedMedia", media="print")
    size = {"width": paper, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    reader.ask("Emulation.setDeviceMetricsOverride", **size)
    edges = reader.run(
        "[...document.querySelectorAll('h1, p, article, table, td, svg')]"
        ".filter(one => one.checkVisibility()).map(one => one.getBoundingClientRect().right)"
    )
    reader.ask("Emulation.setEmulatedMedia", media="")
    assert max(edges) <= paper


def test_axe_finds_no_barrier_for_readers(reader: Reader, page: Path) -> None:
    """In both schemes, on a wide and a narrow screen: colours and places have no rule together."""
    choices = ("entry=%3D%2F&is-channel=%3Dgone", urlencode(SEGMENTS))
    for choice, dark, width in zip(choices, (False, True), (1280, 390), strict=True):
        look(reader, page, choice, dark=dark, width=width)
        assert [] == violations(reader)


# -- other rows -----------------------------------------------------------------------------------


def test_rows_of_few_columns_have_a_page_too(reader: Reader, tmp_path: Path) -> None:
    """Without `last_event_time`, it says that lengths contain the gap."""
    names = ["user", "session_id", "session_start", "session_end"]
    report(table_of(visits(20)).select(names), out=tmp_path / "few.html")
    look(reader, tmp_path / "few.html")
    assert {"Sessions": "20"}.items() <= cards(reader).items()
    assert "contains the gap" in reader.run("document.querySelector('#lengths').innerText")
    hidden = reader.run("[...document.querySelectorAll('main [hidden]')].map(one => one.id)")
    assert {"pages", "by", "closings"} <= {*hidden}


HOURLY: Final = {
    "users": "count(DISTINCT who)",
    "value": "sum(value)",
    "converted": "avg(converted::INT)",
    "length": "avg(length) / 1000",
    "views": "coalesce(sum(list_sum(map_values(views))), 0)",
}


@pytest.mark.parametrize("measure", HOURLY)
@pytest.mark.parametrize(
    ("choice", "where"), [({}, "TRUE"), ({"is-channel": "=search"}, "channel = 'search'")]
)
def test_any_few_days_are_shown_by_the_hour(
    measure: str, choice: dict[str, str], where: str, reader: Reader, page: Path
) -> None:
    """In a table of 200 days, under filters, and next to the hours of the days before."""
    look(reader, page, urlencode({"from": "2026-07-01", "to": "2026-07-02", **choice}))
    follow(
        reader, urlencode({"from": "2026-07-01", "to": "2026-07-02", **choice, "measure": measure})
    )
    lines = table(reader, "time")
    assert 48 == len(lines)
    for place, days in ((1, ("2026-07-01", "2026-07-02")), (2, ("2026-06-29", "2026-06-30"))):
        query = (
            f"SELECT (day = '{days[1]}')::INT * 24 + hour(session_start), {HOURLY[measure]} "
            "FROM chosen GROUP BY 1"
        )
        wanted = dict(sql(query, f"{where} AND day IN {days}"))
        found = {n: float(line[place] or 0) for n, line in enumerate(lines)}
        assert found == pytest.approx({n: wanted.get(n, 0) for n in range(48)})


def test_the_map_has_the_figure_that_is_chosen(reader: Reader, page: Path) -> None:
    """Where it adds up over days; a keyboard moves through it, and hears each hour."""
    look(reader, page, "from=2026-07-01&to=2026-08-31&measure=value")
    wanted = sql(
        "SELECT dayname(session_start), hour(session_start), sum(value) FROM chosen GROUP BY 1, 2",
        "day BETWEEN '2026-07-01' AND '2026-08-31'",
    )
    revenue = {(day, hour): value for day, hour, value in wanted}
    assert by_hour(reader) == pytest.approx({of: value for of, value in revenue.items() if value})

    reader.run("document.querySelector('#busy td[tabindex=\"0\"]').focus()")
    for key, code in (("ArrowDown", 40), ("ArrowRight", 39), ("ArrowRight", 39), ("ArrowUp", 38)):
        reader.press(key, code)
    said = f"Monday 02:00: {revenue.get(('Monday', 2), 0):,.2f}"
    assert said == reader.run("document.activeElement.ariaLabel")
    assert said == reader.run("document.querySelector('#busy .map p').innerText")
    for key, code, at in (("End", 35, "Monday 23:00"), ("ArrowRight", 39, "Monday 23:00")):
        reader.press(key, code)
        assert reader.run("document.activeElement.ariaLabel").startswith(at)
    look(reader, page, "from=2026-07-01&to=2026-08-31&measure=users")
    assert "Sessions by weekday" in reader.run("document.querySelector('#busy h3').innerText")


def test_the_last_hour_is_not_over(reader: Reader, tmp_path: Path) -> None:
    """All before it are, and those after it haven't begun."""
    noon = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    row = {**visits(1)[0], "session_start": noon, "last_event_time": noon}
    report(table_of([row]), out=tmp_path / "report.html")
    look(reader, tmp_path / "report.html")
    names = [line[0] for line in table(reader, "time")]
    assert [name.endswith(OPEN) for name in names] == [hour >= 12 for hour in range(24)]
    assert "1 session from 1 Mar 2026;" in reader.run("document.querySelector('#about').innerText")


# -- goals and segments ---------------------------------------------------------------------------


def test_goals_are_counted_and_drawn_over_time(reader: Reader, tmp_path: Path) -> None:
    """Each goal and each step of the funnel; sessions of which it isn't known don't count."""
    goals = [None if n % 7 == 0 else n % 3 == 0 for n in range(3_000)]
    rows = table_of(visits()).append_column("signed", pa.array(goals))
    columns = Columns(dimensions="channel", funnel=FUNNEL, goals="signed", converted="bought")
    report(rows, out=tmp_path / "goals.html", columns=columns)
    look(reader, tmp_path / "goals.html", urlencode({**ALL, "is-channel": "=search"}))
    chosen = "FROM rows WHERE channel = 'search'"
    query = f"SELECT count(*) FILTER (WHERE {{0}}), avg({{0}}::INT) {chosen}"
    wanted = [[name, *asked(rows, query.format(name))[0]] for name in ("bought", "signed")]
    assert wanted == [[a, int(b), float(c)] for a, b, c in table(reader, "goals")]

    reader.run("document.querySelectorAll('#goals td button')[1].click()")
    assert "goal-signed-share" in reader.run("location.hash")
    for measure, sql_of in (
        ("goal-signed-share", "avg(signed::INT)"),
        ("goal-signed-sessions", "count(*) FILTER (WHERE signed)"),
        ("step-carted-sessions", "count(*) FILTER (WHERE viewed AND carted)"),
    ):
        follow(
            reader, urlencode({**ALL, "is-channel": "=search", "measure": measure, "each": "month"})
        )
        months = asked(
            rows,
            f"SELECT {sql_of} {chosen} GROUP BY month(session_start) ORDER BY min(session_start)",
        )
        lines = table(reader, "time")
        assert [float(line[1]) for line in lines] == pytest.approx([n for (n,) in months])


SEGMENTS: Final = {
    "from": "2026-06-01",
    "to": "2026-09-30",
    "compare": "segment",
    "is-channel": "=search",
    "segment": "Searchers",
    "other-is-device": "=phone",
    "other-is-channel": "=mail",
    "other-segment": "Mail <on> phones",
}


def test_two_segments_stand_side_by_side(reader: Reader, page: Path) -> None:
    """Each with its name, filters of its own and the same days, in all that compares."""
    look(reader, page, urlencode(SEGMENTS))
    days = "day BETWEEN '2026-06-01' AND '2026-09-30'"
    wheres = [f"{days} AND channel = 'search'", f"{days} AND channel = 'mail' AND device = 'phone'"]
    figures = """SELECT count(*), count(DISTINCT who), sum(value), avg(length) / 1000,
        quantile_disc(length, 0.5) / 1000, avg(converted::INT) FROM chosen"""
    first, second = (sql(figures, where)[0] for where in wheres)
    lines = {line[0]: line[1:] for line in table(reader, "segments")}
    names = ("Sessions", "Users", "Revenue", "Duration", "Duration, median", "Conversion rate")
    assert first == pytest.approx(tuple(float(lines[name][0]) for name in names))
    assert second == pytest.approx(tuple(float(lines[name][1]) for name in names))
    change = f"{100 * (first[0] - second[0]) / second[0]:+.1f}%"
    assert change.lstrip("+") == lines["Sessions"][2].lstrip("'+")

    card = reader.run("document.querySelector('[data-measure=users]').innerText")
    assert f"Mail <on> phones: {second[1]}" in card
    assert ["Searchers", "Mail <on> phones"] == heads(reader, "time")[1:]
    time = table(reader, "time")
    assert [first[0], second[0]] == [sum(int(line[n]) for line in time) for n in (1, 2)]
    funnel = table(reader, "funnel")
    carted = sql("SELECT count(*) FROM chosen WHERE viewed AND carted", wheres[1])
    assert carted == [(int(funnel[2][5]),)]
    by = {line[0]: line for line in table(reader, "by")}
    assert {"search", "mail"} == {*by}
    assert [str(first[0]), "0"] == [by["search"][n] for n in (1, 3)]
    assert ["0", str(second[0])] == [by["mail"][n] for n in (1, 3)]


def test_a_reader_makes_a_segment_and_its_link_shows_it_again(reader: Reader, page: Path) -> None:
    """A segment without a name is called by its filters."""
    change = (
        "(() => {{ const one = document.querySelector('{}'); one.value = '{}'; "
        "one.dispatchEvent(new Event('change')); }})()"
    )
    look(reader, page, "from=2026-06-01&to=2026-09-30")
    assert reader.run("document.querySelector('#other').hidden")
    for place, value in (("#compare", "segment"), ("#other1", "=phone"), ("#name0", "Everybody")):
        reader.run(change.format(place, value))
    shown = cards(reader)
    address = reader.run("location.hash.slice(1)")
    assert [("segment", "Everybody"), ("compare", "segment"), ("other-is-device", "=phone")] == [
        (name, value)
        for name, value in sorted(parse_qsl(address), key=lambda one: one[0] != "segment")
        if name not in {"from", "to"}
    ]
    look(reader, page, address)
    assert shown == cards(reader)
    period = reader.run("document.querySelector('#period').innerText")
    assert "Everybody, compared with device phone." in period
    look(reader, page, "compare=segment&other-is-device=%3Dgone")
    assert "device gone" in reader.run("document.querySelector('#notes').innerText")


# -- how figures look -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locale", "revenue", "count"),
    [
        ("en-US", "€1,234.50", "1,234"),
        ("de-DE", "1.234,50 €", "1.234"),
        ("fr-FR", "1 234,50 €", "1 234"),
    ],
)
def test_amounts_are_written_as_the_reader_does(
    locale: str, revenue: str, count: str, reader: Reader, tmp_path: Path
) -> None:
    rows = [{**row, "value": 0.0} for row in visits(1_234)]
    rows[0]["value"] = 1234.5
    report(table_of(rows), out=tmp_path / "report.html", columns=Columns(currency="EUR"))
    agent = reader.run("navigator.userAgent")
    reader.ask("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=locale)
    try:
        look(reader, tmp_path / "report.html")
        shown = {name: re.sub(r"\s", " ", text) for name, text in cards(reader).items()}
    finally:
        reader.ask("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage="en-US")
    assert (revenue, count) == (shown["Revenue"], shown["Sessions"])


def test_marks_that_turn_text_are_shown_as_their_code(reader: Reader, tmp_path: Path) -> None:
    """In a value, a page and a link; a page in Hebrew stays apart from the figures next to it."""
    turned = "/\u202egnp.exe\u2066"
    rows = table_of([{**visits(1)[0], "channel": turned, "path": [turned, "/שלום"]}])
    report(rows, out=tmp_path / "report.html", columns=COLUMNS)
    look(reader, tmp_path / "report.html", f"is-device={quote('=' + turned)}")
    text = reader.run(
        "document.querySelector('header').innerText + document.querySelector('main').innerText"
    )
    options = reader.run("[...document.querySelectorAll('option')].map(one => one.text).join()")
    for shown in (text, options):
        assert "/\\u202egnp.exe\\u2066" in shown
        assert not {"\u202e", "\u2066"} & {*shown}
    assert "isolate" == reader.run(
        "getComputedStyle(document.querySelector('#exit td bdi')).unicodeBidi"
    )
    assert turned == table(reader, "entry")[0][0]


def test_a_number_of_one_stands_with_the_singular(reader: Reader, tmp_path: Path) -> None:
    """Nor are words of programmers on the page."""
    row = visits(1)[0]
    rows = table_of([{**row, "path": []}, {**row, "path": ["/"]}]).drop(["kind", "reason"])
    report(rows, out=tmp_path / "report.html", columns=COLUMNS)
    look(reader, tmp_path / "report.html")
    text = reader.run("document.body.innerText")
    assert not re.search(r"(?<![\d.,])1 (?:sessions|days|pages|users|values|Mondays)", text)
    assert "1 session has no path." in text
    assert "sessionize" not in text
    assert "with_rejected" not in text


def test_text_of_a_chart_is_as_large_on_paper_as_on_a_screen(reader: Reader, page: Path) -> None:
    """A chart of a wide screen isn't shrunk, whichever way the browser tells of paper."""
    width = "document.querySelector('#time svg').viewBox.baseVal.width"
    look(reader, page, width=1280)
    screen = reader.run(width)
    assert screen > 1_000
    for begin, end in (("beforeprint", "afterprint"), (None, None)):
        if begin:
            reader.run(f"dispatchEvent(new Event('{begin}'))")
        else:
            reader.ask("Emulation.setEmulatedMedia", media="print")
            reader.wait_for(f"{width} < 700")
        assert 600 < reader.run(width) < 698  # pixels: A4 without the margins of the page
        if end:
            reader.run(f"dispatchEvent(new Event('{end}'))")
        else:
            reader.ask("Emulation.setEmulatedMedia", media="")
            reader.wait_for(f"{width} > 700")
        assert screen == reader.run(width)


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    out = tmp_path / "report.html"
    arguments = [
        str(tmp_path / "rows.parquet"),
        "--out",
        str(out),
        "--dimensions",
        "channel",
        "device",
    ]
    arguments += ["--funnel", *FUNNEL, "--time-zone", "Europe/Berlin"]
    assert main(["report", *arguments]) == 0
    assert re.search(r"report\.html: \d\.\d MB", capsys.readouterr().out)
    assert '"dimensions":["channel","device"]' in out.read_text(encoding="utf-8")
    assert '"zone":"Europe/Berlin"' in out.read_text(encoding="utf-8")
    assert main(["report", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert "there are no Parquet files" in capsys.readouterr().err


def test_a_notebook_shows_it_in_a_frame() -> None:
    """Whose scripts can't reach the notebook; the page is the text it was before."""
    page = report(table_of(visits(20)), title='A "title"')
    assert page.startswith("<!doctype html>")
    assert isinstance(page, Page)
    shown = page._repr_html_()
    assert shown.startswith("<iframe ")
    assert 'sandbox="allow-scripts' in shown
    assert "allow-same-origin" not in shown
    assert "A &amp;quot;title&amp;quot;" in shown
