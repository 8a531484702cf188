"""
Parts of the tests that start Spark: a pull request runs them side by side.

`make suite PART=jobs` runs those of the files of a part. `make coverage` runs the tests without
Spark, of all files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PARTS: Final[Mapping[str, str]] = {
    "tests": "rest",
    "tests/conformance": "jobs",
    "tests/differential": "jobs",
    "tests/sail": "sail",
    "tests/spark": "queries",
    "tests/spark/jobs": "jobs",
}
"""The part of each folder; the deepest folder counts. Sail's tests have a cell of their own."""


def part_of(path: Path) -> str:
    """Return the part of a file of tests."""
    folders = [folder.as_posix() for folder in path.relative_to(ROOT).parents]
    return next(PARTS[folder] for folder in folders if folder in PARTS)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line choose a part."""
    parts = sorted({*PARTS.values()})
    parser.addoption("--part", choices=parts, help="run the files of a part, one of several")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of other parts."""
    part = config.getoption("--part")
    if part is None or not collection_path.match("test_*.py"):
        return None
    return part_of(collection_path) != part or None
