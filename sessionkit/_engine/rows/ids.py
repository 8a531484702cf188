"""
The ids of events and of sessions, hashed from values as bytes: the same in every run.

The encoding is sessionkit's own, so that no library's way of printing values can change an id. A
value is a byte for its type, the length of its body in four bytes, big-endian, and the body: text
in UTF-8; bytes as they are; whole numbers, truth values, days and microseconds since the epoch in
eight bytes, big-endian, and so floats, as IEEE 754 has them; decimals as text without zeros at the
end; a list, a map or a struct as the encodings of its parts. A null has a type of its own and no
body. An id is the BLAKE2b hash, of 16 bytes; people see it in hexadecimal.

The id of an event is that of the columns that `event_id` of the spec names, in that order; else of
the key columns, the event time and the fields of the event, in the order of their declaration. It
is personalised with `event/1`. A value that its type can't hold counts as null, as in the rejected
row.

The id of a session, personalised with `session/1`, is that of its key, then the start as eight
bytes of microseconds since the epoch, then eight bytes of a salt, where it has one.

Ahead of the watermark, key and start are enough: a session that began at an instant is still there
when another event of that instant comes, which so joins it. Where the watermark has passed, it may
have closed and be forgotten. So a session that gets its start there gets a *salt* with it.

Two sessions never get the same start and the same salt: the first must have been forgotten, and for
that the watermark had to move. So a salt is a hash of the watermark; and of how long closed
sessions stay and where the query began, since these may change when state is carried over.
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Numbers, key_columns, micros, numbers_in, whole
from sessionkit._engine.rows.tables import SALT
from sessionkit.spec.base import AnySpec
from sessionkit.state._codec import stored_numbers
from sessionkit.state._scalars import SCALARS

ID_BYTES: Final = 16
"""The size of an id."""
PERSON: Final = b"event/1"
ID: Final = pa.binary(ID_BYTES)
"""The type of a column of ids."""
EXACT: Final = Context(prec=40)
NOTHING: Final = pa.scalar(b"")
NULL: Final = pa.scalar(b"-")


def encoded(columns: Sequence[pa.Array], *tail: pa.Array) -> pa.Array:
    """Return the values of each row as bytes, one after the other, and then the tail."""
    parts = chain.from_iterable(map(_parts, columns))
    return pc.binary_join_element_wise(*parts, *tail, NOTHING)


def digests(bodies: pa.Array, person: bytes) -> list[bytes]:
    """Return the ids of encoded values; the same bytes have different ids for each `person`."""
    fresh = blake2b(digest_size=ID_BYTES, person=person).copy
    ids = []
    for body in bodies.to_pylist():
        hasher = fresh()
        hasher.update(body)
        ids.append(hasher.digest())
    return ids


def big_endian(numbers: npt.NDArray[Any], form: str) -> pa.Array:
    """Return numbers as bytes of a fixed length, the highest first."""
    swapped = numbers.astype(form)
    # The bytes of the array are those of the column: 1 and 2 as ">i4" are 00 00 00 01 00 00 00 02.
    buffers = [None, pa.py_buffer(swapped)]
    kind = pa.binary(swapped.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(swapped), buffers).cast(pa.binary())


def _parts(column: pa.Array) -> list[Any]:
    """Return the three parts of the values of a column: the type, the lengths, the bytes."""
    # The texts "a", null, "bb" have the types s - s, the lengths 1 0 2 and the bytes a, none, bb.
    tags: Any = pa.scalar(TAGS[column.type.id])
    body = next(body for fits, body in BODIES if fits(column.type))(column)
    if column.null_count:
        there = column.is_valid()
        tags, body = pc.if_else(there, tags, NULL), pc.if_else(there, body, NOTHING)
    return [tags, big_endian(pc.binary_length(body).to_numpy(), ">i4"), body]


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _number(column: pa.Array) -> pa.Array:
    return big_endian(stored_numbers(column).fill_null(0).to_numpy(), ">i8")


def _float(column: pa.Array) -> pa.Array:
    numbers = column.fill_null(0.0).to_numpy()
    # One form for every NaN, and one for both zeros: -0.0 + 0.0 is 0.0.
    return big_endian(np.where(np.isnan(numbers), np.nan, numbers + 0.0), ">f8")


def _decimal(column: pa.Array) -> pa.Array:
    numbers: list[Decimal | None] = column.to_pylist()
    texts = (format(one.normalize(EXACT), "f") if one else "0" for one in numbers)
    return pa.array(map(str.encode, texts), pa.binary())


def _struct(column: pa.Array) -> pa.Array:
    if not column.type.num_fields:
        return pa.array([b""] * len(column), pa.binary())
    return encoded(column.flatten())


def _list(column: pa.Array) -> pa.Array:
    # [["a", "b"], null, ["c"]] has the lengths 2 0 1 and the ends 0 2 2 3.
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    ends = np.cumsum(np.concatenate([[0], lengths]), dtype=np.int32)
    items = pa.ListArray.from_arrays(pa.array(ends), encoded([pc.list_flatten(column)]))
    return pc.binary_join(items, NOTHING)


def _map(column: pa.Array) -> pa.Array:
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    entries = (
        None if pairs is None else [{"key": key, "value": value} for key, value in pairs]
        for pairs in column.to_pylist()
    )
    return _list(pa.array(entries, pa.list_(entry)))


BODIES: Final[tuple[tuple[Callable[[Any], bool], Callable[[pa.Array], pa.Array]], ...]] = (
    (pa.types.is_string, _text),
    (pa.types.is_binary, _text),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_float64, _float),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_primitive, _number),
)
# By the form in which values are stored, so an Enum is its value.
TAGS: Final = {
    **{kind.arrow.id: kind.facts.tag for kind in SCALARS.values() if kind.facts is not None},
    pa.types.lib.Type_STRUCT: b"r",
    pa.types.lib.Type_MAP: b"m",
    pa.types.lib.Type_LIST: b"l",
}


def event_ids(spec: AnySpec, rows: pa.Table) -> list[str]:
    """Return the ids of events in hexadecimal; equal events have equal ones."""
    return list(map(bytes.hex, event_digests(spec, rows)))


def event_digests(spec: AnySpec, rows: pa.Table) -> list[bytes]:
    if not rows.num_rows:
        return []
    if spec.inputs.event_id is None:
        own = [n for n in rows.column_names if n == "time" or n.startswith(("key.", "event."))]
    else:
        own = [spec.read_columns[name] for name in spec.inputs.event_id]
    return digests(encoded([whole(rows[name]) for name in own]), PERSON)


OF_SESSION: Final = b"session/1"
OF_SALT: Final = b"mark/1"
FIRST_SALT: Final = 2**62
"""Salts are numbers from here on, so that none is an instant."""


def session_ids(
    keys: Sequence[pa.Array], starts_us: Numbers, salts: Numbers | None = None
) -> list[str]:
    """Return the ids of sessions from the columns of their keys, their starts and their salts."""
    if not len(starts_us):
        return []
    tail = [big_endian(starts_us, ">i8")]
    if salts is not None and salts.any():
        # The salts 0 9 0 add eight bytes to the second session, and nothing to the others.
        tail.append(pc.if_else(pa.array(salts > 0), big_endian(salts, ">i8"), pa.scalar(b"")))
    return list(map(bytes.hex, digests(encoded(keys, *tail), OF_SESSION)))


def ids_of(sessions: pa.Table) -> list[str]:
    salts = numbers_in(sessions, SALT.name)
    return session_ids(key_columns(sessions), micros(sessions["start"]), salts)


def salt_of(*made_of: int) -> int:
    """Return the salt hashed from numbers."""
    packed = struct.pack(f">{len(made_of)}q", *made_of)
    digest = blake2b(packed, digest_size=8, person=OF_SALT).digest()
    # 62 bits of the hash: a salt is below 2**63, as an int64 must be.
    return FIRST_SALT + (int.from_bytes(digest, "big") >> 2)
