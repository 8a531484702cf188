"""Every Python block of the README and of docs/ runs, or says in its first line why not."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
NOT_RUN = "# not run here: "


def name_of(page: Path) -> str:
    """Return the page's name as a reader knows it."""
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import visits` find the file that the README tells its readers to save."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def run_blocks(page: Path) -> dict[str, Any]:
    """Run the blocks of a page one after the other, in one namespace, as a notebook would."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if not found[1].startswith(NOT_RUN):
            # The empty lines above make an error point at its line of the page.
            code = "\n" * text.count("\n", 0, found.start(1)) + found[1]
            exec(compile(code, name_of(page), "exec"), namespace)  # noqa: S102 (our own docs)
    return namespace


def needs_spark(page: Path) -> bool:
    """Tell whether a block that runs imports pyspark."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return any("pyspark" in block for block in blocks if not block.startswith(NOT_RUN))


@pytest.mark.parametrize("page", [p for p in PAGES if not needs_spark(p)], ids=name_of)
def test_blocks_without_spark_run(page: Path) -> None:
    """The blocks run, and the tests that they define pass."""
    namespace = run_blocks(page)

    for name, found in namespace.items():
        if name.startswith("test_"):
            found()


@pytest.mark.parametrize("page", [p for p in PAGES if needs_spark(p)], ids=name_of)
def test_blocks_with_spark_run(page: Path, spark: Any) -> None:
    """The blocks run on the session that the tests share."""
    assert run_blocks(page)["spark"] is spark


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the project has that file at its end."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_readme_shows_the_example() -> None:
    """The classes and functions of its second block are those of `examples/visits.py`."""
    block = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[1]
    shown = re.findall(r"^(?:class|def) \w+", block, re.MULTILINE)
    there = (ROOT / "examples" / "visits.py").read_text(encoding="utf-8")

    assert shown == re.findall(r"^(?:class|def) \w+", there, re.MULTILINE)


def test_the_first_example_is_a_test_of_ten_lines() -> None:
    """The README begins with a whole test of a session spec."""
    first = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    body = first[first.index("def test_") :].strip()

    assert len(body.splitlines()) <= 10
    assert "SessionDriver" in body
