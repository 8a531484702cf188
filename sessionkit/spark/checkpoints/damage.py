"""Damage that Spark, or an executor, finds while it reads state, as an error of sessionkit."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sessionkit import errors
from sessionkit._engine.payload import RESTORE
from sessionkit.errors import SessionkitError, StateCorruptedError, with_hint

__all__ = ["damage_named"]

OURS: Final = re.compile(
    r"sessionkit\.errors\.(State\w*Error|UserFunctionError): (.*?\n\nHint: [^\n]*)", re.DOTALL
)
"""An error that was raised in a Python worker, in the trace that Spark makes of it."""
FILE: Final = re.compile(r"[^\s\[\]()',]*/(?:state/\d+|sources/\d+|offsets|commits)/[^\s\[\]()',]+")
REASON: Final = re.compile(r"(?:Exception|Error): (.+)")
FOUND_BY_SPARK: Final = (
    "STATE_STORE",
    "StateStore",
    "ChecksumException",
    "RocksDB",
    "/state/",
    "Partition should start with 0",
    "No continuous partitions",
)
EMPTY_LOG: Final = "Incomplete log file"
"""What Spark says of an empty file of its logs, without its name."""


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """
    Turn what is raised while the state of a checkpoint is read into an error that names it.

    Raises:
        StateError: The state is damaged, or doesn't fit; with the file where Spark names one.
    """
    try:
        yield
    except SessionkitError:
        raise
    except Exception as error:
        found = _named(str(error), path)
        if found is None:
            raise
        raise found from None


def _named(text: str, path: str) -> SessionkitError | None:
    ours = OURS.search(text)
    if ours:
        kind: type[SessionkitError] = getattr(errors, ours[1])
        return kind(ours[2])
    if EMPTY_LOG in text:
        found = f"the checkpoint is damaged: a file in {path}/offsets or {path}/commits is empty"
        return StateCorruptedError(with_hint(found, RESTORE))
    if not any(sign in text for sign in FOUND_BY_SPARK):
        return None
    file = FILE.search(text)
    where = file[0].rstrip(".:;") if file else f"a file below {path}/state"
    causes = [line for line in text.splitlines() if line.startswith("Caused by")]
    reason = REASON.search((causes or text.splitlines())[-1 if causes else 0])
    said = f": {reason[1]}" if reason else ""
    found = f"the stored state is damaged: Spark can't read {where}{said}"
    return StateCorruptedError(with_hint(found, RESTORE))
