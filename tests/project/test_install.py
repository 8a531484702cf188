"""What an installation is called, and what it says of another project with the same module."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


@pytest.fixture(name="installed", scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the checkout into a folder, as the README says, without its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([*command, f"sessionkit-spark @ {ROOT.as_uri()}"], check=True)
    return folder


def imported(folder: Path) -> str:
    """Import the module from a folder; return what it says, and its version."""
    program = "import sessionkit; print(sessionkit.__file__, sessionkit.__version__)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stderr + run.stdout


def test_an_installation_knows_its_version(installed: Path) -> None:
    """The project is `sessionkit-spark`, the module `sessionkit`."""
    assert f"{installed}/sessionkit/__init__.py {VERSION}\n" == imported(installed)


def test_another_project_in_the_same_folder_is_noticed(installed: Path) -> None:
    """`sessionkit` on PyPI has a module of the same name; the import says what to do."""
    other = installed / "sessionkit-0.3.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: sessionkit\nVersion: 0.3.1\n")
    (other / "RECORD").write_text("sessionkit/__init__.py,,\n")

    said = imported(installed)

    assert "UserWarning: `sessionkit`, another project, and `sessionkit-spark` are" in said
    assert "Hint: pip uninstall sessionkit sessionkit-spark, then pip install" in said


def test_a_folder_that_was_shipped_alone_has_no_version(installed: Path, tmp_path: Path) -> None:
    """It works without the files about the installation."""
    (tmp_path / "sessionkit").symlink_to(installed / "sessionkit")
    assert imported(tmp_path).endswith(("unknown\n", f"{metadata.version('sessionkit-spark')}\n"))


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("sessionkit.testing.strategies", "hypothesis", "hypothesis"),
        ("sessionkit.spark", "pyspark", "spark"),
    ],
)
def test_a_module_names_the_extra_that_it_needs(module: str, library: str, extra: str) -> None:
    """By the name of this project on PyPI, not by that of the module."""
    program = f"import sys; sys.modules[{library!r}] = None; import {module}"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    found = f"UnsupportedError: `{module}` needs {library}, which isn't installed"
    assert f'{found}\n\nHint: pip install "sessionkit-spark[{extra}]"' in run.stderr
