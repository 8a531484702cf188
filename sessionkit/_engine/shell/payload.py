"""
The row of a group: columns, and a payload bound to them, to the group and to the query.

A payload is a header that identifies it, then Arrow IPC streams:

    4 bytes   magic `SKB1`
    2 bytes   format version
    4 bytes   CRC-32 of the name of the group: its bucket
    4 bytes   CRC-32 of the columns next to the payload
    4 bytes   CRC-32 of all that follows, begun with the CRC-32 of the ten bytes before
    8 bytes   the query that wrote it: the first bytes of its id; zeros where it wasn't known
    8 bytes   the number of the micro-batch
    8 bytes   Spark's watermark in that micro-batch, in milliseconds
    4 bytes   length of the identity, then the identity: JSON, the rules and the types, padded with
              spaces, so that each table begins at a multiple of 8 bytes, as Arrow wants it
    per table 8 bytes of length, then the table as an Arrow IPC stream

The tables are the sessions or keys; the events that wait, left out where there are none and no
table follows; with `close_idle_after`, its clock; and the salts of sessions, where one has a salt.

All numbers are big-endian. Nothing is pickled. Bytes that fail a check are an error, never a
guess.

Rows of a partition also show damage in each other. In a micro-batch Spark calls every group whose
timer is below the watermark, and each call writes the row anew. So where one row was written at a
watermark, no other row of its partition still waits for a timer below it.
"""

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.boundaries import timer_ms
from sessionkit._engine.micro_batch import GroupLogic, GroupState
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.shell.reading import Reading, reading_of
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.spec.base import AnySpec
from sessionkit.timeouts._policies import Clock

RESTORE: Final = "restore the checkpoint from a copy, or start a new one"
WHOLE: Final = "restore the whole checkpoint from one copy, or begin a query with `migrate`"
MAGIC: Final = b"SKB1"
FORMAT_VERSION: Final = 3
"""The format that is written."""
FORMATS: Final = (1, 3)
"""
The formats that are read. Both have the same bytes: until the first release, this one was called 1.
2 was another one, which no release has written; no format to come has its number.
"""
NEVER_RELEASED: Final = 2
HEADER: Final = struct.Struct(">4sH8sI")
CHECKED: Final = slice(4, 14)
"""The part of a header with which its checksum begins: the version, and the binding."""
BINDING: Final = struct.Struct(">II")
CRC_BYTES: Final = 4
ORIGIN: Final = struct.Struct(">8sqq")
HEADER_BYTES: Final = HEADER.size + ORIGIN.size
"""The length of a header; the identity follows it."""
IDENTITY: Final = struct.Struct(">I")
LENGTH: Final = struct.Struct(">Q")
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
ALIGNMENT: Final = 8
PADDING: Final = b" "

QUERY_AT, QUERY_BYTES = HEADER.size, 8
BATCH_AT, BATCH_BYTES = QUERY_AT + QUERY_BYTES, 8
"""The places of the query and the micro-batch in a header, and their lengths."""

EVENT_DUE_AT: Final = -2
"""The place of `event_due_us` in the columns next to a payload, in each layout."""
MOST_BYTES: Final = 2**28
"""
The most bytes of a row, and of a page. Each crosses as one value of Arrow or protobuf, and lies in
one array of Java: neither takes 2 GiB, and several copies exist at once. A row of 500 MB took more
than the 6 GB of a JVM.
"""


@attrs.frozen
class Origin:
    """
    The query and the micro-batch that write a payload, or read one.

    The query is the first bytes of its id, which stays the same over restarts; zeros where it isn't
    known: such a payload belongs to any query. The watermark is Spark's.
    """

    query: bytes = bytes(QUERY_BYTES)
    batch: int = 0
    watermark_ms: int = 0

    @classmethod
    def of(cls, query_id: str, batch: int, watermark_ms: int = 0) -> Self:
        """Return the origin of what a query with this id, a UUID, stores in a micro-batch."""
        return cls(bytes.fromhex(query_id.replace("-", "")[: 2 * QUERY_BYTES]), batch, watermark_ms)

    def check(self, now: "Origin", what: str) -> None:
        """Raise a StateError if a micro-batch may not read `what` this one stored."""
        if NOBODY.query in {self.query, now.query}:
            return
        if self.query != now.query:
            stored, running = (
                f"{text[:8]}-{text[8:12]}-{text[12:]}-..."
                for text in (self.query.hex(), now.query.hex())
            )
            found = f"{what} belongs to another query: {stored} stored it, this is {running}"
            raise StateError(found, WHOLE)
        if self.batch > now.batch:
            found = f"micro-batch {self.batch} wrote it, and this is micro-batch {now.batch}"
            raise StateCorruptedError(f"{what} is damaged: {found}", WHOLE)
        if self.watermark_ms > now.watermark_ms:
            found = (
                f"the checkpoint is damaged: micro-batch {now.batch} has the watermark "
                f"{now.watermark_ms} ms, but {what} was written in micro-batch {self.batch} at "
                f"{self.watermark_ms} ms, and a watermark never falls"
            )
            raise StateCorruptedError(found, WHOLE)


