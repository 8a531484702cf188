"""Declarative pipelines in a folder: `spark-pipelines` runs them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.support.spark_settings import spark_release

MISSING: Final = (
    "Spark has declarative pipelines since 4.1"
    if spark_release() < (4, 1)
    else "`spark-pipelines` needs pyspark[pipelines]"
    if find_spec("grpc") is None or find_spec("yaml") is None
    else ""
)
"""Why no pipeline can be run here; empty if one can."""

PORT: Final = 15002


@contextmanager
def being_read() -> Iterator[None]:
    """Let a pipeline be read, as while `spark-pipelines` imports its modules."""
    registry = import_module("pyspark.pipelines.graph_element_registry")
    with registry.graph_element_registration_context(object()):
        yield


def wait_for_port() -> None:
    """Wait until no other Spark of this machine uses the port, which can't be chosen."""
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", PORT)) != 0:
                return
        time.sleep(0.5)


class Project:
    """A pipeline: its `spark-pipeline.yml`, modules of query functions, and the command."""

    def __init__(
        self, folder: Path, spec: str, modules: Mapping[str, str], command: Sequence[str]
    ) -> None:
        self.folder = folder
        self.command = command
        (folder / "transformations").mkdir(parents=True)
        (folder / "spark-pipeline.yml").write_text(spec)
        for name, module in modules.items():
            (folder / "transformations" / f"{name}.py").write_text(module)

    def run(self) -> tuple[int, str]:
        """Run it as a user does; return the exit code, and all that was said."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        programs = Path(sys.executable).parent
        env = {
            **kept,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        while True:
            wait_for_port()
            done = subprocess.run(
                self.command,
                cwd=self.folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if f"BindException: Failed to bind to address 0.0.0.0/0.0.0.0:{PORT}" in done.stdout:
                continue  # another Spark was quicker
            return done.returncode, done.stdout

    def checkpoint(self, table: str) -> Path:
        """Return where the checkpoint of a table is, if it was never refreshed."""
        tables = self.folder.parent / "storage" / "_checkpoints" / "spark_catalog" / "default"
        return tables / table / table / "0"
