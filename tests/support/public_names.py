"""What users import, and what of it they call."""

import inspect
from collections.abc import Iterator
from typing import Final

PUBLIC: Final = [
    "sessionkit",
    "sessionkit.addons.delay",
    "sessionkit.addons.delta",
    "sessionkit.addons.gap",
    "sessionkit.addons.iceberg",
    "sessionkit.addons.monitor",
    "sessionkit.addons.postgres",
    "sessionkit.addons.presets",
    "sessionkit.addons.repair",
    "sessionkit.addons.report",
    "sessionkit.addons.sources",
    "sessionkit.aggregates",
    "sessionkit.errors",
    "sessionkit.spark",
    "sessionkit.spark.dedup",
    "sessionkit.spark.sinks",
    "sessionkit.spark.watermarks",
    "sessionkit.spark.windows",
    "sessionkit.spec",
    "sessionkit.state",
    "sessionkit.testing",
    "sessionkit.testing.strategies",
]
"""The addresses from which users import."""


def members_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield a class or function with its name, and the public methods that a class defines."""
    if inspect.isfunction(value) or inspect.isclass(value):
        yield value.__name__, value
    if inspect.isclass(value):
        for name, member in vars(value).items():
            if not name.startswith("_") and (
                inspect.isfunction(member)
                or isinstance(member, property | classmethod | staticmethod)
            ):
                yield name, getattr(member, "__func__", member)
