"""What a checkpoint remembers, read as lists, as DataFrames, and for one key."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import (
    EventTimeGap,
    KeyState,
    KeyTimes,
    SessionkitError,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
)
from sessionkit.aggregates import collect, count
from sessionkit.errors import StateCorruptedError, StateError, UnsupportedError
from sessionkit.spark import (
    Files,
    check_checkpoint,
    migrate,
    read_erasures,
    read_state,
    state_changes,
    state_frame,
)
from sessionkit.spark.checkpoints.state_reader import with_clear_errors
from tests.support.session_specs import Reading, in_order
from tests.support.streams import FileStream, begun_at, with_gap

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP = timedelta(minutes=10)


@attrs.define
class Seen:
    total: int
    note: str | None = None


@attrs.frozen
class Nothing:
    """No result."""


@attrs.frozen
class Value:
    value: int


def remember(key: Any, events: list[Value], state: KeyState[Seen], times: KeyTimes) -> None:
    """Add up, and set a timer for half of the keys."""
    state.set(Seen(state.get(Seen(0)).total + sum(event.value for event in events)))
    if key.value % 2:
        times.set_event_timer("later", NOON + timedelta(hours=1))


def on_timer(key: Any, name: str, state: KeyState[Seen], times: KeyTimes) -> None:
    """Do nothing."""


def remembering(layout: Any = "buckets") -> StatefulSpec[Any, Any, Any]:
    """Return a spec with keys of two columns."""
    return StatefulSpec(
        keys={"key": str, "value": int},
        event_time="at",
        event=Value,
        state=Seen,
        result=Nothing,
        process=remember,
        on_timer=on_timer,
        timeout=EventTimeGap(GAP),
        watermark_delay="1 hour",
        storage=Storage(layout=layout),
    )


@attrs.frozen
class Result:
    n: int
    values: list[int]


def table(first: datetime) -> pa.Table:
    """Return two events of each of twenty keys."""
    places = [n for n in range(20) for _ in range(2)]
    return pa.table(
        {
            "key": [f"key {n}" for n in places],
            "at": pa.array(
                [first + timedelta(seconds=n) for n in range(40)], pa.timestamp("us", tz="UTC")
            ),
            "value": places,
        }
    )


def in_zone(rows: list[Any]) -> list[Any]:
    """Return rows of Spark as plain values, their instants in UTC."""
    return [plain(row.asDict(recursive=True)) for row in rows]


def plain(value: Any) -> Any:
    """Return a value with its instants in UTC, and objects as dicts."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if attrs.has(type(value)):
        return plain({f.name: getattr(value, f.name) for f in attrs.fields(type(value))})
    return value


def by_key(found: dict[str, Any]) -> Any:
    return tuple(found["key"].values())


SPECS: dict[str, Any] = {
    "pages, with events that wait": in_order(EventTimeGap(GAP), storage=Storage(layout="pages")),
    "aggregates": SessionSpec.aggregate(
        Reading,
        {"n": count(), "values": collect("value", at_most=10)},
        result=Result,
        keys={"key": str},
        event_time="at",
        gap=GAP,
        watermark_delay="0 seconds",
    ),
    "in buckets, with rules that cut": in_order(
        SessionRules(GAP, max_events=2), watermark_delay=GAP
    ),
    "keys in buckets": remembering(),
}


MARKS: Final = {
    "pages, with events that wait": pytest.mark.long,
    "aggregates": pytest.mark.nightly,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SPECS])
