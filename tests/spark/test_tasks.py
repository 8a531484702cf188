"""What a Python worker of Spark's does once, so that it need not look through its imports."""

import gc
import subprocess
import sys
from typing import Final

import pytest

from sessionkit.spark._tasks import freeze_imports

IN_A_WORKER: Final = """
import gc, pyarrow, pandas
from sessionkit.spark._tasks import freeze_imports
before = len(gc.get_objects())
freeze_imports("run")
print(gc.get_freeze_count() > 0.9 * before, len(gc.get_objects()) < 0.1 * before)
"""


def test_a_stage_freezes_once(monkeypatch: pytest.MonkeyPatch) -> None:
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
