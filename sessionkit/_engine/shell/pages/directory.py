"""
The directory of a bucket: which pages there are, how large each is, and when it is due.

    directory  start, bytes, checksum, kept, buffered, event_time, processing_time    a row a page

start        the lowest hash of a key of the page; the page ends where the next one starts
bytes        the length of the page; 0 for the first one if nothing is stored there
checksum     the checksum in the page: it says that the page is of this bucket and not an older one
kept         how many sessions or keys are in it, without traces of dropped ones
buffered     how many events wait in it
event_time, processing_time    the first instant at which something is due in it, in microseconds

The first page starts at 0, so each hash has its page.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.logic import NEVER_US
from sessionkit._engine.shell.pages.hashing import HASHES, Hashes
from sessionkit.timeouts import Clock

Places: TypeAlias = npt.NDArray[np.int64]

PAGE_BYTES: Final = 3_072
"""Two neighbours that fit into this become one page; a page of twice as much is split."""
CLOCKS: Final[tuple[Clock, Clock]] = ("event_time", "processing_time")
NUMBERS: Final = ("start", "bytes", "checksum", "kept", "buffered")
ENTRY: Final = np.dtype([(n, np.uint32) for n in NUMBERS] + [(n, np.int64) for n in CLOCKS])


@attrs.frozen(eq=False)
class Directory:
    """The pages of a bucket: an entry each, of the type `ENTRY`, in the order of their hashes."""

    entries: npt.NDArray[Any]

    @classmethod
    def empty(cls) -> "Directory":
        """Return the directory of a bucket that remembers nothing."""
        return cls(np.array([(0, 0, 0, 0, 0, NEVER_US, NEVER_US)], ENTRY))

    @classmethod
    def of_table(cls, table: pa.Table) -> "Directory":
        """Return the directory that a table contains."""
        entries = np.empty(table.num_rows, ENTRY)
        for name in table.column_names:
            entries[name] = table[name].to_numpy()
        return cls(entries)

    def table(self) -> pa.Table:
        """Return the directory as a table."""
        names = ENTRY.names or ()
        return pa.table({name: np.ascontiguousarray(self.entries[name]) for name in names})

    @property
    def stored(self) -> list[tuple[int, int, int]]:
        """The start, the length and the checksum of each page that is stored."""
        entries = self.entries[self.entries["bytes"] > 0]
        columns = (entries[name].tolist() for name in ("start", "bytes", "checksum"))
        return list(zip(*columns, strict=True))

    @property
    def is_empty(self) -> bool:
        """Whether no page is stored."""
        return not self.entries["bytes"].any()

    @property
    def due(self) -> dict[Clock, int]:
        """The first instant, in microseconds, that each clock must reach for a change."""
        found = {clock: int(self.entries[clock].min()) for clock in CLOCKS}
        return {clock: at_us for clock, at_us in found.items() if at_us < NEVER_US}

    def total(self, name: str) -> int:
        """Return the sum of a column over all pages."""
        return int(self.entries[name].sum(dtype=np.int64))

    def concerned(self, hashes: Hashes, clocks: BatchClocks) -> Places:
        """
        Return the places of the pages of these keys, and of those with something due.

        A page comes with its right neighbour where the two fit into one.
        """
        chosen = self.entries["event_time"] <= clocks.watermark_us
        chosen |= self.entries["processing_time"] <= clocks.processing_us
        chosen[np.searchsorted(self.entries["start"], hashes, side="right") - 1] = True
        chosen[1:] |= chosen[:-1] & self._fits_left()
        return np.flatnonzero(chosen)

    def ranges(self, places: Places) -> list[tuple[int, int]]:
        """Return the hashes of the pages at some places; those that fit into one, together."""
        if not len(places):
            return []
        starts = self.entries["start"].astype(np.int64)
        ends = np.append(starts[1:], HASHES)
        is_next = (np.diff(places) == 1) & self._fits_left()[places[1:] - 1]
        first = np.flatnonzero(np.append(True, ~is_next))
        last = np.append(first[1:], len(places)) - 1
        return list(zip(starts[places[first]].tolist(), ends[places[last]].tolist(), strict=True))

    def replaced(self, places: Places, entries: Sequence[tuple[int, ...]]) -> "Directory":
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
