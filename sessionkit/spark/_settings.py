"""The Spark that a query runs on: its release, its libraries, and the settings for its speed."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from sessionkit._arguments import explains
from sessionkit.errors import SpecError, UnsupportedError

PYARROW_WITHOUT_FLOATS: Final = (26,)
"""From this release of pyarrow on, `RecordBatch.slice` refuses floats."""
SPARK_WITHOUT_FLOATS: Final = (4, 0, 5)
"""Until this release, Spark passes it floats where a micro-batch has several groups."""
NEEDED: Final = ("attrs", "numpy", "pandas", "pyarrow")
LOOK_FOR: Final = """
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""
PARTITIONS: Final = "spark.sql.shuffle.partitions"
CORES: Final = "cores"
SOURCE_EVOLUTION: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (4, 0, 5) for `4.0.5+amzn.0`."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def own_source(spark: SparkSession, name: str) -> DataStreamReader:
    """Return what reads a source that isn't a user's; with source evolution, each needs a name."""
    reader = spark.readStream
    return reader.name(name) if has_source_evolution(spark) else reader


def has_source_evolution(spark: SparkSession) -> bool:
    """Return whether sources have names in checkpoints, by which others may join them, or go."""
    return spark.conf.get(SOURCE_EVOLUTION, "false") == "true"


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_libraries(
    spark: str = pyspark.__version__,
    python: tuple[int, ...] = sys.version_info[:2],
    pyarrow: str = pa.__version__,
    *,
    is_streaming: bool = True,
) -> None:
    if spark.startswith("3.") and python >= (3, 12) and find_spec("distutils") is None:
        found = f"Spark {spark} imports `distutils`, which Python has no longer since 3.12"
        hint = 'pip install "setuptools<81", which brings it, where the driver and executors run'
        raise UnsupportedError(found, hint)
    too_new = release_of(pyarrow) >= PYARROW_WITHOUT_FLOATS
    if is_streaming and too_new and release_of(spark) < SPARK_WITHOUT_FLOATS:
        found = f"streams of Spark {spark} stop with a TypeError in pyarrow {pyarrow}"
        hint = 'pip install "pyarrow<26", where the driver and executors run, or use Spark 4.0.5'
        raise UnsupportedError(found, hint)


@cache
def check_workers(master: str, program: str) -> None:
    """Check that the Python of Spark's workers has the libraries, if they run on this machine."""
    path = shutil.which(program)
    if path is None or path == sys.executable or not master.startswith("local"):
        return
    # Spark would run the same program.
    command = [path, "-c", LOOK_FOR, *NEEDED]
    looked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    missing = looked.stdout.split()
    if missing:
        text = f"Spark would run Python functions with {path}, which has no {', '.join(missing)}"
        own = f"the driver runs {sys.executable}"
        hint = f"set PYSPARK_PYTHON, or spark.pyspark.python of spark-submit: {own}"
        raise UnsupportedError(text, hint)


class Setting(NamedTuple):
    """A setting that matters for speed; `since` is the first Spark that has it."""

    name: str
    value: str
    until: Literal["start of Spark", "frame is made", "query starts"]
    since: tuple[int, ...] = (3, 5)

    def in_release(self, version: str) -> bool:
        return release_of(version) >= self.since


STORE: Final = "spark.sql.streaming.stateStore"
SETTINGS: Final = (
    # Each partition costs time in every micro-batch.
    Setting(PARTITIONS, CORES, "frame is made"),
    # Below this limit, Spark measures an Arrow batch again after each row.
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1), "query starts", since=(4, 0)
    ),
    # Rows reach Python through Unix sockets instead of TCP.
    Setting("spark.python.unix.domain.socket.enabled", "true", "start of Spark", since=(4, 1)),
    # A micro-batch uploads its changes instead of whole files of RocksDB.
    Setting(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true", "query starts"),
    # Without it, each task starts a Python process.
    Setting("spark.python.worker.reuse", "true", "start of Spark"),
)


@explains
def recommended_settings(cores: int, *, running: bool = False) -> dict[str, str]:
    """
    Return the settings of Spark that matter for speed, for `SparkSession.builder.config(map=...)`.

    Args:
        cores: How many cores the query may use, of all executors together. The number of shuffle
            partitions follows it, which Spark keeps with the checkpoint.
        running: Whether to leave out what only a start of Spark can set. The rest may be set with
            `spark.conf.set` in a session that runs, before the first frame is made.

    Raises:
        SpecError: `cores` isn't a number from 1.
    """
    if type(cores) is not int or cores < 1:
        found = f"`cores` must be a whole number from 1, found {cores!r}"
        raise SpecError(found, "count those of all executors that the query may use")
    return {
        setting.name: str(cores) if setting.value == CORES else setting.value
        for setting in SETTINGS
        if setting.in_release(pyspark.__version__)
        and not (running and setting.until == "start of Spark")
    }


@contextmanager
def tuned(spark: SparkSession) -> Iterator[None]:
    """Set what a query reads as it starts, for the queries that start meanwhile."""
    settings = [setting for setting in SETTINGS if setting.in_release(spark.version)]
    own = {setting.name: setting.value for setting in settings if setting.until == "query starts"}
    before = {name: spark.conf.get(name, None) for name in own}
    try:
        for name, value in own.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, had in before.items():
            spark.conf.unset(name) if had is None else spark.conf.set(name, had)
