"""
The identity of a session: a hash of its key, its start and, where it has one, its salt.

What is hashed is the encoding of the key (`_engine.rows.encoding`), then the start as eight bytes
of microseconds since the epoch, then eight bytes of a salt, personalised with `session/1`.

    sessions   behind   its salt; 0 for none

Ahead of the watermark, key and start are enough: a session that began at an instant is still there
when another event of that instant comes, which so joins it. Where the watermark has passed, it may
have closed and be forgotten. So a session that gets its start there gets a *salt* with it.

Two sessions never get the same start and the same salt: the first must have been forgotten, and for
that the watermark had to move. So a salt is a hash of the watermark; and of how long closed
sessions stay and where the query began, since these may change when state is carried over.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Numbers, key_columns, micros
from sessionkit._engine.rows.encoding import big_endian, encoded, hashed
from sessionkit._engine.rows.kept import salts_of

OF_SESSION: Final = b"session/1"
OF_SALT: Final = b"mark/1"
FIRST_SALT: Final = 2**62
"""Salts are numbers from here on, so that none is an instant."""


def session_ids(
    keys: Sequence[pa.ChunkedArray], starts_us: Numbers, salts: Numbers | None = None
) -> list[str]:
    """Return the ids of sessions from the columns of their keys, their starts and their salts."""
    if not len(starts_us):
        return []
    tail = [big_endian(starts_us, ">i8")]
    if salts is not None and salts.any():
        tail.append(pc.if_else(pa.array(salts > 0), big_endian(salts, ">i8"), pa.scalar(b"")))
    return hashed(encoded(keys, *tail), OF_SESSION)


def ids_of(sessions: pa.Table) -> list[str]:
    return session_ids(key_columns(sessions), micros(sessions["start"]), salts_of(sessions))


def salt_of(*made_of: int) -> int:
    """Return the salt hashed from numbers."""
    packed = struct.pack(f">{len(made_of)}q", *made_of)
    digest = blake2b(packed, digest_size=8, person=OF_SALT).digest()
    return FIRST_SALT + (int.from_bytes(digest, "big") >> 2)
