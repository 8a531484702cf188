"""
The identity of a session: a hash of its key and its start, the same in every run.

What is hashed has an encoding of its own, so that no library's way of printing values can change
an id: for each key value a byte for its type, its length in four bytes, big-endian, and its bytes;
then the start as eight bytes of microseconds since the epoch. The hash is BLAKE2b with 16 bytes,
personalised with `session/1`, written in hexadecimal.
"""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit.state import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    FieldType,
    IntType,
    StrType,
)

__all__ = ["ENCODINGS", "session_ids"]

PERSON: Final = b"session/1"
EXACT: Final = Context(prec=40)
NOTHING: Final = pa.scalar(b"")


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _number(column: pa.Array) -> pa.Array:
    return _big_endian(column.cast(pa.int64()).to_numpy(), ">i8")


def _day(column: pa.Array) -> pa.Array:
    return _number(column.cast(pa.int32()))


def _decimal(column: pa.Array) -> pa.Array:
    return pa.array(map(_digits, column.to_pylist()), pa.binary())


def _digits(value: Decimal) -> bytes:
    digits = format(value.normalize(EXACT), "f") if value else "0"
    return digits.encode()


# By the storage form of a value: days for a date, microseconds for an instant.
ENCODINGS: Final[dict[type[FieldType], tuple[bytes, Callable[[pa.Array], pa.Array]]]] = {
    StrType: (b"s", _text),
    IntType: (b"i", _number),
    BoolType: (b"o", _number),
    BytesType: (b"b", _text),
    DateType: (b"d", _day),
    DatetimeType: (b"t", _number),
    DecimalType: (b"n", _decimal),
}


def session_ids(
    types: Sequence[FieldType],
    keys: Sequence[pa.ChunkedArray],
    starts_us: npt.NDArray[np.int64],
) -> list[str]:
    """Return the ids of sessions from the columns of their keys, and their starts."""
    if not len(starts_us):
        return []
    parts = [part for pair in zip(types, keys, strict=True) for part in _encoded(*pair)]
    bodies = pc.binary_join_element_wise(*parts, _big_endian(starts_us, ">i8"), NOTHING)
    fresh = blake2b(digest_size=16, person=PERSON).copy
    ids = []
    for body in bodies.to_pylist():
        hasher = fresh()
        hasher.update(body)
        ids.append(hasher.hexdigest())
    return ids


def _encoded(kind: FieldType, column: pa.ChunkedArray) -> list[Any]:
    """Return the three parts of a key column: the type, the lengths, the bytes."""
    tag, encode = ENCODINGS[type(kind)]
    body = encode(column.combine_chunks())
    return [pa.scalar(tag), _big_endian(pc.binary_length(body).to_numpy(), ">i4"), body]


def _big_endian(numbers: npt.NDArray[Any], form: str) -> pa.Array:
    """Return whole numbers as bytes of a fixed length, the highest first."""
    swapped = numbers.astype(form)
    buffers = [None, pa.py_buffer(swapped)]
    kind = pa.binary(swapped.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(swapped), buffers).cast(pa.binary())
