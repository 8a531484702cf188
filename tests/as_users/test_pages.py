"""The README and the tutorial, as the first programs of a user."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pandas as pd
import pytest

from scripts.release_check import outputs_missing, program_of
from tests.support.cell import IS_CONNECT
from tests.support.spark_settings import spark_release

ROOT: Final = Path(__file__).parents[2]
NEEDS_SPARK_4: Final = re.compile(
    r"^```python\n# needs Spark 4\.0.*?^```", re.DOTALL | re.MULTILINE
)
STACK: Final = re.compile(r"^\tat ", re.MULTILINE)
WARNS_OF_PANDAS: Final = "PySpark does not yet fully support pandas"

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page",
    ["README.md", pytest.param("docs/tutorial/first-session-job.md", marks=pytest.mark.long)],
)
def test_a_page_is_followed_word_for_word(page: str, run: Run, tmp_path: Path) -> None:
    """Its blocks are one program, streams and tests too, whose rows are those of the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if spark_release() < (4,):
        text = NEEDS_SPARK_4.sub("", text)
    program = tmp_path / "page.py"
    program.write_text(program_of(text), encoding="utf-8")
    done = run(program)

    assert 0 == done.returncode, done.stdout + done.stderr[-8000:]
    assert [] == outputs_missing(text, done.stdout)
    if pd.__version__ < "3":
        assert WARNS_OF_PANDAS not in done.stderr
    assert "Warning: " not in done.stderr.replace(f"FutureWarning: {WARNS_OF_PANDAS}", "")
    assert "\nHint: " not in done.stderr  # an advice of ours, which the page doesn't show
    if not IS_CONNECT:  # a server shows the errors that it hands to its client
        assert not STACK.search(done.stderr), done.stderr
