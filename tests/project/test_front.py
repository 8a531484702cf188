"""The front: what README shows, how it installs, and which figures it has."""

import re
from pathlib import Path

import pytest

from scripts.fill_pages import ROOT, filled, install, is_released, pages
from scripts.release_check import tag_faults
from tests.support.pages import BLOCK, name_of

README = (ROOT / "README.md").read_text("utf-8")
NEEDS_JAVA = "# needs Spark and Java"
SHOWN = {
    "plain functions": r"def create.+def update.+def merge.+def finish",
    "a timeout in event time": r"timeout=EventTimeGap",
    "a timeout in processing time": r"timeout=ProcessingTimeGap",
    "watermarks": r"guard_future.+declare_watermark.+check_watermarks.+explain_watermark",
    "windows and duplicates": r"drop_duplicates_within.+tumbling",
    "a test of sessions": r"def test_.+SessionDriver",
    "a test of code by hand": r"def test_.+FakeGroupState",
}
"""What this library was asked for, and what a block that shows it has."""


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_what_is_written_elsewhere_stands_as_it_is_there(page: Path) -> None:
    """The parts of a page that `scripts.fill_pages` fills: nobody copies a figure by hand."""
    text = page.read_text("utf-8")
    assert filled(text) == text, "stale: run python -m scripts.fill_pages"


@pytest.mark.parametrize("what", SHOWN)
def test_the_readme_shows_it_in_at_most_eight_lines(what: str) -> None:
    """Each in one block, which the tests of README run."""
    found = [block for block in BLOCK.findall(README) if re.search(SHOWN[what], block, re.DOTALL)]
    sizes = [len([line for line in block.splitlines() if line.strip()]) for block in found]
    assert [] != sizes
    assert max(sizes) <= 8


def test_the_readme_has_at_most_270_lines() -> None:
    """It's read to its end; what doesn't fit has a page."""
    assert len(README.splitlines()) <= 270


def test_a_block_that_sail_cannot_run_says_so_in_its_first_line() -> None:
    """A stream needs Spark, and that needs Java."""
    blocks = [block for block in BLOCK.findall(README) if "stream" in block]
    assert len(blocks) > 1
    assert [] == [block for block in blocks if not block.startswith(NEEDS_JAVA)]


@pytest.mark.parametrize("released", [False, True])
def test_one_switch_says_how_to_install(*, released: bool) -> None:
    """A tag is refused until it is on; Sail comes first, since it needs no Java."""
    text = install(released=released)
    name = "sessionkit-spark" if released else "."
    faults = tag_faults("v0.2.0", "0.2.0", "## [0.2.0] - 2026-12-01", text)

    assert [f"{name}[sail]", f"{name}[spark]"] == re.findall(r'pip install "(.+?)"', text)
    assert ([] if released else ["README.md installs from a checkout"]) == [
        fault.partition(":")[0] for fault in faults
    ]


def test_the_readme_follows_the_switch() -> None:
    """Until PyPI has a release, its first command installs the checkout."""
    assert install(released=is_released()) in README
