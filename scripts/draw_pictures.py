"""
Draw the pictures of README and docs, from today's code: `python -m scripts.draw_pictures`.

`make docs` runs it. Of SVG are the events and sessions of the README's first code, the live view of
a query, the recorded hour of `make soak`, and how cost grows. Chromium takes the pictures of the
sample shop's report, if that page has changed.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import pyarrow.compute as pc

from examples.shop.events import made_up
from examples.shop.spec import STEPS, VISITS
from scripts.growth_pictures import measured_pictures
from scripts.job_pictures import soak_svg, watch_svg
from scripts.svg import picture, text
from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons.report import Columns, report
from sessionkit.testing import SessionDriver
from tests.support.browser import BrowserMissingError, browser_in

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
EVENT: Final = re.compile(r"\('(\w+)', '([\d :-]+)', '([/\w]+)'\)")
SCHEMES: Final = {
    "light": {
        "card": "#f6f8fa", "line": "#d0d7de", "text": "#1f2328", "quiet": "#59636e",
        "bar": "#b6d4f5", "edge": "#2a6fbb", "event": "#b3470f",
    },
    "dark": {
        "card": "#161b22", "line": "#3d444d", "text": "#e6edf3", "quiet": "#9aa4ae",
        "bar": "#1f4b7d", "edge": "#6cb0ff", "event": "#ff9d5c",
    },
}  # fmt: skip
WIDTH: Final = 372
HEIGHT: Final = 294
LEFT: Final = 18
AXIS: Final = (62, 346)
"""Where the first and the last hour of the axis are."""

USERS: Final = 400
DIGEST: Final = "report.sha256"
"""Of the page from which the pictures of the report were taken."""


# -- events in, sessions out ----------------------------------------------------------------------


@attrs.frozen
class View:
    """A row of the README's first code."""

    user: str
    ts: datetime
    page: str


@attrs.frozen
class Page:
    """What the spec reads of it."""

    page: str


def views() -> list[View]:
    """Return the events of the README's first code, in the order in which they stand there."""
    found = EVENT.findall((ROOT / "README.md").read_text("utf-8"))
    return [View(user, datetime.fromisoformat(f"{ts}+00:00"), page) for user, ts, page in found]


def visits() -> list[Any]:
    """Return the sessions of these events, by user and start."""
    spec = SessionSpec.aggregate(
        Page,
        {
            "pages": agg.count(),
            "landing": agg.first("page"),
            "bought": agg.any(pc.field("page") == "/thanks"),
        },
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="10 minutes",
    )
    driver = SessionDriver(spec)
    for view in views():
        driver.add(view.user, view.ts, Page(view.page))
    driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    return sorted(driver.take_rows(), key=lambda row: (row.key.user, row.session_start))


def pictures() -> dict[str, str]:
    """Return each picture in SVG, by its file's name."""
    drawn = {
        "events": events_svg,
        "sessions": sessions_svg,
        "soak": soak_svg,
        **measured_pictures(),
    }
    return {"watch.svg": watch_svg()} | {
        f"{name}-{scheme}.svg": draw(colours)
        for scheme, colours in SCHEMES.items()
        for name, draw in drawn.items()
    }


def events_svg(colours: dict[str, str]) -> str:
    """Return the table of events as they come."""
    rows = [(f"{view.ts:%H:%M}", view.user, view.page) for view in views()]
    label = "Events in: " + "; ".join(" ".join(row) for row in rows)
    columns = (LEFT, LEFT + 90, LEFT + 180)
    return card("Events in", label, table(("ts", "user", "page"), rows, columns, 76, 34), colours)


