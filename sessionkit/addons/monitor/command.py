"""`python -m sessionkit watch`."""

from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to those of an `ArgumentParser`."""
    watch = commands.add_parser("watch", help="the live status of the queries of a process")
    watch.set_defaults(lines=_lines)
    watch.add_argument("url", help="its metrics, such as http://127.0.0.1:9108/metrics")
    watch.add_argument("--every", default="1s", help="the interval between two updates, such as 5s")


def _lines(asked: Namespace) -> Iterator[str]:
    import_module("sessionkit.addons.monitor").watch_endpoint(asked.url, every=asked.every)
    yield from ()
