"""The matrix: what its cells cover."""

import tomllib
from datetime import date
from pathlib import Path

import pytest

from scripts.matrix import CELLS, KILLED, LAKES, lake_cells, lakes_in_turn

ROOT = Path(__file__).parents[2]


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


def test_the_lakes_of_a_build_are_on_the_newest_spark_for_each() -> None:
    """Delta and Iceberg, each classic and on Connect, and nothing else."""
    cells = lake_cells()
    assert {"Delta", "Iceberg"} == {name for cell in cells for name in cell.lakes}
    for name in ("Delta", "Iceberg"):
        newest = max(cell.spark for cell in CELLS if name in cell.lakes)
        ways = [(cell.spark, cell.where) for cell in cells if name in cell.lakes]
        assert [(newest, "classic"), (newest, "connect")] == ways


def test_a_build_has_each_lake_once_and_both_ways_in_two_days() -> None:
    """One format is classic and the other on Connect, and the next day it's the other way round."""
    days = [lakes_in_turn(date(2026, 3, day)) for day in (1, 2)]
    ways = [{name: cell.where for cell in cells for name in cell.lakes} for cells in days]
    assert [2, 2] == [len(cells) for cells in days]
    for name in ("Delta", "Iceberg"):
        assert {"classic", "connect"} == {way[name] for way in ways}
    assert all(len({*way.values()}) == len(way) for way in ways)


def test_a_build_kills_the_queries_of_a_lake_in_both_ways_to_run_spark() -> None:
    """And repairs a table in one, and merges rows in both."""
    assert {cell.where for cell in lake_cells()} == LAKES.keys()
    assert all(tests[0] == KILLED for tests in LAKES.values())
    for test in {test for tests in LAKES.values() for test in tests}:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("processes", [[], ["-n", "1"]])
def test_a_test_of_another_cell_is_left_out_and_counted(
    pytester: pytest.Pytester, processes: list[str]
) -> None:
    """It isn't skipped: the last lines of a run say what runs it."""
    pytester.makepyfile(
        """
        import pytest

        def test_here(): pass

        @pytest.mark.cell("a lake of gold")
        def test_there(): assert False
        """
    )
    run = pytester.runpytest("-p", "tests.support.elsewhere", *processes)

    run.assert_outcomes(passed=1)
    run.stdout.fnmatch_lines(["left to other cells *: 1 with a lake of gold"])
