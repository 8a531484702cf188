"""A query of each kind, and a restart, in a session that sets no more than the pages advise."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.support.spark_settings import spark_release

JOB: Final = Path(__file__).with_name("job.py")
OPEN: Final = "[(Key(user='ann'), 2), (Key(user='bob'), 1)]"
OPEN_THEN: Final = "[(Key(user='cid'), 1)]"
STEP: Final = re.compile(r"[a-z]+: (\[|none)")

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.spark


def steps_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that the job has printed; what fetches the jars of Spark 3.5 prints too."""
    assert 0 == done.returncode, done.stdout + done.stderr[-8000:]
    return [line for line in done.stdout.splitlines() if STEP.match(line)]


@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param(["2"], id="as the pages advise", marks=pytest.mark.nightly),
        # Each micro-batch takes eleven seconds on two cores.
        pytest.param([], id="200", marks=pytest.mark.long),
    ],
)
def test_every_kind_of_query_starts_and_goes_on(
    partitions: list[str], run: Run, tmp_path: Path
) -> None:
    """Aggregates of sessions, state per key, unique rows, windows; then a restart."""
    shutil.copy(JOB, tmp_path / "job.py")
    reads_state = spark_release() >= (4,)
    assert [
        "aggregates: []",
        "state: [('ann', 2), ('bob', 1)]",
        "unique: [('ann', '/'), ('ann', '/buy'), ('bob', '/')]",
        "windows: []",
        f"open: {OPEN if reads_state else 'none are read on Spark 3.5'}",
    ] == steps_of(run(tmp_path / "job.py", "first", *partitions))
    assert [
        "aggregates: [('ann', 3, '/'), ('bob', 2, '/')]",
        f"open: {OPEN_THEN if reads_state else 'none are read on Spark 3.5'}",
    ] == steps_of(run(tmp_path / "job.py", "second", *partitions))
