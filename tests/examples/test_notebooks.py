"""
The notebooks run from the first cell to the last, and show what their files show.

`RECORD_NOTEBOOKS=1` stores what they show now.
"""

import os
from pathlib import Path
from shlex import quote
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "notebooks"


def executed(path: Path) -> Any:
    """Run a notebook in a kernel of its own; return it with what its cells show."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(ROOT)}}  # from where a kernel imports
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def shown(notebook: Any) -> list[str]:
    """Return what all cells show, as text."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", ())]
    return [each["text"] if "text" in each else each["data"]["text/plain"] for each in outputs]


def check(path: Path) -> None:
    notebook = executed(path)
    if os.environ.get("RECORD_NOTEBOOKS"):
        nbformat.write(notebook, path)
    assert shown(nbformat.read(path, as_version=4)) == shown(notebook)


def test_the_notebook_without_spark_shows_pictures() -> None:
    """It needs no Spark: a driver, and why a session is open, drawn."""
    check(FOLDER / "without_spark.ipynb")
    assert (FOLDER / "without_spark.ipynb").read_text("utf-8").count("<svg ") == 3


@pytest.mark.spark
@pytest.mark.long
def test_the_notebook_on_spark_runs(
    monkeypatch: pytest.MonkeyPatch, spark_settings: dict[str, str]
) -> None:
    """A batch, and a stream with its counts and open sessions, on a Spark for tiny batches."""
    settings = [f"--conf {quote(f'{name}={value}')}" for name, value in spark_settings.items()]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join([*settings, "pyspark-shell"]))
    check(FOLDER / "on_spark.ipynb")
