"""`python -m sessionkit report`."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from sessionkit.addons.report import Columns, report
from sessionkit.addons.report.columns import ROLES


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of an `ArgumentParser`."""
    command = commands.add_parser("report", help="a page of charts on the sessions of a table")
    command.set_defaults(lines=_lines)
    command.add_argument(
        "rows", help="a folder or file of Parquet, a Delta table, postgresql://..."
    )
    command.add_argument("--out", required=True, help="where to write the page")
    command.add_argument("--table", help="the table of the database")
    command.add_argument("--title", default="Sessions", help="the title of the page")
    for role in ROLES:
        option = f"--{role.replace('_', '-')}"
        command.add_argument(option, help="the column of it, where its name doesn't say so")
    command.add_argument("--keys", nargs="+", default=(), help="the columns that tell users apart")
    command.add_argument("--funnel", nargs="+", default=(), help="the bool columns of its steps")


def _lines(asked: Namespace) -> Iterator[str]:
    columns = Columns(**{role: getattr(asked, role) for role in (*ROLES, "keys", "funnel")})
    page = report(asked.rows, out=asked.out, table=asked.table, title=asked.title, columns=columns)
    yield f"{asked.out}: {len(page) / 1e6:.1f} MB"
