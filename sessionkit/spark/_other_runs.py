"""What Spark says where another run uses the checkpoint or the folder of a query, in our words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from sessionkit.errors import SpecError
from sessionkit.spark._logs import Logs, logs_of

OTHER_RUN: Final = (
    r"Race while writing batch|Multiple streaming (jobs|queries)"
    r"|/offsets should be empty on batch 0"
)
"""In errors of Spark's logs, of its file source, of its file sink, and of two first starts."""
FOUND: Final = (
    "another run writes with the checkpoint of this query, or to its folder, and was first"
)
HINT: Final = "leave only one run of a query: stop the other one before you start this one again"


@contextmanager
def said_if_other_run(spark: SparkSession, logs: Logs) -> Iterator[None]:
    """
    Say that another run goes on with a checkpoint, where a check fails meanwhile.

    The checkpoint was read before the sink, so with a run between them the sink looks newer.
    """
    try:
        yield
    except SpecError:
        if logs_of(logs.path, spark).planned == logs.planned:
            raise
        raise SpecError(FOUND, HINT) from None
