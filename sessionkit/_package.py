"""The package itself: its version, its names as they are first used, and what is installed."""

import warnings
from collections.abc import Callable, Collection
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any

from sessionkit.errors import UnsupportedError

PROJECT = "sessionkit-spark"
ANOTHER = "sessionkit"
"""Another project on PyPI, with a module of the same name."""


@cache
def _version() -> str:
    try:
        return distribution(PROJECT).version
    except PackageNotFoundError:  # the folder was shipped alone
        return "unknown"


def __getattr__(name: str) -> str:
    """Read the version once it's asked for: it's in a file with the whole README."""
    if name == "__version__":
        return _version()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg, name=name)


def lazy_names(
    package: str, names: Collection[str], *modules: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package (PEP 562), for names of modules."""

    def load(name: str) -> Any:
        if name not in names:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg, name=name)
        loaded = map(import_module, modules)
        value = getattr(next(module for module in loaded if hasattr(module, name)), name)
        setattr(import_module(package), name, value)
        return value

    return load, lambda: sorted({*vars(import_module(package)), *names})


def check_extra(
    extra: str, module: str, what: str, where: str = "where the driver and the executors run"
) -> None:
    """Check that a library is there, which one of the extras brings."""
    if find_spec(module) is None:
        found = f"{what} needs {module.replace('_', '-')}, which isn't installed"
        raise UnsupportedError(found, f'pip install "{PROJECT}[{extra}]", {where}')


def warn_of_another() -> None:
    """Warn where the other project is installed too: each overwrites files of the other."""
    try:
        files = distribution(ANOTHER).files or ()
    except PackageNotFoundError:
        return
    if any(file.as_posix() == "sessionkit/__init__.py" for file in files):
        found = f"`{ANOTHER}`, another project, and `{PROJECT}` are installed in one folder"
        hint = f"pip uninstall {ANOTHER} {PROJECT}, then pip install {PROJECT}"
        warnings.warn(f"{found}\n\nHint: {hint}", stacklevel=3)
