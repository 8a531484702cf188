"""
The bytes of a bucket: a header that identifies them, then Arrow IPC streams.

    4 bytes   magic `SKB1`
    2 bytes   format version
    4 bytes   CRC-32 of all that follows
    4 bytes   length of the identity, then the identity: JSON, what must not change
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
from typing import Any, Final

import pyarrow as pa

from sessionkit.errors import StateCorruptedError, StateMismatchError, with_hint

__all__ = [
    "FORMAT_VERSION",
    "RESTORE",
    "check_format",
    "check_identity",
    "identity_differences",
    "pack",
    "pack_page",
    "peek_identity",
    "unpack",
    "unpack_page",
]

MAGIC: Final = b"SKB1"
PAGE_MAGIC: Final = b"SKP1"
FORMAT_VERSION: Final = 1
HEADER: Final = struct.Struct(">4sHI")
IDENTITY: Final = struct.Struct(">I")
TABLE: Final = struct.Struct(">Q")
PAGE: Final = struct.Struct(">4sI")
RESTORE: Final = "restore the checkpoint from a copy, or start a new one"


def pack(identity: bytes, tables: Sequence[pa.Table]) -> bytes:
    """Return the bytes of these tables under this identity."""
    parts: list[Any] = [IDENTITY.pack(len(identity)), identity]
    for table in tables:
        stream = _stream(table)
        parts += [TABLE.pack(stream.size), stream]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([HEADER.pack(MAGIC, FORMAT_VERSION, checksum), *parts])


def unpack(payload: bytes, identity: bytes) -> list[pa.Table]:
    """
    Return the tables in a payload.

    Raises:
        StateCorruptedError: The bytes are damaged, or sessionkit didn't write them.
        StateMismatchError: They were written under another identity; the message names each
            difference.
    """
    body = _checked(payload)
    stored, position = _identity(body)
    check_identity(stored, identity)
    tables = []
    for part in _parts(body[position:]):
        with pa.ipc.open_stream(part) as reader:
            tables.append(reader.read_all())
    return tables


def pack_page(number: int, batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return the bytes of these rows as the page with this number."""
    messages = [batch.serialize() for batch in batches]
    body = b"".join(part for one in messages for part in (TABLE.pack(one.size), one))
    return PAGE.pack(PAGE_MAGIC, zlib.crc32(body, number)) + body


def unpack_page(number: int, payload: bytes, schemas: Sequence[pa.Schema]) -> list[pa.RecordBatch]:
    """
    Return the rows in a page, of as many of these schemas as it has.

    Raises:
        StateCorruptedError: The bytes are damaged, or are not this page.
    """
    if len(payload) < PAGE.size or payload[: len(PAGE_MAGIC)] != PAGE_MAGIC:
        found = f"page {number} of the stored state isn't one: it starts with {payload[:4]!r}"
        raise StateCorruptedError(with_hint(found, RESTORE))
    body = memoryview(payload)[PAGE.size :]
    if zlib.crc32(body, number) != PAGE.unpack_from(payload)[1]:
        found = f"page {number} of the stored state is damaged: its checksum is wrong"
        raise StateCorruptedError(with_hint(f"{found} ({len(body)} bytes)", RESTORE))
    parts = zip(_parts(body), schemas, strict=False)
    return [pa.ipc.read_record_batch(part, schema) for part, schema in parts]


def peek_identity(head: bytes) -> dict[str, Any]:
    """
    Return the identity under which a payload was written, from its first bytes alone.

    The checksum covers the whole payload, so it isn't checked here.

    Raises:
        StateCorruptedError: sessionkit didn't write the bytes.
        StateMismatchError: They have the format of another release.
    """
    _check_origin(head)
    stored, _ = _identity(memoryview(head)[HEADER.size :])
    try:
        found: dict[str, Any] = json.loads(stored)
    except ValueError as error:
        damaged = "the stored state is damaged: its identity can't be read"
        raise StateCorruptedError(with_hint(damaged, RESTORE)) from error
    return found


def identity_differences(stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return one line for each entry in which two identities differ."""
    return [
        f"`{name}` is {wanted.get(name)!r} in the spec, {stored.get(name)!r} in the checkpoint"
        for name in sorted(stored.keys() | wanted.keys())
        if stored.get(name) != wanted.get(name)
    ]


def check_format(version: int) -> None:
    """
    Check the format of a stored state.

    Raises:
        StateMismatchError: Another release wrote it.
    """
    if version != FORMAT_VERSION:
        found = f"the stored state has format {version}, but this release reads {FORMAT_VERSION}"
        raise StateMismatchError(with_hint(found, "use the release of sessionkit that wrote it"))


def check_identity(stored: bytes, wanted: bytes) -> None:
    """
    Check the identity under which a state was stored.

    Raises:
        StateMismatchError: It is another one; the message names each difference.
    """
    if stored != wanted:
        raise _mismatch(json.loads(stored), json.loads(wanted))


def _mismatch(stored: dict[str, Any], wanted: dict[str, Any]) -> StateMismatchError:
    lines = "\n  ".join(identity_differences(stored, wanted))
    return StateMismatchError(
        with_hint(
            f"the stored state was written under other rules:\n  {lines}",
            "undo the change, or start with a new checkpoint",
        )
    )


def _check_origin(payload: bytes) -> int:
    if len(payload) < HEADER.size:
        found = f"the stored state is truncated: {len(payload)} bytes"
        raise StateCorruptedError(with_hint(found, RESTORE))
    magic, version, checksum = HEADER.unpack_from(payload)
    if magic != MAGIC:
        found = f"the stored state was not written by sessionkit: it starts with {magic!r}"
        raise StateCorruptedError(with_hint(found, "point the query at its own checkpoint"))
    check_format(version)
    return int(checksum)


def _checked(payload: bytes) -> memoryview:
    checksum = _check_origin(payload)
    body = memoryview(payload)[HEADER.size :]
    if zlib.crc32(body) != checksum:
        found = f"the stored state is damaged: its checksum is wrong ({len(body)} bytes)"
        raise StateCorruptedError(with_hint(found, RESTORE))
    return body


def _identity(body: memoryview) -> tuple[bytes, int]:
    if len(body) < IDENTITY.size:
        found = f"the stored state is truncated: {len(body)} bytes after its header"
        raise StateCorruptedError(with_hint(found, RESTORE))
    (length,) = IDENTITY.unpack_from(body)
    end = IDENTITY.size + length
    return bytes(body[IDENTITY.size : end]), end


def _parts(body: memoryview) -> Iterator[pa.Buffer]:
    """Yield what follows each length, without a copy."""
    position = 0
    while position < len(body):
        (length,) = TABLE.unpack_from(body, position)
        position += TABLE.size
        yield pa.py_buffer(body[position : position + length])
        position += length


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()
