"""What tests fetch or compile once, and every later run takes: folders in the home of the user."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

CACHE: Final = Path.home() / ".cache" / "sessionkit-tests"


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """
    Return the folder of a name, made at the first need.

    Args:
        name: With all that its content depends on.
        fill: Fills an empty folder. What it raises leaves nothing in the cache.
    """
    target = CACHE / name
    if target.exists():
        return target
    # A folder is complete once it has its name: another run may fill the same one.
    unfinished = CACHE / f"{name}.{uuid4().hex}"
    unfinished.mkdir(parents=True)
    try:
        fill(unfinished)
        _give_name(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _give_name(unfinished: Path, target: Path) -> None:
    try:
        unfinished.rename(target)
    except OSError:
        if not target.exists():
            raise
