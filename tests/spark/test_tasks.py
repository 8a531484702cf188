"""What a Python worker of Spark's does once, so that it need not look through its imports."""

import gc
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Final

import pytest

from sessionkit import UserFunctionError
from sessionkit.spark._tasks import freeze_imports, message_first

IN_A_WORKER: Final = """
import gc, pyarrow, pandas
from sessionkit.spark._tasks import freeze_imports
before = len(gc.get_objects())
freeze_imports("run")
print(gc.get_freeze_count() > 0.9 * before, len(gc.get_objects()) < 0.1 * before)
"""


def test_a_worker_freezes_its_objects_once_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage may import more, and none is frozen twice: garbage made since would stay."""
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    freeze_imports.cache_clear()
    for stage in ("pack", "run", "pack", "run", "run"):
        freeze_imports(stage)
    assert len(frozen) == 2
    freeze_imports.cache_clear()


def test_imports_are_no_longer_looked_at() -> None:
    """In a process of its own, where nothing else is frozen."""
    found = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("shows_causes", [False, True])
def test_an_error_of_sessionkit_leaves_a_worker_without_its_own_lines(
    *, shows_causes: bool
) -> None:
    """Spark leaves out causes by default; else the message comes first."""
    given = UserFunctionError("`update` raised", "its lines", "fix it")

    @message_first
    def run(count: int) -> Iterator[int]:
        yield from range(count)
        raise given from KeyError("first")

    with pytest.raises(UserFunctionError) as failed:
        [*run(3)]
    if not shows_causes:
        failed.value.__cause__ = None
    shown = "".join(traceback.format_exception(failed.value))
    before, message, _ = shown.partition("sessionkit.errors.UserFunctionError: `update` raised\n\n")

    assert given is failed.value
    assert message
    assert shows_causes == (not before)
    assert before.count("File ") <= 2
