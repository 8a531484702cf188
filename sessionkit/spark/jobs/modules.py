"""Check, where Spark runs locally, that its workers find the modules of a spec."""

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessionkit.errors import NotPicklableError
from sessionkit.spark.jobs.pickles import MAIN, imported_by

if TYPE_CHECKING:
    from pyspark import SparkContext  # a client of Connect has none

LOOK_FOR: Final = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]) is None)"
OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Modules that Spark itself puts on the path of its workers."""


def check_found(spec: Any, context: "SparkContext") -> None:
    """
    Check that workers find the modules of a spec; nothing where they aren't on this machine.

    The folder of a script is on the path of the driver alone. Workers have the folder in which
    Spark was started, `PYTHONPATH`, the packages of Python, and files added to Spark.
    """
    master = context.master or ""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return
    from pyspark import cloudpickle  # noqa: PLC0415 (a client of Connect starts without)

    dumped: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # without annotations
    named = {name.partition(".")[0] for name, _ in imported_by(dumped)}
    for module, folder in _beside_packages(named):
        if not _is_found(module, context):
            found = f"the spec uses the module `{module}` of {folder}"
            found += ", where Spark's workers don't look"
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


def _is_found(module: str, context: "SparkContext") -> bool:
    from pyspark import SparkFiles  # noqa: PLC0415 (a client of Connect has none)

    added = Path(SparkFiles.getRootDirectory())
    if PathFinder.find_spec(module, [str(added), *map(str, added.glob("*"))]) is not None:
        return True
    system = context._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001
    paths = [context.environment.get("PYTHONPATH"), system.getenv("PYTHONPATH")]
    path = os.pathsep.join(filter(None, paths))
    return _finds(context.pythonExec, module, str(system.getProperty("user.dir")), path)


@lru_cache(maxsize=256)
def _finds(program: str, module: str, folder: str, python_path: str) -> bool:
    """Return whether a Python that is started like a worker finds a module."""
    found = shutil.which(program)
    if found is None:
        return True
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": python_path}
    # Running this program is safe: Spark would run it too.
    completed = subprocess.run(  # noqa: S603
        [found, "-c", LOOK_FOR, module],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    return completed.stdout.strip() != "True"