def sessions_svg(colours: dict[str, str]) -> str:
    """Return the sessions on a time line, and as rows."""
    found = visits()
    users = sorted({row.key.user for row in found})
    first = min(row.session_start for row in found)
    span = max(row.session_end for row in found) - first
    hours = [first + timedelta(hours=hour) for hour in range(int(span / timedelta(hours=1)) + 1)]

    def x(at: datetime) -> float:
        share: float = (at - first) / span
        return round(AXIS[0] + (AXIS[1] - AXIS[0]) * share, 1)

    parts = []
    for hour in hours:
        parts.append(f'<path class="line" d="M{x(hour)} 58V148"/>')
        parts.append(text(x(hour), 164, f"{hour:%H:%M}", "quiet small", "middle"))
    for place, user in enumerate(users):
        y = 62 + 44 * place
        parts.append(text(LEFT, y + 22, user))
        for row in found:
            if row.key.user == user:
                begin, end = x(row.session_start), x(row.session_end)
                width = round(end - begin, 1)
                parts.append(
                    f'<rect class="bar" x="{begin}" y="{y}" width="{width}" height="34" rx="6"/>'
                )
        at = [x(view.ts) for view in views() if view.user == user]
        parts += [f'<circle class="event" cx="{each}" cy="{y + 17}" r="5"/>' for each in at]
    rows = [
        (
            row.key.user,
            f"{row.session_start:%H:%M}",
            str(row.result.pages),
            row.result.landing,
            str(row.result.bought).lower(),
        )
        for row in found
    ]
    heading = ("user", "start", "pages", "landing", "bought")
    columns = (LEFT, LEFT + 60, LEFT + 124, LEFT + 186, LEFT + 268)
    label = "Sessions out: " + "; ".join(" ".join(row) for row in rows)
    return card("Sessions out", label, [*parts, *table(heading, rows, columns, 196, 24)], colours)


def table(
    heading: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    columns: tuple[int, ...],
    top: int,
    step: int,
) -> list[str]:
    """Return a table as text at places."""
    parts = [text(x, top, name, "quiet") for x, name in zip(columns, heading, strict=True)]
    parts.append(f'<path class="line" d="M{LEFT} {top + 8}H{WIDTH - LEFT}"/>')
    for place, row in enumerate(rows, 1):
        y = top + 6 + step * place
        parts += [text(x, y, cell, "code") for x, cell in zip(columns, row, strict=True)]
    return parts


def card(title: str, label: str, parts: list[str], colours: dict[str, str]) -> str:
    """Return a picture with a frame and a heading; the label has no character to escape."""
    style = (
        "text{{font:15px system-ui,sans-serif;fill:{text}}}"
        ".quiet{{fill:{quiet}}}.small{{font-size:12px}}"
        ".code{{font-family:ui-monospace,Consolas,monospace;font-size:14px}}"
        ".title{{font-weight:600;font-size:17px}}.card{{fill:{card};stroke:{line}}}"
        ".line{{stroke:{line};fill:none}}.bar{{fill:{bar};stroke:{edge}}}.event{{fill:{event}}}"
    ).format(**colours)
    edges = f'x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}"'
    frame = f'<rect class="card" {edges} rx="10"/>'
    return picture(WIDTH, HEIGHT, label, style, [frame, text(LEFT, 34, title, "title"), *parts])


# -- the report -----------------------------------------------------------------------------------


def report_page() -> str:
    """Return the report of the sample shop, whose events are made up."""
    driver = SessionDriver(VISITS)
    for row in made_up(USERS).to_pylist():
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    columns = Columns(dimensions=("credit", "channel"), funnel="far", steps=STEPS)
    return str(report(driver.take_frame(), title="A shop", columns=columns))


def digest_of(page: str) -> str:
    """Return what tells a page from another."""
    return hashlib.sha256(page.encode()).hexdigest()


def take_pictures(page: str) -> None:
    """Write the report as a reader sees it first, in both schemes."""
    with TemporaryDirectory(prefix="report-") as folder, browser_in(Path(folder)) as reader:
        path = Path(folder, "report.html")
        path.write_text(page, "utf-8")
        for scheme in SCHEMES:
            reader.show(width=1280, dark=scheme == "dark")
            reader.open(f"file://{path}")
            reader.wait_for("document.body.dataset.drawn")
            picture = reader.picture((0, 0, 1280, 1000))
            (PICTURES / f"report-{scheme}.png").write_bytes(picture)
    (PICTURES / DIGEST).write_text(f"{digest_of(page)}\n", "utf-8")


def main() -> None:
    """Write each picture that has changed."""
    PICTURES.mkdir(exist_ok=True)
    for name, drawn in pictures().items():
        path = PICTURES / name
        if not path.exists() or path.read_text("utf-8") != drawn:
            path.write_text(drawn, "utf-8")
    page, digest = report_page(), PICTURES / DIGEST
    if digest.exists() and digest.read_text("utf-8").strip() == digest_of(page):
        return
    try:
        take_pictures(page)
    except BrowserMissingError as error:
        print(f"the pictures of the report stay as they were: {error}")


if __name__ == "__main__":
    main()
