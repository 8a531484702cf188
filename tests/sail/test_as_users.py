"""What a reader runs without Java: README's first example, the page, and sample apps."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.pages import NOT_RUN, ROOT, run_blocks


def test_the_first_example_of_the_readme(spark: SparkSession) -> None:
    """It prints the same table as on Spark, for a program that asks for any session."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text[: text.index("## Your own logic")]

    assert "visits" in run_blocks(ROOT / "README.md", first)


def test_the_page(spark: SparkSession) -> None:
    """Every block runs, that which starts Sail in the process too."""
    page = ROOT / "docs" / "how-to" / "without-java.md"
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)

    found = run_blocks(page, "".join(line for line in lines if not line.startswith(NOT_RUN)))

    assert found["server"].running
    found["server"].stop()


@pytest.mark.parametrize(
    "app", ["logins", *(pytest.param(app, marks=pytest.mark.long) for app in ("trips", "web"))]
)
def test_a_sample_app(app: str, tmp_path: Path) -> None:
    """By an argument, it takes all events as one batch, and writes its report."""
    command = [sys.executable, "-m", f"examples.{app}", "--engine", "sail", "--out", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr[-2000:]
    assert (tmp_path / "report.html").stat().st_size > 10_000
