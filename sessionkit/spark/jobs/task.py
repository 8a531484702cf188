"""What a worker process can find out about itself and its task."""

import gc
from functools import cache, lru_cache
from typing import Final

from pyspark import TaskContext

from sessionkit._engine.shell.payload import NOBODY, Origin, TaskRows

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""What Spark tells each task that the thread of a query starts."""


@cache
def freeze_imports(stage: str) -> None:
    """
    Freeze what this process has imported, so that the collector of cycles skips it; once a stage.

    After every task Spark's worker looks at every object of pandas, pyarrow and Spark: some 50 ms.
    Only workers may call it: a driver would keep its garbage.
    """
    del stage
    gc.collect()
    gc.freeze()


def run_of_task() -> Origin:
    """Return the query and the micro-batch of this task."""
    task = TaskContext.get()
    if task is None:
        return NOBODY
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    # They aren't known where another thread than the query's has started the job, such as one that
    # a function of `foreachBatch` uses for a write of its own.
    return NOBODY if query is None or batch is None else Origin.of(query, int(batch))


def rows_of_task() -> TaskRows | None:
    """Return the rows of state that this task has read."""
    task = TaskContext.get()
    return None if task is None else _rows_of(task.taskAttemptId())


@lru_cache(maxsize=1)
def _rows_of(attempt: int) -> TaskRows:
    # A worker runs one task after the other, and no two of them have one number.
    del attempt
    return TaskRows()
