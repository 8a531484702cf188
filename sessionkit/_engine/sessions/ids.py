"""
The identity of a session: a hash of its key, its start and, where it has one, its mark.

What is hashed is the encoding of the key (`_engine.rows.encoding`), then the start as eight bytes
of microseconds since the epoch, then eight bytes of a mark (`behind`), personalised with
`session/1`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.encoding import big_endian, encoded, hashed
from sessionkit._engine.rows.table import key_columns, marks_of, micros

PERSON: Final = b"session/1"


def session_ids(
    keys: Sequence[pa.ChunkedArray],
    starts_us: npt.NDArray[np.int64],
    marks: npt.NDArray[np.int64] | None = None,
) -> list[str]:
    """Return the ids of sessions from the columns of their keys, their starts and their marks."""
    if not len(starts_us):
        return []
    tail = [big_endian(starts_us, ">i8")]
    if marks is not None and marks.any():
        tail.append(pc.if_else(pa.array(marks > 0), big_endian(marks, ">i8"), pa.scalar(b"")))
    return hashed(encoded(keys, *tail), PERSON)


def ids_of(sessions: pa.Table) -> list[str]:
    """Return the ids of the sessions of a table."""
    return session_ids(key_columns(sessions), micros(sessions["start"]), marks_of(sessions))
