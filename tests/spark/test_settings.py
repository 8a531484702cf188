"""The Spark that a query runs on: its libraries, and the settings that matter."""

import os
import subprocess
import sys
import threading
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, SpecError, _package
from sessionkit._package import check_extra
from sessionkit.addons import monitor
from sessionkit.errors import UnsupportedError
from sessionkit.spark import (
    AtLeastOnce,
    Files,
    Temporary,
    recommended_settings,
    sessionize,
    start_query,
)
from sessionkit.spark._settings import (
    ARROW_LIMIT,
    CORES,
    SETTINGS,
    STOPS_OTHERS,
    Setting,
    advice_for_batch,
    check_libraries,
    check_workers,
    is_connect,
    said_if_silent,
    say_once,
    set_at_start,
)
from tests.support.queries import Events
from tests.support.session_specs import collecting
from tests.support.spark_settings import changed, spark_release
from tests.support.streams import needs_own_process

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
KNOWN = [setting for setting in SETTINGS if setting.in_release(pyspark.__version__)]


class Settings(dict[str, str]):
    """Settings of a session that nobody runs."""

    def unset(self, name: str) -> None:
        self.pop(name, None)

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def get(self, name: str, default: None = None) -> str | None:  # type: ignore[override]
        """Take no default but None: Spark refuses one that isn't of the setting's type."""
        return super().get(name, default)

    def isModifiable(self, name: str) -> bool:  # noqa: N802 (Spark's name)
        return self.get("fixed") != name


class Session:
    """What is asked of a session: its release and its settings."""

    def __init__(self, **settings: str) -> None:
        self.version, self.conf = "4.3.0", Settings(settings)


def test_the_settings_for_the_builder_are_those_of_this_spark() -> None:
    """All that this Spark has, as text; the rest of them may be set in a session that runs."""
    found = recommended_settings(8)

    assert [setting.name for setting in KNOWN] == [*found]
    assert "8" == found["spark.sql.shuffle.partitions"]
    assert {setting.name for setting in KNOWN if setting.until != "start of Spark"} == {
        *recommended_settings(8, running=True)
    }


@pytest.mark.parametrize("cores", [0, -1, True, "8", 1.5])
def test_a_number_of_cores_that_is_no_number_is_refused(cores: Any) -> None:
    """Nothing else becomes a setting."""
    with pytest.raises(SpecError, match="`cores` must be a whole number from 1"):
        recommended_settings(cores)


@pytest.mark.parametrize("setting", KNOWN, ids=lambda setting: setting.name)
def test_spark_takes_each_setting_when_the_table_says(
    spark: SparkSession, setting: Setting
) -> None:
    """What only a start can set is refused by a session that runs, and the rest isn't."""
    value = "2" if setting.value == CORES else setting.value
    if setting.until != "start of Spark":
        with changed(spark, {setting.name: value}):
            assert value == spark.conf.get(setting.name)
    elif spark_release() >= (4, 0):
        with pytest.raises(PySparkException, match="CANNOT_MODIFY"):
            spark.conf.set(setting.name, value)


def test_a_query_is_tuned_alone(spark: SparkSession, tmp_path: Path) -> None:
    """It runs under what is recommended, and its session has what it had."""
    needs_own_process(spark)
    frame = Events(spark, tmp_path).write().stream()
    names = [setting.name for setting in KNOWN if setting.until == "query starts"]
    before = [spark.conf.get(name, None) for name in names]
    seen: list[list[Any]] = []

    def note(batch: Any, _: int) -> None:
        seen.append([batch.sparkSession.conf.get(name) for name in names])

    arguments: Any = {"trigger": "availableNow", "checkpoint": Temporary(), "tune": True}
    start_query(frame, sink=AtLeastOnce(note), **arguments).awaitTermination()

    recommended = recommended_settings(2)
    assert [[recommended[name] for name in names]] == seen
    assert before == [spark.conf.get(name, None) for name in names]


