"""What a reader runs without Java: README's first example, the page, apps and a notebook."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionkit.errors import UnsupportedError
from sessionkit.spark._sail import WORKERS
from tests.support.pages import NOT_RUN, ROOT, run_blocks
from tests.support.spark_settings import changed


def test_the_first_example_of_the_readme(spark: SparkSession) -> None:
    """It prints the same table as on Spark, for a program that asks for any session."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text[: text.index("## Your own logic")]

    assert "visits" in run_blocks(ROOT / "README.md", first)


def test_the_page(spark: SparkSession) -> None:
    """Every block runs, that which starts Sail in the process too."""
    page = ROOT / "docs" / "how-to" / "without-java.md"
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)

    with changed(spark, {WORKERS: "0"}):  # the page sets another number
        found = run_blocks(page, "".join(line for line in lines if not line.startswith(NOT_RUN)))

    assert found["server"].running
    found["server"].stop()


APPS = ["logins", "shop", *(pytest.param(app, marks=pytest.mark.long) for app in ("trips", "web"))]


def run_app(app: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"examples.{app}", "--engine", "sail", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("app", APPS)
def test_a_sample_app(app: str, tmp_path: Path) -> None:
    """By an argument, it takes all events as one batch, and writes its report."""
    done = run_app(app, "--out", str(tmp_path))

    assert 0 == done.returncode, done.stderr[-2000:]
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("app", "arguments", "told"),
    [
        ("devices", (), "is a stream, and Sail keeps no state"),
        ("shop", ("--kafka", "localhost:9092"), "take a stream, which needs Spark"),
    ],
)
def test_an_app_that_streams_is_refused(
    app: str, arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    """In our words, without a traceback."""
    done = run_app(app, *arguments, "--out", str(tmp_path))

    assert 0 != done.returncode
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_notebook(spark: SparkSession) -> None:
    """Its batch shows the same rows as on Spark; then its stream is refused, in our words."""
    path = ROOT / "examples" / "notebooks" / "on_spark.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join(as_block(cell) for cell in cells if cell["cell_type"] == "code")

    with pytest.raises(UnsupportedError, match="is a stream, and Sail keeps no state"):
        run_blocks(path, text)


def as_block(cell: dict[str, Any]) -> str:
    """Return a cell as a page has it: the code, and what it prints."""
    code = f"```python\n{''.join(cell['source'])}\n```\n"
    printed = "".join(line for shown in cell["outputs"] for line in shown.get("text", ()))
    return f"{code}\n```text\n{printed}```\n" if printed else code
