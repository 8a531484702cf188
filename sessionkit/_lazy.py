"""The names of a package, loaded when they are first used."""

from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any


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
