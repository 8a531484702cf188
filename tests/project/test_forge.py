"""What a forge reads: its workflows, and how to cite the project."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FORGE = ROOT / ".github"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no forge files")


def read(path: Path) -> Any:
    """Return what a YAML file says."""
    return yaml.safe_load(path.read_text("utf-8"))


def workflows() -> dict[str, Any]:
    """Return the workflows by the names of their files."""
    return {path.name: read(path) for path in sorted((FORGE / "workflows").glob("*.yml"))}


def test_ci_runs_on_every_supported_python() -> None:
    """The classifiers on PyPI name them."""
    marks = (name.rpartition(" :: ")[2] for name in PROJECT["classifiers"])
    supported = [mark for mark in marks if re.fullmatch(r"3\.\d+", mark)]
    job = workflows()["ci.yml"]["jobs"]["test"]
    assert supported == job["strategy"]["matrix"]["python"]


def test_a_workflow_may_do_no_more_than_it_must() -> None:
    """It reads the code alone, keeps no token, and each job ends; only one asks for an identity."""
    for workflow in workflows().values():
        assert {"contents": "read"} == workflow["permissions"]
        assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    release = workflows()["release.yml"]["jobs"]
    assert "secrets." not in json.dumps(release)
    assert {"id-token": "write"} == release["publish"]["permissions"]
    assert "permissions" not in release["build"]


def test_an_action_is_pinned_by_its_hash() -> None:
    """A tag may be moved to other code; the comment after the hash says which release it is."""
    texts = [path.read_text("utf-8") for path in (FORGE / "workflows").glob("*.yml")]
    used = [line for text in texts for line in text.splitlines() if "uses:" in line]
    assert len(used) > 5
    assert [] == [line for line in used if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)]


def test_every_command_of_a_workflow_is_in_the_makefile() -> None:
    """What a forge runs is what a developer runs."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    jobs = [job for workflow in workflows().values() for job in workflow["jobs"].values()]
    commands = [step.get("run", "") for job in jobs for step in job["steps"]]
    called = {name for command in commands for name in re.findall(r"\bmake ([\w-]+)", command)}
    assert {"check", "coverage", "suite"} < called
    assert set() == called - set(re.findall(r"^([\w-]+)(?: [\w -]+)?:", makefile, re.MULTILINE))


def test_a_hook_brings_the_tool_that_the_linter_is() -> None:
    """So it works in a fresh clone, and says what `make lint` says."""
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert len(local["hooks"]) > 2
    for hook in local["hooks"]:
        assert hook["language"] == "python"
        assert {*hook["additional_dependencies"]} <= {*PYPROJECT["dependency-groups"]["dev"]}


def test_the_citation_is_of_this_version() -> None:
    """It has what the format requires, and says what pyproject.toml says."""
    cited = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert PROJECT["authors"] == cited["authors"]
    assert (PROJECT["version"], PROJECT["license"], PROJECT["description"]) == (
        cited["version"], cited["license"], cited["abstract"],
    )  # fmt: skip
