"""
The identity of a session: a hash of its key and its start, the same in every run.

What is hashed is the encoding of the key (`_engine.rows.encoding`), then the start as eight bytes
of microseconds since the epoch, personalised with `session/1`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.encoding import big_endian, encoded, hashed

__all__ = ["session_ids"]

PERSON: Final = b"session/1"


def session_ids(keys: Sequence[pa.ChunkedArray], starts_us: npt.NDArray[np.int64]) -> list[str]:
    """Return the ids of sessions from the columns of their keys, and their starts."""
    if not len(starts_us):
        return []
    return hashed(encoded(keys, big_endian(starts_us, ">i8")), PERSON)
