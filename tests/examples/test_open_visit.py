"""`examples/open_visit.py`, which the documentation shows."""

from pathlib import Path

from examples.open_visit import explained

ROOT = Path(__file__).parents[2]


def test_the_documentation_shows_what_it_says() -> None:
    """Word for word, with the picture."""
    page = (ROOT / "docs" / "how-to" / "explain-a-session.md").read_text(encoding="utf-8")
    assert f"```text\n{explained()}\n```\n" in page
