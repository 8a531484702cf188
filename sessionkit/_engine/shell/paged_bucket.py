"""
The memory of a bucket in pages, of which a micro-batch reads and writes only those concerned.

A page holds the keys whose hashes lie in a range. A page that has grown too large is split, and
small neighbours become one, so a bucket always has about as many pages as its memory needs. The
directory says when something is due in each page, so Spark keeps one timer for all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.idle import IdleClock, idle_clock
from sessionkit._engine.logic import BatchClocks, BucketStats, Logic, Memory
from sessionkit._engine.rows.table import events_schema, key_columns, micros, unmarked
from sessionkit._engine.shell.pages import (
    Directory,
    Page,
    PageRows,
    Places,
    SortedRows,
    key_hashes,
    marks_in,
)
from sessionkit._engine.shell.payload import (
    FORMAT_VERSION,
    RESTORE,
    Origin,
    page_checksum,
    unpack_page,
)
from sessionkit._engine.shell.reading import Reading, marked
from sessionkit._engine.shell.stored import Neighbours, arm, check_size, pack_row, unpack_row
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.typing import GroupStateLike

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


class PagedStateLike(GroupStateLike, Protocol):
    """
    The state of a bucket: the row that `get` and `update` mean is its directory.

    A page is found by the number at which its range of hashes starts.
    """

    @property
    def has_pages(self) -> bool:
        """Whether a page is stored; asked where the bucket has no row."""

    def page(self, start: int) -> bytes | None:
        """Return a page; None where none is stored."""

    def put_page(self, start: int, payload: bytes) -> None:
        """Store a page, in place of the one that is there."""

    def remove_page(self, start: int) -> None:
        """Remove a page that is there."""


@attrs.define(eq=False)
class PagedBucket:
    """The memory of one bucket during one micro-batch; see `Storage`."""

    logic: Logic
    group: tuple[Any, ...]
    state: PagedStateLike
    now: Origin
    seen: Neighbours | None
    _bucket: Bucket = attrs.field(init=False)
    _places: Places = attrs.field(init=False)
    _read: dict[int, bytes] = attrs.field(init=False)

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> Memory:
        """Return what the pages of these events, and those with something due, remember."""
        logic, state = self.logic, self.state
        bucket = Bucket.of(logic)
        if state.exists:
            bucket = Bucket.of_row(logic, self.group, state.get, self.now, self.seen)
        elif state.has_pages:
            raise _without_a_row(self.group)
        if logic.spec.close_idle_after is not None:
            times = clocks.watermark_us, clocks.processing_us
            bucket = attrs.evolve(bucket, idle=idle_clock(logic.spec, bucket.idle, *times))
        clocks = clocks if bucket.idle is None else clocks.at_least(bucket.idle.floor)
        self._places = bucket.directory.concerned(key_hashes(key_columns(arrived)), clocks)
        if bucket.reading.is_changed:
            # Its pages share one schema, so those of an older class are all written anew.
            self._places = np.arange(len(bucket.directory.entries))
        self._read = read_pages(Directory(bucket.directory.entries[self._places]), state.page)
        self._bucket = bucket.rewritten(logic) if bucket.reading.is_changed else bucket
        return bucket.memory(logic, self._read)

    def store(self, memory: Memory) -> BucketStats:
        """Write the pages that have changed and the directory, and arm the timer."""
        directory = self._bucket.directory
        pages = self._rows(memory).pages(directory.ranges(self._places))
        largest = max((len(page.payload) for page in pages), default=0)
        check_size(self.logic.spec, "a page", largest, memory)
        self._write(pages)
        directory = directory.replaced(self._places, [page.entry for page in pages])
        bucket = attrs.evolve(self._bucket, directory=directory)
        if bucket.is_empty:
            self.state.remove()
            return BucketStats()
        now_ms = self.state.getCurrentProcessingTimeMs()
        row = bucket.row(self.logic, self.group, now_ms, self.now)
        self.state.update(row)
        arm(self.logic.spec.clock, directory.due, self.state, self.now.watermark_ms)
        kept, waiting, in_pages = map(directory.total, ("kept", "buffered", "bytes"))
        known = kept if self.logic.keeps_only_open else None
        return BucketStats(known, waiting, in_pages + len(row[-1]))

    def _rows(self, memory: Memory) -> PageRows:
        turns = micros(memory.buffered["time"])
        return PageRows(
            SortedRows.of(memory.kept, self.logic.due(memory.kept), self._bucket.kept),
            SortedRows.of(memory.buffered, {"event_time": turns}, self._bucket.buffered),
        )

    def _write(self, pages: list[Page]) -> None:
        stored = {page.start: page.payload for page in pages if page.payload}
        for start in self._read.keys() - stored.keys():
            self.state.remove_page(start)
        for start, payload in stored.items():
            if payload != self._read.get(start):
                self.state.put_page(start, payload)


def _without_a_row(group: tuple[Any, ...]) -> StateCorruptedError:
    found = f"the stored state is damaged: bucket {group[0]} has pages, and its row is gone"
    return StateCorruptedError(with_hint(found, RESTORE))
