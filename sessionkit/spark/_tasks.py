"""The context of a task: its query and micro-batch, and the rows that it has read before."""

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from typing import Final, ParamSpec, TypeVar

from pyspark import TaskContext
from pyspark.sql import SparkSession

from sessionkit._engine.shell.payload import NOBODY, Origin, TaskRows
from sessionkit.errors import SessionkitError
from sessionkit.spark._settings import is_connect

P = ParamSpec("P")
T = TypeVar("T")

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""The local properties of tasks that a query's thread starts."""
TAGS: Final = "spark.job.tags"
"""The local property with the tags of a Connect client, in tasks that its operations start."""
TAG: Final = re.compile(r"sessionkit_([0-9a-f-]{36})_(\d+)")


@contextmanager
def known_to_tasks(spark: SparkSession, query_id: str | None, number: int) -> Iterator[None]:
    """
    Pass the query and micro-batch to all tasks that this thread starts.

    On Connect, the server runs the operations of a `foreachBatch` function in another thread than
    the query's, so their tasks lack its local properties. Elsewhere this does nothing.
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


def message_first(run: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """
    Raise errors of ours in a worker without the traceback of this library.

    Spark shows the traceback before the message, which has the lines of the user's function.
    """

    @wraps(run)
    def shortened(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from run(*args, **kwargs)
        except SessionkitError as error:
            message = type(error).__new__(type(error), *error.args)
            raise error.with_traceback(None) from message  # where Spark shows causes, it's first

    return shortened


def begin_with(message: Exception, error: Exception) -> None:
    """Show a message before the traceback of an error, as its first cause."""
    first: BaseException = error
    while earlier := first.__cause__ or (None if first.__suppress_context__ else first.__context__):
        first = earlier
    first.__cause__ = message


def run_of_task() -> Origin:
    """Return the query and the micro-batch for which this task runs, where they are known."""
    task = TaskContext.get()
    if task is None:
        return NOBODY
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    if query is None or batch is None:
        # Another thread than the query's started the job: a thread of Connect's server, or a thread
        # that a `foreachBatch` function started, which has no tag either.
        tagged = TAG.search(task.getLocalProperty(TAGS) or "")
        if tagged is None:
            return NOBODY
        query, batch = tagged.groups()
    return Origin.of(query, int(batch))


def is_first_batch() -> bool:
    """Return whether the task belongs to the first micro-batch of a query, where that is known."""
    run = run_of_task()
    return run.query != NOBODY.query and run.batch == 0


def rows_of_task() -> TaskRows | None:
    """Return the rows that this task has read and written; None outside a task."""
    task = TaskContext.get()
    return None if task is None else _rows_of(task.taskAttemptId())


@lru_cache(maxsize=1)
def _rows_of(attempt: int) -> TaskRows:
    # A worker runs its tasks one after the other, and attempt ids are unique.
    del attempt
    return TaskRows()


@cache
def freeze_imports(stage: str) -> None:
    """
    Freeze all objects of this process, so that the garbage collector skips them; once per stage.

    Otherwise the collection after each task scans all of pandas, pyarrow and Spark: some 50 ms.
    Only workers may call it: a driver would keep its garbage.
    """
    del stage
    gc.collect()
    gc.freeze()
