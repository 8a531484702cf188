"""The parts in which a pull request runs the tests: none is in two of them, and none in none."""

from pathlib import Path

import pytest
import yaml

from tests.support.parts import PARTS, part_of

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_each_file_of_tests_is_in_one_part() -> None:
    """And each folder of the list has files of its part."""
    parts = {file: part_of(file) for file in FILES}
    assert len(FILES) > 200
    assert {*PARTS.values()} == {*parts.values()}
    for folder, part in PARTS.items():
        assert any(parts[file] == part for file in (ROOT / folder).rglob("test_*.py")), folder


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no workflows")
def test_a_pull_request_runs_each_part() -> None:
    """The tests of Sail in the cell that has it, the others as jobs side by side."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    jobs = workflow["jobs"]
    run = {*jobs["spark"]["strategy"]["matrix"]["part"]}
    assert {*PARTS.values()} - {"sail"} == run
    assert "test-sail" in jobs["few"]["strategy"]["matrix"]["few"]


def test_a_part_has_the_tests_of_its_own_files_alone(pytester: pytest.Pytester) -> None:
    """Those of other parts aren't even imported."""
    args = ["-p", "no:cacheprovider", f"--rootdir={ROOT}", "--collect-only", "-q"]
    folders = [str(ROOT / "tests" / folder) for folder in ("differential", "timeouts")]
    run = pytester.runpytest_subprocess(*args, "--part", "jobs", *folders)
    assert run.ret == pytest.ExitCode.OK
    assert "tests/differential/test_verdicts.py" in run.stdout.str()
    assert "tests/timeouts" not in run.stdout.str()
