"""
Count the pauses, the sessions and their lengths in a part of the keys, under many gaps at once.

A task has all events of its keys, and NumPy sorts them. What it counts are rows of `SCHEMA`, which
the engine adds up: `kind` says what is counted, `gap` of which gap, or of which tenth of the keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers: TypeAlias = npt.NDArray[np.int64]

SCHEMA: Final = "part string, kind string, gap long, value long, n long"
FOLDS: Final = 10
"""The number of groups of keys that are judged each by itself."""
BINS: Final = 8
"""Bins of pauses in an octave: from a gap to its double."""
FIRST_BIN, LAST_BIN = -10 * BINS, 31 * BINS
GRID: Final[Numbers] = np.round(2.0 ** (np.arange(FIRST_BIN, LAST_BIN + 1) / BINS) * 1e6).astype(
    np.int64
)
"""The edges of the bins in microseconds, from a millisecond to 68 years."""
UNITS: Final = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000)
"""Of what times may be multiples, in microseconds."""
WIDE: Final = 4
"""How far around its median a task shows lengths, in roots of their number: 8 sigma."""
FAR: Final = 2**62
SORTABLE_BITS: Final = 63
"""The bits of an integer that sorts as an unsigned number."""
LEAF_BITS: Final = 47
"""Of the bits of a float, those after its exponent and the first five of its digits."""
FIRST_LEAF, LAST_LEAF = (
    int(np.float64(number).view(np.int64) >> LEAF_BITS) for number in (0.5, float(FAR))
)
REASONS: Final = ("time", "future", "key")
"""Why a row is no event: without a time, too far in the future, without a key."""
TOTAL: Final = ""
"""The part that is all events; the other parts have a sign in front of their value."""


@attrs.frozen
class Tally:
    """
    What a task counts: `Tally(...)(batches)` gives the rows.

    Attributes:
        limits: A session is cut after a pause longer than this, for each gap, in microseconds.
        edges: All lengths of pauses between which the counts must tell, sorted, from zero on.
        has_parts: Whether the events have a column `part` too.
        bands: Of which lengths to show each, by part and gap: all other counts are known. None
            takes those around the median of the task.
    """

    limits: Sequence[int]
    edges: Sequence[int]
    has_parts: bool = False
    bands: Mapping[tuple[str, int], tuple[int, int]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _Rows()
        keys, times, parts = list[pa.Array](), list[pa.Array](), list[pa.Array]()
        for batch in batches:
            if batch["at"].null_count:
                reasons = np.bincount(batch["key"].filter(batch["at"].is_null()).to_numpy())
                rows.add(TOTAL, "rejected", 0, np.arange(len(reasons)), reasons)
                batch = batch.filter(batch["at"].is_valid())  # noqa: PLW2901 - its events
            keys.append(batch["key"])
            times.append(batch["at"])
            if self.has_parts:
                parts.append(batch["part"])
        if sum(map(len, keys)):
            of_key = dictionary_of(keys)
            hashes = of_key.dictionary.to_numpy().view(np.uint64)
            folds = ((hashes >> np.uint64(20)) % FOLDS).astype(np.uint8)
            parts_of_keys = self._parts_of_keys(of_key, parts)
            at = pa.chunked_array(times).to_numpy()
            times.clear()
            codes, at = sorted_events(of_key.indices.to_numpy(), at)
            del of_key
            # What came in is forgotten, and Arrow would keep its memory.
            pa.default_memory_pool().release_unused()
            self._count(TOTAL, codes, at, folds, rows)
            for name, is_in_part in parts_of_keys.items():
                is_in = is_in_part[codes]
                self._count(name, codes[is_in], at[is_in], folds, rows)
        yield rows.batch()

    def _parts_of_keys(
        self, of_key: pa.DictionaryArray, parts: list[pa.Array]
    ) -> Mapping[str, npt.NDArray[np.bool_]]:
        """Return a mask of the keys of each part: as a key column, it's one for each key."""
        if not self.has_parts:
            return {}
        of_part = dictionary_of(parts)
        part_of_key = np.empty(len(of_key.dictionary), np.int64)
        part_of_key[of_key.indices.to_numpy()] = of_part.indices.to_numpy()
        return {
            name: part_of_key == place for place, name in enumerate(of_part.dictionary.to_pylist())
        }

    def _count(
        self, part: str, keys: Numbers, at: Numbers, folds: npt.NDArray[np.uint8], rows: "_Rows"
    ) -> None:
        """Count what is known of the sorted events of a part; `folds` has the fold of each key."""
        is_first = np.concatenate(([True], keys[1:] != keys[:-1]))
        # FAR before the first event of a key, and after its last.
        before = np.diff(at, prepend=at[0])
        before[is_first] = FAR
        if self.bands is None:
            self._count_pauses(part, folds[keys], before, is_first, rows)
            units = takewhile(lambda place: not (at % UNITS[place]).any(), range(len(UNITS)))
            rows.add(part, "unit", 0, [max(units)], [1])
        first, last = at, at
        for gap, limit in enumerate(self.limits):
            # The sessions under a longer gap are unions of sessions under a shorter one.
            begins = before > limit
            before, first = before[begins], first[begins]
            last = last[np.append(begins[1:], True)]
            self._count_lengths(part, gap, last - first, rows)

    def _count_pauses(
        self,
        part: str,
        folds: npt.NDArray[np.uint8],
        before: Numbers,
        is_first: npt.NDArray[np.bool_],
        rows: "_Rows",
    ) -> None:
        edges = np.array(self.edges)
        lowest = np.append(-1, edges)  # what the pauses of a cell are longer than
        cells, number = cells_of(edges, before), len(edges) + 1
        pauses = np.bincount(
            (folds * np.int32(number) + cells)[~is_first], minlength=FOLDS * number
        )
        for fold, counts in enumerate(pauses.reshape(FOLDS, number)):
            rows.add(part, "pause", fold, lowest, counts)
        after = np.append(cells[1:], cells.dtype.type(number - 1))
        rows.add(part, "lone", 0, lowest, np.bincount(np.minimum(cells, after), minlength=number))
        is_only = is_first & np.append(is_first[1:], True)
        rows.add(part, "key", 0, np.arange(FOLDS), np.bincount(folds[is_first], minlength=FOLDS))
        rows.add(part, "key of one", 0, [0], [is_only.sum()])

    def _count_lengths(self, part: str, gap: int, lengths: Numbers, rows: "_Rows") -> None:
        """Show the lengths around the median; of others, how many are shorter, and how many not."""
        number = len(lengths)
        if self.bands is None:
            wide, lower, upper = WIDE * int(number**0.5) + 1, (number - 1) // 2, number // 2
            ranks = [max(lower - wide, 0), lower, upper, min(upper + wide, number - 1)]
            # Under a short gap, most sessions have one event.
            are_zero = number - np.count_nonzero(lengths) > ranks[-1]
            if not are_zero:
                lengths.partition(ranks)
            shown_of = [0] * len(ranks) if are_zero else lengths[ranks].tolist()
            for kind, value in zip(("low", "lower", "upper", "high"), shown_of, strict=True):
                rows.add(part, kind, gap, [value], [1])
            low, high = shown_of[0], shown_of[-1]
        elif (part, gap) in self.bands:
            low, high = self.bands[part, gap]
        else:
            return
        shorter, until = (int(np.count_nonzero(lengths < one)) for one in (low, high + 1))
        shown, counts = (
            ([low], [until - shorter])
            if low == high
            else np.unique(lengths[(lengths >= low) & (lengths <= high)], return_counts=True)
        )
        rows.add(part, "length", gap, shown, counts)
        rows.add(part, "length", gap, [-1, FAR], [shorter, number - until])