NOBODY: Final = Origin()


def binding_checksum(group: Sequence[Any], columns: Sequence[Any]) -> bytes:
    """
    Return the checksums that bind a payload to its group's name and to the columns next to it.

    They're the same on every machine, in every release, and for the NumPy scalars of Spark.
    """
    # NumPy 2 shows its own 3 as `np.int64(3)`, NumPy 1 as `3`: Python shows both as `3`.
    sums = []
    for values in (group, columns):
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        sums.append(zlib.crc32(repr(plain).encode()))
    return BINDING.pack(*sums)


def pack(identity: bytes, tables: Sequence[pa.Table], binding: bytes, origin: Origin) -> bytes:
    """Encode the tables of a group, bound to their place and to what writes them."""
    # Spaces after the identity align the Arrow streams.
    begins = HEADER_BYTES + IDENTITY.size + len(identity) + LENGTH.size
    stored = identity + PADDING * (-begins % ALIGNMENT)
    written = ORIGIN.pack(origin.query, origin.batch, origin.watermark_ms)
    parts: list[Any] = [written, IDENTITY.pack(len(stored)), stored]
    for table in tables:
        # A writer of streams writes the same bytes, and takes three times as long for a few rows.
        rows = map(pa.RecordBatch.serialize, table.combine_chunks().to_batches())
        stream = [table.schema.serialize(), *rows, END_OF_STREAM]
        parts += [LENGTH.pack(sum(map(len, stream))), *stream]
    # The checksum covers the version, the binding and the parts: all but the magic and itself.
    checksum = zlib.crc32(HEADER.pack(MAGIC, FORMAT_VERSION, binding, 0)[CHECKED])
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([HEADER.pack(MAGIC, FORMAT_VERSION, binding, checksum), *parts])


@attrs.frozen
class Unpacked:
    """The contents of a payload, its binding, and its origin."""

    identity: bytes
    tables: list[pa.Table]
    binding: bytes
    origin: Origin


def unpack(payload: bytes) -> Unpacked:
    """Decode a payload; a StateError if it's damaged, or of another release."""
    binding, checksum = _header(payload)
    body = memoryview(payload)[HEADER.size :]
    if zlib.crc32(body, zlib.crc32(payload[CHECKED])) != checksum:
        found = f"the stored state is damaged: its checksum is wrong ({len(body)} bytes)"
        raise StateCorruptedError(found, RESTORE)
    (length,) = IDENTITY.unpack_from(payload, HEADER_BYTES)
    begin = HEADER_BYTES + IDENTITY.size
    tables: list[pa.Table] = []
    for stream in parts_of(memoryview(payload)[begin + length :]):
        with pa.ipc.open_stream(stream) as reader:
            tables.append(reader.read_all())
    # JSON ends with a brace, so spaces after it are padding.
    identity = payload[begin : begin + length].rstrip(PADDING)
    return Unpacked(identity, tables, binding, Origin(*ORIGIN.unpack_from(body)))


def parts_of(body: memoryview) -> Iterator[pa.Buffer]:
    """Yield the bytes after each length, without a copy."""
    position = 0
    while position < len(body):
        (length,) = LENGTH.unpack_from(body, position)
        position += LENGTH.size
        yield pa.py_buffer(body[position : position + length])
        position += length


def peek_identity(head: bytes) -> dict[str, Any]:
    """
    Return the identity under which a payload was written, from its first bytes alone.

    The checksum covers the whole payload, so it isn't checked here; damaged JSON is a StateError.
    """
    _header(head)
    begin = HEADER_BYTES + IDENTITY.size
    try:
        (length,) = IDENTITY.unpack_from(head, HEADER_BYTES)
        identity: dict[str, Any] = json.loads(head[begin : begin + length])
    except (struct.error, ValueError) as error:
        damaged = "the stored state is damaged: its identity can't be read"
        raise StateCorruptedError(damaged, RESTORE) from error
    return identity


def _header(payload: bytes) -> tuple[bytes, int]:
    """Return the binding and the checksum of a payload; check its format."""
    if len(payload) < HEADER.size:
        raise StateCorruptedError(f"the stored state is truncated: {len(payload)} bytes", RESTORE)
    magic, version, binding, checksum = HEADER.unpack_from(payload)
    if magic != MAGIC:
        found = f"the stored state was not written by sessionkit: it starts with {magic!r}"
        raise StateCorruptedError(found, "point the query at its own checkpoint")
    if version not in FORMATS:
        reads = " and ".join(map(str, FORMATS))
        found = f"the stored state has format {version}, but this release reads {reads}"
        hint = "use the release of sessionkit that wrote it, or a later one"
        if version == NEVER_RELEASED:
            hint = "no release has written it: start with a new checkpoint"
        raise StateError(found, hint)
    return binding, int(checksum)


