"""
The identity of a session: a hash of its key, its start and, where it has one, its mark.

What is hashed is the encoding of the key (`_engine.rows.encoding`), then the start as eight bytes
of microseconds since the epoch, then eight bytes of a mark, personalised with `session/1`.

    sessions   behind   its mark; 0 for none

Ahead of the watermark, key and start are enough: a session that began at an instant is still there
when another event of that instant comes, which so joins it. Where the watermark has passed, it may
have closed and be forgotten. So a session that gets its start there gets a *mark* with it.

Two sessions never get the same start and the same mark: the first must have been forgotten, and for
that the watermark had to move. So a mark is a hash of the watermark; and of how long closed
sessions stay and where the query began, since these may change when state is carried over.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Numbers, micros
from sessionkit._engine.rows.encoding import big_endian, encoded, hashed
from sessionkit._engine.rows.table import key_columns, marks_of

OF_SESSION: Final = b"session/1"
OF_MARK: Final = b"mark/1"
FIRST_MARK: Final = 2**62
"""Marks are numbers from here on, so that none is an instant."""


def session_ids(
    keys: Sequence[pa.ChunkedArray], starts_us: Numbers, marks: Numbers | None = None
) -> list[str]:
    """Return the ids of sessions from the columns of their keys, their starts and their marks."""
    if not len(starts_us):
        return []
    tail = [big_endian(starts_us, ">i8")]
    if marks is not None and marks.any():
        tail.append(pc.if_else(pa.array(marks > 0), big_endian(marks, ">i8"), pa.scalar(b"")))
    return hashed(encoded(keys, *tail), OF_SESSION)


def ids_of(sessions: pa.Table) -> list[str]:
    return session_ids(key_columns(sessions), micros(sessions["start"]), marks_of(sessions))


def mark_of(*made_of: int) -> int:
    """Return the mark hashed from numbers."""
    packed = struct.pack(f">{len(made_of)}q", *made_of)
    digest = blake2b(packed, digest_size=8, person=OF_MARK).digest()
    return FIRST_MARK + (int.from_bytes(digest, "big") >> 2)
