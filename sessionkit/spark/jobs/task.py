"""The task of Spark in which Python runs: of which query and micro-batch, and what it has read."""

from functools import lru_cache
from typing import Final

from pyspark import TaskContext

from sessionkit._engine.payload import NOBODY, Origin
from sessionkit._engine.stored import Neighbours

__all__ = ["rows_of_task", "run_of_task"]

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""What Spark tells each task that the thread of a query starts."""


def run_of_task() -> Origin:
    """
    Return the query and the micro-batch of this task.

    They aren't known in a job that another thread than the query's has started, such as one that a
    function of `foreachBatch` uses for a write of its own.
    """
    task = TaskContext.get()
    if task is None:
        return NOBODY
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    return NOBODY if query is None or batch is None else Origin.of(query, int(batch))


def rows_of_task() -> Neighbours | None:
    """Return the rows of state that this task has read."""
    task = TaskContext.get()
    return None if task is None else _rows_of(task.taskAttemptId())


@lru_cache(maxsize=1)
def _rows_of(attempt: int) -> Neighbours:
    # A worker runs one task after the other, and no two of them have one number.
    del attempt
    return Neighbours()
