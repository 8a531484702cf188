"""Sessions from aggregates on Spark: a stream with a restart, and a batch."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.spark import check_checkpoint, sessionize
from sessionkit.state._codec import codec_of
from tests.support.naive_aggregates import Act, Colour, by_aggregates, by_functions
from tests.support.spark_settings import FOR_TINY_BATCHES, changed
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP = EventTimeGap("1 minute")
RULES: dict[str, Any] = {"watermark_delay": "20 minutes", "storage": Storage(bucket_count=2)}


def acts(seed: int, number: int) -> list[Act]:
    """Make events whose sums of floats are exact."""
    random = Random(seed)

    def maybe(value: Any) -> Any:
        return value if random.random() < 0.7 else None

    return [
        Act(
            kind=random.choice(["buy", "see", "é"]),
            number=random.randint(-5, 5),
            maybe=maybe(random.randint(0, 3)),
            weight=random.randint(-8, 8) / 4,
            light=maybe(random.randint(1, 8) / 4),
            is_good=random.random() < 0.5,
            is_bad=maybe(random.random() < 0.5),
            at=maybe(NOON + timedelta(microseconds=random.randint(0, 9))),
            day=(NOON + timedelta(days=random.randint(0, 3))).date(),
            spent=timedelta(seconds=random.randint(-9, 9)),
            price=Decimal(random.randint(-999, 999)) / 100,
            rebate=maybe(Decimal(random.randint(-9, 9))),
            colour=random.choice(list(Colour)),
            raw=maybe(random.randbytes(2)),
            gap=timedelta(minutes=1),
        )
        for _ in range(number)
    ]


def table_of(seed: int, number: int) -> pa.Table:
    """Return events of a few keys within a quarter of an hour, some of them at one instant."""
    random = Random(seed)
    columns = dict(
        zip(attrs.fields_dict(Act), codec_of(Act).encode(acts(seed, number)), strict=True)
    )
    keys = [random.choice("abcdef") for _ in range(number)]
    times = [NOON + timedelta(seconds=10 * random.randint(0, 90)) for _ in range(number)]
    return pa.table({"key": keys, "ts": pa.array(times, pa.timestamp("us", tz="UTC")), **columns})


def last_table() -> pa.Table:
    table = table_of(9, 1)
    late = pa.array([NOON + timedelta(days=1)], pa.timestamp("us", tz="UTC"))
    return table.set_column(1, "ts", late).set_column(0, "key", pa.array(["z"]))


def with_intervals(frame: DataFrame) -> DataFrame:
    """Return a frame with the durations that Parquet hands out as microseconds."""
    spans = {
        name: F.expr(f"make_dt_interval(0, 0, 0, CAST({name} / 1e6 AS DECIMAL(18, 6)))")
        for name in ("spent", "gap")
    }
    return frame.withColumns(spans)


def shown(rows: list[Any]) -> list[str]:
    """Return rows so that they can be compared: percentiles round, and maps have no order."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return sorted((name, one(item)) for name, item in value.items())
        return round(value, 12) if isinstance(value, float) else value

    return sorted(repr(one(row.asDict())) for row in rows)


def test_stream_and_batch_equal_functions(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that stops and goes on, and a batch, come to the rows that functions come to."""
    stream = FileStream(spark, by_aggregates(GAP, **RULES), tmp_path, shape=with_intervals)
    stream.put(table_of(1, 60), table_of(2, 60))
    stream.run()
    between = stream.open()
    stream.put(table_of(3, 60), last_table())
    counts = stream.run()
    check_checkpoint(stream.checkpoint, stream.spec, spark=spark)

    everything = stream.batch()
    with changed(spark, FOR_TINY_BATCHES):
        expected = sessionize(everything, by_functions(GAP, **RULES)).collect()
    found = sessionize(everything, stream.spec).collect()

    assert shown(expected) == shown(found)
    assert shown([row for row in expected if row["key"] != "z"]) == shown(stream.rows())
    assert [("z", 1)] == [(session.key.key, session.state.events) for session in stream.open()]
    assert 120 == sum(session.state.events for session in between)
    assert all(count.is_balanced for count in counts)


@attrs.frozen
class Load:
    weight: float


def test_nan_and_zero_are_one_value_as_in_spark(spark: SparkSession) -> None:
    """Spark counts `inf - inf` and `nan` as one; so do both zeros, here and there."""
    values = ["'NaN'", "double('inf') - double('inf')", "-double('NaN')", "0", "-0.0D"]
    weights = F.array(*(F.expr(f"double({value})") for value in values))
    numbered = spark.range(1).select(F.posexplode(weights).alias("n", "weight"))
    frame = numbered.withColumns({"key": F.lit("a"), "ts": F.expr("timestamp_seconds(n)")})
    (expected,) = frame.agg(F.count_distinct("weight"), F.min("weight"), F.max("weight")).collect()
    spec = SessionSpec.aggregate(
        Load,
        {
            "distinct": agg.count_distinct("weight"),
            "least": agg.min("weight"),
            "most": agg.max("weight"),
            "path": agg.path("weight"),
        },
        keys={"key": str},
        event_time="ts",
        timeout=GAP,
        **RULES,
    )

    (found,) = sessionize(frame, spec).select("distinct", "least", "most", "path").collect()

    assert repr((*expected, [math.nan, 0.0])) == repr((*found,))
