"""
A report on sessions: one HTML page with charts, from the rows that a query writes.

    from sessionkit.addons.report import report

    report("/data/visits", out="visits.html", dimension="channel")

It takes a folder or a file of Parquet, a Delta table, a table of PostgreSQL, a DataFrame of Spark
or of pandas, or an Arrow table. DuckDB aggregates the rows, so the page stays small. It needs the
extra `report`.
"""

from pathlib import Path
from typing import Any

from sessionkit.addons.report.columns import Columns
from sessionkit.addons.report.engine import engine_of
from sessionkit.addons.report.page import page_of
from sessionkit.addons.report.summary import summarized
from sessionkit.arguments import explains

__all__ = ["Columns", "report"]


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
        rows: The rows that `sessionize` or `sessionize_all` gives, as a query has written them: a
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
        UnsupportedError: A library is missing, or a DataFrame is one of Spark 3.5.
    """
    page = page_of(summarized(engine_of(rows, table), columns), title)
    if out is not None:
        Path(out).write_text(page, encoding="utf-8")
    return page
