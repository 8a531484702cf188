"""
The bytes of a group: a header that identifies them, then Arrow IPC streams.

    4 bytes   magic `SKB1`
    2 bytes   format version
    4 bytes   CRC-32 of the name of the group: its bucket or its key
    4 bytes   CRC-32 of the columns next to the payload
    4 bytes   CRC-32 of all that follows, begun with the CRC-32 of the ten bytes before
    8 bytes   the query that wrote it: the first bytes of its id; zeros where it wasn't known
    8 bytes   the number of the micro-batch
    8 bytes   Spark's watermark of that, in milliseconds
    4 bytes   length of the identity, then the identity: JSON, the rules and the types, and spaces
              after it, so that each table begins at a multiple of 8 bytes, as Arrow wants it
    per table 8 bytes of length, then the table as an Arrow IPC stream

Format 1 has no query, no micro-batch and no watermark, and its checksum begins with the CRC-32 of
eight bytes: those after the version.

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
import pyarrow as pa

from sessionkit.errors import StateCorruptedError, StateMismatchError, with_hint

RESTORE: Final = "restore the checkpoint from a copy, or start a new one"
WHOLE: Final = "restore the whole checkpoint from one copy, or begin a query with `carry_over`"
ID_BYTES: Final = 8
UNKNOWN: Final = bytes(ID_BYTES)
MAGIC: Final = b"SKB1"
PAGE_MAGIC: Final = b"SKP1"
FORMAT_VERSION: Final = 2
HEADER: Final = struct.Struct(">4sH8sI")
BOND: Final = struct.Struct(">II")
IDENTITY: Final = struct.Struct(">I")
TABLE: Final = struct.Struct(">Q")
PAGE: Final = struct.Struct(">4sI")
ORIGIN: Final = struct.Struct(">8sqq")
ALIGNMENT: Final = 8
PADDING: Final = b" "
HEADER_BYTES: Final = {1: HEADER.size, 2: HEADER.size + ORIGIN.size}
"""How long a header is in each format that this release reads; the identity follows it."""

QUERY_AT, QUERY_BYTES = HEADER.size, 8
BATCH_AT, BATCH_BYTES = QUERY_AT + QUERY_BYTES, 8
"""Where a header of this format has the query and the micro-batch."""


@attrs.frozen
class Origin:
    """
    The query and the micro-batch that write a payload, or read one.

    Attributes:
        query: The first bytes of the query's id, which stays the same over restarts. Zeros where it
            isn't known: such a payload belongs to any query.
        batch: The number of the micro-batch.
        watermark_ms: Spark's watermark of the micro-batch, in milliseconds.
    """

    query: bytes = UNKNOWN
    batch: int = 0
    watermark_ms: int = 0

    @classmethod
    def of(cls, query_id: str, batch: int, watermark_ms: int = 0) -> Self:
        """Return the origin of what a query with this id, a UUID, stores in a micro-batch."""
        return cls(bytes.fromhex(query_id.replace("-", "")[: 2 * ID_BYTES]), batch, watermark_ms)

    @classmethod
    def of_bytes(cls, packed: bytes) -> Self:
        """Return what a payload says; nothing where its format knows of none."""
        return cls(*ORIGIN.unpack(packed)) if packed else cls()

    def check(self, now: "Origin", what: str) -> None:
        """
        Check that what was stored may be read by a micro-batch.

        Args:
            now: The micro-batch.
            what: What was stored, for the error.

        Raises:
            StateMismatchError: Another query stored it.
            StateCorruptedError: It is from after the micro-batch, or from a later watermark.
        """
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


@attrs.frozen
class Bond:
    """
    What a payload belongs to: found elsewhere, it is an error.

    Attributes:
        group: The name of its bucket or key.
        columns: The other columns of its row, which say when it was written and what it holds.
        origin: The query and the micro-batch that write it, or read it now.
    """

    group: bytes
    columns: bytes
    origin: Origin = NOBODY

    @property
    def sums(self) -> bytes:
        """The part of the header that says so."""
        return BOND.pack(zlib.crc32(self.group), zlib.crc32(self.columns))


def pack(identity: bytes, tables: Sequence[pa.Table], bond: Bond) -> bytes:
    """Return the bytes of these tables under this identity."""
    # With spaces after it, an Arrow stream is aligned.
    begins = HEADER_BYTES[FORMAT_VERSION] + IDENTITY.size + len(identity) + TABLE.size
    stored, sums = identity + PADDING * (-begins % ALIGNMENT), bond.sums
    origin = ORIGIN.pack(*attrs.astuple(bond.origin))
    parts: list[Any] = [origin, IDENTITY.pack(len(stored)), stored]
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        stream = sink.getvalue()
        parts += [TABLE.pack(stream.size), stream]
    checksum = _begun(FORMAT_VERSION, sums)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([HEADER.pack(MAGIC, FORMAT_VERSION, sums, checksum), *parts])


@attrs.frozen
class Unpacked:
    """
    What a payload contains.

    Attributes:
        identity: The identity under which it was written.
        tables: Its tables.
        sums: What it is bound to.
        origin: The query and the micro-batch that wrote it.
    """

    identity: bytes
    tables: list[pa.Table]
    sums: bytes
    origin: Origin

    def check(self, bond: Bond) -> None:
        """
        Check that the payload is where it belongs.

        Raises:
            StateCorruptedError: It belongs to another group, or the other columns of its row were
                written with another one.
        """
        if self.sums != (wanted := bond.sums):
            found = "wasn't written with the columns beside it"
            if self.sums[:4] != wanted[:4]:
                found = "belongs to another bucket or key"
            text = f"the stored state is damaged: its payload {found}"
            raise StateCorruptedError(with_hint(text, RESTORE))


def unpack(payload: bytes) -> Unpacked:
    """
    Return what a payload contains.

    Raises:
        StateCorruptedError: The bytes are damaged, or sessionkit didn't write them.
        StateMismatchError: They have the format of another release.
    """
    version, sums, checksum = _check_origin(payload)
    body = memoryview(payload)[HEADER.size :]
    if zlib.crc32(body, _begun(version, sums)) != checksum:
        found = f"the stored state is damaged: its checksum is wrong ({len(body)} bytes)"
        raise StateCorruptedError(with_hint(found, RESTORE))
    origin = Origin.of_bytes(payload[HEADER.size : HEADER_BYTES[version]])
    body = memoryview(payload)[HEADER_BYTES[version] :]
    identity, position = _identity(body)
    tables = []
    for part in _parts(body[position:]):
        with pa.ipc.open_stream(part) as reader:
            tables.append(reader.read_all())
    return Unpacked(identity, tables, sums, origin)


def pack_page(number: int, parts: Sequence[pa.Buffer | bytes]) -> bytes:
    """Return these parts as the page with this number."""
    body = b"".join(part for one in parts for part in (TABLE.pack(len(one)), one))
    return PAGE.pack(PAGE_MAGIC, zlib.crc32(body, number)) + body


def page_checksum(payload: bytes) -> int:
    """Return the checksum in a page."""
    return int.from_bytes(payload[len(PAGE_MAGIC) : PAGE.size], "big")


def unpack_page(number: int, payload: bytes) -> list[pa.Buffer]:
    """
    Return the parts of a page.

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
    return list(_parts(body))


