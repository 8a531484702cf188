"""Buckets in pages on Spark: when they're woken, what reads them, and what is refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import NoTimeout, ProcessingTimeGap, SessionkitError, SessionSpec, Storage
from sessionkit.errors import StateError, UnsupportedError
from sessionkit.spark import check_checkpoint, sessionize
from sessionkit.spark.jobs.transform_with_state import (
    PROVIDER,
    ROCKSDB,
    check_operator,
    check_transform_with_state,
)
from tests.support.clocked import Trigger
from tests.support.scenarios import Life, command, commanded, instant, on_driver, on_spark, tick
from tests.support.streams import FileStream, begun_at

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP, MILLI = timedelta(minutes=30), timedelta(milliseconds=1)


@attrs.frozen
class Tick:
    """An event that has nothing but a number."""

    value: int


@attrs.define
class Sum:
    total: int = 0

    def update(self, event: Tick) -> None:
        self.total += event.value

    def merge(self, other: "Sum") -> None:
        self.total += other.total


SUMS: SessionSpec[Tick, Sum, Sum] = SessionSpec.of(
    Sum,
    keys={"key": str},
    event_time="at",
    gap=GAP,
    watermark_delay="0 seconds",
    storage=Storage(layout="pages"),
)


def ticks(*rows: tuple[str, datetime]) -> pa.Table:
    return pa.table(
        {
            "key": [key for key, _ in rows],
            "at": pa.array([at for _, at in rows], pa.timestamp("us", tz="UTC")),
            "value": [1] * len(rows),
        }
    )


def test_a_session_closes_in_the_batch_whose_watermark_reaches_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """
    At -1, 0 and +1 ms, as with buckets.

    No two keys share a bucket, so it is a timer that closes each; Spark's timers here fire at
    the watermark, not after it. The watermark of a batch comes from the one before.
    """
    end = NOON + GAP
    stream = FileStream(spark, SUMS, tmp_path)
    stream.put(
        ticks(("now", NOON), ("later", NOON + MILLI)),
        ticks(("b", end - MILLI)),
        ticks(("c", end)),
        ticks(("d", end + MILLI)),
        ticks(("e", end + MILLI)),
    )

    closed = [counts.sessions for counts in stream.run()]

    assert [0, 0, 0, 1, 1] == closed[:5]
    assert ["later", "now"] == sorted(row["key"] for row in stream.rows())
    assert ["b", "c", "d", "e"] == sorted(one.key.key for one in stream.open())


@pytest.mark.long
def test_a_checkpoint_in_pages_is_checked_and_read(spark: SparkSession, tmp_path: Path) -> None:
    """The rules under which pages were stored are found, the layout among them."""
    stream = FileStream(spark, SUMS, tmp_path)
    begun_at(Path(stream.checkpoint))
    check_checkpoint(stream.checkpoint, SUMS, spark=spark)
    stream.put(ticks(*((f"key {n}", NOON) for n in range(10_000))))
    stream.run()
    check_checkpoint(stream.checkpoint, SUMS, spark=spark)

    assert {f"key {n}" for n in range(10_000)} == {one.key.key for one in stream.open()}
    buckets: Any = attrs.evolve(SUMS, storage=Storage())
    for spec, text in [
        (
            attrs.evolve(SUMS, storage=Storage(layout="pages", bucket_count=4)),
            "`bucket_count` is 4 in the spec, 8 in the",
        ),
        (buckets, "`layout` is 'buckets' in the spec, 'pages' in the checkpoint"),
    ]:
        with pytest.raises(StateError, match=text):
            check_checkpoint(stream.checkpoint, spec, spark=spark)
    stream.put(ticks(("key 1", NOON)))
    newer = attrs.evolve(
        stream, spec=attrs.evolve(SUMS, storage=Storage(layout="pages", version=2))
    )
    with pytest.raises(Exception, match="`state_version` is 2 in the spec, 1 in the checkpoint"):
        newer.run()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"timeout": ProcessingTimeGap("10 seconds")}, marks=pytest.mark.nightly),
        pytest.param(
            {"timeout": NoTimeout(), "processing_timers": False, "watermark_delay": None},
            marks=pytest.mark.long,
        ),
    ],
    ids=["both clocks", "no clock"],
)
def test_keys_in_pages_live_as_on_the_driver(
    options: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    """On any clock, batches, rows, counts and what is stored are those of the driver."""
    storage = Storage(layout="pages", bucket_count=2)
    spec = commanded(storage=storage, on_error="reject", **options)
    has_clock = spec.processing_timers
    acts = ["note", "processing", "event"] if has_clock else ["note", "remove"]
    rows = [
        [command(key, n, act, "one", n + 2) for n, key in enumerate("abc")] + [tick(n + 10)]
        for n, act in enumerate(acts)
    ]
    # Only a clock makes Spark run a micro-batch without data.
    rows += [[]] if has_clock else []
    triggers = [Trigger(instant(5 * n), batch) for n, batch in enumerate(rows)]

    assert on_driver(Life(spec, [triggers])) == on_spark(Life(spec, [triggers]), spark, tmp_path)


# -- what is refused --------------------------------------------------------------------------


@attrs.frozen
class Session:
    """A session of Spark, as far as the check looks at it."""

    version: str
    conf: dict[str, str]


class RemoteSession(Session):
    """A session of Spark Connect, as far as the check looks at it."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (Session("3.5.9", {}), r"needs Spark 4.0.2 or later, and this is 3.5.9"),
        (Session("4.0.0", {}), r"needs Spark 4.0.2 or later, and this is 4.0.0"),
        (Session("4.0.1", {}), r"needs Spark 4.0.2 or later, and this is 4.0.1"),
        (RemoteSession("4.0.5", {}), r"needs Spark 4.1 or later on Connect, and this is 4.0.5"),
    ],
)
def test_a_spark_without_the_operator_is_refused(session: Any, reason: str) -> None:
    """So is one that loses bytes of large pages; there are buckets only."""
    with pytest.raises(UnsupportedError, match=reason) as refused:
        check_transform_with_state(session, SUMS)
    assert 'or write storage=Storage(layout="buckets")' in str(refused.value)


@pytest.mark.parametrize(
    "session", [Session("4.0.2", {}), Session("4.1.0.dev1", {}), RemoteSession("4.1.0", {})]
)
def test_a_spark_that_takes_large_pages_is_taken(session: Any) -> None:
    """From the release on that reads the whole of a request."""
    check_operator(session, SUMS)


def test_another_state_store_is_refused_before_the_start(spark: SparkSession) -> None:
    """The message has the line that sets it."""
    check_operator(spark, SUMS)
    rows = spark.readStream.format("rate").load()
    events = rows.selectExpr("'a' AS key", "timestamp AS at", "value")

    with pytest.raises(SessionkitError, match="needs RocksDB as the state store") as caught:
        sessionize(events, SUMS)
    assert f'spark.conf.set("{PROVIDER}", "{ROCKSDB}")' in str(caught.value)
