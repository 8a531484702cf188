"""The texts of errors that the search of the site knows: the code is read as it builds them."""

import ast
import re
from collections import ChainMap
from collections.abc import Callable
from datetime import timedelta
from textwrap import dedent
from typing import Any

import pytest

from scripts.error_texts import GENERAL, HOLE, error_texts, heads, page_of, raised
from sessionkit import Every, Memory, SessionkitError, SessionSpec, TimeToLive
from sessionkit.testing import at

TEXTS = error_texts()
CODE = """
TOO_FEW = "at least one is needed"

def check(name, count):
    found = f"`{name}` must be {'zero or ' if count else ''}longer than zero"
    if count < 0:
        raise SpecError(f"{found}, found {count!r}", "make it longer")
    what, hint = f"{name} is gone", "look for it"
    what += ", with its folder"
    raise SinkError(what, hint) from None

def faults(frame) -> Iterator[tuple[str, str]]:
    yield TOO_FEW, "add one"
"""


def test_a_text_is_read_as_the_code_puts_it_together() -> None:
    """From names that are given it, with a hole for each value; a branch makes two texts."""
    assert {
        f"`{HOLE}` must be zero or longer than zero, found {HOLE}",
        f"`{HOLE}` must be longer than zero, found {HOLE}",
        f"{HOLE} is gone, with its folder",
        "at least one is needed",
    } <= {*raised(ast.parse(dedent(CODE)), ChainMap())}


@pytest.mark.parametrize(
    "call",
    [
        lambda: Every("5 fortnights"),
        lambda: TimeToLive(timedelta(0)),
        lambda: Memory(time_to_live="1 day", lookback="2 days"),
        lambda: SessionSpec.per_event(int, keys={}, event_time="ts", gap="1 hour"),
        lambda: at("noon"),
    ],
    ids=["a duration", "a policy", "a memory", "a spec", "an instant"],
)
def test_what_an_error_says_is_among_the_texts(call: Callable[[], Any]) -> None:
    """Its first line, with its values in the holes."""
    with pytest.raises(SessionkitError) as raised:
        call()
    said = " ".join(str(raised.value).partition("\n\n")[0].split())
    known = [text for text in TEXTS if len(re.findall(r"\w+", text)) > 2]
    patterns = [".+".join(map(re.escape, text.split(HOLE))) for text in known]
    assert [] != [pattern for pattern in patterns if re.fullmatch(pattern, said)], said


def test_a_text_leads_to_the_page_about_its_part_of_the_code() -> None:
    """What several parts say leads to the page for all errors."""
    assert "how-to/erase-a-user" == page_of("spark/checkpoints/erasing")
    assert "how-to/restart" == page_of("spark/checkpoints/state_reader")
    assert GENERAL == page_of("_engine/rows/objects")
    assert f"{HOLE} must be a text found" in " ".join(heads()[GENERAL])
