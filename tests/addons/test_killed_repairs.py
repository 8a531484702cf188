"""A repair of a lake's table that is killed with its JVM, while the stream goes on elsewhere."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sessionkit.addons.repair import repair
from sessionkit.spark import sessionize
from tests.support.figures import FIGURES, Record
from tests.support.killed_repair import BEGUN, Task, settings_of
from tests.support.lakes import DELTA, FOLDERS, Lake, lake_of, rows_in
from tests.support.repairs import MINUTE, NOON, Right, Wrong, events_in, history_of, spec_of
from tests.support.streams import FileStream

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 300.0
KILLS: Final = int(os.environ.get("KILLS", "2"))
KEYS: Final = [f"key {number}" for number in range(50)]
DAY: Final = timedelta(days=1)
TABLE: Final = "sessions"
COLUMNS: Final = ("key", "session_id", "session_start", "values")
WORDS: Final = ("another commit to", "had another commit during")
"""What a repair, or the stream, says where the other one was first."""

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]


@contextmanager
def repairing(task: Task, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a repair in a process with a JVM of its own, and kill both at the end."""
    path = folder / "task"
    path.write_bytes(pickle.dumps(task))
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_repair", str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)
            process.wait(PATIENCE_S)


def said(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the next line of a repair; nothing where it has failed."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def events_of(day: int) -> list[Any]:
    """Return the events of a day, none of them late."""
    events = history_of(Random(day), KEYS, 200 if day else 1500)
    return sorted(((key, at + day * DAY, value) for key, at, value in events), key=itemgetter(1))


def sessions_of(stream: FileStream, state: type[Right]) -> list[Any]:
    """Return what a batch gives over all that a stream has read, but for the tick."""
    frame = sessionize(stream.batch(), spec_of(state)).select(*COLUMNS).where("key <> 'tick'")
    return sorted(tuple(row) for row in frame.collect())


def split(rows: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the sessions of the first day, which is repaired, and the others."""
    end = (NOON + DAY).astimezone().replace(tzinfo=None)
    return [row for row in rows if row[2] < end], [row for row in rows if row[2] >= end]


def spoil(lake: Lake, rows: list[Any]) -> None:
    """Let sessions be as they were before their repair."""
    schema = "key string, session_id string, session_start timestamp, values array<bigint>"
    lake.spark.createDataFrame(rows, schema).createOrReplaceTempView("spoiled")
    lake.spark.sql(
        f"MERGE INTO {lake.name(TABLE)} AS old USING spoiled AS new"
        " ON old.session_id = new.session_id WHEN MATCHED THEN UPDATE SET old.values = new.values"
    )


@pytest.mark.parametrize("name", [DELTA, FOLDERS])
def test_a_killed_repair_has_changed_all_or_nothing(
    name: str, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """Killed at any of its moments, while the stream writes to the table; no row is lost."""
    lake = lake_of(name, spark, tmp_path)
    sink, stream = lake.sink(TABLE), FileStream(spark, spec_of(Wrong), tmp_path / "job")
    stream.put(events_in(events_of(0)), events_in(events_of(1)))
    stream.run_to(sink)
    spoiled, _ = split(rows_in(lake, TABLE, *COLUMNS))
    right, _ = split(sessions_of(stream, Right))
    assert spoiled != right
    assert [row[1] for row in spoiled] == [row[1] for row in right]
    task = Task(sink, stream.source, stream.checkpoint, settings_of(spark), NOON + DAY)
    ends, whole_s = Counter[str](), 0.0
    for number in range(-1, KILLS):  # the first isn't killed
        stream.put(events_in(events_of(number + 3)))
        with repairing(task, tmp_path) as process:
            assert BEGUN == said(process)["said"]
            begun, failed = time.monotonic(), list[StreamingQueryException]()
            writing = Thread(target=write_to, args=(stream, sink, failed))
            writing.start()
            if number < 0:
                ends["repair: " + said(process).get("said", "failed")] += 1
                whole_s = time.monotonic() - begun
            else:
                time.sleep(whole_s * (number + 0.5) / KILLS)
        writing.join()
        for error in failed:
            assert any(word in str(error) for word in WORDS), error
            ends["stream: ended in our words"] += 1
            stream.run_to(sink)
        first_day, _ = split(rows_in(lake, TABLE, *COLUMNS))
        assert first_day in (spoiled, right)
        ends["all" if first_day == right else "nothing"] += 1
        spoil(lake, spoiled)
    end = NOON + (KILLS + 4) * DAY
    stream.put(events_in([("tick", end, 0)]), events_in([("tick", end + 100 * MINUTE, 1)]))
    stream.run_to(sink)
    done = repair(
        sink,
        spec_of(Right),
        stream.batch(),
        checkpoint=stream.checkpoint,
        between=(None, NOON + DAY),
    )
    found = split([row for row in rows_in(lake, TABLE, *COLUMNS) if row[0] != "tick"])
    _, later = split(sessions_of(stream, Wrong))
    figures = f"{KILLS} kills within {whole_s:.1f} s: {dict(ends)}; {len(right) + len(later)} rows"
    record_property(FIGURES, f"repair of {name}, {figures}, the last repair: {done.counts}")

    assert (right, later) == found


def write_to(stream: FileStream, sink: Any, failed: list[StreamingQueryException]) -> None:
    try:
        stream.run_to(sink)
    except StreamingQueryException as error:
        failed.append(error)
