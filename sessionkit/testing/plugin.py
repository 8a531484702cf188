"""
A pytest plugin: fixtures, and timelines in the reports of failing tests.

pytest loads it wherever sessionkit is installed. Fixtures import on first use: a test run without
them loads neither pandas nor pyspark and starts no JVM. A fixture of the same name in a
`conftest.py` overrides a fixture of the plugin.
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
    """Add a timeline of each driver among the local variables of a failing test to its report."""
    report = (yield).get_result()
    if report.failed and call.excinfo is not None:
        report.sections += _timelines(call.excinfo)


def _timelines(failure: pytest.ExceptionInfo[BaseException]) -> list[tuple[str, str]]:
    """Return a report section for each driver among the variables of the test and its helpers."""
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
    """Return a driver as text, or an error: the test may have damaged its state."""
    try:
        return str(driver)
    except Exception as error:  # noqa: BLE001 (the failure of the test is what counts)
        return f"it can't be drawn: {error}"


@pytest.fixture(scope="session")
def spark_settings() -> Mapping[str, str]:
    """Return extra settings for `spark`; override this fixture to add some."""
    return {}


@pytest.fixture(scope="session")
def spark(
    spark_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """
    Return a local Spark session that all tests share, started on first use.

    It has two threads, two shuffle partitions, no user interface, UTC as its time zone, and a
    temporary warehouse. Its Python workers can import whatever the tests can. If a session is
    already active, the fixture returns that session unchanged and doesn't stop it.
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
