"""63,524 real page views with known sessions: the batch, the stream, and Spark's own operator."""

from datetime import UTC, datetime
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec
from sessionkit.aggregates import count
from sessionkit.spark import sessionize
from tests.support.frames import assert_same_rows
from tests.support.streams import FileStream

DATA = Path(__file__).parents[4] / "shared" / "data" / "reconstructr"
CUT = datetime(2014, 1, 15, tzinfo=UTC)

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason="the data of third parties is next to the project, not in it"
)


@attrs.define
class PageView:
    """A page view; only that it happened counts."""


VIEWS = SessionSpec.aggregate(
    PageView,
    {"n": count()},
    keys={"uuid": str},
    event_time="timestamp",
    gap="30 minutes",
    watermark_delay="1 hour",
)


@pytest.mark.nightly
def test_a_batch_and_a_stream_in_two_parts_give_the_known_sessions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """
    All 22,224: those of the batch, and those that the stream of two files emits and keeps open.

    Spark's `session_window` over the same two files emits 22,124 and keeps 100 open, which belong
    to 95 keys; so does sessionkit.
    """
    events = pq.read_table(DATA / "events.parquet")
    is_early = pc.less(events["timestamp"], pa.scalar(CUT, events["timestamp"].type))
    stream = FileStream(spark, VIEWS, tmp_path)
    stream.put(events.filter(is_early), events.filter(pc.invert(is_early)))

    counts = stream.run()

    emitted = {(r.uuid, r.session_start, r.session_end, r.n) for r in stream.rows()}
    opened = {
        (s.key.uuid, local(s.session_start), local(s.session_end), s.state.n) for s in stream.open()
    }
    known = spark.read.parquet(str(DATA / "sessions_30min.parquet"))
    batch = sessionize(spark.read.parquet(str(DATA / "events.parquet")), VIEWS).select(
        F.col("uuid").alias("key"),
        F.col("session_start").alias("start"),
        F.col("last_event_time").alias("last"),
        "n",
    )
    assert_same_rows(known, batch)
    assert 22_124 == len(emitted)
    assert 100 == len(opened)
    assert 95 == len({key for key, *_ in opened})
    expected = {(row.key, row.start, row.n) for row in known.collect()}
    assert expected == {(key, start, n) for key, start, _, n in emitted | opened}
    assert 22_224 == len(expected)
    assert [31_236, 32_288, 0] == [count.events for count in counts]
    assert all(count.is_balanced for count in counts)


def local(instant: datetime) -> datetime:
    """Return an instant as `collect` does: naive, in the zone of the machine."""
    return instant.astimezone().replace(tzinfo=None)
