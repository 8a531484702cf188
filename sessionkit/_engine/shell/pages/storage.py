"""
The memory of a bucket in pages, of which a micro-batch reads and writes only those concerned.

A page holds the keys whose hashes lie in a range. A page that has grown too large is split, and
small neighbours become one, so a bucket always has about as many pages as its memory needs. The
directory says when something is due in each page, so Spark keeps one timer for all of them.
"""

from typing import Any, Protocol

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks, arm
from sessionkit._engine.idle import idle_clock
from sessionkit._engine.logic import BucketStats, Logic, Memory
from sessionkit._engine.rows.table import key_columns, micros
from sessionkit._engine.shell.pages.bucket import Bucket, read_pages
from sessionkit._engine.shell.pages.directory import Directory, Places
from sessionkit._engine.shell.pages.hashing import key_hashes
from sessionkit._engine.shell.pages.rows import Page, PageRows, SortedRows
from sessionkit._engine.shell.payload import RESTORE, Origin
from sessionkit._engine.shell.stored import Neighbours, check_size
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.typing import GroupStateLike


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
        bucket = attrs.evolve(bucket, idle=idle_clock(logic.spec, bucket.idle, clocks))
        clocks = clocks if bucket.idle is None else bucket.idle.in_force(clocks)
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
