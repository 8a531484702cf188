"""A query that has started: its error begins with our words, if Spark's don't say what to do."""

import re
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit.errors import HINT, with_hint
from sessionkit.spark import _other_runs
from sessionkit.spark._causes import LONGEST, hint_of

OF_MACHINE: Final = (
    "java.io.",
    "java.net.",
    "java.nio.",
    "org.apache.hadoop.",
    "org.apache.kafka.",
)
"""The packages of errors about a disk, a folder or a server, and not about the query."""


class StartedQuery(StreamingQuery):
    """A query that says what has ended it, where that is another run, a disk or a server."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's)
        try:
            return super().awaitTermination(timeout)
        except StreamingQueryException as error:
            said = in_our_words(error, self._first_cause())
            if said is error:
                raise
            raise said from error

    def exception(self) -> StreamingQueryException | None:
        error = super().exception()
        return None if error is None else in_our_words(error, self._first_cause())

    def _first_cause(self) -> str:
        """Return the first cause that the JVM knows, as Java writes it: Spark shows the last."""
        failed: Any = self._jsq.exception()
        cause, text = failed.get() if failed.isDefined() else None, ""
        while cause is not None:
            text, cause = cause.toString(), cause.getCause()
        return text


def in_our_words(error: StreamingQueryException, cause: str) -> StreamingQueryException:
    """Return an error that begins with our words; the same error where they would say no more."""
    text = str(error)
    hint = hint_of(cause) if cause.startswith(OF_MACHINE) and HINT not in text else None
    if re.search(_other_runs.OTHER_RUN, text):
        said = with_hint(_other_runs.FOUND, _other_runs.HINT)
    elif hint is not None:
        said = with_hint(f"the query has ended: {cause.splitlines()[0][:LONGEST]}", hint)
    else:
        return error
    return type(error)(f"{said}\n\n{text}", "")
