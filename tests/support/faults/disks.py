"""Disks that are full, and files that are damaged, under a job."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BALLAST: Final = "ballast"
MOUNT, UMOUNT = "mount", "umount"
MEGABYTE: Final = bytes(1 << 20)


class NoDiskError(Exception):
    """Raised where no small disk can be had, with the reason."""


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Make a folder a disk of its own until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [MOUNT, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoDiskError(str(error)) from None
    if done.returncode:
        raise NoDiskError(done.stderr.strip())
    try:
        yield folder
    finally:
        # What still has a file open there may keep it; nobody else sees it from now on.
        subprocess.run([UMOUNT, "--lazy", str(folder)], check=True)


@contextmanager
def fill(disk: Path) -> Iterator[None]:
    """Leave no room on a disk until the end of the block."""
    path = disk / BALLAST
    with path.open("wb", buffering=0) as ballast:
        size = len(MEGABYTE)
        while size:
            try:
                ballast.write(MEGABYTE[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    try:
        yield
    finally:
        path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES: Final[dict[str, Callable[[Path], None]]] = {
    "missing": Path.unlink,
    "empty": _empty,
    "cut": _cut,
    "one bit": _flip,
}
