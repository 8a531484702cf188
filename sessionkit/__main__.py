"""
Look into a checkpoint from the command line, watch queries, or report on what they wrote.

    python -m sessionkit inspect CHECKPOINT [--spec module:name]
    python -m sessionkit sessions CHECKPOINT --spec module:name --key VALUE [VALUE ...]
    python -m sessionkit watch URL [--every 1s]
    python -m sessionkit report ROWS --out report.html [--dimension COLUMN] ...
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from sessionkit._printable import printable
from sessionkit.errors import SessionkitError, with_hint


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        for line in _lines(asked):
            print(printable(line, keep="\n"))  # noqa: T201 (a program prints)
    except SessionkitError as error:
        print(printable(str(error), keep="\n"), file=sys.stderr)  # noqa: T201 (a program prints)
        return 1
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "python -m sessionkit",
        description="Look into a checkpoint, watch queries, or report on sessions.",
    )
    commands = parser.add_subparsers(required=True, dest="command")
    inspect = commands.add_parser("inspect", help="what is in a checkpoint")
    sessions = commands.add_parser("sessions", help="what is stored of a key")
    for command in (inspect, sessions):
        command.add_argument("checkpoint", help="the checkpoint location")
        required = command is sessions
        command.add_argument("--spec", required=required, help="a spec, such as jobs.visits:VISITS")
    sessions.add_argument(
        "--key", required=True, nargs="+", help="the key, a value for each of its columns"
    )
    watch = commands.add_parser("watch", help="how the queries of a process stand, live")
    watch.add_argument("url", help="its metrics, such as http://127.0.0.1:9108/metrics")
    watch.add_argument("--every", default="1s", help="how long between two looks, such as 5s")
    report = commands.add_parser("report", help="a page of charts on the sessions of a table")
    report.add_argument(
        "rows", help="a folder or file of Parquet, a Delta table, or postgresql://..."
    )
    report.add_argument("--out", required=True, help="where to write the page")
    report.add_argument("--table", help="the table of the database")
    report.add_argument("--title", default="Sessions", help="the title of the page")
    for role in ("events", "path", "entry", "exit", "engaged", "bounce", "number", "dimension"):
        report.add_argument(
            f"--{role}", help=f"the column of the {role}, if its name doesn't say so"
        )
    report.add_argument("--keys", nargs="+", default=(), help="the columns that tell users apart")
    report.add_argument("--funnel", nargs="+", default=(), help="the bool columns of its steps")
    return parser


def _lines(asked: Namespace) -> Iterator[str]:
    if asked.command == "watch":
        import_module("sessionkit.spark.monitor").watch_endpoint(asked.url, every=asked.every)
        return
    if asked.command == "report":
        yield _reported(**vars(asked))
        return
    spec = None if asked.spec is None else _spec(asked.spec)
    # Spark is loaded only here: `--help` and wrong arguments don't need it.
    spark = import_module("pyspark.sql").SparkSession.builder.config(
        map={
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
    )
    reports = import_module("sessionkit.spark.checkpoints.inspecting")
    session = spark.getOrCreate()
    if asked.command == "inspect":
        yield from reports.inspected(asked.checkpoint, spec, spark=session)
    else:
        yield from reports.sessions_of_key(asked.checkpoint, spec, asked.key, spark=session)


def _reported(
    *, command: str, rows: str, out: str, table: str | None, title: str, **columns: Any
) -> str:
    package = import_module(f"sessionkit.{command}")
    page = package.report(
        rows, out=out, table=table, title=title, columns=package.Columns(**columns)
    )
    return f"{out}: {len(page) / 1e6:.1f} MB"


def _spec(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        found = f"there is no spec `{text}`: {error}"
        raise SessionkitError(with_hint(found, "write --spec module:name")) from error


if __name__ == "__main__":
    sys.exit(main())
