"""What Spark shows of an error in a sink: first what it says, and then where it comes from."""

import re
from itertools import dropwhile, takewhile
from typing import Final

from pyspark.errors import PySparkException

from sessionkit.errors import SinkError

__all__ = ["say_first"]

OWN: Final = re.compile(r"^sessionkit\.errors\.(?=\w+: )", re.MULTILINE)
FRAME: Final = re.compile(r'^ +File ".*", line \d+.*$', re.MULTILINE)
JAVA: Final = ("\tat ", "Driver stacktrace:", " SQLSTATE: ")


def say_first(error: Exception) -> None:
    """
    Let the traceback of an error begin with what it says.

    Spark shows the traceback of what a function of `foreachBatch` raises, after words of its own.
    Python begins it with the first cause, so that is what the error says.
    """
    first: BaseException = error
    while (earlier := _before(first)) is not None:
        first = earlier
    first.__cause__ = SinkError(_reason(error))


def _before(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _reason(error: Exception) -> str:
    """Return what an error says; if it's Spark's, what that of the executor says."""
    said = str(error)
    if isinstance(error, PySparkException):
        own, frames = OWN.search(said), [*FRAME.finditer(said)]
        if own or frames:
            lines = said[own.end() if own else frames[-1].end() :].splitlines()
            told = dropwhile(lambda line: not line or line.startswith(" "), lines)
            return "\n".join(takewhile(lambda line: not line.startswith(JAVA), told)).strip()
    return f"{type(error).__name__}: {said}"
