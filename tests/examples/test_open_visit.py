"""`examples/open_visit.py`, which the documentation shows."""

from pathlib import Path

import pytest

from examples.open_visit import explained

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("docs/how-to/explain-a-session.md", str(explained())),
        ("README.md", str(explained()).partition("\n\n")[2]),
    ],
)
def test_the_documentation_shows_what_it_says(page: str, shown: str) -> None:
    """Word for word, with the picture, which is all that the README shows."""
    assert f"```text\n{shown}\n```\n" in (ROOT / page).read_text(encoding="utf-8")
