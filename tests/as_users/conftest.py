"""
The library as users run it: installed, in an active environment and an empty folder.

Every other test has a session whose settings suit thousands of tiny micro-batches. Here Spark has
its defaults, but for the shuffle partitions that the pages set: its own state store, generated
code, no address, and the Python of the path. Each program is a process of its own. A cell of the
matrix says in the variables of a shell where Spark is, as a user would.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias
from zipfile import ZipFile

import pytest

from scripts.release_check import build
from tests.support.clusters import bare_python

FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Java's second compiler takes a third of the CPU time of a program that ends after seconds."""
SET: Final = ("PYSPARK", "PYTHON", "SESSIONKIT", "SPARK", "VIRTUAL_ENV")

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A Python that has the wheel, and the variables of a shell in which it is active."""
    folder = tmp_path_factory.mktemp("user")
    built = os.environ.get("SESSIONKIT_WHEEL")
    wheel = Path(built) if built else build(folder / "dist", isolated=False)[1]
    python = bare_python(folder / "env")
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    return python, {
        **{name: value for name, value in os.environ.items() if not name.startswith(SET)},
        **where_spark_is(python),
        "JAVA_TOOL_OPTIONS": FIRST_COMPILER,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(python.parent.parent),
    }


@pytest.fixture
def run(shell: tuple[Path, dict[str, str]], tmp_path: Path) -> Run:
    """Give what runs a program in an empty folder, which is a server's own where there is one."""
    python, variables = shell
    empty = Path(os.environ.get("SESSIONKIT_FOLDER") or tmp_path / "empty")
    empty.mkdir(exist_ok=True)

    def run_program(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), str(program), *arguments]
        return subprocess.run(
            command, cwd=empty, env=variables, capture_output=True, text=True, check=False
        )

    return run_program


def where_spark_is(python: Path) -> dict[str, str]:
    """Return the variables that a user sets where Spark isn't in the program's own process."""
    where = os.environ.get("SESSIONKIT_SPARK", "")
    if where.startswith(("connect", "sc://")):
        packages = os.environ.get("PYSPARK_SUBMIT_ARGS")  # Spark 3.5 fetches Connect
        more = {} if packages is None else {"PYSPARK_SUBMIT_ARGS": packages}
        return {"SPARK_REMOTE": where.replace("connect", "local"), **more}
    if where:  # the path of the executors of a cluster is another one
        cluster = f"--master {where} pyspark-shell"
        return {"PYSPARK_PYTHON": str(python), "PYSPARK_SUBMIT_ARGS": cluster}
    return {}
