"""
The bytes of a group: a header that identifies them, then Arrow IPC streams.

    4 bytes   magic `SKB1`
    2 bytes   format version
    4 bytes   CRC-32 of the name of the group: its bucket
    4 bytes   CRC-32 of the columns next to the payload
    4 bytes   CRC-32 of all that follows, begun with the CRC-32 of the ten bytes before
    8 bytes   the query that wrote it: the first bytes of its id; zeros where it wasn't known
    8 bytes   the number of the micro-batch
    8 bytes   Spark's watermark of that, in milliseconds
    4 bytes   length of the identity, then the identity: JSON, the rules and the types, and spaces
              after it, so that each table begins at a multiple of 8 bytes, as Arrow wants it
    per table 8 bytes of length, then the table as an Arrow IPC stream

The bytes of a page: what its bucket has once, identity and schemas, isn't repeated in it.

    4 bytes   magic `SKP1`
    4 bytes   CRC-32 of all that follows, begun with the number of the page
    per batch 8 bytes of length, then the rows as an Arrow IPC message

All numbers are big-endian. Nothing is pickled. Bytes that fail a check are an error, never a
guess.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import attrs
import numpy as np
import pyarrow as pa

from sessionkit.errors import StateCorruptedError, StateMismatchError, with_hint

RESTORE: Final = "restore the checkpoint from a copy, or start a new one"
WHOLE: Final = "restore the whole checkpoint from one copy, or begin a query with `migrate`"
ID_BYTES: Final = 8
UNKNOWN: Final = bytes(ID_BYTES)
MAGIC: Final = b"SKB1"
PAGE_MAGIC: Final = b"SKP1"
FORMAT_VERSION: Final = 2
HEADER: Final = struct.Struct(">4sH8sI")
CHECKED: Final = slice(4, 14)
"""Of a header, what its checksum begins with: the version, and the binding."""
BINDING: Final = struct.Struct(">II")
CRC_BYTES: Final = 4
IDENTITY: Final = struct.Struct(">I")
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
TABLE: Final = struct.Struct(">Q")
PAGE: Final = struct.Struct(">4sI")
ORIGIN: Final = struct.Struct(">8sqq")
ALIGNMENT: Final = 8
PADDING: Final = b" "
HEADER_BYTES: Final = HEADER.size + ORIGIN.size
"""How long a header is; the identity follows it."""

QUERY_AT, QUERY_BYTES = HEADER.size, 8
BATCH_AT, BATCH_BYTES = QUERY_AT + QUERY_BYTES, 8
"""Where a header of this format has the query and the micro-batch."""


@attrs.frozen
class Origin:
    """
    The query and the micro-batch that write a payload, or read one.

    The query is the first bytes of its id, which stays the same over restarts; zeros where it isn't
    known: such a payload belongs to any query. The watermark is Spark's.
    """

    query: bytes = UNKNOWN
    batch: int = 0
    watermark_ms: int = 0

    @classmethod
    def of(cls, query_id: str, batch: int, watermark_ms: int = 0) -> Self:
        """Return the origin of what a query with this id, a UUID, stores in a micro-batch."""
        return cls(bytes.fromhex(query_id.replace("-", "")[: 2 * ID_BYTES]), batch, watermark_ms)

    def check(self, now: "Origin", what: str) -> None:
        """Raise a StateError if a micro-batch may not read `what` this one stored."""
        if UNKNOWN in {self.query, now.query}:
            return
        if self.query != now.query:
            found = (
                f"{what} belongs to another query: {_said(self)} stored it, this is {_said(now)}"
            )
            raise StateMismatchError(with_hint(found, WHOLE))
        if self.batch > now.batch:
            found = f"micro-batch {self.batch} wrote it, and this is micro-batch {now.batch}"
            raise StateCorruptedError(with_hint(f"{what} is damaged: {found}", WHOLE))
        if self.watermark_ms > now.watermark_ms:
            found = (
                f"the checkpoint is damaged: micro-batch {now.batch} has the watermark "
                f"{now.watermark_ms} ms, but {what} was written in micro-batch {self.batch} at "
                f"{self.watermark_ms} ms, and a watermark never falls"
            )
            raise StateCorruptedError(with_hint(found, WHOLE))


NOBODY: Final = Origin()


def _said(origin: Origin) -> str:
    text = origin.query.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:]}-..."


def binding_checksum(group: Sequence[Any], columns: Sequence[Any]) -> bytes:
    """
    Return what binds a payload to the name of its group, and to the columns next to it.

    It's the same on every machine, in every release, and of the NumPy scalars that Spark may pass.
    """
    return BINDING.pack(_crc_of(group), _crc_of(columns))


def _crc_of(values: Sequence[Any]) -> int:
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return zlib.crc32(repr(plain).encode())


def pack(identity: bytes, tables: Sequence[pa.Table], binding: bytes, origin: Origin) -> bytes:
    """Return the bytes of a group, which are bound to their place and to what writes them."""
    # With spaces after it, an Arrow stream is aligned.
    begins = HEADER_BYTES + IDENTITY.size + len(identity) + TABLE.size
    stored = identity + PADDING * (-begins % ALIGNMENT)
    written = ORIGIN.pack(origin.query, origin.batch, origin.watermark_ms)
    parts: list[Any] = [written, IDENTITY.pack(len(stored)), stored]
    for table in tables:
        # A writer of streams writes the same bytes, and takes three times as long for a few rows.
        rows = map(pa.RecordBatch.serialize, table.combine_chunks().to_batches())
        stream = [table.schema.serialize(), *rows, END_OF_STREAM]
        parts += [TABLE.pack(sum(map(len, stream))), *stream]
    checksum = zlib.crc32(HEADER.pack(MAGIC, FORMAT_VERSION, binding, 0)[CHECKED])
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([HEADER.pack(MAGIC, FORMAT_VERSION, binding, checksum), *parts])


@attrs.frozen
class Unpacked:
    """What a payload contains, what it is bound to, and what wrote it."""

    identity: bytes
    tables: list[pa.Table]
    binding: bytes
    origin: Origin

    def check(self, binding: bytes) -> None:
        """Raise a StateCorruptedError if the payload is of another group, or of other columns."""
        if self.binding != binding:
            is_of_group = self.binding[:CRC_BYTES] == binding[:CRC_BYTES]
            found = "wasn't written with the other columns of its row"
            found = found if is_of_group else "belongs to another bucket"
            text = f"the stored state is damaged: its payload {found}"
            raise StateCorruptedError(with_hint(text, RESTORE))


def unpack(payload: bytes) -> Unpacked:
    """Return what a payload contains; a StateError if it is damaged, or of another release."""
    binding, checksum = _header(payload)
    body = memoryview(payload)[HEADER.size :]
    if zlib.crc32(body, zlib.crc32(payload[CHECKED])) != checksum:
        found = f"the stored state is damaged: its checksum is wrong ({len(body)} bytes)"
        raise StateCorruptedError(with_hint(found, RESTORE))
    identity, streams = _identity(memoryview(payload)[HEADER_BYTES:])
    tables: list[pa.Table] = []
    for stream in _parts(streams):
        with pa.ipc.open_stream(stream) as reader:
            tables.append(reader.read_all())
    return Unpacked(identity, tables, binding, Origin(*ORIGIN.unpack_from(body)))


def pack_page(number: int, parts: Sequence[pa.Buffer | bytes]) -> bytes:
    body = b"".join(part for one in parts for part in (TABLE.pack(len(one)), one))
    return PAGE.pack(PAGE_MAGIC, zlib.crc32(body, number)) + body


def page_checksum(payload: bytes) -> int:
    return int.from_bytes(payload[len(PAGE_MAGIC) : PAGE.size], "big")


def unpack_page(number: int, payload: bytes) -> list[pa.Buffer]:
    """Return the parts of a page; a StateCorruptedError if the bytes are damaged."""
    if len(payload) < PAGE.size or payload[: len(PAGE_MAGIC)] != PAGE_MAGIC:
        found = f"page {number} of the stored state isn't one: it starts with {payload[:4]!r}"
        raise StateCorruptedError(with_hint(found, RESTORE))
    body = memoryview(payload)[PAGE.size :]
    if zlib.crc32(body, number) != PAGE.unpack_from(payload)[1]:
        found = f"page {number} of the stored state is damaged: its checksum is wrong"
        raise StateCorruptedError(with_hint(f"{found} ({len(body)} bytes)", RESTORE))
    return list(_parts(body))


def peek_identity(head: bytes) -> dict[str, Any]:
    """
    Return the identity under which a payload was written, from its first bytes alone.

    The checksum covers the whole payload, so it isn't checked here; what can't be an identity is a
    StateError.
    """
    _header(head)
    stored, _ = _identity(memoryview(head)[HEADER_BYTES:])
    try:
        found: dict[str, Any] = json.loads(stored)
    except ValueError as error:
        damaged = "the stored state is damaged: its identity can't be read"
        raise StateCorruptedError(with_hint(damaged, RESTORE)) from error
    return found


def check_format(version: int) -> None:
    """Raise a StateMismatchError for a format that this release does not read."""
    if version != FORMAT_VERSION:
        found = f"the stored state has format {version}, but this release reads {FORMAT_VERSION}"
        raise StateMismatchError(with_hint(found, "use the release of sessionkit that wrote it"))


def _header(payload: bytes) -> tuple[bytes, int]:
    """Return what a payload is bound to, and its checksum."""
    if len(payload) < HEADER.size:
        found = f"the stored state is truncated: {len(payload)} bytes"
        raise StateCorruptedError(with_hint(found, RESTORE))
    magic, version, binding, checksum = HEADER.unpack_from(payload)
    if magic != MAGIC:
        found = f"the stored state was not written by sessionkit: it starts with {magic!r}"
        raise StateCorruptedError(with_hint(found, "point the query at its own checkpoint"))
    check_format(version)
    return binding, int(checksum)


def _identity(body: memoryview) -> tuple[bytes, memoryview]:
    """Return the identity, and what follows it."""
    if len(body) < IDENTITY.size:
        found = f"the stored state is truncated: {len(body)} bytes after its header"
        raise StateCorruptedError(with_hint(found, RESTORE))
    (length,) = IDENTITY.unpack_from(body)
    end = IDENTITY.size + length
    return bytes(body[IDENTITY.size : end]).rstrip(PADDING), body[end:]


def _parts(body: memoryview) -> Iterator[pa.Buffer]:
    """Yield what follows each length, without a copy."""
    position = 0
    while position < len(body):
        (length,) = TABLE.unpack_from(body, position)
        position += TABLE.size
        yield pa.py_buffer(body[position : position + length])
        position += length
