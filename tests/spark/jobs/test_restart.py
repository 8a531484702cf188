"""A query that is stopped and started again gives what one run gives."""

from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, SessionSpec, Storage
from sessionkit._instants import span_us
from sessionkit.spark import sessionize
from tests.support.naive_sessions import Event, naive_sessions
from tests.support.session_specs import collecting, in_order, remembering
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP, DELAY = timedelta(minutes=10), timedelta(minutes=20)
END = Event("the end", NOON + timedelta(days=1), 0, GAP)
"""Closes the sessions of all other keys."""


def timeline() -> list[list[Event]]:
    """Return two batches of events, out of order by less than the delay."""
    random = Random(7)
    events = [
        Event(
            f"k{random.randrange(12)}", NOON + timedelta(seconds=random.randrange(4 * 3600)), n, GAP
        )
        for n in range(400)
    ]
    arrived = sorted(events, key=lambda e: e.at + timedelta(seconds=random.randrange(1199)))
    return [arrived[:200], arrived[200:]]


def table(events: list[Event]) -> pa.Table:
    """Return events as the rows of a file."""
    return pa.table(
        {
            "key": [event.key for event in events],
            "at": pa.array([event.at for event in events], pa.timestamp("us", tz="UTC")),
            "value": [event.value for event in events],
            "gap_us": [span_us(event.gap) for event in events],
        }
    )


def with_interval(rows: DataFrame) -> DataFrame:
    """Give the gap its type; Parquet knows no durations that Spark would read."""
    nothing, seconds = F.lit(0), (F.col("gap_us") / F.lit(1_000_000)).cast("decimal(18,6)")
    return rows.select(
        "key", "at", "value", F.make_dt_interval(nothing, nothing, nothing, seconds).alias("gap")
    )


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        pytest.param(in_order, "buckets", marks=pytest.mark.nightly),
        (remembering, "buckets"),
        pytest.param(remembering, "pages", marks=pytest.mark.long),
        pytest.param(collecting, "buckets", marks=pytest.mark.long),
        pytest.param(in_order, "pages", marks=pytest.mark.long),
    ],
)
def test_rows_are_the_same_with_a_restart_after_every_batch(
    spark: SparkSession, tmp_path: Path, make: Any, layout: Any
) -> None:
    """
    Rows are equal to those of a batch, and to what a model finds.

    Each restart may have another delay: the watermark waits until it's ahead again.
    """
    spec: SessionSpec[Any, Any, Any] = make(
        EventTimeGap(GAP),
        watermark_delay=DELAY,
        storage=Storage(bucket_count=4, layout=layout),
    )
    stream = FileStream(spark, spec, tmp_path, shape=with_interval)
    for longer, events in zip(cycle((1, 3)), [*timeline(), [END]]):
        stream.put(table(events))
        attrs.evolve(stream, spec=attrs.evolve(spec, watermark_delay=DELAY * longer)).run()

    everything = sessionize(stream.batch(), spec)
    whole = everything.where(F.col("key") != END.key).collect()
    rows = stream.rows()
    told = [sorted((row.session_id, row.events) for row in found) for found in (whole, rows)]
    assert told[0] == told[1]
    assert (make is in_order) != any(row.events > len(row["values"]) for row in rows)
    model = naive_sessions(event for events in timeline() for event in events)
    expected = [found.values for found in model]
    if make is not in_order:
        expected = [tuple(sorted(one)) for one in expected]
    assert sorted(expected) == sorted(tuple(row["values"]) for row in rows)
