"""What a machine or a server has refused, said first and with what to do: Py4J names a call."""

import re
from typing import Final

CAUSE: Final = re.compile(r"^(?:Caused by|): (.+)$", re.MULTILINE)
"""A line of a stack trace of Java's: the last such line has the first cause."""
LONGEST: Final = 200
HINTS: Final = {
    "No space left on device|disk quota exceeded|disk is full": (
        "make room on that disk, and start the query again"
    ),
    "Read-only file system|permission denied|AccessDenied|AccessControlException|Mkdirs failed"
    "|mkdir of": "let this user write there, and start the query again",
    "FileAlreadyExists|ParentNotDirectory|not a directory": (
        "a file is where a folder must be: move it, and start the query again"
    ),
    "Connection refused|ConnectException|UnknownHost|timed out|timeout|could not translate host": (
        "start the query again once the server answers"
    ),
}


def first_cause(error: Exception) -> str:
    """Return the first cause in a stack trace of Java's, shortened; of others, class and text."""
    text = str(error)
    causes = CAUSE.findall(text)
    return str(causes[-1])[:LONGEST] if causes else f"{type(error).__name__}: {text}"


def hint_of(cause: str) -> str | None:
    """Return what to do about a cause outside of the query; None for any other."""
    return next(
        (hint for sign, hint in HINTS.items() if re.search(sign, cause, re.IGNORECASE)), None
    )
