"""
Fixtures for pytest, available wherever sessionkit is installed, and pictures of tests that fail.

A fixture imports what it needs when a test first uses it: a test run that uses none of them loads
neither pandas nor pyspark and starts no JVM. A fixture of the same name in a `conftest.py`
overrides one of these.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import pluggy
    from pyspark.sql import SparkSession

LOCAL: Final = "127.0.0.1"
FAST_SETTINGS: Final = {
    "spark.driver.bindAddress": LOCAL,
    "spark.driver.host": LOCAL,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pluggy.Result[pytest.TestReport]]:
    """Draw the drivers that a failing test has among its variables."""
    report = (yield).get_result()
    if report.failed and call.excinfo is not None:
        report.sections += _timelines(call.excinfo)


def _timelines(failure: pytest.ExceptionInfo[BaseException]) -> list[tuple[str, str]]:
    """Return a section of the report for each driver that the test and its helpers have made."""
    loaded = sys.modules.get("sessionkit.testing.drivers.driver")
    if loaded is None:
        return []
    drivers = {
        id(value): (name, value)
        for frame in reversed([entry.frame for entry in failure.traceback])
        if not frame.f_globals.get("__name__", "").startswith("sessionkit.")
        for name, value in frame.f_locals.items()
        if isinstance(value, loaded.Driver)
    }
    return [(f"timeline of {name}", _drawn(driver)) for name, driver in drivers.values()]


def _drawn(driver: object) -> str:
    """Return a driver as text; its state may be what the test has damaged."""
    try:
        return str(driver)
    except Exception as error:  # noqa: BLE001 (the failure of the test is what counts)
        return f"it can't be drawn: {error}"


@pytest.fixture(scope="session")
def spark_settings() -> Mapping[str, str]:
    """Add settings to `spark`: write a fixture of this name that returns them."""
    return {}


@pytest.fixture(scope="session")
def spark(
    spark_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """
    Run on Spark: one local session for all tests, started by the first test that asks for it.

    It has two threads, two shuffle partitions, no user interface, UTC as its time zone and its own
    warehouse; its Python workers can import whatever the tests can. If a session is already
    active, the fixture returns that one unchanged and doesn't stop it.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {**FAST_SETTINGS, **warehouse, **spark_settings}.items():
        builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        environment.setenv("SPARK_LOCAL_IP", os.environ.get("SPARK_LOCAL_IP", LOCAL))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
