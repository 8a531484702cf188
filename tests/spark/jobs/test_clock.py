"""Times that move the watermark, next to the events: a job that flushes what is still open."""

from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import NoTimeout, SchemaError, SpecError, StatefulSpec, Storage
from sessionkit.spark import apply_with_state, sessionize
from tests.support.streams import FileStream, write_files
from tests.support.visits import MINUTE, NOON, SESSIONS, View, views

SPEC = attrs.evolve(SESSIONS, storage=Storage(bucket_count=2))
INSTANT = pa.timestamp("us", tz="UTC")


def of_ann(*minutes: float) -> pa.Table:
    return views(*(("ann", one) for one in minutes))


def clock(minutes: int) -> pa.Table:
    """Return one time of the clock, and none."""
    return pa.table({"at": pa.array([NOON + minutes * MINUTE, None], INSTANT)})


@pytest.mark.nightly
def test_a_row_of_the_clock_closes_open_sessions_and_is_no_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After the last event one time ends its session; it counts as no row, and isn't lost."""
    stream = FileStream(spark, SPEC, tmp_path, with_rejected=True, has_clock=True)
    (tmp_path / "clock").mkdir()
    stream.put(of_ann(0, 5))
    first = stream.run()
    assert not stream.rows()

    write_files(tmp_path / "clock", [clock(44)])
    stream.run()
    assert not stream.rows()
    write_files(tmp_path / "clock", [clock(45)], first=1)
    flushed = stream.run()
    assert [(row["kind"], row["user"], row["views"]) for row in stream.rows()] == [
        ("session", "ann", 2)
    ]
    stream.put(of_ann(1, 44))
    later = stream.run()
    assert sum(counts.late for counts in later) == 1
    counts = [*first, *flushed, *later]
    assert all(one.is_balanced for one in counts)
    assert sum(one.events for one in counts) == 4


def process(key: Any, events: list[View], state: Any, times: Any) -> None:
    """Do nothing."""


def test_what_cannot_be_a_clock_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A batch has no clock, nor has a spec without a watermark; and a clock is one timestamp."""
    write_files(tmp_path / "in", [of_ann(0)])
    batch = spark.read.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(batch.schema).parquet(str(tmp_path / "in"))
    times = stream.select("at")
    with pytest.raises(SpecError, match="`clock` is a batch, and only streams take `clock`"):
        sessionize(stream, SPEC, clock=batch.select("at"))
    with pytest.raises(SpecError, match="`events` is a batch, and only streams take `clock`"):
        sessionize(batch, SPEC, clock=times)
    with pytest.raises(SchemaError, match="`clock` must have one column, a timestamp"):
        sessionize(stream, SPEC, clock=stream)
    timeless = StatefulSpec(
        process=process,
        keys={"user": str},
        event=View,
        state=View,
        result=View,
        timeout=NoTimeout(),
    )
    with pytest.raises(SpecError, match="`clock` moves a watermark, and the spec has none"):
        apply_with_state(stream, timeless, clock=times)
