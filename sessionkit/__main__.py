"""
Inspect a checkpoint, or erase a key; add-ons have their own commands.

    python -m sessionkit inspect CHECKPOINT [--spec module:name]
    python -m sessionkit sessions CHECKPOINT --spec module:name --key VALUE [VALUE ...]
    python -m sessionkit erase CHECKPOINT --spec module:name --key VALUE [VALUE ...]
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.resources import files
from typing import Any

from sessionkit.errors import SessionkitError, printable


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        for line in options.lines(options):
            print(printable(line, keep="\n"))  # noqa: T201 (a program prints)
    except SessionkitError as error:
        print(printable(str(error), keep="\n"), file=sys.stderr)  # noqa: T201 (a program prints)
        return 1
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "python -m sessionkit",
        description="Look into a checkpoint, erase a key, or run the command of an add-on.",
    )
    commands = parser.add_subparsers(required=True)
    inspect = commands.add_parser("inspect", help="what is in a checkpoint")
    sessions = commands.add_parser("sessions", help="what is stored of a key")
    erase = commands.add_parser("erase", help="let a query drop all that it has stored of a key")
    for command in (inspect, sessions, erase):
        command.set_defaults(lines=_checkpoint_lines, key=None)
        command.add_argument("checkpoint", help="the checkpoint location")
        required = command is not inspect
        command.add_argument("--spec", required=required, help="a spec, such as jobs.visits:VISITS")
    for command in (sessions, erase):
        command.add_argument(
            "--key", required=True, nargs="+", help="the key, a value for each of its columns"
        )
    erase.set_defaults(lines=_erase_lines)
    for addon in files("sessionkit.addons").iterdir():
        if addon.joinpath("command.py").is_file():
            import_module(f"sessionkit.addons.{addon.name}.command").add_to(commands)
    return parser


# Commands import Spark when they run, so that `--help` and wrong arguments don't need it.


def _checkpoint_lines(options: Namespace) -> Iterator[str]:
    spec = None if options.spec is None else _spec(options.spec)
    reports = import_module("sessionkit.spark.checkpoints.inspecting")
    session = _session()
    if options.key is None:
        yield from reports.inspected(options.checkpoint, spec, spark=session)
    else:
        yield from reports.sessions_of_key(options.checkpoint, spec, options.key, spark=session)


def _erase_lines(options: Namespace) -> Iterator[str]:
    spec, checkpoints = _spec(options.spec), "sessionkit.spark.checkpoints"
    key = import_module(f"{checkpoints}.reading").key_of_texts(spec, options.key)
    erasing = import_module(f"{checkpoints}.erasing")
    erasing.erase_key(options.checkpoint, spec, key, spark=_session())
    yield "asked: the query erases the key in its next micro-batch"


def _session() -> Any:
    return import_module("sessionkit.spark._settings").quiet_session()


def _spec(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        spec = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        found = f"there is no spec `{text}`: {error}"
        raise SessionkitError(found, "write --spec module:name") from error
    import_module("sessionkit.spec.calls").check_kind(spec, argument="--spec")
    return spec


if __name__ == "__main__":
    sys.exit(main())
