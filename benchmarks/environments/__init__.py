"""
What entrants need besides the project's own packages, made under `out/` at the first need.

Each file in this folder lists the packages of one virtual environment, pinned. The project's own
environment stays as it is.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

__all__ = [
    "FOLDER",
    "NAMES",
    "MissingToolError",
    "compile_java",
    "javac",
    "made",
    "packages_of",
    "python_of",
]

FOLDER: Final = Path(__file__).resolve().parents[2] / "out" / "environments"
LISTS: Final = Path(__file__).parent
JAVA: Final = "java"
ENGINES: Final = LISTS.parent / "engines"
NAMES: Final = (JAVA, *sorted(path.stem for path in LISTS.glob("*.txt")))
PATIENCE_S: Final = 900


class MissingToolError(Exception):
    """Raised when an entrant can't run on this machine; the message says what is missing."""


def made(name: str) -> Path:
    """
    Make an environment unless it's there; return its folder.

    Raises:
        MissingToolError: When that fails.
    """
    folder, sources = FOLDER / name, _sources_of(name)
    content = b"".join(source.read_bytes() for source in sources)
    stamp = hashlib.sha256(content).hexdigest() + sys.version
    if not (folder / "made").exists() or (folder / "made").read_text() != stamp:
        shutil.rmtree(folder, ignore_errors=True)
        (compile_java if name == JAVA else _install)(folder, *sources)
        (folder / "made").write_text(stamp)
    return folder


def python_of(name: str) -> Path:
    """Return the Python of an environment."""
    return FOLDER / name / "bin" / "python"


def packages_of(name: str) -> Path:
    """Return the folder with the packages of an environment, to be put on another's path."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return FOLDER / name / "lib" / version / "site-packages"


def _sources_of(name: str) -> list[Path]:
    return sorted(ENGINES.glob("*.java")) if name == JAVA else [LISTS / f"{name}.txt"]


def _install(folder: Path, requirements: Path) -> None:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--requirement", str(requirements))


def compile_java(folder: Path, *sources: Path) -> None:
    """
    Compile files against Spark's jars into a folder.

    Raises:
        MissingToolError: When there's no compiler, or it fails.
    """
    import pyspark  # noqa: PLC0415 - only this needs it

    folder.mkdir(parents=True, exist_ok=True)
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    _run(javac(), "-classpath", jars, "-d", str(folder), *map(str, sources))


def javac() -> str:
    """
    Return the Java compiler.

    Raises:
        MissingToolError: When there's only a runtime.
    """
    import os  # noqa: PLC0415

    homes = [os.environ["JAVA_HOME"]] if "JAVA_HOME" in os.environ else []
    found = shutil.which(
        "javac", path=os.pathsep.join([*(f"{home}/bin" for home in homes), os.environ["PATH"]])
    )
    if found is None:
        message = "no javac: this Java has no compiler"
        raise MissingToolError(message)
    return found


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        message = f"{Path(command[0]).name} failed: {said[-1] if said else error}"
        raise MissingToolError(message) from error
