"""The tables of the pages that say what becomes of values are those of the cells."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.borders import IN, OUT, Border, table_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "borders"), [("how-to/write-to-tables.md", OUT), ("reference/types.md", IN)]
)
def test_a_page_has_the_cells(page: str, borders: Mapping[str, Border]) -> None:
    """Where a cell changes, the page changes too: `table_of` prints its table."""
    assert table_of(borders) in (DOCS / page).read_text(encoding="utf-8")
