"""
The pages of a bucket, their bytes, and their directory.

    directory  start, bytes, checksum, kept, buffered, event_time, processing_time    a row a page

start        the lowest hash of a key of the page; the page ends where the next one starts
bytes        the length of the page; 0 for the first one if nothing is stored there
checksum     the checksum in the page, which tells it from other pages and from older versions
kept         how many sessions or keys are in it
buffered     how many events wait in it
event_time, processing_time    the first instant at which something is due in it, in microseconds

The bytes of a page, without identity and schemas, which its bucket stores once:

    4 bytes   magic `SKP1`
    4 bytes   CRC-32 of all that follows, begun with the number of the page
    per batch 8 bytes of length, then the rows as an Arrow IPC message

The first page starts at 0, so each hash has its page. The hash must be the same on every machine
and in every release, because a stored page contains the keys of a range of hashes. It only chooses
the page: keys themselves are compared as they are. The mixing step is the finalizer of MurmurHash3
by Austin Appleby.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, key_columns, numbers_in, whole, whole_batch
from sessionkit._engine.micro_batch import CLOCKS, NEVER_US, BatchClocks
from sessionkit._engine.rows.tables import SALT
from sessionkit._engine.shell.payload import LENGTH, RESTORE, parts_of
from sessionkit.errors import StateCorruptedError
from sessionkit.state._types import stored_numbers
from sessionkit.timeouts._policies import Clock

Words: TypeAlias = npt.NDArray[np.uint64]

MAGIC: Final = b"SKP1"
PAGE: Final = struct.Struct(">4sI")
PAGE_BYTES: Final = 3_072
"""Two neighbours that fit into this become one page; a page of twice as much is split."""
ENTRY_COUNTS: Final = ("start", "bytes", "checksum", "kept", "buffered")
ENTRY: Final = np.dtype([(n, np.uint32) for n in ENTRY_COUNTS] + [(n, np.int64) for n in CLOCKS])
SALTED: Final = np.dtype([("place", "<u4"), ("salt", "<i8")])
"""The place of a session in its page, and its salt: as bytes, which cost less than a table."""
HASHES: Final = 2**32
"""Hashes lie below this."""
SHIFT: Final = np.uint64(33)
FACTORS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


def key_hashes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Numbers:
    """Return the hash of each row of key columns, from 0 up to `HASHES`."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = _mixed(mixed ^ _words(whole(column)))
    # The upper 32 of the 64 bits: 2**40 + 5 becomes 256.
    hashes: Numbers = (mixed >> np.uint64(32)).astype(np.int64)
    return hashes


