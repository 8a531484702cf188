"""
Make a report on sessions: one HTML page with charts, from the rows that a query writes.

    from sessionkit.addons.report import Columns, report

    report("/data/visits", out="/data/visits.html", columns=Columns(dimensions="channel"))

The rows may be a folder or a file of Parquet, a Delta table, a PostgreSQL table, a Spark or pandas
DataFrame, or an Arrow table. DuckDB aggregates them, so the page stays small. Needs the extra
`report`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from sessionkit._for_addons import explains
from sessionkit.addons.report.columns import Columns
from sessionkit.addons.report.engine import check_zone, engine_of
from sessionkit.addons.report.postgres import check_no_secret
from sessionkit.addons.report.summary import summarized

__all__ = ["Columns", "report"]

TEMPLATE: Final = files("sessionkit.addons.report").joinpath("page.html")
SCRIPT: Final = files("sessionkit.addons.report").joinpath("page.js")
HEIGHT: Final = 900


@explains
def report(
    rows: Any,
    *,
    out: str | Path | None = None,
    title: str = "Sessions",
    table: str | None = None,
    columns: Columns = Columns(),
    time_zone: str = "UTC",
) -> str:
    """
    Make a page on sessions: their number and duration, users, pages and paths, and rejected rows.

    Times are event time. The last revision of a session counts. Rows of other kinds than `session`
    are counted by kind and reason. The top of the page says what can't be counted.

    Args:
        rows: The rows of `sessionize`, as a query has written them: a folder or file of Parquet,
            the folder of a Delta table, the address of a PostgreSQL database, a pandas DataFrame,
            an Arrow table, or a Spark DataFrame, whose rows come to the driver.
        out: The file to write the page to, if any.
        title: The title of the page.
        table: The table of the PostgreSQL database with the rows.
        columns: The column of each figure. A column that you don't name is found by its usual name;
            see `Columns`.
        time_zone: The zone whose days and hours the page has, such as "Europe/Berlin".

    Returns:
        The page, in HTML.

    Raises:
        SchemaError: The rows lack a column, or have no session.
        SpecError: `out` is the address of a database, as if swapped with `rows`; there is no such
            time zone; or the address is invalid. No message shows the address.
        UnsupportedError: A library is missing, or a DataFrame comes from Spark 3.5.
    """
    check_no_secret("out", out, "pass the address as `rows`, and as `out` where to write the page")
    engine = engine_of(rows, table)
    check_zone(engine, time_zone)
    summary = summarized(engine, columns, time_zone)
    engine.close()
    page = page_of(summary, title)
    if out is not None:
        Path(out).write_text(page, encoding="utf-8")
    return page


class Page(str):
    """The HTML of a page, which a notebook shows in an iframe."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # The sandbox keeps the scripts of the page away from the notebook.
        return (
            f'<iframe title="A report on sessions" srcdoc="{escape(self)}" '
            'sandbox="allow-scripts allow-downloads allow-modals" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )


def page_of(summary: Mapping[str, Any], title: str) -> Page:
    """Return the page, which loads nothing and runs only the script with this digest."""
    script = SCRIPT.read_text(encoding="utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    parts = {"TITLE": escape(title), "DIGEST": digest, "GIVEN": _json(summary), "SCRIPT": script}
    # One pass, so that a value with the name of a part stays as it is.
    return Page(re.sub("%([A-Z]+)%", lambda part: parts[part[1]], TEMPLATE.read_text("utf-8")))


def _json(value: Any) -> str:
    """Return JSON that HTML parsers can't mistake for the end of a script or a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
