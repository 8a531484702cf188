"""
The library as users run it: installed, in an active environment and an empty folder, nothing set.

Every other test has a session whose settings suit thousands of tiny micro-batches. Here Spark has
its defaults: its own state store, generated code, no address, and the Python of the path. Each
program is a process of its own. A cell of the matrix says in the variables of a shell where Spark
is, as a user would.
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

SET: Final = ("PYSPARK", "PYTHON", "SESSIONKIT", "SPARK", "VIRTUAL_ENV")

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give what runs a program in an empty folder, where the wheel is installed."""
    folder = tmp_path_factory.mktemp("user")
    built = os.environ.get("SESSIONKIT_WHEEL")
    wheel = Path(built) if built else build(folder / "dist", isolated=False)[1]
    python = bare_python(folder / "env")
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(SET)},
        **where_spark_is(python),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(python.parent.parent),
    }
    empty = Path(os.environ.get("SESSIONKIT_FOLDER") or folder / "empty")
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
