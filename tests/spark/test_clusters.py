"""On two executors that are processes of their own: what the how-to says, and the same rows."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sessionkit.testing import SessionDriver
from tests.support.clusters import bare_python, cluster_environment
from tests.support.spark_settings import SHORT_LIFE

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "how-to" / "clusters.md").read_text(encoding="utf-8")
MODULE: Final = re.compile(r"```python\n# not run here: this is (\S+), .*?\n(.*?)```", re.DOTALL)
SHELL: Final = re.compile(r"```bash\n(.*?)```", re.DOTALL)
PIP: Final = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}
# Master and workers are threads of the driver; `make test-matrix` has a master of its own.
MASTER: Final = "local-cluster[2,1,1024]"
VIEWS: Final = [("ann", "/", 0), ("bob", "/", 5), ("ann", "/a", 29), ("bob", "/b", 40)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(
        [*build, "--wheel-dir", str(folder), str(ROOT)], check=True, env=os.environ | PIP
    )
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Start Spark with a Python that knows nothing of this project."""
    environ = cluster_environment(tmp_path / "spark", bare_python(tmp_path / "python"))
    return environ | {"JAVA_TOOL_OPTIONS": SHORT_LIFE}


@pytest.mark.spark
@pytest.mark.long
def test_the_job_of_the_how_to_runs_on_two_executors(
    tmp_path: Path, wheels: Path, environ: dict[str, str]
) -> None:
    """The page's commands ship package and module, and the rows are those of the driver."""
    modules = dict(MODULE.findall(PAGE))
    for name, text in modules.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "in").mkdir()
    _write_views(tmp_path / "in" / "0.json")
    found = subprocess.run(
        ["/bin/bash", "-euc", "".join(SHELL.findall(PAGE))],
        cwd=tmp_path,
        env=environ | PIP | _commands(environ, wheels, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == found.returncode, found.stdout + found.stderr
    assert 2 == len(list((tmp_path / "spark" / "work").glob("app-*/*")))
    assert _on_driver(modules["my_visits.py"]) == _written(tmp_path / "out")


def _commands(environ: dict[str, str], wheels: Path, folder: Path) -> dict[str, str]:
    """Return what the page's commands are run with: programs, the package, and two variables."""
    programs = [str(Path(environ["PYSPARK_PYTHON"]).parent), str(Path(sys.executable).parent)]
    return {
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "MASTER": MASTER,
        "FOLDER": str(folder),
    }


def _at(minute: int) -> datetime:
    return datetime(2026, 3, 8, 12, minute, tzinfo=UTC)


def _views() -> Iterator[dict[str, Any]]:
    for user, url, minute in VIEWS:
        yield {"user_id": user, "url": url, "ts": _at(minute)}
    # Moves the watermark past both visits.
    yield {"user_id": "cid", "url": "/", "ts": _at(0).replace(hour=18)}


def _write_views(path: Path) -> None:
    lines = [json.dumps(view, default=datetime.isoformat) for view in _views()]
    path.write_text("\n".join(lines), encoding="utf-8")


def _on_driver(module: str) -> list[tuple[str, str, int]]:
    namespace: dict[str, Any] = {"__name__": "my_visits"}
    exec(compile(module, "my_visits.py", "exec"), namespace)  # noqa: S102 (our own docs)
    driver = SessionDriver(namespace["visits"])
    for view in _views():
        driver.add_row(view)
    driver.run_until_idle()
    return sorted((row.key[0], row.session_id, row.result.pages) for row in driver.take_rows())


def _written(folder: Path) -> list[tuple[str, str, int]]:
    lines = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    rows = map(json.loads, lines)
    return sorted((row["user_id"], row["session_id"], row["pages"]) for row in rows)