def _words(column: pa.Array) -> Words:
    """Return a number for each value, from its stored bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # CRC-32 is the same everywhere; Python's `hash` of a text differs from process to process.
        values = column.cast(pa.binary()).to_pylist()
        return np.fromiter(map(zlib.crc32, values), np.uint64, len(values))
    if pa.types.is_decimal128(kind):
        # A decimal has 128 bits: its lower half, then its upper one.
        halves = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        low, high = halves[column.offset : column.offset + len(column)].T
        words: Words = low ^ _mixed(high)
        return words
    numbers: Words = stored_numbers(column).to_numpy()
    # The same bits without a sign: -1 becomes 2**64 - 1.
    return numbers.view(np.uint64)


def _mixed(words: Words) -> Words:
    for factor in FACTORS:
        words = (words ^ (words >> SHIFT)) * factor
    return words ^ (words >> SHIFT)


@attrs.frozen(eq=False)
class Directory:
    """The directory of a bucket: an `ENTRY` for each page, in the order of hashes."""

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
        pages: list[tuple[int, int, int]] = entries[["start", "bytes", "checksum"]].tolist()
        return pages

    @property
    def due(self) -> dict[Clock, int]:
        """The first instant, in microseconds, that each clock must reach for a change."""
        first_us = {clock: int(self.entries[clock].min()) for clock in CLOCKS}
        return {clock: at_us for clock, at_us in first_us.items() if at_us < NEVER_US}

    def total(self, name: str) -> int:
        return int(self.entries[name].sum(dtype=np.int64))

    def concerned(self, hashes: Numbers, clocks: BatchClocks) -> Numbers:
        """
        Return the places of the pages of these hashes, and of pages with something due.

        A page comes with its right neighbour where the two fit into one.
        """
        chosen = self.entries["event_time"] <= clocks.watermark_us
        chosen |= self.entries["processing_time"] <= clocks.processing_us
        # Of pages that start at 0 50 80, the hash 60 is in the second: two start at or before it.
        chosen[np.searchsorted(self.entries["start"], hashes, side="right") - 1] = True
        # Of three pages the first is chosen: [True, False, False]. If the second fits into it,
        # it comes too: [True, True, False].
        chosen[1:] |= chosen[:-1] & self._fits_left()
        return np.flatnonzero(chosen)

    def ranges(self, places: Numbers) -> list[tuple[int, int]]:
        """Return the ranges of hashes of some pages, joined where neighbours fit into one."""
        if not len(places):
            return []
        starts = self.entries["start"].astype(np.int64)
        ends = np.append(starts[1:], HASHES)
        # Of the places 2 3 7, where 3 fits to 2: `is_next` is [True, False], the ranges begin at
        # the pages 2 and 7, and end with the pages 3 and 7.
        is_next = (np.diff(places) == 1) & self._fits_left()[places[1:] - 1]
        first = np.flatnonzero(np.append(True, ~is_next))
        last = np.append(first[1:], len(places)) - 1
        return list(zip(starts[places[first]].tolist(), ends[places[last]].tolist(), strict=True))

    def replaced(self, places: Numbers, entries: Sequence[tuple[int, ...]]) -> "Directory":
        """Replace the entries at some places by these entries."""
        unchanged = np.delete(self.entries, places)
        # A page without bytes has no entry, but the first one always has: each hash needs a page.
        entries = [entry for entry in entries if entry[1] or not entry[0]]
        # The pages 0 50 80, with 50 and 60 in place of the one at 1, are 0 50 60 80.
        merged = np.concatenate([unchanged, np.array(entries, ENTRY)])
        return Directory(merged[np.argsort(merged["start"])])

    def _fits_left(self) -> Mask:
        """Mark, from the second on, the pages that fit into one with their left neighbour."""
        sizes = self.entries["bytes"].astype(np.int64)
        # Pages of 1,000, 2,000 and 3,000 bytes give [True, False]: the first two fit into one.
        fits: Mask = sizes[:-1] + sizes[1:] <= PAGE_BYTES
        return fits


@attrs.frozen(eq=False)
class SortedRows:
    """
    Rows of a table, in the order of the hashes of their keys.

    `hashes`, `due` (in microseconds, by clock) and `salts` (0 for none) are in that order too.
    """

    rows: pa.StructArray
    hashes: Numbers
    due: Mapping[Clock, Numbers]
    salts: Numbers

    @classmethod
    def of(cls, table: pa.Table, due: Mapping[Clock, Numbers], schema: pa.Schema) -> "SortedRows":
        """Sort rows and their due times by the hashes of keys; keep the columns of a schema."""
        hashes = key_hashes(key_columns(table))
        # The hashes 9 4 7 give the order 1 2 0: rows, due times and salts all follow it.
        order = np.argsort(hashes, kind="stable")
        batch = whole_batch(table.select(schema.names)).take(pa.array(order))
        # One array of structs has all columns, so a page is one slice of it.
        rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        in_order = {clock: at_us[order] for clock, at_us in due.items()}
        salts = np.zeros(len(order), np.int64)
        if SALT.name in table.schema.names:
            salts = numbers_in(table, SALT.name)[order]
        return cls(rows, hashes[order], in_order, salts)

    def edges(self, ranges: Sequence[tuple[int, int]]) -> Numbers:
        """Return the first place of each range of hashes, and the one after the last."""
        # The hashes 4 7 9 with the ranges (0, 5) and (5, 10) have the edges [[0, 1], [1, 3]].
        edges: Numbers = np.searchsorted(self.hashes, np.array(ranges, np.int64))
        return edges

    def serialized(self, first: int, last: int) -> pa.Buffer:
        """Serialize a copy of rows, since a slice would bring its neighbours' bytes."""
        copied = pa.concat_arrays([self.rows[first:last]])
        return pa.RecordBatch.from_struct_array(copied).serialize()

    def first_due(self, clock: Clock, edges: Numbers) -> Numbers:
        """Return the first instant at which something is due in the rows between edges."""
        first_us = np.full(len(edges), NEVER_US)
        at_us, has_rows = self.due.get(clock), edges[:, 0] < edges[:, 1]
        if at_us is not None and has_rows.any():
            # The last edge may be where the rows end, which must be a place for `reduceat`.
            at_us = np.append(at_us, NEVER_US)
            # The edges (0, 2) and (5, 6) make four parts: 0-1, 2-4, 5, and the rest. Only the first
            # and the third are between edges, so every other least value is taken.
            first_us[has_rows] = np.minimum.reduceat(at_us, edges[has_rows].ravel())[::2]
        return first_us


