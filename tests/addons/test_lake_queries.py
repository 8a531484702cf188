"""Two queries that write to a lake in one session, killed and started again: each row once."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit.addons.merging import SESSION_OF_ITS_OWN
from sessionkit.errors import UnsupportedError
from sessionkit.spark import start_query
from sessionkit.spark._settings import is_connect
from tests.support.figures import FIGURES, Record
from tests.support.lake_job import LakeName, settings, table_in
from tests.support.lakes import DELTA, FOLDERS, LAKES, lake_of, rows_in
from tests.support.local_files import cuts
from tests.support.ports import free_ports
from tests.support.spark_settings import spark_release
from tests.support.streams import write_files

ROOT: Final = Path(__file__).parents[2]
JOB: Final = ROOT / "tests" / "support" / "lake_job.py"
KILLS: Final = int(os.environ.get("KILLS", "2"))
SEED: Final = int(os.environ.get("SEED", "7"))
FIRST_CUT, LAST_CUT = map(int, os.environ.get("CUTS", "0-999").split("-"))
TABLES: Final = ("one", "two")
FILES, ROWS_A_FILE = 3 * KILLS + 2, 5
SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
IS_SHARED: Final = spark_release() < SESSION_OF_ITS_OWN


def put_events(folder: Path) -> dict[str, list[int]]:
    """Write the files of two streams, with other values in each; return the values."""
    values = {}
    for number, name in enumerate(TABLES):
        events = folder / "events" / name
        events.mkdir(parents=True)
        values[name] = [*range(1000 * number, 1000 * number + FILES * ROWS_A_FILE)]
        for place in range(FILES):
            rows = values[name][place * ROWS_A_FILE : (place + 1) * ROWS_A_FILE]
            path = events / f"{place:02}.parquet"
            pq.write_table(pa.table({"value": pa.array(rows, pa.int64())}), path)
            os.utime(path, (1_700_000_000 + place, 1_700_000_000 + place))
    return values


def variables(address: str | None) -> dict[str, str]:
    own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return {**kept, **own, **({} if address is None else {"SPARK_REMOTE": address})}


@contextmanager
def group_of(
    command: list[str], env: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a group of processes of its own, of which none is left in the end."""
    with log.open("w") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def spark_for(spark: SparkSession, folder: Path) -> Iterator[str | None]:
    """Run a Connect server with the lake, if the tests run on Connect; give its address."""
    if not is_connect(spark):
        yield None
        return
    (port,) = free_ports(1)
    own = {**settings(str(folder)), "spark.connect.grpc.binding.port": str(port)}
    chosen = [part for name, value in own.items() for part in ("--conf", f"{name}={value}")]
    submit = str(Path(sys.executable).with_name("spark-submit"))
    server = [submit, "--master", "local[2]", *chosen, "--class", SERVER, "spark-internal"]
    with group_of(server, variables(None), folder / "server") as process:
        while process.poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"


def without_frames(log: Path) -> str:
    """Return the end of what a job has written, without where in Spark's code it was."""
    lines = [line for line in log.read_text().splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines)[-8000:]


def commits(folder: Path, lake: LakeName) -> int:
    log = "_delta_log/*.json" if lake == "delta" else "metadata/*.metadata.json"
    return sum(len([*Path(table_in(str(folder), name, lake)).glob(log)]) for name in TABLES)


@pytest.mark.parametrize(
    "lake", [pytest.param(name, marks=pytest.mark.cell(name)) for name in ("delta", "iceberg")]
)
@pytest.mark.parametrize("keyed", ["no", "yes"])
def test_no_row_of_two_queries_is_lost_or_doubled(
    keyed: str, lake: LakeName, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Each kill ends driver and JVM at once, some time after both tables have grown."""
    values, rng = put_events(tmp_path), random.Random(SEED)
    job = [sys.executable, str(JOB), str(tmp_path), keyed, lake]
    log, killed = tmp_path / "log", 0
    for attempt in range(KILLS + 1):
        before = commits(tmp_path, lake)
        with (
            spark_for(spark, tmp_path) as address,
            group_of(job, variables(address), log) as process,
        ):
            if attempt == KILLS:
                assert 0 == process.wait(), without_frames(log)
                break
            while process.poll() is None and commits(tmp_path, lake) < before + 2:
                time.sleep(0.05)
            time.sleep(rng.random())
            killed += process.poll() is None
    tables = {name: table_in(str(tmp_path), name, lake) for name in TABLES}
    found = {
        name: sorted(row.value for row in spark.read.format(lake).load(table).collect())
        for name, table in tables.items()
    }

    assert values == found
    way = "Connect" if is_connect(spark) else "classic"
    kind = f"{lake}, {way}, {'merged' if keyed == 'yes' else 'appended'}"
    record_property(FIGURES, f"{kind}: killed {killed} times, each row of two queries once")


def run_to_the_end(*starts: Callable[[], StreamingQuery]) -> None:
    """Start queries, wait until none of them runs, and raise the first error."""
    errors, queries = list[Exception](), list[StreamingQuery]()
    for start in starts:
        try:
            queries.append(start())
        except Exception as error:  # noqa: BLE001 (whatever a file system that refuses leads to)
            errors.append(error)
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.mark.long
@pytest.mark.parametrize("name", [DELTA, FOLDERS])
def test_a_row_is_there_once_wherever_changes_to_files_end(
    name: str, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Those of a table, of its log, and of a checkpoint: as if the driver were killed there."""
    lake = lake_of(name, spark, tmp_path)
    there = 0

    def start(table: str) -> StreamingQuery:
        events = spark.readStream.schema("value long").parquet(f"{tmp_path}/events/{table}")
        return start_query(
            events,
            sink=lake.sink(table, key="value" if table == "two" else ()),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoints" / table,
        )

    def run() -> None:
        run_to_the_end(*(partial(start, table) for table in TABLES))

    for cut in islice(cuts(spark), FIRST_CUT, LAST_CUT + 1):
        for table in TABLES:
            rows = pa.table({"value": [2 * there, 2 * there + 1]})
            write_files(tmp_path / "events" / table, [rows], first=there)
        there += 1
        with cut.made():
            run()
        run()
        for table in TABLES:
            assert [(n,) for n in range(2 * there)] == rows_in(lake, table, "value"), cut.after
    record_property(FIGURES, f"{name}: two queries cut off {there} times, each row once")


@pytest.mark.skipif(not IS_SHARED, reason="not run: each query has a session of its own")
@pytest.mark.cell("connect")
@pytest.mark.parametrize("name", LAKES)
def test_a_second_merge_in_a_shared_session_is_refused(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """On Connect, before the query starts; once the first one has stopped, it may start."""
    rows = spark.readStream.format("rate").load().select("value")
    lake = lake_of(name, spark, tmp_path)

    def start(checkpoint: str) -> StreamingQuery:
        sink: Any = lake.sink("visits", key="value")
        place = tmp_path / "checkpoints" / checkpoint
        return start_query(rows, sink=sink, trigger="1 second", checkpoint=place)

    first = start("one")
    try:
        with pytest.raises(UnsupportedError, match="checkpoints/one merges rows") as refused:
            start("two")
    finally:
        first.stop()
    assert "Hint:" in str(refused.value)
    start("two").stop()
