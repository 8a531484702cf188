"""
What a cell of the matrix adds to a test run: where Spark runs, and which failures don't count.

`scripts/matrix.py` loads it with `-p tests.support.cell` and says in `SESSIONKIT_SPARK` where Spark
runs: `local-cluster[...]`, `connect` for `remote("local")`, the address of a server, `sc://...`, or
`sail` for a server of Sail in this process.
Without it, the tests have the session that they always have.
"""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from sessionkit.errors import UnsupportedError

WHERE: Final = os.environ.get("SESSIONKIT_SPARK", "")
IS_CONNECT: Final = WHERE.startswith(("connect", "sail", "sc://"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the session with the first test that uses it: programs of users start their own."""
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        if WHERE and "spark" in names:
            names.insert(0, "_active_session")


@pytest.fixture(scope="session")
def _active_session(spark_settings: dict[str, str]) -> Generator[None]:
    """Start the session before the fixture `spark` looks for an active one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a cell may have another Spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    builder = SparkSession.builder
    for name, value in settings(spark_settings).items():
        builder.config(name, value)
    with _address() as address:
        if address.startswith("sc://"):
            os.environ["SPARK_REMOTE"] = address  # for programs that ask for any session
        session = (builder.remote(address) if IS_CONNECT else builder.master(address)).getOrCreate()
        yield
        session.stop()


@contextmanager
def _address() -> Iterator[str]:
    if WHERE != "sail":
        yield WHERE.replace("connect", "local")
        return
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - only a cell of Sail has it

    server = SparkConnectServer()
    server.start()
    _, port = server.listening_address
    yield f"sc://127.0.0.1:{port}"
    server.stop()


def settings(of_the_suite: dict[str, str]) -> dict[str, str]:
    """Return the settings of a session that a cell starts; a server's are those it has."""
    from sessionkit.testing.plugin import FAST_SETTINGS  # noqa: PLC0415 - measured by coverage

    every = {**FAST_SETTINGS, **of_the_suite}
    if not WHERE.startswith(("sail", "sc://")):
        return every
    return {name: value for name, value in every.items() if name.startswith("spark.sql.session")}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what this Spark can't do, and what sessionkit says about it, as skipped."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(UnsupportedError):
        reason = str(call.excinfo.value).partition("\n")[0]
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report
