"""What is stored of a bucket whose memory is in pages: a row with its directory, and the pages."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit._engine.idle import IdleClock
from sessionkit._engine.logic import Logic, Memory
from sessionkit._engine.rows.marks import marked, marks_in, unmarked
from sessionkit._engine.rows.table import events_schema
from sessionkit._engine.shell.pages.directory import Directory
from sessionkit._engine.shell.payload import (
    FORMAT_VERSION,
    RESTORE,
    Origin,
    page_checksum,
    unpack_page,
)
from sessionkit._engine.shell.reading import Reading
from sessionkit._engine.shell.stored import Neighbours, pack_row, unpack_row
from sessionkit.errors import StateCorruptedError, with_hint

DIRECTORY_COLUMNS: Final = (
    "format INT, bucket_count INT, written_ms BIGINT, pages INT, kept BIGINT, buffered BIGINT, "
    "event_due_us BIGINT, processing_due_us BIGINT, payload BINARY"
)
"""The row of a bucket: its directory as the payload, and what is worth seeing without it."""


@attrs.frozen(eq=False)
class Bucket:
    """
    What is stored of a bucket besides its pages: their directory, and how they are read.

    Its pages share the schemas of the rows that they keep, and of the events that wait in them.
    """

    directory: Directory
    kept: pa.Schema
    buffered: pa.Schema
    reading: Reading
    idle: IdleClock | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self.directory.is_empty and not (self.idle is not None and self.idle.holds)

    @classmethod
    def of(cls, logic: Logic) -> "Bucket":
        """Return a bucket that remembers nothing."""
        kept, _ = unmarked(logic.schema.empty_table())
        return cls(Directory.empty(), kept.schema, events_schema(logic.spec), Reading())

    @classmethod
    def of_row(
        cls,
        logic: Logic,
        group: tuple[Any, ...],
        row: tuple[Any, ...],
        now: Origin,
        seen: Neighbours | None = None,
    ) -> "Bucket":
        """Return the bucket that a row describes; see `unpack_row` for what it raises."""
        reading, (table, kept, buffered, *more) = unpack_row(logic, group, row, now, seen)
        directory = Directory.of_table(table)
        idle = IdleClock.of_table(more[0]) if more else None
        if reading.is_changed:
            return cls(directory, kept.schema, buffered.schema, reading, idle)
        # Where none wait, the events may have got other fields since.
        waits = directory.total("buffered") > 0
        events = buffered.schema if waits else events_schema(logic.spec)
        return cls(directory, kept.schema, events, reading, idle)

    def rewritten(self, logic: Logic) -> "Bucket":
        """Return this bucket for pages that are all written anew."""
        return attrs.evolve(Bucket.of(logic), directory=self.directory, idle=self.idle)

    def row(
        self, logic: Logic, group: tuple[Any, ...], now_ms: int, now: Origin
    ) -> tuple[Any, ...]:
        """Return the row that describes this bucket, as of a processing time and a micro-batch."""
        directory, due = self.directory, self.directory.due
        tables = [directory.table(), self.kept.empty_table(), self.buffered.empty_table()]
        tables += [] if self.idle is None else [self.idle.table()]
        stored, kept = len(directory.stored), directory.total("kept")
        head = (FORMAT_VERSION, logic.spec.storage.buckets, now_ms, stored)
        times = (due.get("event_time"), due.get("processing_time"))
        columns = (*head, kept, directory.total("buffered"), *times)
        return pack_row(logic, group, columns, tables, now)

    def memory(self, logic: Logic, pages: Mapping[int, bytes]) -> Memory:
        """Return the memory that some pages contain; an error if one is damaged."""
        found = [unpack_page(start, payload) for start, payload in pages.items()]
        batches = [pa.ipc.read_record_batch(parts[0], self.kept) for parts in found]
        events = [part for parts in found for part in parts[1:2] if part.size]
        waiting = [pa.ipc.read_record_batch(part, self.buffered) for part in events]
        marks = marks_in([(one.num_rows, *p[2:]) for one, p in zip(batches, found, strict=True)])
        kept = marked(pa.Table.from_batches(batches, self.kept), logic.schema, marks)
        buffered = pa.Table.from_batches(waiting, self.buffered)
        memory = self.reading.memory(logic, kept, buffered)
        return Memory(memory.kept.combine_chunks(), memory.buffered.combine_chunks(), self.idle)


def memory_in_pages(
    logic: Logic,
    group: tuple[Any, ...],
    row: tuple[Any, ...],
    pages: Mapping[int, bytes],
    now: Origin,
) -> Memory:
    """Return the whole memory of a bucket from its row and all of its pages."""
    bucket = Bucket.of_row(logic, group, row, now)
    found = read_pages(bucket.directory, pages.get)
    if len(found) < len(pages):
        strange = min(pages.keys() - found.keys())
        raise _corrupted(strange, "isn't in the directory of its bucket")
    return bucket.memory(logic, found)


def read_pages(directory: Directory, page: Callable[[int], bytes | None]) -> dict[int, bytes]:
    """
    Return the pages of a directory, by the numbers at which they start.

    Raises:
        StateCorruptedError: One is missing, or isn't the one that was written with the directory.
    """
    found: dict[int, bytes] = {}
    for start, length, checksum in directory.stored:
        payload = page(start)
        if payload is None:
            raise _corrupted(start, "is missing")
        if len(payload) != length:
            raise _corrupted(start, f"has {len(payload)} bytes, and should have {length}")
        if page_checksum(payload) != checksum:
            raise _corrupted(start, "isn't the one in the directory of its bucket")
        found[start] = bytes(payload)
    return found


def _corrupted(number: int, found: str) -> StateCorruptedError:
    text = f"the stored state is damaged: page {number} {found}"
    return StateCorruptedError(with_hint(text, RESTORE))
