"""`python -m sessionkit delay`."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import attrs

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit._for_addons import quiet_session, quoted
from sessionkit.addons.delay import DELAYS, late_events


@attrs.frozen
class EventWithoutFields:
    """An event without fields: the command only reads times."""


def add_to(commands: Any) -> None:
    command = commands.add_parser("delay", help="which watermark delay the events of the past need")
    command.set_defaults(lines=_lines)
    command.add_argument("rows", help="a file or folder with events of the past")
    command.add_argument("--format", default="parquet", help="its format, such as csv or json")
    command.add_argument("--event-time", required=True, help="the column with the event time")
    command.add_argument(
        "--arrived",
        help="the column with the time at which an event arrived; without it, the rows are taken "
        "to have arrived in their order, each at the latest event time until then",
    )
    command.add_argument("--gap", default="30 minutes", help="the gap of sessions")
    command.add_argument("--trigger", default="1 minute", help="the interval of micro-batches")
    command.add_argument("--delays", nargs="+", default=DELAYS, help="the delays to compare")
    command.add_argument("--share", type=float, default=0.001, help="how many may be late")


def _lines(asked: Namespace) -> Iterator[str]:
    # PySpark is imported when the command runs.
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: PLC0415

    spec = SessionSpec.aggregate(
        EventWithoutFields,
        {"events": agg.count()},
        keys={"key": str},
        event_time="at",
        gap=asked.gap,
        watermark_delay="0s",
    )
    read = quiet_session().read.format(asked.format)
    rows = read.options(header=True, inferSchema=True).load(asked.rows)
    at = F.col(quoted(asked.event_time)).cast("timestamp").alias("at")
    if asked.arrived is not None:
        history = rows.select(at, F.col(quoted(asked.arrived)).cast("timestamp").alias("came"))
    else:
        file = F.struct("_metadata.file_modification_time", "_metadata.file_path").alias("file")
        history = rows.select(at, file, F.monotonically_increasing_id().alias("row"))
        so_far = Window.orderBy("file", "row")
        history = history.select("at", F.max("at").over(so_far).alias("came"))
    table = late_events(history, spec, arrived="came", trigger=asked.trigger, delays=asked.delays)
    yield from (str(table), "", table.advice(asked.share))
