"""The page of a report in a browser: marks in each chart, choices, and nothing from outside."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageChops, ImageStat

from sessionkit.__main__ import main
from sessionkit.addons.report import Columns, report
from tests.addons.report.test_summary import COLUMNS, SCHEMA, SESSIONS, rows, value
from tests.support.browser import BrowserMissingError, Reader, browser_in

FIGURES = [
    *("sessions", "users", "new", "engaged", "bounced", "lengths", "counts", "reasons"),
    *("funnel", "entry", "exit", "kinds", "longest"),
]
MARK = r'aria-roledescription="(?:bar|line mark|area mark|rect|point|area|text mark)"'


PLACES = """[...document.querySelectorAll('figure svg.marks, figure svg')].map(one => {
    const at = one.getBoundingClientRect()
    return [at.left + scrollX, at.top + scrollY, at.width, at.height]
})"""
"""Where the charts are."""
SIZE = (24, 12)
FAINT = 8.0
"""How much the colors of a picture may differ on average, of 255."""
DRAWN = "[...document.querySelectorAll('figure')].every(one => one.querySelector('svg g g'))"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    try:
        with browser_in(tmp_path_factory.mktemp("browser")) as reader:
            yield reader
    except BrowserMissingError as error:
        pytest.skip(f"not run: {error}")


def look(reader: Reader, page: Path, choice: str = "", **screen: Any) -> str:
    """Open a page, with a part of the address after `#`; return its DOM once it's drawn."""
    reader.show(**screen)
    reader.open(f"file://{page}#{choice}")
    reader.wait_for(f"document.querySelector('figure') && {DRAWN}")
    return str(reader.run("document.documentElement.outerHTML"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report(pa.Table.from_pylist(rows(), SCHEMA), out=path, title="Visits & more", columns=COLUMNS)
    return path


def parts(dom: str) -> dict[str, str]:
    """Return the part of the page of each figure."""
    found = re.split(r'<figure id="figure-(\w+)"', dom)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_every_chart_has_marks_and_a_description(reader: Reader, page: Path) -> None:
    dom = look(reader, page)
    assert [] == reader.said
    figures = parts(dom)
    assert sorted(figures) == sorted(FIGURES)
    for name, part in figures.items():
        assert re.search(MARK, part), name
        assert 'aria-label="' in part
        assert part.count("<tr>") > 1, name
    assert "<title>Visits &amp; more</title>" in dom
    assert f"<b>{len(SESSIONS)}</b>sessions" in dom


def test_a_reader_chooses_a_value_and_a_time(reader: Reader, page: Path) -> None:
    of_value = [row for row in SESSIONS if value(row) == "channel 0"]
    assert f"<b>{len(of_value)}</b>sessions" in look(reader, page, "value=channel+0")
    first = min(row["session_start"] for row in SESSIONS).date()
    on_day = [row for row in of_value if row["session_start"].date() == first]
    dom = look(reader, page, f"value=channel+0&from={first}&to={first}")
    assert f"<b>{len(on_day)}</b>sessions" in dom
    assert [] == reader.said


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_looks_as_its_picture(scheme: str, reader: Reader, page: Path) -> None:
    """
    The pictures have so few pixels that fonts don't show, but marks, their sizes and colors do.

    To take one anew, delete it and run this test; then look at it.
    """
    look(reader, page, dark=scheme == "dark")
    pictures = map(Image.open, map(io.BytesIO, map(reader.picture, reader.run(PLACES))))
    charts = [one.convert("RGB").resize(SIZE, Image.Resampling.BOX) for one in pictures]
    stored = Path(__file__).with_name(f"{scheme}.png")
    if not stored.exists():
        strip = Image.new("RGB", (SIZE[0], SIZE[1] * len(charts)))
        for number, chart in enumerate(charts):
            strip.paste(chart, (0, SIZE[1] * number))
        strip.save(stored)
        pytest.fail(f"there was no {stored.name}: it's taken now")
    strip = Image.open(stored)
    assert strip.size == (SIZE[0], SIZE[1] * len(FIGURES))
    for number, (name, chart) in enumerate(zip(FIGURES, charts, strict=True)):
        before = strip.crop((0, SIZE[1] * number, SIZE[0], SIZE[1] * (number + 1)))
        differs = ImageStat.Stat(ImageChops.difference(before, chart)).mean
        assert max(differs) < FAINT, (name, differs)


def test_it_fits_a_telephone(reader: Reader, page: Path) -> None:
    widths = re.findall(r'<svg[^>]*? width="([\d.]+)"', look(reader, page, width=500))
    assert len(widths) == len(FIGURES)
    assert max(map(float, widths)) <= 500


def test_it_asks_no_network(page: Path) -> None:
    """A policy in the page forbids it, and its scripts and styles are in it."""
    text = page.read_text()
    assert "default-src 'none'" in text
    before_scripts = text[: text.index('<script type="application/json"')]
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=", before_scripts)
    assert len(text) < 2_000_000


def test_rows_of_few_columns_have_a_page_too(reader: Reader, tmp_path: Path) -> None:
    names = ["user", "session_id", "session_start", "session_end"]
    table = pa.Table.from_pylist(rows(20)[:20], SCHEMA).select(names)
    report(table, out=tmp_path / "few.html", columns=Columns())
    assert sorted(parts(look(reader, tmp_path / "few.html"))) == [
        "lengths",
        "longest",
        "new",
        "sessions",
        "users",
    ]
    assert [] == reader.said


def test_what_rows_say_is_text(reader: Reader, tmp_path: Path) -> None:
    """A page of a visitor's choice can't run in the reader's browser."""
    bad = "</script><script>console.error('run')</script>"
    made = [{**row, "path": [bad], "channel": bad} for row in rows(20)[:20]]
    report(
        pa.Table.from_pylist(made, SCHEMA),
        out=tmp_path / "bad.html",
        columns=Columns(dimension="channel"),
    )
    look(reader, tmp_path / "bad.html")
    assert [] == reader.said


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.Table.from_pylist(rows(), SCHEMA), tmp_path / "rows.parquet")
    out = tmp_path / "report.html"
    arguments = [str(tmp_path / "rows.parquet"), "--out", str(out), "--dimension", "channel"]
    assert main(["report", *arguments, "--funnel", "viewed", "carted"]) == 0
    assert re.search(r"report\.html: 1\.\d MB", capsys.readouterr().out)
    assert "chart-funnel" in out.read_text()
    assert main(["report", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert "there are no Parquet files" in capsys.readouterr().err
