"""
The pages of a bucket: the keys in each, its bytes, and the directory of all of them.

    directory  start, bytes, checksum, kept, buffered, event_time, processing_time    a row a page

start        the lowest hash of a key of the page; the page ends where the next one starts
bytes        the length of the page; 0 for the first one if nothing is stored there
checksum     the checksum in the page: it says that the page is of this bucket and not an older one
kept         how many sessions or keys are in it, without traces of dropped ones
buffered     how many events wait in it
event_time, processing_time    the first instant at which something is due in it, in microseconds

The first page starts at 0, so each hash has its page. The hash must be the same on every machine
and in every release, because a stored page contains the keys of a range of hashes. It only chooses
the page: keys themselves are compared as they are. The mixing step is the final one of MurmurHash3
by Austin Appleby.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.logic import NEVER_US, BatchClocks
from sessionkit._engine.rows.table import key_columns, unmarked, whole_batch
from sessionkit._engine.shell.payload import pack_page, page_checksum
from sessionkit.state._codec import stored_numbers
from sessionkit.timeouts import Clock

Numbers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

PAGE_BYTES: Final = 3_072
"""Two neighbours that fit into this become one page; a page of twice as much is split."""
CLOCKS: Final[tuple[Clock, Clock]] = ("event_time", "processing_time")
NUMBERS: Final = ("start", "bytes", "checksum", "kept", "buffered")
ENTRY: Final = np.dtype([(n, np.uint32) for n in NUMBERS] + [(n, np.int64) for n in CLOCKS])
MARK: Final = np.dtype([("place", "<u4"), ("behind", "<i8")])
"""A mark of a session of a page, by its place there: as bytes, which cost less than a table."""
HASHES: Final = 2**32
"""Hashes lie below this."""
SHIFT: Final = np.uint64(33)
FACTORS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


def key_hashes(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """Return the hash of each row of key columns, from 0 up to `HASHES`."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = _mixed(mixed ^ _words(column.combine_chunks()))
    hashes: Numbers = (mixed >> np.uint64(32)).astype(np.int64)
    return hashes


def _words(column: pa.Array) -> Words:
    """Return a number for each value, of its bytes as they are stored."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = column.cast(pa.binary()).to_pylist()
        return np.fromiter(map(zlib.crc32, values), np.uint64, len(values))
    if pa.types.is_decimal128(kind):
        both = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        low, high = both[column.offset : column.offset + len(column)].T
        words: Words = low ^ _mixed(high)
        return words
    numbers: Words = stored_numbers(column).to_numpy()
    return numbers.view(np.uint64)


def _mixed(words: Words) -> Words:
    for factor in FACTORS:
        words = (words ^ (words >> SHIFT)) * factor
    return words ^ (words >> SHIFT)


@attrs.frozen(eq=False)
class Directory:
    """The pages of a bucket: an entry each, of the type `ENTRY`, in the order of their hashes."""

    entries: npt.NDArray[Any]

    @classmethod
    def empty(cls) -> "Directory":
        return cls(np.array([(0, 0, 0, 0, 0, NEVER_US, NEVER_US)], ENTRY))

    @classmethod
    def of_table(cls, table: pa.Table) -> "Directory":
        entries = np.empty(table.num_rows, ENTRY)
        for name in table.column_names:
            entries[name] = table[name].to_numpy()
        return cls(entries)

    def table(self) -> pa.Table:
        names = ENTRY.names or ()
        return pa.table({name: np.ascontiguousarray(self.entries[name]) for name in names})

    @property
    def stored(self) -> list[tuple[int, int, int]]:
        """The start, the length and the checksum of each page that is stored."""
        entries = self.entries[self.entries["bytes"] > 0]
        found: list[tuple[int, int, int]] = entries[["start", "bytes", "checksum"]].tolist()
        return found

    @property
    def due(self) -> dict[Clock, int]:
        """The first instant, in microseconds, that each clock must reach for a change."""
        found = {clock: int(self.entries[clock].min()) for clock in CLOCKS}
        return {clock: at_us for clock, at_us in found.items() if at_us < NEVER_US}

    def total(self, name: str) -> int:
        return int(self.entries[name].sum(dtype=np.int64))

    def concerned(self, hashes: Numbers, clocks: BatchClocks) -> Numbers:
        """
        Return the places of the pages of these keys, and of those with something due.

        A page comes with its right neighbour where the two fit into one.
        """
        chosen = self.entries["event_time"] <= clocks.watermark_us
        chosen |= self.entries["processing_time"] <= clocks.processing_us
        chosen[np.searchsorted(self.entries["start"], hashes, side="right") - 1] = True
        chosen[1:] |= chosen[:-1] & self._fits_left()
        return np.flatnonzero(chosen)

    def ranges(self, places: Numbers) -> list[tuple[int, int]]:
        """Return the hashes of the pages at some places; those that fit into one, together."""
        if not len(places):
            return []
        starts = self.entries["start"].astype(np.int64)
        ends = np.append(starts[1:], HASHES)
        is_next = (np.diff(places) == 1) & self._fits_left()[places[1:] - 1]
        first = np.flatnonzero(np.append(True, ~is_next))
        last = np.append(first[1:], len(places)) - 1
        return list(zip(starts[places[first]].tolist(), ends[places[last]].tolist(), strict=True))

    def replaced(self, places: Numbers, entries: Sequence[tuple[int, ...]]) -> "Directory":
        """Return the directory with these entries in place of those at some places."""
        others = np.delete(self.entries, places)
        entries = [entry for entry in entries if entry[1] or not entry[0]]
        both = np.concatenate([others, np.array(entries, ENTRY)])
        return Directory(both[np.argsort(both["start"])])

    def _fits_left(self) -> npt.NDArray[np.bool_]:
        """Mark, from the second on, the pages that fit into one with their left neighbour."""
        sizes = self.entries["bytes"].astype(np.int64)
        fits: npt.NDArray[np.bool_] = sizes[:-1] + sizes[1:] <= PAGE_BYTES
        return fits


@attrs.frozen(eq=False)
class SortedRows:
    """
    Rows of a table, in the order of the hashes of their keys.

    Their places in the table, the hashes, the instants at which something is due on each clock, in
    microseconds, and the marks (0 for none) are all in that order.
    """

    table: pa.RecordBatch
    order: Numbers
    hashes: Numbers
    due: Mapping[Clock, Numbers]
    marks: Numbers

    @classmethod
    def of(cls, table: pa.Table, due: Mapping[Clock, Numbers], schema: pa.Schema) -> "SortedRows":
        """Sort rows that have these due times; their columns become those of a schema."""
        hashes = key_hashes(key_columns(table))
        order = np.argsort(hashes, kind="stable")
        rows = whole_batch(table.select(schema.names))
        in_order = {clock: at_us[order] for clock, at_us in due.items()}
        return cls(rows, order, hashes[order], in_order, unmarked(table)[1][order])

    def between(self, low: int, high: int) -> "SortedRows":
        """Return the rows whose hashes lie in a range."""
        first, last = np.searchsorted(self.hashes, (low, high)).tolist()
        due = {clock: at_us[first:last] for clock, at_us in self.due.items()}
        rows = self.order[first:last], self.hashes[first:last], due, self.marks[first:last]
        return SortedRows(self.table, *rows)

    def serialized(self) -> pa.Buffer:
        """Return the rows as bytes, copied: a slice would bring its neighbours' bytes."""
        return self.table.take(pa.array(self.order)).serialize()

    def first_due(self, clock: Clock) -> int:
        """Return the first instant at which something is due."""
        at_us = self.due.get(clock)
        return NEVER_US if at_us is None else int(at_us.min(initial=NEVER_US))


