"""What all tests share: hypothesis profiles, markers, the settings of Spark, and the plugin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.spark_settings import (
    AS_USERS_HAVE_IT,
    IN_PARTITIONS,
    changed,
    quick_settings,
    spark_release,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from examples.embedded_postgres import Postgres

# `pytester` is pytest's own: it tests the plugin.
pytest_plugins = [
    "pytester",
    "tests.support.browser",
    "tests.support.elsewhere",
    "tests.support.figures",
    "tests.support.parts",
]

# Time limits and the speed of generation depend on the load of the machine, not on the code.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run: a clone passes or fails the same way everywhere.
settings.register_profile("dev", _PATIENT, max_examples=20, derandomize=True)
# The first of these examples, for `make quick`.
settings.register_profile("quick", _PATIENT, max_examples=5, derandomize=True)
# New examples in every run, and many of them: this is the profile that searches.
settings.register_profile("ci", _PATIENT, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

PATHS_THAT_TAKE_LONG = (
    "tests/project/test_site.py",
    "tests/project/test_typing.py",
    "tests/testing/test_merge_law.py",
    "tests/testing/test_strategies.py",
    "tests/properties/",
)

# They show what the code that Spark generates does and takes.
PATHS_AS_USERS_HAVE_IT = (
    "tests/project/test_speed.py",
    "tests/spark/jobs/test_aggregates.py",
    "tests/spark/jobs/test_generated_code.py",
    "tests/spark/jobs/test_reconciling.py",
    "tests/spark/test_plan.py",
)
# They show several partitions of state.
PATHS_IN_PARTITIONS = (
    "tests/differential/",
    "tests/faults/",
    "tests/spark/checkpoints/",
    "tests/spark/jobs/test_balance.py",
    "tests/spark/jobs/test_bucket_count.py",
    "tests/spark/jobs/test_pages.py",
    "tests/spark/jobs/test_restart",
    "tests/addons/monitor/",
    "tests/spark/test_grouping.py",
)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Load the plugin that the tests use, after coverage has started to measure."""
    session.config.pluginmanager.import_plugin("sessionkit.testing.plugin")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark every test that starts Spark, and let the files that take longest begin.

    Coverage isn't measured for properties: they run lines that other tests reach, many times over.

    The order matters only where several processes share the files: none is left alone with a long
    one in the end.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.nodeid.startswith("tests/properties/"):
            item.add_marker(pytest.mark.no_cover)
        _leave_out_where_spark_is_older(item)
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _leave_out_where_spark_is_older(item: pytest.Item) -> None:
    marker = item.get_closest_marker("since_spark")
    if marker is not None and spark_release() < tuple(map(int, marker.args[0].split("."))):
        item.add_marker(pytest.mark.skip(reason=marker.args[1]))


def _rank(item: pytest.Item) -> int:
    if item.nodeid.startswith("tests/as_users/"):
        return -1
    if item.get_closest_marker("spark"):
        return 0
    return 1 if item.nodeid.startswith(PATHS_THAT_TAKE_LONG) else 2


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Give what `tests/support/spark_settings.py` says and explains."""
    return quick_settings()


@pytest.fixture(scope="module")
def spark(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Give the session of all tests, quick for tiny batches or as users have it."""
    settings: dict[str, str] = {}
    if request.node.nodeid.startswith(PATHS_AS_USERS_HAVE_IT):
        settings = AS_USERS_HAVE_IT
    elif request.node.nodeid.startswith(PATHS_IN_PARTITIONS):
        settings = IN_PARTITIONS
    with changed(spark, settings):
        yield spark


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server; tests are skipped where none can be had."""
    from examples import embedded_postgres as server  # noqa: PLC0415 - a cell has no psycopg

    try:
        with server.running_postgres() as running:
            yield running
    except server.PostgresMissingError as error:
        pytest.skip(f"not run: {error}")