def peek_identity(head: bytes) -> dict[str, Any]:
    """
    Return the identity under which a payload was written, from its first bytes alone.

    The checksum covers the whole payload, so it isn't checked here.

    Raises:
        StateCorruptedError: sessionkit didn't write the bytes.
        StateMismatchError: They have the format of another release.
    """
    version, _, _ = _check_origin(head)
    stored, _ = _identity(memoryview(head)[HEADER_BYTES[version] :])
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
    if version not in HEADER_BYTES:
        known = " and ".join(map(str, HEADER_BYTES))
        found = f"the stored state has format {version}, but this release reads {known}"
        raise StateMismatchError(with_hint(found, "use the release of sessionkit that wrote it"))


def _begun(version: int, sums: bytes) -> int:
    """Return what the checksum of a payload begins with."""
    # With the version, one that was changed isn't taken for another format.
    return zlib.crc32(sums if version == 1 else version.to_bytes(2, "big") + sums)


def _check_origin(payload: bytes) -> tuple[int, bytes, int]:
    """Return the format of a payload, what it is bound to, and its checksum."""
    if len(payload) < HEADER.size:
        found = f"the stored state is truncated: {len(payload)} bytes"
        raise StateCorruptedError(with_hint(found, RESTORE))
    magic, version, sums, checksum = HEADER.unpack_from(payload)
    if magic != MAGIC:
        found = f"the stored state was not written by sessionkit: it starts with {magic!r}"
        raise StateCorruptedError(with_hint(found, "point the query at its own checkpoint"))
    if version not in HEADER_BYTES:
        check_format(version)
    return int(version), sums, int(checksum)


def _identity(body: memoryview) -> tuple[bytes, int]:
    if len(body) < IDENTITY.size:
        found = f"the stored state is truncated: {len(body)} bytes after its header"
        raise StateCorruptedError(with_hint(found, RESTORE))
    (length,) = IDENTITY.unpack_from(body)
    end = IDENTITY.size + length
    return bytes(body[IDENTITY.size : end]).rstrip(PADDING), end


def _parts(body: memoryview) -> Iterator[pa.Buffer]:
    """Yield what follows each length, without a copy."""
    position = 0
    while position < len(body):
        (length,) = TABLE.unpack_from(body, position)
        position += TABLE.size
        yield pa.py_buffer(body[position : position + length])
        position += length
