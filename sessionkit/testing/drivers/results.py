"""What a driver hands out: the result rows of a micro-batch as typed objects."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import attrs
import pandas as pd

from sessionkit._engine.counts import Counts
from sessionkit.spec.columns import SESSION_COLUMNS
from sessionkit.spec.shared import AnySpec
from sessionkit.testing.drivers.frames import Rejection, built_result, key_of, read_output
from sessionkit.timeouts import ClosedBy

__all__ = ["BatchResult", "KeyRow", "ResultRow", "SessionRow", "read_rows"]

R_co = TypeVar("R_co", covariant=True)
Row = TypeVar("Row")


class ResultRow(Protocol):
    """What the rows of both kinds of spec have."""

    @property
    def key(self) -> Any:
        """The key."""

    @property
    def result(self) -> Any:
        """The row that a function returned."""


@attrs.frozen
class SessionRow(Generic[R_co]):
    """
    One result row of a session that is over; with `emit`, of one that is open too.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        id: The session's id.
        start: The time of its first event, in UTC.
        end: The time of its last event plus the gap, exclusive.
        result: The row that `finish` returned.
        closed_by: The rule that ended it, by its name: `"gap"`, or one of `SessionRules`; None
            while it's open.
        revision: The number of the row among those that the session has given.
        is_final: Whether the session was over.
        supersedes: The ids under which rows of it came before.
    """

    key: Any
    id: str
    start: datetime
    end: datetime
    result: R_co
    closed_by: ClosedBy | None = "gap"
    revision: int = 1
    is_final: bool = True
    supersedes: tuple[str, ...] = ()


@attrs.frozen
class KeyRow(Generic[R_co]):
    """
    One result row of a key.

    Attributes:
        key: The key: a named tuple with the columns of `StatefulSpec.keys`.
        result: The row that `process` or `on_timer` returned.
    """

    key: Any
    result: R_co


@attrs.frozen
class BatchResult(Generic[Row]):
    """
    What one micro-batch did.

    Attributes:
        batch_id: Its number, from 0; None if Spark would have had no reason to run one.
        watermark: The watermark in force, in UTC; None while there is none.
        rows: The result rows: `SessionRow` from a `SessionDriver`, `KeyRow` from a
            `StatefulDriver`. Those of one session or key keep the order in which the function
            returned them.
        rejections: The events that were set aside, and what failed.
        counts: What became of its events.
    """

    batch_id: int | None
    watermark: datetime | None
    rows: list[Row]
    rejections: list[Rejection]
    counts: Counts


def read_rows(
    spec: AnySpec, frames: Iterable[pd.DataFrame]
) -> tuple[list[Any], list[Rejection], Counts]:
    """Return the worker's output as typed objects, and the sum of its counts."""
    found, rejections, counts = read_output(spec, frames)
    make = _session_row if spec.row_kind == "session" else _key_row
    return [make(spec, row) for row in found], rejections, counts


def _session_row(spec: AnySpec, row: Mapping[str, Any]) -> SessionRow[Any]:
    name, start, end = (row[column] for column in SESSION_COLUMNS)
    is_final = row.get("is_final", True)
    return SessionRow(
        key=key_of(spec, row),
        id=name,
        start=start,
        end=end,
        result=built_result(spec.result, row),
        closed_by=row.get("closed_by", "gap") if is_final else None,
        revision=row.get("revision", 1),
        is_final=is_final,
        supersedes=tuple(row.get("supersedes", ())),
    )


def _key_row(spec: AnySpec, row: Mapping[str, Any]) -> KeyRow[Any]:
    return KeyRow(key_of(spec, row), built_result(spec.result, row))
