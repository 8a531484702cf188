"""What a reader runs without Java: README, the page, a program, apps and a notebook."""

import json
import os
import re
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

NEEDS_JAVA = re.compile(
    r"^```python\n# needs Spark and Java.*?^```\n(?:\n```text\n.*?^```\n)?",
    re.DOTALL | re.MULTILINE,
)


def test_the_readme_runs_on_sail_as_a_user_follows_it(spark: SparkSession) -> None:
    """It prints the same as on Spark, for a program that asks for any session; but its streams."""
    text = NEEDS_JAVA.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert {"visits", "plain", "found"} <= set(run_blocks(ROOT / "README.md", text))


def test_a_program_from_csv_to_csv_runs_on_sail(tmp_path: Path) -> None:
    """In fifteen lines, empty ones left out, it starts Sail, and writes one file."""
    program = ROOT / "examples" / "programs" / "csv_to_csv.py"
    rows = ["user,ts,page", "ann,2026-03-02 10:00:00,/", "ann,2026-03-02 10:20:00,/cart"]
    (tmp_path / "views.csv").write_text("\n".join([*rows, ""]), "utf-8")
    command = [sys.executable, str(program), "views.csv", "visits.csv"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True, check=False
    )
    lines = program.read_text("utf-8").splitlines()

    assert 0 == done.returncode, done.stderr[-2000:]
    _, visit = (tmp_path / "visits.csv").read_text("utf-8").splitlines()
    assert visit.startswith("ann,")
    assert visit.endswith(",2,/,/cart")
    assert len([line for line in lines if line]) <= 15


def test_the_page_about_sail_runs_as_a_user_follows_it(spark: SparkSession) -> None:
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
def test_a_sample_app_writes_its_report_on_sail(app: str, tmp_path: Path) -> None:
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


def test_a_notebook_shows_the_rows_of_spark_on_sail(spark: SparkSession) -> None:
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
