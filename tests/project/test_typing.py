"""What mypy and pyright make of specs: those that fit, those that don't, and the tutorial's job."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "typing"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-session-job.md"
MARK = re.compile(r"# wrong(?:: (?P<checker>\w+))?$")
Places = set[tuple[str, int]]


def blocks() -> list[str]:
    """Return the blocks of the tutorial up to its first complete job, which is the last of them."""
    found = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL)
    return found[: next(n for n, block in enumerate(found, start=1) if "sessionize" in block)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the files to check: the specs, and the job of the tutorial as a file of its own."""
    tutorial = tmp_path_factory.mktemp("tutorial") / "first_job.py"
    tutorial.write_text("\n".join(blocks()), "utf-8")
    return [*sorted(FOLDER.glob("*.py")), tutorial]


@pytest.fixture(scope="module")
def mypy(files: list[Path]) -> Places:
    """Return where mypy finds errors: file and line."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    ran = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    found = re.findall(r"^(.*?):(\d+): error:", ran.stdout.decode(), re.MULTILINE)
    return {(Path(file).name, int(line)) for file, line in found}


@pytest.fixture(scope="module")
def pyright(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Return where pyright finds errors, in its standard mode."""
    settings = {
        "include": list(map(str, files)),
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
    }
    project = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    project.write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(project)]
    command += ["--pythonpath", sys.executable]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    found: list[Any] = json.loads(ran.stdout)["generalDiagnostics"]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in found
        if one["severity"] == "error"
    }


def marked(checker: str) -> Iterator[range]:
    """Yield the lines of each statement of `wrong.py` that a type checker must refuse."""
    source = (FOLDER / "wrong.py").read_text("utf-8")
    for statement in ast.parse(source).body:
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        text = source.splitlines()[lines.start - 1]
        if (mark := MARK.search(text)) and mark["checker"] in (None, checker):
            yield lines


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_wrong_spec_is_refused(checker: str, request: pytest.FixtureRequest) -> None:
    """Each marked statement has an error, and nothing else has one."""
    found: Places = request.getfixturevalue(checker)
    wrong = list(marked(checker))

    assert [] == [lines for lines in wrong if not any(("wrong.py", at) in found for at in lines)]
    expected = {("wrong.py", at) for lines in wrong for at in lines}
    assert set() == found - expected
