"""
The memory of a bucket in pages; a micro-batch reads and writes only the pages concerned.

A page holds the keys whose hashes lie in a range. A page that has grown too large is split, and
small neighbours become one, so a bucket always has about as many pages as its memory needs. The
directory says when something is due in each page, so Spark keeps one timer for all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, key_columns, micros
from sessionkit._engine.micro_batch import (
    BatchClocks,
    BucketStats,
    GroupLogic,
    GroupState,
    IdleClock,
    idle_clock,
)
from sessionkit._engine.rows.tables import SALT
from sessionkit._engine.shell.pages import (
    Directory,
    SortedRows,
    key_hashes,
    page_checksum,
    pages_of,
    salts_in,
    unpack_page,
)
from sessionkit._engine.shell.payload import RESTORE, GroupAccess, check_size
from sessionkit._engine.shell.reading import Reading
from sessionkit._typing import GroupStateLike
from sessionkit.errors import StateCorruptedError
from sessionkit.timeouts._policies import Clock

DIRECTORY_COLUMNS: Final = (
    "format INT, bucket_count INT, written_ms BIGINT, pages INT, kept BIGINT, buffered BIGINT, "
    "event_due_us BIGINT, processing_due_us BIGINT, payload BINARY"
)
"""The row of a bucket: its directory as the payload, and columns to read without it."""
DAMAGED: Final = "the stored state is damaged"


@attrs.frozen(eq=False)
class BucketHead:
    """
    The row of a bucket: the directory of its pages, and how they're read.

    The pages share the schemas of the rows that they keep, and of the events that wait in them.
    """

    directory: Directory
    kept: pa.Schema
    buffered: pa.Schema
    reading: Reading
    idle: IdleClock | None = None

    @classmethod
    def of(
        cls, logic: GroupLogic, directory: Directory, idle: IdleClock | None = None
    ) -> "BucketHead":
        """Return a bucket whose pages are as this release writes them; salts are stored apart."""
        kept = pa.schema([field for field in logic.program.schema if field.name != SALT.name])
        return cls(directory, kept, logic.spec.events_schema, Reading(), idle)

    @classmethod
    def of_row(cls, access: GroupAccess, row: tuple[Any, ...]) -> "BucketHead":
        """Return the bucket that a row describes; see `GroupAccess` for what it raises."""
        reading, (table, kept, buffered, *more) = access.unpacked(row)
        directory = Directory.of_table(table)
        idle = IdleClock.of_table(more[0]) if more else None
        events = buffered.schema
        if not (reading.is_changed or directory.total("buffered")):
            # Where no events wait, their fields may have changed since.
            events = access.logic.spec.events_schema
        return cls(directory, kept.schema, events, reading, idle)

    def memory(self, logic: GroupLogic, pages: Mapping[int, bytes]) -> GroupState:
        """Decode the memory in some pages; a damaged page is an error."""
        kept, waiting, salts = list[pa.RecordBatch](), list[pa.RecordBatch](), list[Any]()
        for start, payload in pages.items():
            rows, *more = unpack_page(start, payload)
            kept.append(pa.ipc.read_record_batch(rows, self.kept))
            if more and more[0].size:
                waiting.append(pa.ipc.read_record_batch(more[0], self.buffered))
            # A page of three rows gives (3,), or (3, bytes) where one of them has a salt.
            salts.append((kept[-1].num_rows, *more[1:]))
        buffered = pa.Table.from_batches(waiting, self.buffered)
        stored = pa.Table.from_batches(kept, self.kept)
        memory = self.reading.memory(logic, stored, buffered, salts_in(salts))
        return GroupState(memory.kept.combine_chunks(), memory.buffered.combine_chunks(), self.idle)


def memory_in_pages(
    access: GroupAccess, row: tuple[Any, ...], pages: Mapping[int, bytes]
) -> GroupState:
    """Return the whole memory of a bucket from its row and all of its pages."""
    bucket = BucketHead.of_row(access, row)
    payloads = read_pages(bucket.directory, pages.get)
    if len(payloads) < len(pages):
        strange = min(pages.keys() - payloads.keys())
        raise _corrupted(strange, "isn't in the directory of its bucket")
    return bucket.memory(access.logic, payloads)


def read_pages(directory: Directory, page: Callable[[int], bytes | None]) -> dict[int, bytes]:
    """Return the pages of a directory by their starts, checked against their entries."""
    payloads: dict[int, bytes] = {}
    for start, length, checksum in directory.stored:
        payload = page(start)
        if payload is None:
            raise _corrupted(start, "is missing")
        if len(payload) != length:
            raise _corrupted(start, f"has {len(payload)} bytes, and should have {length}")
        if page_checksum(payload) != checksum:
            raise _corrupted(start, "isn't the one in the directory of its bucket")
        payloads[start] = bytes(payload)
    return payloads


def _corrupted(number: int, found: str) -> StateCorruptedError:
    return StateCorruptedError(f"{DAMAGED}: page {number} {found}", RESTORE)


class PagedStateLike(GroupStateLike, Protocol):
    """
    The state of a bucket; `get` and `update` are of its row, the directory.

    A page has the number at which its range of hashes starts. `has_pages` is read where the bucket
    has no row.
    """

    @property
    def has_pages(self) -> bool: ...

    def page(self, start: int) -> bytes | None: ...

    def put_page(self, start: int, payload: bytes) -> None: ...

    def remove_page(self, start: int) -> None: ...


@attrs.define(eq=False)
class PagedBucket:
    """The memory of one bucket during one micro-batch; see `storage`."""

    access: GroupAccess
    state: PagedStateLike
    _bucket: BucketHead = attrs.field(init=False)
    _places: Numbers = attrs.field(init=False)
    _read: dict[int, bytes] = attrs.field(init=False)

    def load(self, keys: pa.Table, clocks: BatchClocks) -> tuple[GroupState, BatchClocks]:
        logic, state = self.access.logic, self.state
        if state.exists:
            bucket = BucketHead.of_row(self.access, state.get)
        elif state.has_pages:
            found = f"bucket {self.access.group[0]} has pages, and its row is gone"
            raise StateCorruptedError(f"{DAMAGED}: {found}", RESTORE)
        else:
            bucket = BucketHead.of(logic, Directory.empty())
        if logic.spec.close_idle_after is not None:
            bucket = attrs.evolve(bucket, idle=idle_clock(logic.spec, bucket.idle, clocks))
        if bucket.idle is not None:
            clocks = clocks.at_least(bucket.idle.floor)
        directory = bucket.directory
        self._bucket = bucket
        # The places in the directory of pages with keys that have events, or with something due.
        self._places = directory.concerned(key_hashes(key_columns(keys)), clocks)
        names = {*logic.program.schema.names} - {SALT.name}
        is_other = bucket.reading.is_changed or {*bucket.kept.names} != names
        if is_other or not state.exists:
            # Pages share one schema, so pages of an older class are all written anew. A new bucket
            # may begin with a seed of any keys.
            self._bucket = BucketHead.of(logic, directory, bucket.idle)
            self._places = np.arange(len(directory.entries))
        self._read = read_pages(Directory(directory.entries[self._places]), state.page)
        return bucket.memory(logic, self._read), clocks

    def store(self, memory: GroupState) -> tuple[BucketStats, Mapping[Clock, int]]:
        directory, logic = self._bucket.directory, self.access.logic
        turns = micros(memory.buffered["time"])
        pages = pages_of(
            SortedRows.of(memory.kept, logic.due(memory.kept), self._bucket.kept),
            SortedRows.of(memory.buffered, {"event_time": turns}, self._bucket.buffered),
            directory.ranges(self._places),
        )
        stored = {page.entry[0]: page.payload for page in pages if page.payload}
        largest = max(map(len, stored.values()), default=0)
        check_size(logic.spec, "a page", largest, memory, self.access.most_bytes)
        # A page with the same bytes as before isn't written: Spark would store it once more.
        for start in self._read.keys() - stored.keys():
            self.state.remove_page(start)
        for start, payload in stored.items():
            if payload != self._read.get(start):
                self.state.put_page(start, payload)
        directory = directory.replaced(self._places, [page.entry for page in pages])
        bucket, in_pages = attrs.evolve(self._bucket, directory=directory), directory.total("bytes")
        if not (in_pages or (bucket.idle is not None and bucket.idle.holds)):
            self.state.remove()
            return BucketStats(), {}
        counts = len(directory.stored), directory.total("kept"), directory.total("buffered")
        numbers = (self.state.getCurrentProcessingTimeMs(), *counts)
        tables = [directory.table(), bucket.kept.empty_table(), bucket.buffered.empty_table()]
        tables += [] if bucket.idle is None else [bucket.idle.table()]
        row = self.access.packed(numbers, tables, directory.due)
        self.state.update(row)
        open_rows = counts[1] if logic.keeps_only_open else None
        return BucketStats(open_rows, counts[2], in_pages + len(row[-1])), directory.due
