"""The fixtures for pytest: what they give, how they are replaced, and what they do not load."""

import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit.testing.plugin import FAST_SETTINGS, _drawn

ROOT = Path(__file__).resolve().parents[2]
# Where the package is installed its entry point would register the plugin a second time.
WITH_PLUGIN = ("-p", "no:sessionkit", "-p", "sessionkit.testing.plugin", "-p", "no:cacheprovider")


def entry_point() -> str:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(declared["project"]["entry-points"]["pytest11"]["sessionkit"])


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return an empty project that finds the package in its folder."""
    pytester.syspathinsert(ROOT)
    return pytester


def test_no_pyspark_is_loaded_before_spark_is_used(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest finds the plugin where the package is installed; it loads no Spark by itself."""
    installed = project.mkdir("sessionkit_installed-1.dist-info")
    (installed / "METADATA").write_text("Name: sessionkit-installed\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\nsessionkit = {entry_point()}\n")
    project.makepyfile(
        """
        import sys

        def test_loaded():
            assert not [name for name in sys.modules if name.partition(".")[0] == "pyspark"]
        """
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_test_that_fails_shows_the_timelines_of_its_drivers(project: pytest.Pytester) -> None:
    """Those that it and its helpers hold, once each; not one that could not be made."""
    project.makepyfile(
        """
        from examples.visits import View, visits
        from sessionkit.testing import SessionDriver, at

        def check(driver):
            assert driver.take_results() == ["a row"]

        def test_failing():
            visitors, idle = SessionDriver(visits), SessionDriver(visits)
            visitors.add("ann", at("10:00"), View("/", 1.0))
            visitors.run_batch()
            check(visitors)

        def test_passing():
            driver = SessionDriver(visits)

        def test_refused():
            SessionDriver("no spec")
        """
    )
    found = project.runpytest_inprocess(*WITH_PLUGIN, "--tb=short")
    found.assert_outcomes(passed=1, failed=2)
    titles = [line.strip(" -") for line in found.outlines if "- timeline of " in line]
    assert ["timeline of visitors", "timeline of idle"] == titles
    found.stdout.fnmatch_lines(["* timeline of visitors *", "SessionDriver: *", "'ann' * o*"])


def test_spark_is_one_fast_local_session(spark: SparkSession, project: pytest.Pytester) -> None:
    """The suite's settings go before its own; where a session is active, that one is used."""
    names = ("spark.master", "spark.sql.session.timeZone", "spark.sql.streaming.pollingDelay")
    assert ["local[2]", "America/New_York", "20ms"] == [spark.conf.get(name) for name in names]
    assert "2" == FAST_SETTINGS["spark.sql.shuffle.partitions"]
    project.makepyfile(
        """
        def test_spark(spark):
            assert "America/New_York" == spark.conf.get("spark.sql.session.timeZone")
        """
    )
    project.runpytest_inprocess(*WITH_PLUGIN).assert_outcomes(passed=1)
    active = SparkSession.getActiveSession()
    assert active is not None
    assert spark.sparkContext is active.sparkContext  # other tests may have made other sessions
    assert 3 == spark.range(3).count()


def test_a_driver_that_cannot_be_drawn_leaves_the_failure_as_it_is() -> None:
    """Its state may be what the test has damaged."""

    class Damaged:
        def __str__(self) -> str:
            message = "the payload ends early"
            raise OSError(message)

    assert "it can't be drawn: the payload ends early" == _drawn(Damaged())
