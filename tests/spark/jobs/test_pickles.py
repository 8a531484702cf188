"""What the check lets through, a process that has nothing of the driver's can load and run."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql.connect.session import SparkSession

from sessionkit.errors import NotPicklableError
from sessionkit.spark.jobs.pickles import check_picklable
from tests.support.refusals import says
from tests.support.sent_functions import spec_of

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "sent_functions.py"
EXECUTOR = """
import base64, json, pickle, sys

for name, found in json.load(open(sys.argv[1])).items():
    if "sent" in found:
        spec = pickle.loads(base64.b64decode(found["sent"])).logic.spec
        state = spec.logic.update(spec.state(), spec.event(page="/a"))
        print(name, state.n)
"""
ONLY_HERE = ("cached", "bounded", "Number", "WithCache", "dispatched")
LOADED = (
    *("nameless", "Kind", "Pair", "Typed", "Options", "Priced", "Color", "Flag", "LOG"),
    *("PATTERN", "HALF", "PRICES", "np", "itself"),
)


def as_script(place: Path) -> None:
    run([sys.executable, SCRIPT], env=os.environ | {"SENT": str(place)}, cwd=ROOT, check=True)


def as_notebook(place: Path) -> None:
    cells = [f"import os\nos.environ['SENT'] = {str(place)!r}", SCRIPT.read_text("utf-8")]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    folder = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()


@pytest.mark.parametrize("write", [as_script, as_notebook])
def test_what_a_script_defines_reaches_an_executor_or_is_refused(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """A refusal says which function uses what, and to put that into a module."""
    place = tmp_path / "sent.json"
    write(place)
    found = json.loads(place.read_text("utf-8"))
    refused = {name: one["refused"] for name, one in found.items() if "refused" in one}

    assert {*ONLY_HERE, "through", "__main__", "made"} == {*refused}
    for name in ONLY_HERE:
        assert says(refused[name], "`update` (", f"\n\nHint: put `{name}` into a module")
    assert says(refused["through"], "uses `cached` of this script", "put `cached` into a module")
    assert says(refused["WithCache"], "uses `WithCache.price`")
    assert says(refused["__main__"], "uses the module `__main__`", "into a module")
    assert says(refused["made"], "uses the module `made_in_this_process`", "write it to a file")
    assert all(len(text) <= 300 for text in refused.values())

    command = [sys.executable, "-c", EXECUTOR, str(place)]
    loaded = run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert [f"{name} 1" for name in found if name in LOADED] == loaded.stdout.splitlines()
    assert {*LOADED} == {*found} - {*refused}


def test_a_session_of_connect_that_a_function_uses_is_named() -> None:
    """It pickles, unlike one of a JVM, and no executor has it; so does a frame, which has one."""
    session = object.__new__(SparkSession)
    vars(session)["_session_id"] = "one"
    frame = SimpleNamespace(session=session)

    uses = {
        "`session`, a SparkSession": lambda state, event: session.table("prices"),
        "`frame`, a SimpleNamespace": lambda state, event: frame.count(),
    }
    for used, use in uses.items():
        with pytest.raises(NotPicklableError) as refused:
            check_picklable(spec_of(use))
        assert says(str(refused.value), f"uses {used}", "can't be sent")
    check_picklable(spec_of(lambda state, event: str(SparkSession.__name__)))


PLACES = ("its folder", "PYTHONPATH")
LOGIC = """
import attrs
from sessionkit import SessionSpec


@attrs.frozen
class View:
    page: str


@attrs.define
class Visit:
    pages: int = 0

    def update(self, view: View) -> None:
        self.pages += 1


visits = SessionSpec.of(
    Visit, keys={"user": str}, event_time="ts", gap="1m", watermark_delay="1m", order="event_time"
)
"""
JOB = """
import sys

import pyspark.sql
from logic_of_a_job import visits

from sessionkit import SpecError
from sessionkit.spark import sessionize

spark = pyspark.sql.SparkSession.builder.master("local[1]").getOrCreate()
frame = spark.createDataFrame([], "user string, ts timestamp, page string")
try:
    sessionize(frame, visits)
    print("taken without")
except SpecError as error:
    print(error)
spark.sparkContext.addPyFile(sys.argv[1])
print(sessionize(frame.union(spark.sql("SELECT 'ann', now(), '/'")), visits).count())
"""


@pytest.mark.parametrize(
    "where",
    ["elsewhere", *(pytest.param(place, marks=pytest.mark.nightly) for place in PLACES)],
)
def test_a_module_that_only_the_driver_finds_is_named_at_the_start(
    where: str, tmp_path: Path
) -> None:
    """The folder of a script is on the path of the driver alone; a worker would end the query."""
    folder, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    logic, job = folder / "logic_of_a_job.py", folder / "job.py"
    logic.write_text(LOGIC, "utf-8")
    job.write_text(JOB, "utf-8")
    path = [str(ROOT), *([str(folder)] if where == "PYTHONPATH" else [])]
    done = run(
        [sys.executable, job, logic],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        cwd=folder if where == "its folder" else elsewhere,
        capture_output=True,
        text=True,
        check=True,
    )
    first, *_, last = done.stdout.splitlines()

    refused = f"the spec uses the module `logic_of_a_job` of {folder}, where Spark's workers"
    assert first.startswith(refused if where == "elsewhere" else "taken without")
    assert "1" == last
