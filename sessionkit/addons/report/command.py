"""`python -m sessionkit report`."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final

from sessionkit.addons.report import Columns, report
from sessionkit.addons.report.columns import ROLES

LISTS: Final = {
    "keys": "the columns that identify a user",
    "dimensions": "the text columns by which to compare and filter",
    "goals": "bool columns of other goals that a session may reach",
    "funnel": "the column of agg.funnel, or a bool column for each step",
    "steps": "the names of the steps that the funnel counts",
}

MORE: Final = ("currency", "path_at_most")


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
    for role, text in LISTS.items():
        command.add_argument(f"--{role}", nargs="+", default=(), help=text)
    command.add_argument("--currency", help="the code of the currency of `value`, as EUR")
    command.add_argument(
        "--path-at-most", type=int, default=100, help="how many pages `path` keeps"
    )
    command.add_argument("--time-zone", default="UTC", help="the zone of days, as Europe/Berlin")


def _lines(asked: Namespace) -> Iterator[str]:
    columns = Columns(**{role: getattr(asked, role) for role in (*ROLES, *LISTS, *MORE)})
    page = report(
        asked.rows,
        out=asked.out,
        table=asked.table,
        title=asked.title,
        columns=columns,
        time_zone=asked.time_zone,
    )
    yield f"{asked.out}: {len(page) / 1e6:.1f} MB"