@attrs.define(eq=False)
class TaskRows:
    """
    The rows that one task has read: the row with the first timer, and the last written one.

    Rows of several tasks can't be compared: they may be of copies of a query, or of two operators.
    """

    _waiting: tuple[int, str, Origin] | None = attrs.field(default=None, init=False)
    _written: tuple[str, Origin] = attrs.field(default=("", NOBODY), init=False)

    def add(self, what: str, origin: Origin, due_us: int | None, now: Origin) -> None:
        """
        Add the row of a group that Spark wakes in event time; raise where one is an older row.

        A row of an unknown micro-batch tells nothing, and neither does a row of the running one,
        which may still call the others.
        """
        if NOBODY.query in {origin.query, now.query} or origin.batch >= now.batch:
            return
        if origin.watermark_ms > self._written[1].watermark_ms:
            self._written = (what, origin)
        if due_us is not None:
            at_ms = timer_ms(due_us, origin.watermark_ms)
            if self._waiting is None or at_ms < self._waiting[0]:
                self._waiting = (at_ms, what, origin)
        # A timer is never below the watermark at which it was set, so the other row is newer.
        if self._waiting is not None and self._waiting[0] < self._written[1].watermark_ms:
            (_, old, before), (new, after) = self._waiting, self._written
            found = (
                f"the stored state is damaged: {old} is older than it may be: micro-batch "
                f"{before.batch} wrote it, and something in it was due by micro-batch "
                f"{after.batch}, which wrote {new}"
            )
            raise StateCorruptedError(found, RESTORE)


@attrs.frozen
class GroupAccess:
    """
    A group, the micro-batch that accesses its row, and the rows that its task has read.

    A row or a page may have `most_bytes`.
    """

    logic: GroupLogic
    group: tuple[Any, ...]
    now: Origin = NOBODY
    task_rows: TaskRows | None = None
    most_bytes: int = MOST_BYTES

    def packed(
        self, numbers: tuple[int, ...], tables: Sequence[pa.Table], due: Mapping[Clock, int]
    ) -> tuple[Any, ...]:
        """Return the row: its format, its numbers, what is due, and the payload."""
        first_due_us = (due.get("event_time"), due.get("processing_time"))
        columns = (FORMAT_VERSION, self.logic.spec.storage.buckets, *numbers, *first_due_us)
        binding = binding_checksum(self.group, columns)
        return (*columns, pack(self.logic.program.identity, tables, binding, self.now))

    def unpacked(self, row: tuple[Any, ...]) -> tuple[Reading, list[pa.Table]]:
        """
        Return the reading of the row, and the tables in it.

        A StateError means damage, an older row than others allow, or another place, query, rules or
        format.
        """
        *columns, payload = row
        stored, logic = unpack(bytes(payload)), self.logic
        what = f"the stored row of [{', '.join(map(str, self.group))}]"
        stored.origin.check(self.now, what)
        reading = logic.readings.get(stored.identity) or reading_of(logic, stored.identity)
        binding = binding_checksum(self.group, columns)
        if stored.binding != binding:
            # A binding is the checksum of the group, then the checksum of the columns.
            is_of_group = stored.binding[:CRC_BYTES] == binding[:CRC_BYTES]
            found = "wasn't written with the other columns of its row"
            found = found if is_of_group else "belongs to another bucket"
            raise StateCorruptedError(f"the stored state is damaged: its payload {found}", RESTORE)
        if self.task_rows is not None and logic.spec.clock == "event_time":
            self.task_rows.add(what, stored.origin, columns[EVENT_DUE_AT], self.now)
        return reading, stored.tables


class TooLargeError(StateError):
    """Raised when memory is too large to be stored; `key` has more than half of it, or is None."""

    def __init__(self, message: str, hint: str, key: Any) -> None:
        super().__init__(message, hint)
        self.key = key


def check_size(spec: AnySpec, what: str, size: int, memory: GroupState, most: int) -> None:
    """
    Check that what would be stored isn't too large: beyond that, Spark fails without a message.

    The error names the key with the largest part of the memory, with its waiting events.
    """
    if size <= most:
        return
    sizes: Counter[Any] = Counter()
    for table in (memory.kept, memory.buffered):
        for place, row_key in enumerate(decode_keys(spec, table)):
            sizes[row_key] += table.slice(place, 1).nbytes
    ((key, largest),) = sizes.most_common(1)
    text = f"{what} would have {size:,} bytes, and at most {most:,} can be stored"
    hint = 'raise `bucket_count` for a new checkpoint, or use Storage(layout="pages")'
    # More buckets don't help where one key has more than half.
    is_of_key = 2 * largest > size
    if is_of_key or spec.storage.layout != "buckets":
        hint = "keep less in its state"
        if spec.row_kind == "session":
            sooner = "end its sessions sooner, with max_events or max_duration of SessionRules"
            hint = f"{sooner}, or {hint}"
    text = f"{text}; the largest part, {largest:,} bytes, is of {key}"
    raise TooLargeError(text, hint, key if is_of_key else None)
