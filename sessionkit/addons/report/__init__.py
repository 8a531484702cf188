"""
A report on sessions: one HTML page with charts, from the rows that a query writes.

    from sessionkit.addons.report import Columns, report

    report("/data/visits", out="/data/visits.html", columns=Columns(dimension="channel"))

It takes a folder or a file of Parquet, a Delta table, a table of PostgreSQL, a DataFrame of Spark
or of pandas, or an Arrow table. DuckDB aggregates the rows, so the page stays small. It needs the
extra `report`.
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
from sessionkit.addons.report.engine import engine_of
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
) -> str:
    """
    Make a page that shows sessions: how many, how long, by whom, by which paths, and what was late.

    Times are event time, in UTC. Where a session has several revisions, its last one counts. Rows
    of other kinds than `session` are counted by kind and reason.

    Args:
        rows: The rows that `sessionize` gives, as a query has written them: a
            folder or file of Parquet, the folder of a Delta table, the address of a PostgreSQL
            database, a DataFrame of pandas, an Arrow table, or a DataFrame of Spark, whose rows
            come to the driver.
        out: Where to write the page.
        title: Its title.
        table: Which table of the database has the rows.
        columns: Which columns say what. Those that aren't named are found by usual names.

    Returns:
        The page, in HTML.

    Raises:
        SchemaError: The rows lack a column, or there is no session.
        SpecError: The arguments are swapped, or nobody can connect to the address: no message shows
            it.
        UnsupportedError: A library is missing, or a DataFrame is one of Spark 3.5.
    """
    check_no_secret("out", out, "pass the address as `rows`, and as `out` where to write the page")
    page = page_of(summarized(engine_of(rows, table), columns), title)
    if out is not None:
        Path(out).write_text(page, encoding="utf-8")
    return page


class Page(str):
    """A page as its HTML, which a notebook shows in a frame of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # A sandbox: the scripts of the page can't reach the notebook.
        return (
            f'<iframe title="A report on sessions" srcdoc="{escape(self)}" '
            'sandbox="allow-scripts allow-downloads allow-modals" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )


def page_of(summary: Mapping[str, Any], title: str) -> Page:
    """Return the page: it asks no network for anything, and runs no script but its own."""
    script = SCRIPT.read_text(encoding="utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    parts = {"TITLE": escape(title), "DIGEST": digest, "GIVEN": _json(summary), "SCRIPT": script}
    # One pass, so that no value is looked through for the names of parts.
    return Page(re.sub("%([A-Z]+)%", lambda part: parts[part[1]], TEMPLATE.read_text("utf-8")))


def _json(value: Any) -> str:
    """Return JSON that no parser of HTML takes for the end of a script, or a comment in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
