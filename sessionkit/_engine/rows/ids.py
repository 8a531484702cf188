"""
Ids of events and sessions: hashes of their values, the same in every run.

sessionkit encodes values itself, so no library's formatting can change an id. An encoded value is a
byte for its type, the length of its body in four bytes, and the body: text in UTF-8; bytes
unchanged; integers, booleans, days and microseconds since the epoch in eight bytes; floats in eight
bytes of IEEE 754; decimals as text without trailing zeros; lists, maps and structs as the encodings
of their parts. Numbers are big-endian. A null has a type byte of its own and an empty body. An id
is a BLAKE2b hash of 16 bytes, shown in hexadecimal.

An event id hashes the columns of the spec's `event_id`, in that order; by default the key columns,
the event time and the event's fields, in the order of their declaration. It is personalised with
`event/1`. A value that its type can't hold counts as null, as in the rejected row.

A session id, personalised with `session/1`, hashes the key, the start as eight bytes of
microseconds since the epoch, and eight bytes of salt if the session has one.

Ahead of the watermark, key and start identify a session: it's still stored when another event of
its start arrives, and takes in that event. At or before the watermark, an earlier session with the
same start may have closed and be forgotten. So a session that starts there gets a *salt*.

No two sessions share a start and a salt: the first must be forgotten before the second begins, so
the watermark moved in between. A salt hashes the watermark, and also how long closed sessions stay
and where the query began, which may change when a seed carries state over.
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
from sessionkit.state._scalars import SCALARS
from sessionkit.state._types import stored_numbers

ID_BYTES: Final = 16
PERSON: Final = b"event/1"
ID: Final = pa.binary(ID_BYTES)
EXACT: Final = Context(prec=40)
NOTHING: Final = pa.scalar(b"")
NULL: Final = pa.scalar(b"-")


def encoded(columns: Sequence[pa.Array], *tail: pa.Array) -> pa.Array:
    """Return the encoded values of each row, followed by the tail, as bytes."""
    parts = chain.from_iterable(map(_parts, columns))
    return pc.binary_join_element_wise(*parts, *tail, NOTHING)


def digests(bodies: pa.Array, person: bytes) -> list[bytes]:
    """Return the ids of encoded values; equal bytes have different ids for each `person`."""
    fresh = blake2b(digest_size=ID_BYTES, person=person).copy
    ids = []
    for body in bodies.to_pylist():
        hasher = fresh()
        hasher.update(body)
        ids.append(hasher.digest())
    return ids


def big_endian(numbers: npt.NDArray[Any], form: str) -> pa.Array:
    """Return numbers as big-endian bytes of a fixed length."""
    swapped = numbers.astype(form)
    # The column reuses the array's buffer: 1 and 2 as ">i4" are 00 00 00 01 00 00 00 02.
    buffers = [None, pa.py_buffer(swapped)]
    kind = pa.binary(swapped.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(swapped), buffers).cast(pa.binary())


def _parts(column: pa.Array) -> list[Any]:
    """Return the types, the lengths and the bodies of the values of a column."""
    # The texts "a", null, "bb" have the types s - s, the lengths 1 0 2 and the bodies a, empty, bb.
    tags: Any = pa.scalar(TAGS[column.type.id])
    body = next(body for fits, body in BODIES if fits(column.type))(column)
    if column.null_count:
        is_valid = column.is_valid()
        tags, body = pc.if_else(is_valid, tags, NULL), pc.if_else(is_valid, body, NOTHING)
    return [tags, big_endian(pc.binary_length(body).to_numpy(), ">i4"), body]


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _number(column: pa.Array) -> pa.Array:
    return big_endian(stored_numbers(column).fill_null(0).to_numpy(), ">i8")


def _float(column: pa.Array) -> pa.Array:
    numbers = column.fill_null(0.0).to_numpy()
    # All NaNs get the same bytes, and so do both zeros: -0.0 + 0.0 is 0.0.
    return big_endian(np.where(np.isnan(numbers), np.nan, numbers + 0.0), ">f8")


def _decimal(column: pa.Array) -> pa.Array:
    numbers: list[Decimal | None] = column.to_pylist()
    texts = (format(number.normalize(EXACT), "f") if number else "0" for number in numbers)
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
    entry = pa.struct([column.type.key_field, column.type.item_field])
    return _list(column.cast(pa.list_(entry)))


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
# By storage type, so an Enum has the tag of its values.
TAGS: Final = {
    **{kind.arrow.id: kind.facts.tag for kind in SCALARS.values() if kind.facts is not None},
    pa.types.lib.Type_STRUCT: b"r",
    pa.types.lib.Type_MAP: b"m",
    pa.types.lib.Type_LIST: b"l",
}


def event_ids(spec: AnySpec, rows: pa.Table) -> list[str]:
    """Return the ids of events in hexadecimal; equal events have equal ids."""
    return list(map(bytes.hex, event_digests(spec, rows)))


def event_digests(spec: AnySpec, rows: pa.Table) -> list[bytes]:
    """Return a digest of each event: of its `event_id`, or else of all its columns."""
    if not rows.num_rows:
        return []
    if spec.inputs.event_id is None:
        names = [n for n in rows.column_names if n == "time" or n.startswith(("key.", "event."))]
    else:
        names = [spec.read_columns[name] for name in spec.inputs.event_id]
    return digests(encoded([whole(rows[name]) for name in names]), PERSON)


OF_SESSION: Final = b"session/1"
OF_SALT: Final = b"mark/1"
FIRST_SALT: Final = 2**62
"""The smallest salt, beyond the range of instants."""


def session_ids(
    keys: Sequence[pa.Array], starts_us: Numbers, salts: Numbers | None = None
) -> list[str]:
    """Return the ids of sessions in hexadecimal; a salt of 0 means none."""
    if not len(starts_us):
        return []
    tail = [big_endian(starts_us, ">i8")]
    if salts is not None and salts.any():
        # The salts 0 9 0 add eight bytes to the second session only.
        tail.append(pc.if_else(pa.array(salts > 0), big_endian(salts, ">i8"), pa.scalar(b"")))
    return list(map(bytes.hex, digests(encoded(keys, *tail), OF_SESSION)))


def ids_of(sessions: pa.Table) -> list[str]:
    """Return the ids of stored sessions."""
    salts = numbers_in(sessions, SALT.name)
    return session_ids(key_columns(sessions), micros(sessions["start"]), salts)


def salt_of(*made_of: int) -> int:
    """Return a salt, the same for equal numbers."""
    packed = struct.pack(f">{len(made_of)}q", *made_of)
    digest = blake2b(packed, digest_size=8, person=OF_SALT).digest()
    # With 62 bits of the hash, a salt fits into an int64.
    return FIRST_SALT + (int.from_bytes(digest, "big") >> 2)
