"""`python -m sessionkit gap`."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from sessionkit._for_addons import quiet_session, quoted
from sessionkit.addons.gap import gaps


def add_to(commands: Any) -> None:
    command = commands.add_parser("gap", help="which gap fits the pauses between past events")
    command.set_defaults(lines=_lines)
    command.add_argument("rows", help="a file or folder with events of the past")
    command.add_argument("--format", default="parquet", help="its format, such as csv or json")
    command.add_argument("--keys", required=True, nargs="+", help="the columns with the key")
    command.add_argument("--event-time", required=True, help="the column with the event time")
    command.add_argument("--by", help="a column, each of whose values may need a gap of its own")
    command.add_argument("--gaps", nargs="+", default=(), help="gaps to show besides round ones")
    command.add_argument(
        "--limits", action="store_true", help="what max_duration and max_events would cut, too"
    )


def _lines(asked: Namespace) -> Iterator[str]:
    # PySpark is imported when the command runs.
    from pyspark.sql import functions as F  # noqa: PLC0415

    read = quiet_session().read.format(asked.format)
    rows = read.options(header=True, inferSchema=True).load(asked.rows)
    if asked.event_time in rows.columns:
        time = F.col(quoted(asked.event_time)).cast("timestamp")
        rows = rows.withColumn(asked.event_time, time)
    found = gaps(rows, keys=asked.keys, event_time=asked.event_time, by=asked.by, gaps=asked.gaps)
    yield from (str(found), "", found.picture(), "", found.advice())
    for value, part in found.by.items():
        yield from ("", f"{asked.by} = {value}: {part.advice()}")
    if asked.limits:
        yield from ("", str(found.limits()))
