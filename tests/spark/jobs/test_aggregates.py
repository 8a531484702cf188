"""Sessions from aggregates on Spark: a stream with a restart, and a batch."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Annotated, Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.spark import check_checkpoint, sessionize
from sessionkit.state import DecimalType
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
    """Return rows to compare: percentiles round, zeros have no sign, and maps have no order."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return sorted((name, one(item)) for name, item in value.items())
        return round(value, 12) + 0.0 if isinstance(value, float) else value

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


@attrs.frozen
class Paid:
    n: int
    m: int | None
    x: float
    p: Annotated[Decimal, DecimalType(11, 2)]
    q: Decimal | None
    d: timedelta


N, M, X, P, Q, D = (agg.max(field.name) for field in attrs.fields(Paid))
IN_SQL: dict[str, agg.Aggregate] = {
    "try_add(n, m)": N + M,
    "try_subtract(n, m)": N - M,
    "try_multiply(n, m)": N * M,
    "try_divide(n, m)": N / M,
    "try_add(p, q)": P + Q,
    "try_multiply(q, q)": Q * Q,
    "try_multiply(p, p)": P * P,
    "try_divide(p, q)": P / Q,
    "try_divide(p, n)": P / N,
    "try_divide(p, 7)": P / 7,
    "try_subtract(q, 1)": Q - 1,
    "try_multiply(q, 0.333BD)": Q * Decimal("0.333"),
    "try_add(x, n)": X + N,
    "try_multiply(x, p)": X * P,
    "try_divide(p, x)": P / X,
    "try_multiply(d, m)": D * M,
    "try_divide(d, m)": D / M,
    "try_divide(d, 3)": D / 3,
    "d * 0.5D": D * 0.5,
    "n < m": N < M,
    "x > n": X > N,
    "x = x": X.eq(X),
    "p < q": P < Q,
    "m > 1 AND n > 0": (M > 1) & (N > 0),
    "m > 1 OR n > 0": (M > 1) | (N > 0),
    "least(n, m)": agg.least(N, M),
    "greatest(x, m)": agg.greatest(X, M),
    "least(p, q)": agg.least(P, Q),
    "greatest(p, m, 1.125BD)": agg.greatest(P, M, Decimal("1.125")),
    "coalesce(m, 0)": M.fill_null(0),
    "coalesce(q, p)": Q.fill_null(P),
    "abs(p)": abs(P),
    "-x": -X,
}


def test_operators_are_those_of_sparks_sql(spark: SparkSession) -> None:
    """The types of results, and their values, where they overflow too, or divide by zero."""
    random, least = Random(3), -(2**63)
    rows = [
        {
            "key": str(number),
            "n": random.choice([0, 1, -3, 2**62, least, random.randint(-(10**6), 10**6)]),
            "m": random.choice([None, 0, 2, 5, 2**40]),
            "x": random.choice([0.0, -0.0, 1.5, -2.25, math.nan, 1e300]),
            "p": Decimal(random.choice([0, 1, -12345678901, 99999999999, 333])) / 100,
            "q": random.choice([None, Decimal(random.randint(-(10**17), 10**17)) / 10**7]),
            "d": timedelta(microseconds=random.choice([0, 1, -1, 3, 5, 10**15])),
        }
        for number in range(60)
    ]
    schema = "key string, n bigint, m bigint, x double, p decimal(11, 2), q decimal(38, 18)"
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], f"{schema}, d interval day to second"
    )
    expected = frame.selectExpr("key", *(f"{sql} AS `{sql}`" for sql in IN_SQL))
    named = {f"of_{number}": one for number, one in enumerate(IN_SQL.values())}
    spec = SessionSpec.aggregate(
        Paid, named, keys={"key": str}, event_time="ts", timeout=GAP, **RULES
    )

    found = sessionize(frame.withColumn("ts", F.expr("timestamp_seconds(1)")), spec)
    found = found.select(
        "key", *(F.col(new).alias(sql) for new, sql in zip(named, IN_SQL, strict=True))
    )

    assert dict(expected.dtypes) == dict(found.dtypes)
    assert shown(expected.collect()) == shown(found.collect())
