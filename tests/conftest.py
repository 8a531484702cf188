"""Settings that all tests share: profiles of hypothesis, markers, and one Spark session."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Pytest's own, to test the plugin with; and the plugin, whose fixtures the tests use.
pytest_plugins = ["pytester", "sessionkit.testing.plugin"]

# Time limits and the speed of generation tell of the load of the machine, not of the code.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run: a clone passes or fails alike everywhere.
settings.register_profile("dev", _PATIENT, max_examples=50, derandomize=True)
# New examples in every run, and many of them: this is the profile that searches.
settings.register_profile("ci", _PATIENT, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the Spark session, so that `-m "not spark"` is sure to be fast."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """A zone that is not UTC and has a summer time: what confuses local time with UTC fails."""
    return {"spark.sql.session.timeZone": "America/New_York"}
