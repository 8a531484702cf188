"""
A repair that is killed: `python -m tests.support.killed_repair FILE` does what the file says.

It writes a line when Spark runs and the repair begins, and another one when it has ended.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark.sql import SparkSession

from sessionkit.addons.repair import repair
from tests.support.repairs import Right, spec_of

BEGUN: Final = "begun"
ENDED: Final = "ended"
OWN: Final = ("spark.app.", "spark.driver.host", "spark.driver.port", "spark.executor.id")
"""The settings that each JVM has of its own."""


@attrs.frozen
class Task:
    """A repair: of which table, from which files, under which settings of Spark."""

    sink: Any
    source: Path
    checkpoint: str
    settings: dict[str, str]
    until: Any


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return what another JVM needs to see the same tables."""
    settings = dict(spark.sparkContext.getConf().getAll())
    return {name: value for name, value in settings.items() if not name.startswith(OWN)}


def main(task: Task) -> None:
    spark = SparkSession.builder.config(map=dict(task.settings)).getOrCreate()
    history = spark.read.parquet(str(task.source))
    say(BEGUN)
    arguments: dict[str, Any] = {"checkpoint": task.checkpoint, "between": (None, task.until)}
    done = repair(task.sink, spec_of(Right), history, **arguments)
    say(ENDED, **done.counts)
    os._exit(0)


def say(what: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"said": what, **more}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(pickle.loads(Path(sys.argv[1]).read_bytes()))  # noqa: S301 (our own)
