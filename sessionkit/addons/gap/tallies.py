"""
Count the pauses, the sessions and their lengths in a part of the keys, under many gaps at once.

A task has all events of its keys, and NumPy sorts them. What it counts are rows of `SCHEMA`, which
the engine adds up: `kind` says what is counted, `gap` of which gap, or of which tenth of the keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
WIDE: Final = 8
"""How far around its median a task shows lengths, in roots of their number: 16 sigma."""
FAR: Final = 2**62
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
        keys, times, parts = list[Numbers](), list[Numbers](), list[pa.Array]()
        for batch in batches:
            if batch["rejected"].null_count < batch.num_rows:
                reasons = np.bincount(batch["rejected"].drop_null().to_numpy())
                rows.add(TOTAL, "rejected", 0, np.arange(len(reasons)), reasons)
                batch = batch.filter(batch["rejected"].is_null())  # noqa: PLW2901 - its events
            keys.append(batch["key"].to_numpy())
            times.append(batch["at"].to_numpy())
            if self.has_parts:
                parts.append(batch["part"])
        if sum(map(len, keys)):
            of_key, at = np.concatenate(keys), np.concatenate(times)
            keys.clear()
            times.clear()
            order = np.lexsort((at, of_key))
            of_key, at = of_key[order], at[order]
            self._count(TOTAL, of_key, at, rows)
            if self.has_parts:
                coded = pa.chunked_array(parts).combine_chunks().dictionary_encode()
                codes = coded.indices.to_numpy()[order]
                for code, name in enumerate(coded.dictionary.to_pylist()):
                    self._count(name, of_key[codes == code], at[codes == code], rows)
        yield rows.batch()

    def _count(self, part: str, keys: Numbers, at: Numbers, rows: "_Rows") -> None:
        """Count what is known of the sorted events of a part."""
        is_first = np.concatenate(([True], keys[1:] != keys[:-1]))
        # FAR before the first event of a key, and after its last.
        before = np.diff(at, prepend=at[0])
        before[is_first] = FAR
        if self.bands is None:
            self._count_pauses(part, keys, before, is_first, rows)
            times = [place for place, unit in enumerate(UNITS) if not (at % unit).any()]
            rows.add(part, "unit", 0, [max(times)], [1])
        starts = np.arange(len(at))
        for gap, limit in enumerate(self.limits):
            # The sessions under a longer gap start at some of the starts under a shorter one.
            starts = starts[before[starts] > limit]
            last = np.append(starts[1:], len(at)) - 1
            self._count_lengths(part, gap, at[last] - at[starts], rows)

    def _count_pauses(
        self,
        part: str,
        keys: Numbers,
        before: Numbers,
        is_first: npt.NDArray[np.bool_],
        rows: "_Rows",
    ) -> None:
        edges = np.array(self.edges)
        lowest = np.append(-1, edges)  # what the pauses of a cell are longer than
        cells, number = np.searchsorted(edges, before, side="left"), len(edges) + 1
        folds = ((keys.view(np.uint64) >> np.uint64(20)) % np.uint64(FOLDS)).astype(np.int64)
        pauses = np.bincount((folds * number + cells)[~is_first], minlength=FOLDS * number)
        for fold, counts in enumerate(pauses.reshape(FOLDS, number)):
            rows.add(part, "pause", fold, lowest, counts)
        after = np.append(cells[1:], number - 1)
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
            shown_of = np.partition(lengths, ranks)[ranks].tolist()
            for kind, value in zip(("low", "lower", "upper", "high"), shown_of, strict=True):
                rows.add(part, kind, gap, [value], [1])
            low, high = shown_of[0], shown_of[-1]
        elif (part, gap) in self.bands:
            low, high = self.bands[part, gap]
        else:
            return
        shown, counts = np.unique(lengths[(lengths >= low) & (lengths <= high)], return_counts=True)
        shorter = int((lengths < low).sum())
        rows.add(part, "length", gap, shown, counts)
        rows.add(part, "length", gap, [-1, FAR], [shorter, number - shorter - counts.sum()])


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