def test_a_frame_has_what_the_list_has(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The frame and the list are equal, of all keys and of one, for each way to store them."""
    spec = SPECS[name]
    stream = FileStream(spark, spec, tmp_path, shape=with_gap)
    listed: Callable[..., list[Any]] = read_state
    key: Any = ("key 7", 7) if isinstance(spec, StatefulSpec) else "key 7"
    begun_at(Path(stream.checkpoint))
    assert 0 == state_frame(stream.checkpoint, spec, spark=spark).count()
    stream.put(table(NOON))
    stream.run()

    everything = sorted(map(plain, listed(stream.checkpoint, spec, spark=spark)), key=by_key)
    found = in_zone(state_frame(stream.checkpoint, spec, spark=spark).collect())
    one = state_frame(stream.checkpoint, spec, key=key, spark=spark)

    assert 20 == len(everything)
    assert everything == sorted(found, key=by_key)
    only = [entry for entry in everything if entry["key"]["key"] == "key 7"]
    assert only == in_zone(one.collect())
    assert only == [plain(o) for o in listed(stream.checkpoint, spec, key=key, spark=spark)]
    if isinstance(spec, StatefulSpec):
        change = state_changes(stream.checkpoint, spec, since=-1, key=key, spark=spark)
        assert [{"batch": 0, "change": "new", **only[0]}] == in_zone(change.collect())
    with pytest.raises(SessionkitError, match="pass a value for each of them"):
        state_frame(stream.checkpoint, spec, key=("a", "b", "c"), spark=spark)


@pytest.mark.nightly
def test_a_state_is_read_whatever_its_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's reader would escape some characters twice, and find no micro-batch."""
    spec, odd = SPECS["aggregates"], tmp_path / "a place, 100% [of] {it} #1 ü+"
    stream = FileStream(spark, spec, odd, shape=with_gap, files=tmp_path / "in")
    stream.put(table(NOON))
    stream.run_to(Files("parquet", odd / "out"))
    stream.put(table(NOON + timedelta(minutes=5)))
    stream.run_to(Files("parquet", odd / "out"))
    check_checkpoint(stream.checkpoint, spec, deep=True, spark=spark)

    assert [4] * 20 == [one.state.n for one in read_state(stream.checkpoint, spec, spark=spark)]
    assert 20 == state_frame(stream.checkpoint, spec, spark=spark).count()
    seed = migrate(stream.checkpoint, spec, spec, str(tmp_path / "seed"), spark=spark)
    assert str(tmp_path / "seed") == seed.path
    other = attrs.evolve(spec, timeout=EventTimeGap("1 day"))
    with pytest.raises(StateError, match="gap"):
        attrs.evolve(stream, spec=other).run_to(Files("parquet", odd / "out"))
    with pytest.raises(SpecError, match="a stream takes the folder"):
        read_erasures(stream.checkpoint, spec, spark=spark)


READS_ALONE: Final = """
import sys
from pyspark.sql import SparkSession
from sessionkit.spark import read_state
from tests.spark.checkpoints.test_reading import SPECS

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
print(len(read_state(sys.argv[1], SPECS["aggregates"], spark=spark)))
"""


@pytest.mark.nightly
@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_a_session_that_has_run_no_stream_reads_state(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.1 and 4.2 fail there, and the error said that the state is damaged."""
    stream = FileStream(spark, SPECS["aggregates"], tmp_path, shape=with_gap)
    stream.put(table(NOON))
    stream.run_to(Files("parquet", tmp_path / "out"))

    command = [sys.executable, "-c", READS_ALONE, str(stream.checkpoint)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "20" == found.stdout.strip(), found.stderr


def test_state_in_another_format_is_not_called_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks for its files under other names than they have, unless a setting says so."""
    partition = tmp_path / "state" / "0" / "0"
    partition.mkdir(parents=True)
    missing = RuntimeError(f"CANNOT_LOAD_STATE_STORE: {partition}/1.changelog")

    with pytest.raises(StateCorruptedError), with_clear_errors(str(tmp_path), spark):
        raise missing
    (partition / f"1_{uuid4()}.changelog").write_text("what it has doesn't matter")
    with (
        pytest.raises(UnsupportedError, match=r"FormatVersion=2\n\nHint: spark.conf.set"),
        with_clear_errors(str(tmp_path), spark),
    ):
        raise missing


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.hadoop.security.AccessControlException: Permission denied: user=ann",
        "java.lang.OutOfMemoryError: Java heap space",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "java.net.UnknownHostException: bucket.example.org",
    ],
)
def test_what_leaves_the_state_as_it_is_is_not_called_damage(
    spark: SparkSession, tmp_path: Path, cause: str
) -> None:
    """The hint for damage is to start a new checkpoint: Spark's own error comes instead."""
    failed = f"[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] {tmp_path}/state/0/0\nCaused by: {cause}"

    with pytest.raises(RuntimeError) as raised, with_clear_errors(str(tmp_path), spark):
        raise RuntimeError(failed)

    assert failed == str(raised.value)


VALUES, STORED = in_order(EventTimeGap(GAP)), remembering()
READERS: dict[str, Callable[[str], Any]] = {
    "read_state": lambda path: read_state(path, VALUES),
    "state_frame": lambda path: state_frame(path, VALUES).collect(),
    "of a key": lambda path: read_state(path, VALUES, key="ann"),
    "read_state of keys": lambda path: read_state(path, STORED),
    "state_frame of keys": lambda path: state_frame(path, STORED).collect(),
    "with pages": lambda path: read_state(path, remembering("pages")),
    "state_changes": lambda path: state_changes(path, VALUES, since=-1).collect(),
    "state_changes of keys": lambda path: state_changes(path, STORED, since=-1).collect(),
    "check_checkpoint": lambda path: check_checkpoint(path, VALUES),
    "deep": lambda path: check_checkpoint(path, VALUES, deep=True),
}


@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(name, marks=() if name == "read_state" else pytest.mark.nightly)
        for name in READERS
    ],
)
def test_a_path_without_a_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    """It isn't one without state: a misspelt path, or a folder that has the checkpoint in it."""
    begun_at(tmp_path / "checkpoint")
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(SessionkitError) as caught:
            READERS[reader](str(path))
        found, _, hint = str(caught.value).partition("\n\nHint: ")
        assert found.startswith(f"there is no checkpoint at {path}: ")
        assert hint

    assert not READERS[reader](str(tmp_path / "checkpoint"))
