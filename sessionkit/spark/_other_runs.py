"""What Spark says where another run uses the checkpoint or the folder of a query, in our words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit.errors import SpecError, with_hint
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


class StartedQuery(StreamingQuery):
    """A query whose error begins with our words where only another run explains it."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's)
        try:
            return super().awaitTermination(timeout)
        except StreamingQueryException as error:
            said = in_our_words(error)
            if said is error:
                raise
            raise said from error

    def exception(self) -> StreamingQueryException | None:
        error = super().exception()
        return None if error is None else in_our_words(error)


def in_our_words(error: StreamingQueryException) -> StreamingQueryException:
    """Return an error that begins with our words; the same one where no other run explains it."""
    text = str(error)
    if re.search(OTHER_RUN, text) is None:
        return error
    return type(error)(f"{with_hint(FOUND, HINT)}\n\n{text}", "")
