"""Paths of folders in one form, so that two texts that name one folder are equal."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from sessionkit.errors import SpecError

SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]+):/*(?P<rest>.*)", re.DOTALL)
OF_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/].*", re.DOTALL)
NAMES_OF_S3: Final = ("s3", "s3a", "s3n")
LOCAL: Final = "file"
PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
GLOB: Final = frozenset("*?[")
HIDDEN: Final = ("_", ".")
"""What the names of files and folders begin with that Spark leaves out as it reads a folder."""


def check_path(path: object, what: str) -> None:
    """Check the path of a folder; Spark takes each of these for another one, or says nothing."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        found = f"{what} must be the path of a folder, found {path!r}"
        raise SpecError(found, "write a text such as '/data/visits', or a Path")
    text = os.fspath(path)
    if OF_WINDOWS.fullmatch(text) and os.name != "nt":
        found = f"{what} is a path of Windows, and this system isn't: found {text!r}"
        raise SpecError(found, "write a path of this system, such as '/data/visits'")
    if text == "~" or text.startswith("~/"):
        found = f"{what} begins with `~`, found {text!r}: Spark makes a folder of this name"
        raise SpecError(found, f"write os.path.expanduser({text!r})")


def literal(path: str) -> str:
    """Return a path as Spark reads it, which would take some of its characters for a pattern."""
    return PATTERN.sub(r"\\\g<0>", path)


def check_stream(folder: str) -> None:
    """Check that a stream can read a folder: Spark takes its path for a pattern."""
    signs = sorted({*PATTERN.findall(folder)})
    if signs:
        found = f"no stream can read the folder {folder}: its path has {' '.join(signs)}, which "
        raise SpecError(f"{found}Spark takes for a pattern", "take a path without")


def folder_of(path: str | os.PathLike[str]) -> PurePosixPath:
    """Return a path as it's compared: without a scheme if it's local, and without links."""
    text = os.fspath(path)
    match = SCHEME.fullmatch(text)
    scheme = match["scheme"].lower() if match else LOCAL
    rest = match["rest"] if match else text
    if scheme == LOCAL:
        return PurePosixPath(Path(os.path.realpath(f"/{rest}" if match else rest)).as_posix())
    scheme = NAMES_OF_S3[0] if scheme in NAMES_OF_S3 else scheme
    return PurePosixPath(f"{scheme}:{os.path.normpath(f'/{rest}')}")


def is_read_with(inner: PurePosixPath, outer: PurePosixPath) -> bool:
    """Return whether who reads a folder, or all that a glob names, finds the files of another."""
    for own in (inner, *inner.parents):
        if _is_named(own, outer):
            below = inner.relative_to(own).parts
            return not any(part.startswith(HIDDEN) for part in below)
    return False


def _is_named(own: PurePosixPath, named: PurePosixPath) -> bool:
    if own == named:
        return True
    if not GLOB.intersection(str(named)) or len(own.parts) != len(named.parts):
        return False
    return all(map(fnmatchcase, own.parts, named.parts))
