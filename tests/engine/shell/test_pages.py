"""The directory of a bucket: which pages a micro-batch concerns, and which become one."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionkit._engine.micro_batch import NEVER_US, BatchClocks
from sessionkit._engine.shell.pages import ENTRY, HASHES, PAGE_BYTES, Directory, key_hashes

FULL = PAGE_BYTES
SOON = BatchClocks(watermark_us=100, processing_us=200)


def directory(*sizes: int, event: Sequence[int] = (), processing: Sequence[int] = ()) -> Directory:
    """Return pages that start at 0, 1000, 2000, ..."""
    never = [NEVER_US] * len(sizes)
    dues = zip([*event, *never], [*processing, *never], strict=False)
    rows = zip(range(0, 1000 * len(sizes), 1000), sizes, dues, strict=False)
    return Directory(np.array([(start, size, 0, 1, 0, *due) for start, size, due in rows], ENTRY))


@pytest.mark.parametrize(
    ("expected", "key_hash"), [(0, 0), (0, 999), (1, 1000), (1, 1999), (2, 2000), (2, HASHES - 1)]
)
def test_a_page_holds_the_hashes_from_its_start_to_the_next(expected: int, key_hash: int) -> None:
    """The start of a page is its own; the last page goes on to the last hash."""
    found = directory(FULL, FULL, FULL).concerned(np.array([key_hash]), BatchClocks(0, 0))

    assert [expected] == found.tolist()


@pytest.mark.parametrize(("expected", "due_us"), [([0], 99), ([0], 100), ([], 101)])
def test_a_page_is_read_when_the_watermark_reaches_what_is_due(
    expected: list[int], due_us: int
) -> None:
    """Due is `<=` the watermark, as sessions close."""
    none = np.array([], np.int64)

    assert expected == directory(FULL, FULL, event=[due_us]).concerned(none, SOON).tolist()


@pytest.mark.parametrize(
    ("expected", "sizes"), [([0, 1], (FULL - 10, 10, FULL)), ([0], (FULL - 10, 11, FULL))]
)
def test_a_page_is_read_with_a_neighbour_that_fits_in(
    expected: list[int], sizes: tuple[int, ...]
) -> None:
    """Two small pages are read together, to be written as one."""
    assert expected == directory(*sizes).concerned(np.array([5]), BatchClocks(0, 0)).tolist()


def test_neighbours_that_fit_into_one_are_one_range() -> None:
    """Others keep the ranges that they have."""
    pages = directory(FULL, 10, 20, FULL, FULL)

    assert [(0, 1000), (1000, 3000), (3000, 4000)] == pages.ranges(np.array([0, 1, 2, 3]))
    assert [(4000, HASHES)] == pages.ranges(np.array([4]))
    assert [] == pages.ranges(np.array([], np.int64))


def test_pages_that_are_empty_leave_the_directory() -> None:
    """Their hashes fall to the page before; only the first one stays, so that each hash has one."""
    nothing = (NEVER_US, NEVER_US)
    changed = directory(5, 6, 7).replaced(
        np.array([0, 1]), [(0, 0, 0, 0, 0, *nothing), (1000, 0, 0, 0, 0, *nothing)]
    )

    assert [(2000, 7, 0)] == changed.stored
    assert [0, 2000] == changed.entries["start"].tolist()
    assert changed.total("bytes")
    assert not Directory.empty().stored


NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, list[Any], list[int]]] = {
    "str": (
        pa.string(),
        ["", "a", "ä", "a much longer key"],
        [0, 2292242689, 273539149, 3597837379],
    ),
    "bytes": (pa.binary(), [b"", b"a", b"\x00\x00"], [0, 2292242689, 378632646]),
    "int": (pa.int64(), [0, 1, -1, 2**60 + 1], [0, 3025583356, 1689612811, 1130429875]),
    "bool": (pa.bool_(), [False, True], [0, 3025583356]),
    "date": (pa.date32(), [date(1969, 12, 31), date(2026, 3, 8)], [1689612811, 1942596343]),
    "datetime": (
        pa.timestamp("us", tz="UTC"),
        [NOON, NOON.replace(microsecond=1)],
        [37642896, 834598695],
    ),
    "decimal": (
        pa.decimal128(38, 2),
        [Decimal("0.01"), Decimal("-0.01"), Decimal(10) ** 20],
        [3025583356, 999098615, 2390294704],
    ),
}


def column(kind: str) -> pa.ChunkedArray:
    """Return a column of keys of a kind."""
    arrow, values, _ = KINDS[kind]
    return pa.chunked_array([pa.array(values, arrow)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_of_a_key_never_changes(kind: str) -> None:
    """A checkpoint finds a key by the hash that another machine or release gave it."""
    assert KINDS[kind][2] == key_hashes([column(kind)]).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_of_a_key_does_not_depend_on_its_neighbours(kind: str) -> None:
    """A key has one hash, wherever it stands in a column, and in whatever chunk."""
    whole = column(kind)
    apart = [int(key_hashes([whole.slice(n, 1)])[0]) for n in range(len(whole))]
    chunks = pa.chunked_array([whole.chunk(0).slice(0, 1), whole.chunk(0).slice(1)])

    assert key_hashes([whole]).tolist() == apart
    assert key_hashes([whole]).tolist() == key_hashes([chunks]).tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_hashes_of_keys_spread_evenly(kind: pa.DataType) -> None:
    """Of numbered keys, each sixteenth of all hashes gets a sixteenth, to a tenth."""
    names = [f"user_{n:06}" for n in range(20_000)]
    keys = pa.array(names if kind == pa.string() else range(20_000), kind)
    hashes = key_hashes([pa.chunked_array([keys])])

    for part in range(16):
        low, high = part * HASHES // 16, (part + 1) * HASHES // 16
        assert 1250 == pytest.approx(((low <= hashes) & (hashes < high)).sum(), rel=0.1)
