"""Functions of a batch on Sail in worker processes: their rows, their errors, and their ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    NoTimeout,
    SessionSpec,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import SpecError
from sessionkit.spark import apply_with_state, sessionize
from sessionkit.spark._sail import WORKERS
from sessionkit.spark.jobs.processes import FEWEST_EVENTS, in_processes
from tests.support.batches import frame_of, told_by_driver, told_by_engine
from tests.support.fragile_specs import Page, fragile
from tests.support.pages import ROOT
from tests.support.spark_settings import changed

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    {"user": pa.string(), "ts": pa.timestamp("us", "UTC"), "page": pa.string(), "n": pa.int64()}
)


def rows(number: int = 100) -> list[dict[str, Any]]:
    """Make views of five users; every tenth makes a fragile one fail."""
    return [
        {
            "user": "abcde"[n % 5],
            "ts": NOON + n * n * timedelta(seconds=20),
            "page": "/thanks" if n % 10 == 1 else "/",
            "n": n,
        }
        for n in range(number)
    ]


@attrs.define
class Doer:
    """A session, and the process that ran its last function."""

    process: int = 0
    pages: int = 0


@attrs.frozen
class Deed:
    process: int
    pages: int


def update(doer: Doer, view: Page) -> None:
    match view.page:
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(4)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "print":
            print("printed by a function")  # noqa: T201 (what users' functions do)
        case "need memory":
            bytearray(2**46)
        case _:
            pass
    doer.process, doer.pages = os.getpid(), doer.pages + 1


def merge(left: Doer, right: Doer) -> Doer:
    return Doer(left.process, left.pages + right.pages)


def finish(session: Any, doer: Doer) -> Deed:
    return Deed(doer.process, doer.pages)


def total(key: object, events: list[Page], state: KeyState[Any], times: KeyTimes) -> Page:
    return Page(max(event.page for event in events), sum(event.n for event in events))


VISITS = SessionSpec(
    keys={"user": str},
    event_time="ts",
    logic=Functions(event=Page, state=Doer, result=Deed, update=update, merge=merge, finish=finish),
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="1 hour",
)


@pytest.fixture(name="frame")
def _frame(spark: SparkSession) -> DataFrame:
    return frame_of(spark, pa.Table.from_pylist(rows(), SCHEMA))


@pytest.fixture(name="two_workers")
def _two_workers(spark: SparkSession) -> Iterator[None]:
    with changed(spark, {WORKERS: "2"}):
        yield


def doing(spark: SparkSession, page: str) -> list[Any]:
    """Run a batch of one event, over which the function does something."""
    event = {"user": "a", "ts": rows(1)[0]["ts"], "page": page, "n": 1}
    return sessionize(frame_of(spark, pa.Table.from_pylist([event], SCHEMA)), VISITS).collect()


def processes_of(spark: SparkSession, page: str = "/") -> set[int]:
    return {row.process for row in doing(spark, page)}


def test_a_small_batch_stays_in_the_server(frame: DataFrame, spark: SparkSession) -> None:
    """And so does each under the setting 0; by default, only many events are worth the way."""
    (by_default,) = processes_of(spark)
    with changed(spark, {WORKERS: "0"}):
        (by_setting,) = processes_of(spark)

    assert by_default == by_setting
    assert len(rows()) < FEWEST_EVENTS


@pytest.mark.usefixtures("two_workers")
def test_functions_run_in_other_processes_than_the_server(spark: SparkSession) -> None:
    """The next query finds the same ones."""
    workers = {*processes_of(spark), *processes_of(spark), *processes_of(spark)}
    with changed(spark, {WORKERS: "0"}):
        (server,) = processes_of(spark)

    assert 1 <= len(workers) <= 2
    assert server not in workers


def test_aggregates_stay_in_the_server(frame: DataFrame, spark: SparkSession) -> None:
    """They leave most work to Arrow."""
    spec = SessionSpec.aggregate(
        Page, {"n": agg.count()}, keys={"user": str}, event_time="ts", gap="30 minutes",
        watermark_delay="1 hour",
    )  # fmt: skip

    with changed(spark, {WORKERS: "2"}):
        assert in_processes(Worker(logic_of(spec)), spark) is None
        assert in_processes(Worker(logic_of(VISITS)), spark) is not None
        assert told_by_driver(rows(), spec, ["n"]) == told_by_engine(frame, spec, ["n"])


@pytest.mark.usefixtures("two_workers")
def test_rows_are_those_of_the_driver(frame: DataFrame) -> None:
    """Sessions by functions with rejected rows, and state per key."""
    spec = fragile(on_error="reject")
    of_keys = StatefulSpec(
        keys={"user": str}, event=Page, state=Page, result=Page, process=total, timeout=NoTimeout()
    )

    assert told_by_driver(rows(), spec, ["pages"]) == told_by_engine(frame, spec, ["pages"])
    assert {row.user: row.n for row in apply_with_state(frame, of_keys).collect()} == {
        user: sum(row["n"] for row in rows() if row["user"] == user) for user in "abcde"
    }


def test_an_error_of_a_function_says_the_same_as_in_the_server(
    frame: DataFrame, spark: SparkSession
) -> None:
    """To the letter: what failed, for which key, in which line, and what to do."""
    told = []
    for workers in ("0", "2"):
        with changed(spark, {WORKERS: workers}), pytest.raises(Exception, match="no thanks") as got:
            sessionize(frame.where("user = 'b'"), fragile()).collect()
        told.append(str(got.value).partition("\n\nThe above exception")[0])

    assert told[0] == told[1]
    assert "Hint: fix the function" in told[0]


@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("exit", r"a worker process ended while it ran functions.*EXIT\(3\)"),
        ("kill", r"a worker process ended while it ran functions.*SIGKILL\(-9\)"),
        ("sys.exit", r"a function called sys.exit\(4\)"),
        ("need memory", "MemoryError"),
    ],
)
def test_the_query_after_one_that_ends_its_worker_runs(
    spark: SparkSession, page: str, told: str
) -> None:
    """The first fails in our words, whatever took its process away."""
    with pytest.raises(Exception, match=told):
        doing(spark, page)

    assert [1] == [row.pages for row in doing(spark, "print")]


def test_a_setting_that_is_no_number_is_refused(frame: DataFrame, spark: SparkSession) -> None:
    """On the driver, before the query."""
    for wrong in ("-1", "many", "1.5"):
        with changed(spark, {WORKERS: wrong}), pytest.raises(SpecError, match="a whole number"):
            sessionize(frame, VISITS)


SCRIPT = """
import os
import sys
import time

