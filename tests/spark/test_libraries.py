"""What Spark needs and its metadata doesn't ask for."""

import os
import subprocess
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, UnsupportedError, _package
from sessionkit._package import check_extra
from sessionkit.addons import monitor
from sessionkit.spark import sessionize
from sessionkit.spark._settings import check_libraries, check_workers, is_connect
from tests.support.session_specs import collecting


@pytest.mark.skipif(
    sys.version_info < (3, 12) or find_spec("distutils") is not None, reason="`distutils` is there"
)
def test_spark_3_without_distutils_is_refused() -> None:
    """The hint says what brings it back."""
    with pytest.raises(UnsupportedError, match="imports `distutils`") as refused:
        check_libraries("3.5.9", pyarrow="18.0.0")
    assert 'pip install "setuptools<81"' in str(refused.value)


@pytest.mark.parametrize("spark", ["3.5.9", "4.0.4"])
def test_a_pyarrow_that_is_too_new_for_the_spark_is_refused(spark: str) -> None:
    """The hint has the pin. A batch runs all the same."""
    with pytest.raises(UnsupportedError, match=f"streams of Spark {spark} stop") as refused:
        check_libraries(spark, (3, 11), "26.0.1")
    assert 'pip install "pyarrow<26"' in str(refused.value)
    check_libraries(spark, (3, 11), "26.0.1", is_streaming=False)
    check_libraries(spark, (3, 11), "25.0.0")


@pytest.mark.parametrize("spark", ["4.0.5", "4.0.5+amzn.0", "4.0.5-amzn-0", "4.1.0.dev1"])
def test_a_spark_that_takes_any_pyarrow_is_known_by_its_first_numbers(spark: str) -> None:
    """Platforms add names of their own to the release."""
    check_libraries(spark, (3, 11), "26.0.1")


@pytest.mark.parametrize(("spark", "python"), [("3.5.9", (3, 11, 7)), ("4.0.0", (3, 13, 0))])
def test_other_releases_need_nothing_more(spark: str, python: tuple[int, ...]) -> None:
    """Python 3.11 has `distutils`, and Spark 4 doesn't import it."""
    check_libraries(spark, python, "18.0.0")


@pytest.mark.parametrize("missing", ["prometheus_client", "rich"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """With what needs it; other names of the package can still be had."""
    monkeypatch.setattr(_package, "find_spec", lambda name: None if name == missing else name)
    monkeypatch.delitem(vars(monitor), "watch", raising=False)

    with pytest.raises(UnsupportedError, match=f"`watch` needs {missing.replace('_', '-')}") as no:
        monitor.watch  # noqa: B018 (asking for it is the point)
    assert 'pip install "sessionkit-spark[monitor]"' in str(no.value)
    assert monitor.status is not None
    check_extra("avro", "fastavro", "the payload Avro")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment without any library; return where its Python is."""
    folder = tmp_path_factory.mktemp("environments") / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin"


def test_workers_of_a_python_without_pyarrow_are_refused(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which Python that is, what it lacks, and by what it is chosen; in a cluster nobody knows."""
    python = str(bare / "python3")
    # It has the libraries that the other tests give to the workers of their Spark.
    monkeypatch.delenv("PYTHONPATH", raising=False)

    with pytest.raises(UnsupportedError, match=f"with {python}, which has no attrs, ") as refused:
        check_workers("local[2]", python)
    assert "pyarrow" in str(refused.value).partition("\n")[0]
    assert "Hint: set PYSPARK_PYTHON, or spark.pyspark.python" in str(refused.value)
    assert sys.executable in str(refused.value)
    check_workers("local[2]", sys.executable)
    check_workers("spark://host:7077", python)
    check_workers("local[2]", "no-such-python")


def test_without_an_activated_environment_the_job_says_which_python_it_took(
    bare: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes `python3` of the path then. No query has started yet."""
    if is_connect(spark):
        pytest.skip("nobody here knows which Python the server takes")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PATH", str(bare), prepend=os.pathsep)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    columns = "key string, at timestamp, value long, gap interval day to second"
    spec = collecting(EventTimeGap(timedelta(minutes=10)))

    with pytest.raises(UnsupportedError, match=f"with {bare / 'python3'}, which has no attrs"):
        sessionize(spark.createDataFrame([], columns), spec)
