"""
The hash that chooses the page of a key.

It must be the same on every machine and in every release, because a stored page contains the keys
of a range of hashes. It only chooses the page: keys themselves are compared as they are. The mixing
step is the final one of MurmurHash3 by Austin Appleby.
"""

import zlib
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit.state._codec import stored_numbers

Hashes: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

HASHES: Final = 2**32
"""Hashes lie below this."""
SHIFT: Final = np.uint64(33)
FACTORS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


def key_hashes(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Return the hash of each row of key columns, from 0 up to `HASHES`."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = _mixed(mixed ^ _words(column.combine_chunks()))
    hashes: Hashes = (mixed >> np.uint64(32)).astype(np.int64)
    return hashes


def _words(column: pa.Array) -> Words:
    """Return a number for each value, of its bytes as they are stored."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = column.cast(pa.binary()).to_pylist()
        return np.fromiter(map(zlib.crc32, values), np.uint64, len(values))
    if pa.types.is_decimal128(kind):
        both = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        low, high = both[column.offset : column.offset + len(column)].T
        words: Words = low ^ _mixed(high)
        return words
    numbers: Words = stored_numbers(column).to_numpy()
    return numbers.view(np.uint64)


def _mixed(words: Words) -> Words:
    for factor in FACTORS:
        words = (words ^ (words >> SHIFT)) * factor
    return words ^ (words >> SHIFT)
