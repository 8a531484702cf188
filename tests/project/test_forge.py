"""What a forge reads: workflows, issue forms, and how to cite. Valid, and true of the project."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.matrix import CELLS

ROOT = Path(__file__).resolve().parents[2]
FORGE = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TARGET = re.compile(r"\bmake ([\w-]+)")
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no forge files")


def read(path: Path) -> Any:
    """Return what a YAML file says."""
    return yaml.safe_load(path.read_text("utf-8"))


def workflows() -> dict[str, Any]:
    """Return the workflows by the names of their files."""
    return {path.name: read(path) for path in sorted((FORGE / "workflows").glob("*.yml"))}


def jobs() -> Iterator[tuple[str, Any]]:
    """Yield all jobs of all workflows, each with a name for a message."""
    for name, workflow in workflows().items():
        for job, value in workflow["jobs"].items():
            yield f"{name}: {job}", value


def steps() -> Iterator[Any]:
    """Yield all steps of all jobs."""
    for _, job in jobs():
        yield from job["steps"]


def test_every_workflow_is_whole() -> None:
    """It has a trigger, which YAML reads as true, and may read the code alone unless a job says."""
    assert ["ci.yml", "docs.yml", "release.yml"] == list(workflows())
    assert all(workflow[True] for workflow in workflows().values())
    assert all({"contents": "read"} == each["permissions"] for each in workflows().values())


def test_every_job_ends() -> None:
    """It has a limit of time, and waits only for jobs that there are."""
    assert [] == [name for name, job in jobs() if "timeout-minutes" not in job]
    for workflow in workflows().values():
        needed = {job["needs"] for job in workflow["jobs"].values() if "needs" in job}
        assert needed <= set(workflow["jobs"])


def test_every_target_is_in_the_makefile() -> None:
    """What a forge runs is what a developer runs."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    called = {name for step in steps() for name in TARGET.findall(step.get("run", ""))}
    assert {"docs", "release-check", "test", "test-matrix"} == called
    assert [] == [
        name for name in called if not re.search(rf"^{name}\b.*:", makefile, re.MULTILINE)
    ]


def test_ci_runs_on_every_supported_python() -> None:
    """The classifiers on PyPI name them."""
    marks = (name.rpartition(" :: ")[2] for name in PROJECT["classifiers"])
    supported = [mark for mark in marks if re.fullmatch(r"3\.\d+", mark)]
    job = workflows()["ci.yml"]["jobs"]["test"]
    assert supported == job["strategy"]["matrix"]["python"]


def test_ci_runs_every_cell_of_the_matrix(tmp_path: Path) -> None:
    """The command of the workflow lists them, and each cell's Python is set up."""
    ci = workflows()["ci.yml"]["jobs"]
    command = ci["cells"]["steps"][-1]["run"]
    output = tmp_path / "output"
    env = {**os.environ, "GITHUB_OUTPUT": str(output)}
    subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, check=True)
    listed = json.loads(output.read_text().removeprefix("cells="))
    installed = ci["cell"]["steps"][1]["with"]["python-version"].split()

    assert [cell.name for cell in CELLS] == listed
    assert {cell.python for cell in CELLS} <= set(installed)


def test_a_release_is_checked_and_stores_no_token() -> None:
    """Only the job that publishes may ask for an identity, in an environment of its own."""
    release = workflows()["release.yml"]
    assert {"push": {"tags": ["v*"]}} == release[True]
    assert "secrets." not in json.dumps(release["jobs"])
    assert {"id-token": "write"} == release["jobs"]["publish"]["permissions"]
    assert "permissions" not in release["jobs"]["build"]


def test_the_docs_of_a_version_are_put_next_to_the_others(tmp_path: Path) -> None:
    """On a branch that the first of them makes, and that the same docs leave as it is."""
    script = ROOT / "scripts" / "publish_docs.py"
    command = workflows()["docs.yml"]["jobs"]["build"]["steps"][-2]["run"]
    remote = str(tmp_path / "remote")
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    for number, ref in enumerate(("main", "v0.2.0", "main")):
        checkout = tmp_path / str(number)
        clone = ["git", "clone", "--quiet", remote, str(checkout)]
        subprocess.run(clone, check=True, capture_output=True)
        for path in (checkout / "scripts" / script.name, checkout / "site" / "versions.json"):
            path.parent.mkdir()
            path.write_bytes(script.read_bytes())
        env = {**os.environ, "GITHUB_REF_NAME": ref}
        shell = ["bash", "-ec", command]
        subprocess.run(shell, cwd=checkout, env=env, check=True, capture_output=True)

    listed = ["git", "-C", remote, "ls-tree", "--name-only", "gh-pages"]
    logged = ["git", "-C", remote, "log", "--format=%s", "gh-pages"]
    folders, titles = (subprocess.check_output(one, text=True) for one in (listed, logged))
    assert ["0.2.0", "index.html", "main"] == folders.split()
    assert ["Docs of v0.2.0", "Docs of main", "No docs yet"] == titles.splitlines()


def test_the_citation_is_of_this_version() -> None:
    """It has what the format requires, and says what pyproject.toml says."""
    cited = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert PROJECT["authors"] == cited["authors"]
    assert (PROJECT["version"], PROJECT["license"], PROJECT["description"]) == (
        cited["version"], cited["license"], cited["abstract"],
    )  # fmt: skip
