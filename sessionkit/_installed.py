"""What is installed: which version, which libraries, and whether another project is there too."""

import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from sessionkit.errors import UnsupportedError, with_hint

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


def check_extra(
    extra: str, module: str, what: str, where: str = "where the driver and the executors run"
) -> None:
    """Check that a library is there, which one of the extras brings."""
    if find_spec(module) is None:
        found = f"{what} needs {module.replace('_', '-')}, which isn't installed"
        raise UnsupportedError(with_hint(found, f'pip install "{PROJECT}[{extra}]", {where}'))


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
