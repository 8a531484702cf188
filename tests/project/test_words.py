"""
The language of public docstrings and of the pages.

docs/reference/glossary.md decides the words for things.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.pages import ROOT, name_of
from tests.support.public_names import PUBLIC, members_of

RIDDLES: Final = re.compile(
    r"\b(those of|so many|of which|says otherwise|what becomes of|comes by|such as it is|goes by"
    r"|mend(?:s|ed|ing)?)\b",
    re.IGNORECASE,
)
"""Phrases that readers have to solve: the thing itself has a name."""


CODE: Final = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
RIDDLES_OF_PAGES: Final = re.compile(
    rf"{RIDDLES.pattern}|\bbeside\b|(?<!there )\b(?:is|are) no [a-z]", re.IGNORECASE
)
RIDDLES_OF_TESTS: Final = re.compile(
    r"\b(so many|of which|says otherwise|what becomes of|beside)\b"
)
FEWEST_WORDS: Final = 3
TESTS: Final = sorted((ROOT / "tests").rglob("test_*.py"))
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_no_riddle(page: Path) -> None:
    """Its prose names things; code and texts of errors are left out."""
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    found = [riddle.group() for riddle in RIDDLES_OF_PAGES.finditer(" ".join(prose.split()))]
    assert [] == found


def test_the_name_of_a_test_says_what_it_shows() -> None:
    """In three words at least, and without the phrases that readers have to solve."""
    files = [(file, ast.parse(file.read_text("utf-8"))) for file in TESTS]
    names = {
        f"{file.name}::{node.name}": node.name.removeprefix("test_").replace("_", " ")
        for file, tree in files
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert len(names) > 1_500
    assert [] == [name for name, text in names.items() if len(text.split()) < FEWEST_WORDS]
    assert [] == [name for name, text in names.items() if RIDDLES_OF_TESTS.search(text)]


def docstrings(address: str) -> dict[str, str]:
    """Return the docstrings of a public module, its names and their methods, as one line each."""
    module = importlib.import_module(address)
    described = {address: inspect.getdoc(module)}
    for name in module.__all__:
        for member, value in members_of(getattr(module, name)):
            described[name if member == name else f"{name}.{member}"] = inspect.getdoc(value)
    return {name: " ".join((text or "").split()) for name, text in described.items()}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_docstring_has_no_riddle(address: str) -> None:
    """It names things, in place of phrases such as `those of` and `goes by`."""
    found = [
        (name, text[max(0, riddle.start() - 40) : riddle.end() + 40])
        for name, text in docstrings(address).items()
        for riddle in RIDDLES.finditer(text)
    ]
    assert [] == found


EMPTY: Final = re.compile(r"\b(?:can't|cannot) (?:work|be used)\b|\bsays what to change\b")
"""What tells a reader of an error nothing."""


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_docstring_says_what_raises_an_error(address: str) -> None:
    """It names the arguments and their values, not that something can't work."""
    found = [
        (name, empty.group())
        for name, text in docstrings(address).items()
        for empty in EMPTY.finditer(text.partition(" Raises: ")[2])
    ]
    assert [] == found
