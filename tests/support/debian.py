"""Packages of Debian for tests: their files are taken out, and nothing is installed."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.cache import cached

FETCH_S: Final = 120


class PackageMissingError(Exception):
    """Raised where a package can't be had, with the reason."""


def files_of(package: str) -> Path:
    """Return the folder of the files of a package."""
    return cached(package, lambda folder: _fetch(package, folder))


def _fetch(package: str, folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        message = f"there is no `{package}`, and no `apt-get` to fetch it with"
        raise PackageMissingError(message)
    download = ["apt-get", "download", package]
    if _run(download, folder):
        _run(["apt-get", "update"], folder)
        _must(download, folder)
    (archive,) = folder.glob("*.deb")
    _must(["dpkg-deb", "-x", str(archive), str(folder)], folder)
    archive.unlink()


def _must(command: list[str], folder: Path) -> None:
    failed = _run(command, folder)
    if failed:
        raise PackageMissingError(failed)


def _run(command: list[str], folder: Path) -> str:
    """Run a command; return why it failed, and nothing if it didn't."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took longer than {FETCH_S} s"
    if not done.returncode:
        return ""
    return f"{' '.join(command[:2])}: {done.stderr.strip()[-200:]}"
