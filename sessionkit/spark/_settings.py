"""Spark's release, the libraries of its workers, and settings for speed."""

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from sessionkit._arguments import check_flag, explains
from sessionkit.errors import SpecError, UnsupportedError, with_hint

PYARROW_WITHOUT_FLOATS: Final = (26,)
"""The first pyarrow whose `RecordBatch.slice` refuses floats."""
SPARK_WITHOUT_FLOATS: Final = (4, 0, 5)
"""The first Spark that passes no floats to it; earlier ones do for several groups at once."""
NEEDED: Final = ("attrs", "numpy", "pandas", "pyarrow")
LOOK_FOR: Final = """
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""
PARTITIONS: Final = "spark.sql.shuffle.partitions"
CORES: Final = "cores"
STOPS_OTHERS: Final = "spark.sql.streaming.stopActiveRunOnRestart"
SILENT_S: Final = 10.0
"""After how many seconds a server that doesn't answer is named."""
LOG: Final = logging.getLogger("sessionkit")
PLAN_CACHE: Final = "spark.connect.session.planCache.enabled"
SOURCE_EVOLUTION: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def release_of(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 0, 5) for `4.0.5+amzn.0`."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def own_source(spark: SparkSession, name: str) -> DataStreamReader:
    """Return a reader for an internal source; with source evolution, each source needs a name."""
    reader = spark.readStream
    return reader.name(name) if has_source_evolution(spark) else reader


def has_source_evolution(spark: SparkSession) -> bool:
    """Return whether checkpoints identify sources by name, so that sources can come and go."""
    return spark.conf.get(SOURCE_EVOLUTION, "false") == "true"


def is_connect(part: SparkSession | DataFrame) -> bool:
    return type(part).__module__.startswith("pyspark.sql.connect")


def quiet_session() -> SparkSession:
    """Return the session of a command, whose output is its own lines alone."""
    quiet: dict[str, str | int | float | bool | None] = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.config(map=quiet).getOrCreate()


@contextmanager
def said_if_silent(
    part: SparkSession | DataFrame,
    *,
    after_s: float = SILENT_S,
    say: Callable[[str], object] = LOG.warning,
) -> Iterator[None]:
    """
    Warn, where something asks a server of Spark Connect, if it doesn't answer for ten seconds.

    PySpark itself tries again for minutes, without a word.
    """
    if not is_connect(part):
        yield
        return
    server = os.environ.get("SPARK_REMOTE", "its address").partition("/;")[0]  # no token
    found = f"Spark Connect hasn't answered at {server} for {after_s:g} seconds; PySpark tries on"
    hint = "check the host and the port of SPARK_REMOTE, or of builder.remote(...), and the server"
    timer = threading.Timer(after_s, say, [with_hint(found, hint)])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def plan_each_read(spark: SparkSession) -> None:
    """
    Stop Spark Connect from answering a read with the plan of an earlier one.

    A session keeps a plan, with the files that it found, under its content and number. Each process
    that runs a `foreachBatch` function numbers its plans from 0. So the process of a later query
    would see the folder or the table as the process of an earlier query did.
    """
    if spark.conf.isModifiable(PLAN_CACHE):  # Spark 3.5 has no such setting
        spark.conf.set(PLAN_CACHE, "false")


@cache
def check_libraries(
    spark: str = pyspark.__version__,
    python: tuple[int, ...] = sys.version_info[:2],
    pyarrow: str = pa.__version__,
    *,
    is_streaming: bool = True,
) -> None:
    """Refuse versions of Python and pyarrow with which this Spark fails."""
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
    """Check that the Python of Spark's workers has the libraries, if Spark runs locally."""
    path = shutil.which(program)
    if path is None or path == sys.executable or not master.startswith("local"):
        return
    # Running this program is safe: Spark would run it too.
    command = [path, "-c", LOOK_FOR, *NEEDED]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    missing = completed.stdout.split()
    if missing:
        text = f"Spark would run Python functions with {path}, which has no {', '.join(missing)}"
        driver = f"the driver runs {sys.executable}"
        hint = f"set PYSPARK_PYTHON, or spark.pyspark.python of spark-submit: {driver}"
        raise UnsupportedError(text, hint)