print("begins", flush=True)

import attrs
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from sessionkit import SessionSpec
from sessionkit.spark import sessionize

@attrs.define
class View:
    n: int

@attrs.define
class Visit:
    process: int = 0

    def update(self, view: View) -> None:
        self.process = os.getpid()
        if view.n:
            print(f"hangs in {self.process}", flush=True)
            time.sleep(1_000)

    def merge(self, other: "Visit") -> None:
        pass

server = SparkConnectServer()
server.start()
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
spark.conf.set("spark.sessionkit.workers", "2")
visits = SessionSpec.of(
    Visit, keys={"name": str}, event_time="ts", gap="1 hour", watermark_delay="1 hour"
)
for n in map(int, sys.argv[1]):
    event = spark.sql(f"SELECT 'a' AS name, timestamp'2026-03-08 10:00:00' AS ts, {n}L AS n")
    (row,) = sessionize(event, visits).collect()
    print("ran in", row.process, "not in", os.getpid(), flush=True)
"""
"""A script as many are: without `if __name__ == "__main__"`, and with its classes in it."""


def start(tmp_path: Path, events: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script), events],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def shared(server: int) -> set[str]:
    """Return what a server and its workers have in the machine's shared memory."""
    return {path.name for path in Path("/dev/shm").glob(f"*loky-{server}-*")}  # noqa: S108 (only looked at)


def members(group: int) -> list[int]:
    """Return the processes of a group that run."""
    command = ["ps", "-A", "-o", "pid=,pgid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = (line.split() for line in listed.splitlines())
    return [int(pid) for pid, own, state in found if int(own) == group and state[0] != "Z"]


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.2)
    assert holds()


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Its classes and functions come to the workers by value, and nothing is left at its end."""
    script = start(tmp_path, "00")
    out, _ = script.communicate(timeout=300)

    lines = out.splitlines()
    assert 0 == script.returncode
    assert ["begins"] == lines[:1]
    assert ["ran in", "ran in"] == [line[:6] for line in lines[1:]]
    for line in lines[1:]:
        _, _, worker, _, _, server = line.split()
        assert worker != server
    wait_until(lambda: not members(script.pid))
    assert not shared(script.pid)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "to_all"),
    [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGKILL, False)],
)
def test_no_process_outlives_a_server(
    tmp_path: Path, sent: signal.Signals, *, to_all: bool
) -> None:
    """Neither Ctrl-C, nor the end of the server alone, leaves the worker whose function hangs."""
    with start(tmp_path, "01") as script:
        assert script.stdout is not None
        hanging = next(line for line in script.stdout if line.startswith("hangs in"))
        if to_all:
            os.killpg(script.pid, sent)
            # PySpark's client may ask a server that is no more, for minutes.
            wait_until(lambda: int(hanging.split()[-1]) not in members(script.pid))
            script.kill()
        else:
            script.send_signal(sent)

    wait_until(lambda: not members(script.pid))
    assert not shared(script.pid)


@pytest.mark.long
@pytest.mark.usefixtures("two_workers")
def test_a_worker_killed_at_any_instant_fails_its_query_and_no_other(spark: SparkSession) -> None:
    """The query gives all rows or our words, at ten instants; the next query gives all rows."""
    number = np.arange(300_000)
    events = {"user": number % 3_000, "ts": number * 1_000_000, "page": ["/"] * len(number)}
    table = pa.table({**events, "n": number}).cast(SCHEMA)
    sessions = sessionize(frame_of(spark, table), VISITS)

    def counted() -> int:
        return sum(row.pages for row in sessions.collect())

    begun = time.monotonic()
    assert len(number) == counted()
    whole = time.monotonic() - begun
    told = []
    for tenth in range(1, 11):
        (worker,) = processes_of(spark)
        killed = Timer(whole * tenth / 10, kill, (worker,))
        killed.start()
        try:
            told.append(str(counted()))
        except Exception as error:  # noqa: BLE001 (Sail decides on the class)
            told.append(str(error))
        killed.join()
        assert len(number) == counted()

    assert any("SIGKILL(-9)" in text for text in told)
    ours = ("a worker process ended while it ran functions", str(len(number)))
    assert [] == [text for text in told if not any(one in text for one in ours)]


@pytest.mark.long
@pytest.mark.usefixtures("two_workers")
def test_a_thousand_queries_leave_nothing(spark: SparkSession) -> None:
    """They share two processes, and what these share with the server stays as large."""
    with changed(spark, {WORKERS: "0"}):
        (server,) = processes_of(spark)
    workers = processes_of(spark)
    before = shared(server)
    for _ in range(1_000):
        workers |= processes_of(spark)

    assert len(workers) <= 2
    # It may be less: workers that died in another test are forgotten by now.
    assert shared(server) <= before