@attrs.frozen
class Page:
    """A page to store: its bytes, none where it has no rows, and its entry in the directory."""

    start: int
    payload: bytes
    entry: tuple[int, ...]


def pages_of(
    kept: SortedRows, buffered: SortedRows, ranges: Iterable[tuple[int, int]]
) -> list[Page]:
    """
    Return the pages of ranges of hashes: of the rows that are kept, and of the events that wait.

    What is too large for a page makes several.
    """
    pages: list[Page] = []
    for low, high in ranges:
        rows, waiting = kept.between(low, high), buffered.between(low, high)
        page = _page(low, rows, waiting)
        parts, starts = len(page.payload) // PAGE_BYTES, [low]
        if parts > 1:
            hashes = np.sort(np.concatenate([rows.hashes, waiting.hashes]))
            # About as many rows each.
            starts += np.unique(hashes[np.arange(parts) * len(hashes) // parts])[1:].tolist()
        if len(starts) == 1:
            pages.append(page)
            continue
        for start, end in pairwise([*starts, high]):
            pages.append(_page(start, rows.between(start, end), waiting.between(start, end)))
    return pages


def _page(start: int, kept: SortedRows, buffered: SortedRows) -> Page:
    number, waiting = len(kept.order), len(buffered.order)
    if not number + waiting:
        return Page(start, b"", (start, 0, 0, 0, 0, NEVER_US, NEVER_US))
    parts = [kept.serialized()]
    marks = marks_as_bytes(kept.marks)
    if waiting or marks:
        parts.append(buffered.serialized() if waiting else b"")
    payload = pack_page(start, [*parts, marks] if marks else parts)
    event_us = min(kept.first_due("event_time"), buffered.first_due("event_time"))
    known, sums = int((kept.marks >= 0).sum()), (len(payload), page_checksum(payload))
    entry = (start, *sums, known, waiting, event_us, kept.first_due("processing_time"))
    return Page(start, payload, entry)


def marks_as_bytes(marks: Numbers) -> bytes:
    """Return what is stored of the marks of the rows of a page; nothing where none has one."""
    places = np.flatnonzero(marks)
    found = np.empty(len(places), MARK)
    found["place"], found["behind"] = places, marks[places]
    return found.tobytes()


def marks_in(pages: Sequence[tuple[Any, ...]]) -> Numbers:
    """Return the marks in pages, from how many rows each has and what is stored of its marks."""
    marks = np.zeros(sum(number for number, *_ in pages), np.int64)
    before = 0
    for number, *stored in pages:
        for packed in stored:
            found = np.frombuffer(packed, MARK)
            marks[before + found["place"].astype(np.int64)] = found["behind"]
        before += number
    return marks