class StoredPage(NamedTuple):
    """A page to store: its entry in the directory, and its bytes; none where it has no rows."""

    entry: tuple[int, ...]
    payload: bytes


def pages_of(
    kept: SortedRows, buffered: SortedRows, ranges: Sequence[tuple[int, int]]
) -> list[StoredPage]:
    """
    Return the pages of ranges of hashes, with the kept rows and the waiting events.

    A range that is too large for a page makes several.
    """
    pages: list[StoredPage] = []
    for page, (low, high) in zip(_pages(kept, buffered, ranges), ranges, strict=True):
        parts = len(page.payload) // PAGE_BYTES
        if parts > 1:
            runs = [rows.hashes[slice(*rows.edges([(low, high)])[0])] for rows in (kept, buffered)]
            hashes = np.sort(np.concatenate(runs))
            # Parts of about the same size: of four hashes, two parts begin at the places 0 and 2.
            starts = np.unique(hashes[np.arange(parts) * len(hashes) // parts])[1:].tolist()
            # Rows that all have one hash can't be split.
            if starts:
                pages += _pages(kept, buffered, list(pairwise([low, *starts, high])))
                continue
        pages.append(page)
    return pages


def _pages(
    kept: SortedRows, buffered: SortedRows, ranges: Sequence[tuple[int, int]]
) -> Iterator[StoredPage]:
    if not ranges:
        return
    of_kept, of_buffered = kept.edges(ranges), buffered.edges(ranges)
    event_us = np.minimum(
        kept.first_due("event_time", of_kept), buffered.first_due("event_time", of_buffered)
    )
    due = event_us.tolist(), kept.first_due("processing_time", of_kept).tolist()
    edges = of_kept.tolist(), of_buffered.tolist()
    has_salts = bool(kept.salts.any())
    for (start, _), (first, last), waiting, *at_us in zip(ranges, *edges, *due, strict=True):
        number = waiting[1] - waiting[0]
        if first == last and not number:
            yield StoredPage((start, 0, 0, 0, 0, NEVER_US, NEVER_US), b"")
            continue
        parts = [kept.serialized(first, last)]
        salts = salts_as_bytes(kept.salts[first:last]) if has_salts else b""
        # Parts are known by their places, so salts without events need an empty part before them.
        if number or salts:
            parts.append(buffered.serialized(*waiting) if number else b"")
        stored = [*parts, salts] if salts else parts
        body = b"".join(piece for part in stored for piece in (LENGTH.pack(len(part)), part))
        payload = PAGE.pack(MAGIC, zlib.crc32(body, start)) + body
        sums = len(payload), page_checksum(payload)
        yield StoredPage((start, *sums, last - first, number, *at_us), payload)


def page_checksum(payload: bytes) -> int:
    """Return the checksum that is stored in a page."""
    return int.from_bytes(payload[len(MAGIC) : PAGE.size], "big")


def unpack_page(number: int, payload: bytes) -> list[pa.Buffer]:
    """Return the parts of a page; a StateCorruptedError if the bytes are damaged."""
    if len(payload) < PAGE.size or payload[: len(MAGIC)] != MAGIC:
        found = f"page {number} of the stored state isn't one: it starts with {payload[:4]!r}"
        raise StateCorruptedError(found, RESTORE)
    body = memoryview(payload)[PAGE.size :]
    if zlib.crc32(body, number) != PAGE.unpack_from(payload)[1]:
        found = f"page {number} of the stored state is damaged: its checksum is wrong"
        raise StateCorruptedError(f"{found} ({len(body)} bytes)", RESTORE)
    return list(parts_of(body))


def salts_as_bytes(salts: Numbers) -> bytes:
    """Encode the salts of the rows of a page; empty where no row has one."""
    # The salts 0 8 9 are stored as the pairs (1, 8) and (2, 9).
    places = np.flatnonzero(salts)
    salted = np.empty(len(places), SALTED)
    salted["place"], salted["salt"] = places, salts[places]
    return salted.tobytes()


def salts_in(pages: Sequence[tuple[Any, ...]]) -> Numbers:
    """Decode the salts of pages, from the number of rows of each page and its stored salts."""
    salts = np.zeros(sum(number for number, *_ in pages), np.int64)
    # Pages of two rows and of one, where the first has the salt 8 at its place 1, give 0 8 0.
    before = 0
    for number, *stored in pages:
        for packed in stored:
            salted = np.frombuffer(packed, SALTED)
            salts[before + salted["place"].astype(np.int64)] = salted["salt"]
        before += number
    return salts
