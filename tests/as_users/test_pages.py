"""
The library as users run it: installed, in an active environment and an empty folder, nothing set.

Every other test has a session whose settings suit thousands of tiny micro-batches. Here Spark has
all its defaults: 200 shuffle partitions, its own state store, generated code, no address, and the
Python of the path. Each program is a process of its own. A cell of the matrix says in the variables
of a shell where Spark is, as a user would.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias
from zipfile import ZipFile

import pandas as pd
import pytest

from scripts.release_check import build, program_of, tables_missing
from tests.support.cell import IS_CONNECT
from tests.support.clusters import bare_python
from tests.support.spark_settings import spark_release

ROOT: Final = Path(__file__).parents[2]
JOB: Final = Path(__file__).with_name("job.py")
SET: Final = ("PYSPARK", "PYTHON", "SESSIONKIT", "SPARK", "VIRTUAL_ENV")
OPEN: Final = "[(Key(user='ann'), 2), (Key(user='bob'), 1)]"
OPEN_THEN: Final = "[(Key(user='cid'), 1)]"
NEEDS_SPARK_4: Final = re.compile(
    r"^```python\n# needs Spark 4\.0.*?^```", re.DOTALL | re.MULTILINE
)
STEP: Final = re.compile(r"[a-z]+: (\[|none)")
STACK: Final = re.compile(r"^\tat ", re.MULTILINE)
WARNS_OF_PANDAS: Final = "PySpark does not yet fully support pandas"

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
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


def printed_by(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a program has printed; one that failed shows why."""
    assert 0 == done.returncode, done.stdout + done.stderr[-8000:]
    return done.stdout


def steps_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that the job has printed; what fetches the jars of Spark 3.5 prints too."""
    return [line for line in printed_by(done).splitlines() if STEP.match(line)]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-session-job.md"])
def test_a_page_is_followed_word_for_word(page: str, run: Run, tmp_path: Path) -> None:
    """Its blocks are one program, streams and tests too, whose rows are those of the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if spark_release() < (4,):
        text = NEEDS_SPARK_4.sub("", text)
    program = tmp_path / "page.py"
    program.write_text(program_of(text), encoding="utf-8")
    done = run(program)

    assert [] == tables_missing(text, printed_by(done))
    if pd.__version__ < "3":
        assert WARNS_OF_PANDAS not in done.stderr
    assert "Warning: " not in done.stderr.replace(f"FutureWarning: {WARNS_OF_PANDAS}", "")
    if not IS_CONNECT:  # a server shows the errors that it hands to its client
        assert not STACK.search(done.stderr), done.stderr


def test_every_kind_of_query_starts_and_goes_on(run: Run, tmp_path: Path) -> None:
    """Aggregates of sessions, state per key, unique rows, windows; then a restart."""
    shutil.copy(JOB, tmp_path / "job.py")
    reads_state = spark_release() >= (4,)
    assert [
        "aggregates: []",
        "state: [('ann', 2), ('bob', 1)]",
        "unique: [('ann', '/'), ('ann', '/buy'), ('bob', '/')]",
        "windows: []",
        f"open: {OPEN if reads_state else 'none are read on Spark 3.5'}",
    ] == steps_of(run(tmp_path / "job.py", "first"))
    assert [
        "aggregates: [('ann', 3, '/'), ('bob', 2, '/')]",
        f"open: {OPEN_THEN if reads_state else 'none are read on Spark 3.5'}",
    ] == steps_of(run(tmp_path / "job.py", "second"))
