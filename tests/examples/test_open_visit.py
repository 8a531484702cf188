"""`examples/open_visit.py`, which the documentation shows."""

from pathlib import Path
from typing import Any

from examples.open_visit import explained, main

PAGE = Path(__file__).parents[2] / "docs/how-to/explain-a-session.md"


def test_the_documentation_shows_what_it_says() -> None:
    """Word for word, with the picture."""
    assert f"```text\n{explained()}\n```\n" in PAGE.read_text(encoding="utf-8")


def test_the_readme_has_the_picture() -> None:
    """To draw it anew: `python -m examples.open_visit docs/visit.svg`."""
    assert explained()._repr_svg_() == PAGE.parents[1].joinpath("visit.svg").read_text("utf-8")


def test_it_prints_and_writes_the_picture(tmp_path: Path, capsys: Any) -> None:
    """The words are printed; the SVG is in the file."""
    main([str(tmp_path / "visit.svg")])

    assert f"{explained()}\n" == capsys.readouterr().out
    assert explained()._repr_svg_() == (tmp_path / "visit.svg").read_text(encoding="utf-8")
