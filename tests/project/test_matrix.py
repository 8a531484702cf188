"""The matrix: what its cells cover."""

import tomllib
from pathlib import Path

from scripts.matrix import CELLS

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
