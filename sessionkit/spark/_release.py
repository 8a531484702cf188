"""Which Spark this is: what it can do depends on its release, and on Connect."""

import re

from pyspark.sql import SparkSession

__all__ = ["is_connect", "release_of"]


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (4, 0, 5) for `4.0.5+amzn.0`."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