class Setting(NamedTuple):
    """A setting of Spark for speed, and the first release that has it (`since`)."""

    name: str
    value: str
    until: Literal["start of Spark", "frame is made", "query starts"]
    since: tuple[int, ...] = (3, 5)

    def in_release(self, version: str) -> bool:
        return release_of(version) >= self.since


STORE: Final = "spark.sql.streaming.stateStore"
# With a lower limit, Spark measures an Arrow batch after each row.
ARROW_LIMIT: Final = Setting(
    "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1), "query starts", since=(4, 0)
)
SETTINGS: Final = (
    # Each partition costs time in every micro-batch.
    Setting(PARTITIONS, CORES, "frame is made"),
    ARROW_LIMIT,
    # Rows reach Python through Unix sockets instead of TCP.
    Setting("spark.python.unix.domain.socket.enabled", "true", "start of Spark", since=(4, 1)),
    # A micro-batch uploads only its changes instead of whole RocksDB files.
    Setting(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true", "query starts"),
    # Otherwise each task starts a Python process.
    Setting("spark.python.worker.reuse", "true", "start of Spark"),
)


def is_observation(value: object) -> bool:
    """Return whether a value is an Observation, of classic Spark or of Connect."""
    return "Observation" in {cls.__name__ for cls in type(value).__mro__}


# `Any`, since a type checker refuses a dict of strings where `config(map=...)` also takes numbers.
@explains
def recommended_settings(cores: int, *, running: bool = False) -> dict[str, Any]:
    """
    Return Spark settings for speed: a dict of their names and values.

    Pass it to `SparkSession.builder.config(map=...)`. It has the settings that the installed Spark
    knows, among them the number of shuffle partitions; it doesn't choose a state store.

    Args:
        cores: How many cores of all executors together the query may use. It becomes the number of
            shuffle partitions, which Spark keeps with the checkpoint.
        running: Whether to leave out the settings that apply only at the start of Spark. Set the
            remaining ones with `spark.conf.set`, before the running session makes a DataFrame.

    Raises:
        SpecError: `cores` isn't a whole number from 1.
    """
    if type(cores) is not int or cores < 1:
        found = f"`cores` must be a whole number from 1, found {cores!r}"
        raise SpecError(found, "count the cores of all executors that the query may use")
    check_flag("running", running)
    return {
        setting.name: str(cores) if setting.value == CORES else setting.value
        for setting in SETTINGS
        if setting.in_release(pyspark.__version__)
        and not (running and setting.until == "start of Spark")
    }


BATCH_ADVICE: Final = with_hint(
    "Spark measures each Arrow batch after every row: a batch takes 1.5 to 1.8 times as long",
    f'spark.conf.set("{ARROW_LIMIT.name}", "{ARROW_LIMIT.value}"), '
    "which is one of recommended_settings",
)


def advice_for_batch(spark: SparkSession) -> str | None:
    """Return what to set for a faster batch; None where that is set, to whatever value."""
    is_set = spark.conf.get(ARROW_LIMIT.name, None) is not None
    return None if is_set or not ARROW_LIMIT.in_release(spark.version) else BATCH_ADVICE


@cache
def say_once(advice: str) -> None:
    """Log an advice unless this process has logged it before."""
    LOG.warning("%s", advice)


@contextmanager
def set_at_start(spark: SparkSession, *, tune: bool) -> Iterator[None]:
    """
    Apply the settings that a query reads at its start, to queries that start in this context.

    Spark then refuses a checkpoint that a query of another session uses, which it would stop.
    """
    may_set = spark.conf.get(STOPS_OTHERS, None) is None and spark.conf.isModifiable(STOPS_OTHERS)
    changed = {STOPS_OTHERS: "false"} if may_set else {}
    for setting in SETTINGS if tune else ():
        if setting.until == "query starts" and setting.in_release(spark.version):
            changed[setting.name] = setting.value
    before = {name: spark.conf.get(name, None) for name in changed}
    try:
        for name, value in changed.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
