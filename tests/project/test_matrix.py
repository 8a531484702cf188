"""The matrix: what its cells cover, and the table that is made of what came out."""

import tomllib
from pathlib import Path

from scripts.matrix import (
    CELLS,
    connect_package,
    install_commands,
    read_report,
    table,
)

ROOT = Path(__file__).parents[2]
REPORT = """
<testsuites><testsuite tests="4">
<testcase classname="tests.a" name="test_one"/>
<testcase classname="tests.a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.a" name="test_three"><skipped message="Spark can't"/></testcase>
<testcase classname="tests.a" name="test_four"><skipped message="not run: elsewhere"/></testcase>
</testsuite></testsuites>
"""
GREEN = {
    "spark": "4.0.0",
    "where": "server",
    "python": "3.11",
    "pandas": "2.2.0",
    "pyarrow": "18.0.0",
    "passed": 3,
    "failed": [],
    "skipped": {"Spark can't": 2},
}


def test_each_release_of_spark_is_run_classic_and_on_connect() -> None:
    """Every minor release that the metadata allows and that there is."""
    releases = {cell.spark.rpartition(".")[0] for cell in CELLS}
    assert {"3.5", "4.0", "4.1", "4.2", "4.3"} == releases
    for release in releases:
        ways = {cell.where for cell in CELLS if cell.spark.startswith(release)}
        assert "classic" in ways
        assert ways & {"connect", "server"}


def test_the_first_cell_has_the_lowest_versions_that_the_metadata_allows() -> None:
    """What pip may install is what is tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    lowest = [need.partition(",")[0].replace(">=", "==") for need in wanted if ">=" in need]
    for need in lowest:
        assert any(package.startswith(need) for package in CELLS[0].packages), need


def test_a_report_is_read_as_passed_failed_and_reasons() -> None:
    """A case of another engine that is left out everywhere isn't a limit of one cell."""
    expected = {"passed": 1, "failed": ["tests.a.test_two"], "skipped": {"Spark can't": 1}}
    assert expected == read_report(REPORT)


def test_the_table_counts_the_cells_and_says_why() -> None:
    """Each reason once, with its number in the rows that it concerns."""
    missing = {**GREEN, "passed": "", "skipped": {}, "problem": "no Python 3.12"}
    text = table([GREEN, missing])
    row = "| 4.0.0 | `sc://` to a server | 3.11 | 2.2.0 | 18.0.0 | 3 | 2 (1) | green |"
    assert row in text.splitlines()
    assert "2 cells, 1 run, 1 green." in text
    assert text.endswith("1. Spark can't")


def test_an_environment_is_made_with_uv_or_else_with_pip() -> None:
    """Either takes the same packages."""
    python = Path("/env/bin/python")
    make, install = install_commands("/bin/uv", "/bin/python3.11", python, ["attrs"])
    assert ["/bin/uv", "venv"] == make[:2]
    assert ["--python", "/env/bin/python", "attrs"] == install[-3:]
    make, install = install_commands(None, "/bin/python3.11", python, ["attrs"])
    assert ["/bin/python3.11", "-m", "venv", "--clear", "/env"] == make
    assert ["/env/bin/python", "-m", "pip", "install", "--quiet", "attrs"] == install


def test_only_spark_3_needs_a_package_for_connect() -> None:
    """Those that pip installs since 4.0 have it."""
    assert () == connect_package("4.0.0")
    assert "org.apache.spark:spark-connect_2.12:3.5.7" == connect_package("3.5.7")[1]
