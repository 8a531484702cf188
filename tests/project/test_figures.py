"""Figures of speed, size and time: each is from a recorded run, or it doesn't stand on a page."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.fill_pages import PART, ROOT, multiple, pages, recorded, results
from tests.support.pages import name_of
from tests.support.public_names import PUBLIC, members_of

FIGURE: Final = re.compile(
    r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?) (CPU seconds|s|ms|µs|microseconds|milliseconds|GB|MB|kB"
    r"|times (?:slower|faster|as fast|as long)"
    r"|(?:% )?of (?:the|its|their|DuckDB's|Spark's) (?:time|seconds|CPU|memory)"
    r"|% (?:slower|faster|longer|more CPU|less CPU))\b"
)
"""What is measured has a unit that no argument of a function has."""
CODE: Final = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
OF_RUNS: Final = {figure for run in recorded().values() for figure in run.get("figures", ())}
NUMBERS: Final = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
)
RECORDS: Final = ("docs/builders/", "docs/benchmarks.md", "docs/changelog.md")
"""Pages that are themselves the record of what was measured, and tried."""
READ: Final = [page for page in pages() if not name_of(page).startswith(RECORDS)]


def unrecorded(text: str) -> Iterator[str]:
    """Yield the figures of a text that no recorded run has, outside code and filled parts."""
    for found in FIGURE.finditer(CODE.sub("", PART.sub("", text))):
        if found[0] not in OF_RUNS:
            yield found[0]


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_a_figure_of_a_page_is_of_a_recorded_run(page: Path) -> None:
    """`benchmarks/recorded.json` says how; figures of `results.json` are filled, not written."""
    assert [] == [*unrecorded(page.read_text("utf-8"))], "record them, and how they were measured"


@pytest.mark.parametrize("address", PUBLIC)
def test_a_figure_of_a_docstring_is_of_a_recorded_run(address: str) -> None:
    """Where there is one."""
    module = importlib.import_module(address)
    texts = [inspect.getdoc(module) or ""]
    for name in module.__all__:
        texts += [inspect.getdoc(value) or "" for _, value in members_of(getattr(module, name))]
    assert [] == [found for text in texts for found in unrecorded(text)]


def test_each_record_says_how_and_when() -> None:
    """So that it can be measured again."""
    for run in recorded().values():
        assert run["how"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["recorded"])


def test_a_figure_that_nobody_recorded_is_found() -> None:
    """In prose; not in code, nor in what is filled."""
    text = "It took 3.21 s, and `3.22 s`.\n<!-- filled x -->\n3.23 s\n<!-- end of x -->\n"
    assert ["3.21 s"] == [*unrecorded(text)]


def test_a_page_says_on_which_engine_a_comparison_holds() -> None:
    """On Sail aggregates are faster than DuckDB, on Spark slower; the README says both."""
    readme = (ROOT / "README.md").read_text("utf-8")
    batch = results()["batch"]
    shown = re.findall(
        r"^\| 5,000,000 events as a batch on (\w+), .+ \| (.+) \|$", readme, re.MULTILINE
    )
    on_sail, on_spark = (
        multiple(batch[entrant] / batch["DuckDB"]) for entrant in ("Sail, aggregates", "aggregates")
    )
    assert [("Sail", on_sail), ("Spark", on_spark)] == shown


def test_a_count_of_recipes_is_that_of_the_cookbook() -> None:
    """In the README and in the cookbook; a page more is one more."""
    recipes = len([*(ROOT / "docs" / "cookbook").glob("*.md")]) - len(["index.md"])
    pages_that_count = {
        "README.md": r"of (\w+) questions",
        "docs/cookbook/index.md": r"^(\w+) questions",
    }
    for page, pattern in pages_that_count.items():
        (word,) = re.findall(pattern, (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert recipes == NUMBERS.index(word.lower()), page
