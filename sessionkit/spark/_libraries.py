"""The version of Spark, and what it needs beyond its declared dependencies."""

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from sessionkit.errors import UnsupportedError, with_hint

PYARROW_WITHOUT_FLOATS: Final = (26,)
"""From this release of pyarrow on, `RecordBatch.slice` refuses floats."""
SPARK_WITHOUT_FLOATS: Final = (4, 0, 5)
"""Until this release, Spark passes it floats where a micro-batch has several groups."""
NEEDED: Final = ("attrs", "numpy", "pandas", "pyarrow")
LOOK_FOR: Final = """
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (4, 0, 5) for `4.0.5+amzn.0`."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_libraries(
    spark: str = pyspark.__version__,
    python: tuple[int, ...] = sys.version_info[:2],
    pyarrow: str = pa.__version__,
    *,
    is_streaming: bool = True,
) -> None:
    """Check that this Spark can run a query with Python functions and these libraries."""
    if spark.startswith("3.") and python >= (3, 12) and find_spec("distutils") is None:
        found = f"Spark {spark} imports `distutils`, which Python has no longer since 3.12"
        hint = 'pip install "setuptools<81", which brings it, where the driver and executors run'
        raise UnsupportedError(with_hint(found, hint))
    too_new = release_of(pyarrow) >= PYARROW_WITHOUT_FLOATS
    if is_streaming and too_new and release_of(spark) < SPARK_WITHOUT_FLOATS:
        found = f"streams of Spark {spark} stop with a TypeError in pyarrow {pyarrow}"
        hint = 'pip install "pyarrow<26", where the driver and executors run, or use Spark 4.0.5'
        raise UnsupportedError(with_hint(found, hint))


def check_workers_of(spark: SparkSession) -> None:
    """
    Check that the Python that Spark starts for its workers has the libraries; see `check_workers`.

    On Connect nobody here knows which one that is.
    """
    if not is_connect(spark):
        context = spark.sparkContext
        check_workers(context.master, context.pythonExec)


@cache
def check_workers(master: str, program: str) -> None:
    """Check that the Python of Spark's workers has the libraries, if they run on this machine."""
    found = shutil.which(program)
    if found is None or found == sys.executable or not master.startswith("local"):
        return
    command = [found, "-c", LOOK_FOR, *NEEDED]
    # Spark would run the same program.
    looked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    missing = looked.stdout.split()
    if missing:
        text = f"Spark would run Python functions with {found}, which has no {', '.join(missing)}"
        own = f"the driver runs {sys.executable}"
        hint = f"set PYSPARK_PYTHON, or spark.pyspark.python of spark-submit: {own}"
        raise UnsupportedError(with_hint(text, hint))