def dictionary_of(columns: list[pa.Array]) -> pa.DictionaryArray:
    """Return columns as one, of numbers and of the values they stand for, and forget them."""
    encoded = pa.chunked_array(columns).dictionary_encode()
    columns.clear()
    return encoded.combine_chunks()


def sorted_events(keys: npt.NDArray[Any], at: Numbers) -> tuple[npt.NDArray[Any], Numbers]:
    """
    Sort events by key and time; `keys` are small numbers from 0.

    NumPy sorts numbers several times as fast as it finds such an order. So where a key and its time
    fit into one number, these are sorted.
    """
    earliest = at.min()
    bits = int(at.max() - earliest).bit_length()
    if bits + int(keys.max()).bit_length() > SORTABLE_BITS:
        order = np.lexsort((at, keys))
        return keys[order], at[order]
    packed = keys.astype(np.int64)
    packed <<= bits
    packed += at
    packed -= earliest
    packed.sort()
    keys = (packed >> bits).astype(keys.dtype)
    packed &= (1 << bits) - 1
    packed += earliest
    return keys, packed


def cells_of(edges: Numbers, pauses: Numbers) -> npt.NDArray[np.int32]:
    """
    Return how many of the sorted edges are less than each pause: `searchsorted`, but faster.

    The first bits of a pause as a float lead to the cell, or to one some edges below it.
    """
    leaves = np.arange(FIRST_LEAF, LAST_LEAF + 1) << LEAF_BITS
    least = np.floor(leaves.view(np.float64)).astype(np.int64)
    # A float has 53 bits, so a number this much less may be rounded up.
    cell_of_leaf = np.searchsorted(edges, least - (least >> 52)).astype(np.int32)
    leaf = pauses.astype(np.float64).view(np.int64)
    leaf >>= LEAF_BITS
    leaf -= FIRST_LEAF
    np.maximum(leaf, 0, out=leaf)
    cells = cell_of_leaf[leaf]
    del leaf
    upper = np.append(edges, np.iinfo(np.int64).max)
    while (is_more := upper[cells] < pauses).any():
        cells += is_more
    return cells


@attrs.frozen
class _Rows:
    """Rows of counts; those of nothing are left out."""

    columns: list[tuple[str, str, int, Numbers, Numbers]] = attrs.field(factory=list)

    def add(self, part: str, kind: str, gap: int, values: Any, counts: Any) -> None:
        values, counts = np.asarray(values, np.int64), np.asarray(counts, np.int64)
        some = counts > 0
        self.columns.append((part, kind, gap, values[some], counts[some]))

    def batch(self) -> pa.RecordBatch:
        sizes = [len(column[3]) for column in self.columns]
        texts = [
            pa.array(np.repeat(np.array([column[place] for column in self.columns], object), sizes))
            for place in (0, 1)
        ]
        gaps = np.repeat(np.array([column[2] for column in self.columns], np.int64), sizes)
        values, counts = (
            np.concatenate([np.empty(0, np.int64), *(column[place] for column in self.columns)])
            for place in (3, 4)
        )
        arrays = [text.cast(pa.string()) for text in texts]
        arrays += [pa.array(gaps), pa.array(values), pa.array(counts)]
        return pa.RecordBatch.from_arrays(arrays, ["part", "kind", "gap", "value", "n"])
