"""The rows of the pages that a micro-batch has read, in the order in which pages hold them."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.logic import NEVER_US
from sessionkit._engine.rows.marks import marks_as_bytes, unmarked
from sessionkit._engine.rows.table import key_columns, whole_batch
from sessionkit._engine.shell.pages.directory import PAGE_BYTES, Places
from sessionkit._engine.shell.pages.hashing import Hashes, key_hashes
from sessionkit._engine.shell.payload import pack_page, page_checksum
from sessionkit.timeouts import Clock

Instants: TypeAlias = npt.NDArray[np.int64]


@attrs.frozen
class Page:
    """A page to store: its bytes, none where it has no rows, and its entry in the directory."""

    start: int
    payload: bytes
    entry: tuple[int, ...]


@attrs.frozen(eq=False)
class SortedRows:
    """
    Rows of a table, in the order of the hashes of their keys.

    Their places in the table, the hashes, the instants at which something is due on each clock, in
    microseconds, and the marks (0 for none) are all in that order.
    """

    table: pa.RecordBatch
    order: Places
    hashes: Hashes
    due: Mapping[Clock, Instants]
    marks: Instants

    @classmethod
    def of(cls, table: pa.Table, due: Mapping[Clock, Instants], schema: pa.Schema) -> "SortedRows":
        """Sort rows that have these due times; their columns become those of a schema."""
        hashes = key_hashes(key_columns(table))
        order = np.argsort(hashes, kind="stable")
        rows = whole_batch(table.select(schema.names))
        in_order = {clock: at_us[order] for clock, at_us in due.items()}
        return cls(rows, order, hashes[order], in_order, unmarked(table)[1][order])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.order)

    @property
    def batch(self) -> pa.RecordBatch:
        """
        The rows as a record batch of their own.

        Arrow would write a slice of a larger one with some bytes of its neighbours.
        """
        return self.table.take(pa.array(self.order))

    def between(self, low: int, high: int) -> "SortedRows":
        """Return the rows whose hashes lie in a range."""
        first, last = np.searchsorted(self.hashes, (low, high)).tolist()
        due = {clock: at_us[first:last] for clock, at_us in self.due.items()}
        rows = self.order[first:last], self.hashes[first:last], due, self.marks[first:last]
        return SortedRows(self.table, *rows)

    def first_due(self, clock: Clock) -> int:
        """Return the first instant at which something is due."""
        at_us = self.due.get(clock)
        return NEVER_US if at_us is None else int(at_us.min(initial=NEVER_US))


@attrs.frozen(eq=False)
class PageRows:
    """The rows of a range of hashes: those that are kept, and the events that wait."""

    kept: SortedRows
    buffered: SortedRows

    def pages(self, ranges: Iterable[tuple[int, int]]) -> list[Page]:
        """Return the pages of ranges of hashes; one that is too large for a page, in several."""
        return [page for low, high in ranges for page in self._pages(low, high)]

    def between(self, low: int, high: int) -> "PageRows":
        """Return the rows whose hashes lie in a range."""
        return PageRows(self.kept.between(low, high), self.buffered.between(low, high))

    def _pages(self, low: int, high: int) -> list[Page]:
        rows = self.between(low, high)
        page = rows.page(low)
        parts = len(page.payload) // PAGE_BYTES
        starts = [low, *rows.borders(parts)[1:]] if parts > 1 else [low]
        if len(starts) == 1:
            return [page]
        ends = [*starts[1:], high]
        return [rows.between(*each).page(each[0]) for each in zip(starts, ends, strict=True)]

    def page(self, start: int) -> Page:
        """Return all of these rows as one page."""
        kept, buffered = len(self.kept), len(self.buffered)
        if not kept + buffered:
            return Page(start, b"", (start, 0, 0, 0, 0, NEVER_US, NEVER_US))
        parts = [self.kept.batch.serialize()]
        marks = marks_as_bytes(self.kept.marks)
        parts += [self.buffered.batch.serialize() if buffered else b""] if buffered or marks else []
        parts += [marks] if marks else []
        payload = pack_page(start, parts)
        event_us = min(self.kept.first_due("event_time"), self.buffered.first_due("event_time"))
        processing_us = self.kept.first_due("processing_time")
        sums = (len(payload), page_checksum(payload))
        known = int((self.kept.marks >= 0).sum())
        return Page(start, payload, (start, *sums, known, buffered, event_us, processing_us))

    def borders(self, parts: int) -> list[int]:
        """Return the first hashes of so many parts with about as many rows each."""
        hashes = np.sort(np.concatenate([self.kept.hashes, self.buffered.hashes]))
        chosen = hashes[np.arange(parts) * len(hashes) // parts]
        borders: list[int] = np.unique(chosen).tolist()
        return borders
