"""Check and normalize the paths of folders."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final, cast

from sessionkit.errors import SpecError

SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]+):/*(?P<rest>.*)", re.DOTALL)
OF_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/].*", re.DOTALL)
NAMES_OF_S3: Final = ("s3", "s3a", "s3n")
LOCAL: Final = "file"
LOCAL_ROOT: Final = "file:"
HOST: Final = re.compile(r"://[^/]")
"""What follows a scheme where a host does."""
PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
GLOB: Final = frozenset("*?[")
HIDDEN: Final = ("_", ".")
"""The prefixes of the files and folders that Spark skips as it reads a folder."""


def check_path(path: object, what: str) -> None:
    """Refuse the path of a folder for which Spark would silently use another folder."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        found = f"{what} must be the path of a folder, found {path!r}"
        raise SpecError(found, "write a text such as '/data/visits', or a Path")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise SpecError(f"{what} must be a text, found the bytes {text!r}", "decode them")
    if OF_WINDOWS.fullmatch(text) and os.name != "nt":
        found = f"{what} is a path of Windows, and this system isn't: found {text!r}"
        raise SpecError(found, "write a path of this system, such as '/data/visits'")
    if text == "~" or text.startswith("~/"):
        found = f"{what} begins with `~`, found {text!r}: Spark makes a folder of this name"
        raise SpecError(found, f"write os.path.expanduser({text!r})")


def path_of(path: object, name: str) -> str:
    """Return an argument that is the path of a folder as text."""
    check_path(path, f"`{name}`")
    return os.fspath(cast("str | os.PathLike[str]", path))


def literal_path(path: str) -> str:
    """Return a path with the characters escaped that Spark would take for a pattern."""
    return PATTERN.sub(r"\\\g<0>", path)


def check_stream(folder: str) -> None:
    """Check that a stream can read a folder: Spark takes its path for a pattern."""
    signs = sorted({*PATTERN.findall(folder)})
    if signs:
        found = f"a stream takes the folder {folder} for a pattern: its path has {' '.join(signs)}"
        raise SpecError(found, "take a path without")


def folder_of(path: str | os.PathLike[str], root: str = LOCAL_ROOT) -> PurePosixPath:
    """
    Return a path for comparison: without a scheme if it's local, and without links.

    `root` is Spark's default file system, such as `hdfs://host:8020`, in which a path without a
    scheme is, and one of the same scheme without a host.
    """
    text = os.fspath(path)
    match, of_root = SCHEME.fullmatch(text), SCHEME.fullmatch(root)
    host = of_root["rest"] if of_root else ""
    if match is None and host and text.startswith("/"):
        return folder_of(f"{root}{text}", root)
    scheme = match["scheme"].lower() if match else LOCAL
    rest = match["rest"] if match else text
    if scheme == LOCAL:
        return PurePosixPath(Path(os.path.realpath(f"/{rest}" if match else rest)).as_posix())
    if of_root and scheme == of_root["scheme"].lower() and HOST.match(text, len(scheme)) is None:
        rest = f"{host}/{rest}"
    scheme = NAMES_OF_S3[0] if scheme in NAMES_OF_S3 else scheme
    return PurePosixPath(f"{scheme}:{os.path.normpath(f'/{rest}')}")


def is_read_with(inner: PurePosixPath, outer: PurePosixPath) -> bool:
    """Return whether a reader of `outer`, a folder or a glob, finds the files in `inner`."""
    for folder in (inner, *inner.parents):
        if _is_named(folder, outer):
            below = inner.relative_to(folder).parts
            return not any(part.startswith(HIDDEN) for part in below)
    return False


def _is_named(folder: PurePosixPath, pattern: PurePosixPath) -> bool:
    if folder == pattern:
        return True
    if not GLOB.intersection(str(pattern)) or len(folder.parts) != len(pattern.parts):
        return False
    return all(map(fnmatchcase, folder.parts, pattern.parts))
