"""How a query stands: what its buckets say, added up, against what its checkpoint has."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import Storage
from sessionkit._engine.counts import DurationSketch
from sessionkit.addons.monitor.query_status import QueryStatus
from tests.support.progress import progress_of
from tests.support.streams import FileStream
from tests.support.visits import MINUTE, NOON, SESSIONS, views

FIRST = views(*((f"u{n}", n) for n in range(6)), (None, 3))
SECOND = views(("u0", 38), ("u1", 100))
THIRD = views(("u2", 5), ("u9", 101), url="/" * 50_000)


def followed(stream: FileStream) -> list[QueryStatus]:
    """Return how a query stood after each micro-batch of all files."""
    return list(accumulate(stream.progress(), QueryStatus.add, initial=QueryStatus()))[1:]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param("buckets", marks=pytest.mark.nightly),
        pytest.param(
            "pages",
            marks=[pytest.mark.long, pytest.mark.since_spark("4.0.2", "pages need 4.0.2")],
        ),
    ],
)
def test_buckets_tell_how_many_sessions_are_open(
    spark: SparkSession, tmp_path: Path, layout: Any
) -> None:
    """Touched in a micro-batch or not, all are in the sum, as they are in the checkpoint."""
    spec = attrs.evolve(SESSIONS, storage=Storage(layout=layout))
    stream = FileStream(spark, spec, tmp_path)
    stream.put(FIRST, SECOND)
    earlier = followed(stream)
    now = earlier[-1]

    assert 6 == earlier[0].open_sessions
    there = stream.open()
    assert len(there) == now.open_sessions
    assert 8 == now.totals.sessions + len(there)
    assert (9, 1, 0) == (now.totals.events, now.totals.quarantined, now.buffered)
    oldest = min(one.session_start for one in there) if layout == "buckets" else None
    assert oldest == now.oldest_open
    assert NOON + 90 * MINUTE == now.watermark
    assert NOON + 100 * MINUTE == now.newest_event
    # Both of the second micro-batch are ahead of 12:05, the latest time of the first.
    assert DurationSketch((2,)) == now.totals.behind
    assert 0 == now.unbalanced
    assert now.skew is not None
    assert now.stored_bytes is not None
    assert 0 < now.stored_bytes < (now.state_bytes or 0)
    assert {"addBatch", "walCommit"} <= now.parts.keys()
    if layout == "pages":
        return  # what follows is the same for both
    stream.put(THIRD)
    progress = stream.progress()
    continued, joined = now, QueryStatus()
    for one in progress:
        continued, joined = continued.add(one), joined.add(one)
    assert len(stream.open()) == continued.open_sessions
    assert (9 + 2, 1) == (continued.totals.events, continued.totals.late)
    # One of them is 95 minutes behind 13:40, and the other a minute ahead.
    assert (1, 1) == (joined.totals.behind.bins[0], joined.totals.behind.at_least(95 * MINUTE))
    assert joined.behind is not None
    assert 0.05 * 95 * MINUTE > abs(joined.behind.maximum - 95 * MINUTE)
    assert (None, None) == (joined.open_sessions, joined.oldest_open)
    assert (2, 1) == (joined.totals.events, joined.totals.late)


def test_a_micro_batch_that_was_missed_makes_totals_of_buckets_unknown() -> None:
    """Spark remembers some micro-batches only; what the others changed, nobody knows."""
    found = QueryStatus().add(progress_of(0, "8|1:2:0:50:7:"))
    joined = found.add(progress_of(2, "8|1:3:0:60:7:"))

    assert (2, 50, 8.0) == (found.open_sessions, found.stored_bytes, found.skew)
    assert (None, None, None) == (joined.open_sessions, joined.stored_bytes, joined.skew)
    assert 3 == found.add(progress_of(1, "8|1:3:0:60:7:")).open_sessions
    assert found == found.add(progress_of(0, "8|1:2:0:50:7:"))


def test_what_spark_3_5_does_not_report_is_unknown() -> None:
    """Of a micro-batch without data it has no metrics, although sessions close in it."""
    silent = progress_of(1, "", rows=0)
    del silent["observedMetrics"]["sessionkit"]
    found = QueryStatus().add(progress_of(0, "8|1:2:0:50:7:")).add(silent)

    assert (1, None, None) == (found.uncounted, found.open_sessions, found.opened_per_second)
    assert (None, None) == (found.closed_per_second, found.rows_out_per_second)
    assert found.rows_in_per_second is not None
    assert "sessions" in found.totals.unknown


def test_rates_are_of_the_last_micro_batches() -> None:
    """Of ten seconds, from the start of the first to the end of the last."""
    found = QueryStatus()
    for number in range(5):
        found = found.add(progress_of(number, f"8|1:{number}:0:50:7:", rows=20, second=2 * number))

    assert 100 / 10 == found.rows_in_per_second
    assert (1 + 1 + 1 + 1) / 10 == found.opened_per_second
    assert 0 == found.closed_per_second
