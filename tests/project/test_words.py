"""The language of public docstrings; docs/reference/glossary.md decides the words for things."""

import importlib
import inspect
import re
from typing import Final

import pytest

from tests.support.public_names import PUBLIC, members_of

RIDDLES: Final = re.compile(
    r"\b(those of|so many|of which|says otherwise|what becomes of|comes by|such as it is|goes by"
    r"|mend(?:s|ed|ing)?)\b",
    re.IGNORECASE,
)
"""Phrases that readers have to solve: the thing itself has a name."""


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
