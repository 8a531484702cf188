"""The processes of a job, each known by its id: a JVM, its Python workers, and a driver."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import attrs
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from tests.support.faults.job import COMMITTED, Life, live
from tests.support.spark_settings import AS_USERS_HAVE_IT

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.002
FORKS: Final = get_context("forkserver")
"""A process that has imported all once, and becomes a driver in no time."""
FORKS.set_forkserver_preload(["pyspark.sql", "sessionkit.spark", "tests.support.faults.job"])


def wait_for(what: str, is_there: Callable[[], Any]) -> Any:
    """Wait until a function returns something; return that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := is_there():
            return found
        time.sleep(LOOK_S)
    message = f"{what} took longer than {PATIENCE_S} s"
    raise TimeoutError(message)


def kill(pid: int) -> bool:
    """Kill a process without a warning; say whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and that still run."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue  # the thread has ended meanwhile
    return found


def is_python(pid: int) -> bool:
    """Return whether a process runs a module of Python; a JVM's child may still be a copy of it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"-m"]
    except OSError:
        return False


@attrs.frozen
class Jvm:
    """A JVM of Spark, without a driver so far."""

    gateway: Any
    log: Path

    @property
    def pid(self) -> int:
        return int(self.gateway.proc.pid)

    @property
    def address(self) -> tuple[int, str]:
        parameters = self.gateway.gateway_parameters
        return parameters.port, parameters.auth_token

    @property
    def is_alive(self) -> bool:
        return self.gateway.proc.poll() is None

    def daemons(self) -> list[int]:
        """Return the processes that start its Python workers."""
        return [pid for pid in children_of(self.pid) if is_python(pid)]

    def workers(self) -> list[int]:
        return [worker for daemon in self.daemons() for worker in children_of(daemon)]

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        kill(self.pid)
        self.gateway.proc.wait(PATIENCE_S)
        self.gateway.proc.stdin.close()
        self.gateway.shutdown()


def start_jvm(folder: Path, settings: Mapping[str, str]) -> Jvm:
    """Start a JVM of Spark."""
    conf = SparkConf(loadDefaults=False).setAll([*_settings(folder, settings).items()])
    log = folder / "jvm.log"
    environ = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with patch.dict(os.environ, environ), log.open("a") as output:
        options = {"stdout": output, "stderr": output}
        return Jvm(launch_gateway(conf, options), log)  # type: ignore[no-untyped-call]


def _settings(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    return {
        # A task may fail twice: a worker that is killed isn't always the end of the query.
        "spark.master": "local[2,3]",
        "spark.app.name": "faults",
        "spark.driver.memory": "600m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.streaming.pollingDelay": "5ms",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **settings,
        **AS_USERS_HAVE_IT,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
    }


@attrs.define
class Driver:
    """A driver that runs, is killed, or has ended."""

    process: Any
    pipe: Connection
    has_committed: bool = False
    failure: str | None = None

    def order(self, moment: str) -> None:
        with suppress(BrokenPipeError):
            self.pipe.send(moment)

    def look(self) -> bool:
        """Take what it has said; return whether it still lives."""
        with suppress(EOFError, ConnectionResetError):
            while self.pipe.poll():
                said = self.pipe.recv()
                if said == COMMITTED:
                    self.has_committed = True
                else:
                    self.failure = said
        return bool(self.process.is_alive())

    def wait(self) -> int:
        """Wait until it has ended; return its exit status."""
        wait_for("the driver", lambda: not self.look())
        self.look()
        self.process.join()
        return int(self.process.exitcode)

    def kill(self) -> int:
        if self.look():
            kill(self.process.pid)
        return self.wait()


def start_driver(life: Life) -> Driver:
    """Start a driver of a JVM that runs."""
    mine, its = FORKS.Pipe()
    process = FORKS.Process(target=live, args=(life, its), daemon=True)
    process.start()
    its.close()
    return Driver(process, mine)


def batches_in(log: Path) -> Iterator[int]:
    """Yield the batches of a log of a checkpoint."""
    for path in log.glob("[0-9]*"):
        if path.name.isdigit():
            yield int(path.name)
