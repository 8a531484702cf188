"""The directory of a bucket: which pages a micro-batch concerns, and which become one."""

from collections.abc import Sequence

import numpy as np
import pytest

from sessionkit._engine.logic import NEVER_US, BatchClocks
from sessionkit._engine.shell.pages import ENTRY, HASHES, PAGE_BYTES, Directory

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
