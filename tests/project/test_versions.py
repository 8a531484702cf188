"""What the page about versions promises and quotes is what this release does."""

import re
from pathlib import Path

from sessionkit._engine.shell.payload import FORMAT_VERSION, FORMATS
from sessionkit.spark._seeds import FORMAT as SEED_FORMAT

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "version-policy.md").read_text("utf-8")
STORED = ROOT / "tests" / "engine" / "shell" / "stored"


def test_the_page_names_the_formats() -> None:
    """The one that is written and read, and that of seeds."""
    read = " and ".join(map(str, FORMATS))
    assert f"| format {FORMAT_VERSION} | formats {read} |" in PAGE
    assert f"| format {SEED_FORMAT} | format {SEED_FORMAT} |" in PAGE


def test_every_format_that_is_read_has_files() -> None:
    """As its release wrote them; tests/engine/shell reads them."""
    kept = {int(re.findall(r"\d+", path.name)[0]) for path in STORED.glob("format-*.json")}
    assert {*FORMATS} == kept


def test_the_changelog_has_a_section_for_the_next_release() -> None:
    """Named as in pyproject.toml."""
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    version = re.findall(r'^version = "(.+)"', pyproject, re.MULTILINE)[0]
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
