"""What a task knows: to which query and micro-batch it belongs, and what it has read before."""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from sessionkit._engine.shell.payload import NOBODY, Origin, TaskRows
from sessionkit.spark._settings import is_connect

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""What Spark tells each task that the thread of a query starts."""
TAGS: Final = "spark.job.tags"
"""What Connect tells each task that an operation of a client starts: its tags, among others."""
TAG: Final = re.compile(r"sessionkit_([0-9a-f-]{36})_(\d+)")


@contextmanager
def known_to_tasks(spark: SparkSession, query_id: str | None, number: int) -> Iterator[None]:
    """
    Tell the tasks that this thread starts to which query and micro-batch they belong.

    On Connect, what a function of `foreachBatch` asks for is run by a thread of the server that
    isn't the query's. Elsewhere they know it.
    """
    if not query_id or not is_connect(spark):
        yield
        return
    tag = f"sessionkit_{query_id}_{number}"
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


def run_of_task() -> Origin:
    task = TaskContext.get()
    if task is None:
        return NOBODY
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    if query is None or batch is None:
        # Another thread than the query's has started the job: one of Connect's server, or one that
        # a function of `foreachBatch` uses for a write of its own, which nobody tells.
        tagged = TAG.search(task.getLocalProperty(TAGS) or "")
        if tagged is None:
            return NOBODY
        query, batch = tagged.groups()
    return Origin.of(query, int(batch))


def rows_of_task() -> TaskRows | None:
    task = TaskContext.get()
    return None if task is None else _rows_of(task.taskAttemptId())


@lru_cache(maxsize=1)
def _rows_of(attempt: int) -> TaskRows:
    # A worker runs one task after the other, and no two of them have one number.
    del attempt
    return TaskRows()


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
