"""How a test reads the page of a report in a browser."""

import csv
import io
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.support.browser import Reader

ALL: Final = {"from": "2026-01-01", "to": "2030-01-01"}
"""More days than there are."""
DASH: Final = "\N{EN DASH}"
OPEN: Final = " (not over)"
TAKE: Final = """new Promise((done) => {
    URL.createObjectURL = (blob) => { blob.text().then(done); return "blob:none"; }
    document.querySelector('%s .csv').click()
})"""
"""What a download of a table would hold."""


def look(reader: Reader, page: Path, choice: str = urlencode(ALL), **screen: Any) -> None:
    """Open a page, with a part of the address after `#`, and wait until it's drawn."""
    reader.show(**screen)
    reader.open(f"file://{page}#{choice}")
    reader.wait_for("document.body.dataset.drawn")
    assert [] == reader.said


def follow(reader: Reader, choice: str) -> None:
    """Follow a link within the open page."""
    drawn = reader.run("document.body.dataset.drawn")
    reader.said.clear()  # a table that was taken leaves no file
    reader.run(f"location.hash = {json.dumps(choice)}")
    reader.wait_for(f"document.body.dataset.drawn !== '{drawn}'")
    assert [] == reader.said


def table(reader: Reader, name: str) -> list[list[str]]:
    """Return the lines of a table as its CSV has them, without the heads."""
    text = reader.run(TAKE % f"#{name}")
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


def cards(reader: Reader) -> dict[str, str]:
    found = reader.run(
        "[...document.querySelectorAll('#cards button')].map(one => "
        "[one.firstChild.textContent, one.querySelector('b').textContent])"
    )
    return dict(found)


def medians(reader: Reader) -> dict[str, str]:
    """Return the medians on the cards that have one."""
    found = reader.run(
        "[...document.querySelectorAll('#cards button')].flatMap(one => "
        "[...one.querySelectorAll('span')].filter(line => line.textContent.startsWith('median: '))"
        ".map(line => [one.firstChild.textContent, line.textContent.slice(8)]))"
    )
    return dict(found)


def heads(reader: Reader, name: str) -> list[str]:
    """Return the heads of a table."""
    cells = f"document.querySelectorAll('#{name} .body th')"
    found: list[str] = reader.run(f"[...{cells}].map(one => one.textContent)")
    return found


def by_hour(reader: Reader) -> dict[tuple[str, int], float]:
    """Return the figures of the map of weekdays and hours that aren't nothing."""
    days = heads(reader, "busy")
    return {
        (day, int(hour[:2])): float(value)
        for hour, *values in table(reader, "busy")
        for day, value in zip(days[1:], values, strict=True)
        if value not in {"", "0"}
    }


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else DASH


def money(part: float, whole: int) -> str:
    return f"{part / whole:,.2f}" if whole else DASH


def number(value: float | None) -> str:
    return DASH if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


def span(ms: float | None) -> str:
    """Return a length as the page shows it."""
    if ms is None:
        return DASH
    seconds = int(ms / 1000 + 0.5)
    if ms < 10_000:
        return f"{ms / 1000:.1f}".removesuffix(".0") + "s"
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60:02}m"
