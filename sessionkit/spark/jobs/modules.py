"""Check, where Spark runs locally, that its workers find the modules of a spec."""

import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessionkit.errors import NotPicklableError
from sessionkit.spark.jobs.pickles import MAIN, imported_by

if TYPE_CHECKING:
    from pyspark import SparkContext  # a client of Connect has none

OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Modules that Spark itself puts on the path of its workers."""


def check_found(spec: Any, context: "SparkContext") -> None:
    """
    Check that workers find the modules of a spec; nothing where they aren't on this machine.

    The folder of a script is on the path of the driver alone. Workers have the folder in which
    Spark was started, `PYTHONPATH`, the packages of Python, and files added to Spark.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 (a client of Connect starts without)

    master = context.master or ""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return
    dumped: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # without annotations
    named = {name.partition(".")[0] for name, _ in imported_by(dumped)}
    for module, folder in _beside_packages(named):
        _check_found(module, folder, context)


@lru_cache(maxsize=256)
def _check_found(module: str, folder: str, context: "SparkContext") -> None:
    """Let a worker look for a module, until one has found it: an error isn't cached."""
    if context.parallelize([module], 1).map(find_spec).map(bool).first():
        return
    found = f"the spec uses the module `{module}` of {folder}, where Spark's workers don't look"
    added = f"spark.sparkContext.addPyFile({f'{folder}/{module}.py'!r})"
    hint = f"start the job in that folder, set PYTHONPATH={folder}, or call {added}"
    raise NotPicklableError(found, hint)


def _beside_packages(named: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that don't come from Python or its packages, with their folders."""
    for module in sorted({*named} - OF_SPARK - {*MAIN} - sys.stdlib_module_names):
        origin = getattr(getattr(sys.modules.get(module), "__spec__", None), "origin", None)
        if origin is not None and os.path.exists(origin):  # noqa: PTH110 (a text)
            file = Path(origin).resolve()
            folder = file.parent.parent if file.name == "__init__.py" else file.parent
            if folder not in _folders_of_packages():
                yield module, str(folder)


@lru_cache(maxsize=1)
def _folders_of_packages() -> frozenset[Path]:
    folders = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    return frozenset(Path(folder).resolve() for folder in folders)
