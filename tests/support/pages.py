"""The Python blocks of the documentation, run as a reader runs them."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PRINTED: Final = re.compile(r"\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
NOT_RUN: Final = "# not run here: "


def name_of(page: Path) -> str:
    """Return the page's name as a reader knows it."""
    return str(page.relative_to(ROOT))


def run_blocks(page: Path, text: str | None = None) -> dict[str, Any]:
    """
    Run the blocks of a page in one namespace, as a notebook would, and the tests in them.

    Text right below a block is what the block prints. `text` is what is read of the page, by
    default all.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8") if text is None else text
    for found in BLOCK.finditer(text):
        if not found[1].startswith(NOT_RUN):
            # The empty lines above make an error point at its line of the page.
            code = "\n" * text.count("\n", 0, found.start(1)) + found[1]
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, name_of(page), "exec"), namespace)  # noqa: S102 (our own docs)
            if below := PRINTED.match(text, found.end()):
                assert below[1].split() == printed.getvalue().split()
    run_tests(namespace)
    return namespace


def run_tests(namespace: dict[str, Any]) -> None:
    for name, found in list(namespace.items()):
        if name.startswith("test_"):
            found()
