"""What Spark needs and its metadata doesn't ask for, looked for before a query starts."""

import sys
from importlib.util import find_spec

import pyspark

from sessionkit.errors import UnsupportedError, with_hint

__all__ = ["check_libraries"]


def check_libraries(
    spark: str = pyspark.__version__, python: tuple[int, ...] = sys.version_info[:2]
) -> None:
    """
    Check that this Spark finds what it imports when a query with Python functions starts.

    Args:
        spark: The release of PySpark.
        python: The release of Python.

    Raises:
        UnsupportedError: It doesn't; the hint names what to install.
    """
    if spark.startswith("3.") and python >= (3, 12) and find_spec("distutils") is None:
        found = f"Spark {spark} imports `distutils`, which Python has no longer since 3.12"
        hint = 'pip install "setuptools<81", which brings it, where the driver and executors run'
        raise UnsupportedError(with_hint(found, hint))
