"""The package itself: its version, lazy imports, and checks of what is installed."""

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
"""Another project on PyPI, whose module has the same name."""


@cache
def _version() -> str:
    try:
        return distribution(PROJECT).version
    except PackageNotFoundError:  # the folder was shipped alone
        return "unknown"


def __getattr__(name: str) -> str:
    """Return the version, read on demand: its metadata file contains the whole README."""
    if name == "__version__":
        return _version()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg, name=name)


def lazy_names(
    package: str, names: Collection[str], *modules: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a `__getattr__` and `__dir__` (PEP 562) that import from modules on first use."""

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
    """Check that the library of an extra is installed."""
    if find_spec(module) is None:
        found = f"{what} needs {module.replace('_', '-')}, which isn't installed"
        raise UnsupportedError(found, f'pip install "{PROJECT}[{extra}]", {where}')


def warn_of_another() -> None:
    """Warn if the other project is installed too: both overwrite each other's files."""
    try:
        files = distribution(ANOTHER).files or ()
    except PackageNotFoundError:
        return
    if any(file.as_posix() == "sessionkit/__init__.py" for file in files):
        found = f"`{ANOTHER}`, another project, and `{PROJECT}` are installed in one folder"
        hint = f"pip uninstall {ANOTHER} {PROJECT}, then pip install {PROJECT}"
        warnings.warn(f"{found}\n\nHint: {hint}", stacklevel=3)