def test_what_a_query_is_tuned_with_shows_in_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Only that query has changelogs, wherever it runs, and its session has what it had."""
    frame = Events(spark, tmp_path).write().stream().dropDuplicates(["key"])
    changelogs = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    found = []
    with changed(spark, {PROVIDER: ROCKSDB, changelogs: "false"}):
        for tune in (True, False):
            folder = tmp_path / str(tune)
            sink = Files("parquet", folder / "rows")
            arguments: Any = {"trigger": "availableNow", "checkpoint": folder / "c", "tune": tune}
            start_query(frame, sink=sink, **arguments).awaitTermination()
            found.append(any(folder.glob("c/state/**/*.changelog")))
            assert "false" == spark.conf.get(changelogs)

    assert [True, False] == found


def test_a_session_has_its_settings_again_after_a_failure() -> None:
    """Those that it had, and none that it hadn't."""
    most, changelogs = (one.name for one in SETTINGS if one.until == "query starts")
    session: Any = Session(**{most: "1m"})
    with pytest.raises(KeyError, match="2147483647 and true"), set_at_start(session, tune=True):
        session.conf[f"{session.conf[most]} and {session.conf[changelogs]}"]

    assert {most: "1m"} == session.conf


def test_a_query_of_another_session_is_kept_where_a_session_may_say_so() -> None:
    """Unless the user has said what becomes of it, or the platform has."""
    for given in ({}, {STOPS_OTHERS: "true"}, {"fixed": STOPS_OTHERS}):
        session: Any = Session(**given)
        with set_at_start(session, tune=False):
            assert (given or {STOPS_OTHERS: "false"}) == session.conf
        assert given == session.conf


def test_an_older_spark_is_not_asked_for_what_it_lacks() -> None:
    """A setting has the release that brought it."""
    first = {setting.name: setting.since for setting in SETTINGS}

    assert {(3, 5), (4, 0), (4, 1)} == {*first.values()}
    for setting in SETTINGS:
        assert setting.in_release(".".join(map(str, (*setting.since, 0))))
        assert not setting.in_release(f"{setting.since[0]}.{setting.since[1] - 1}.9")


def test_a_batch_says_what_to_set_where_nobody_has(spark: SparkSession) -> None:
    """Spark's own limit for Arrow batches is slow; whoever has set one has chosen it."""
    advice = advice_for_batch(spark)
    with changed(spark, {ARROW_LIMIT.name: "64m"}):
        assert None is advice_for_batch(spark)

    if ARROW_LIMIT.in_release(pyspark.__version__):
        assert advice is not None
        assert f'spark.conf.set("{ARROW_LIMIT.name}", "{ARROW_LIMIT.value}")' in advice
    else:
        assert None is advice


def test_an_advice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A process that makes many batches isn't told again."""
    for _ in range(2):
        say_once("this advice is of this test alone")
    assert ["this advice is of this test alone"] == caplog.messages


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
def test_a_spark_that_does_not_import_distutils_is_accepted_without_it(
    spark: str, python: tuple[int, ...]
) -> None:
    """Python 3.11 has `distutils`, and Spark 4 doesn't import it."""
    check_libraries(spark, python, "18.0.0")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what needs it; other names of the package can still be had."""
    monkeypatch.setattr(_package, "find_spec", lambda name: None if name == "rich" else name)

    with pytest.raises(UnsupportedError, match="`watch` needs rich") as no:
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


def test_a_server_that_does_not_answer_is_named() -> None:
    """PySpark tries again for minutes, without a word; classic Spark has no server."""
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    classic: Any = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    said, texts = threading.Event(), list[str]()

    def say(text: str) -> None:
        texts.append(text)
        said.set()

    with said_if_silent(remote, after_s=0.001, say=say):
        assert said.wait(60)
    with said_if_silent(remote, after_s=3600, say=say):
        pass
    before = threading.active_count()
    with said_if_silent(classic, after_s=3600, say=say):
        assert before == threading.active_count()

    (text,) = texts
    assert "Spark Connect hasn't answered at " in text
    assert "Hint: check the host and the port of SPARK_REMOTE" in text
