"""Cut past events into micro-batches in Spark, and find the watermark of each."""

from datetime import timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionkit import SessionRules
from sessionkit._for_addons import quoted, span_us

DAY_US: Final = span_us(timedelta(days=1))


def lasts_us(spec: Any, time: str, window: timedelta) -> Column:
    """Return the length of an event's window in microseconds: at most until midnight."""
    lasts, rules = F.lit(span_us(window)), spec.timeout
    if not isinstance(rules, SessionRules) or rules.midnight is None:
        return lasts
    at, zone = F.col(quoted(time)), rules.midnight
    # Local wall-clock microseconds: 1 hour at 00:00 UTC in Berlin.
    local = F.unix_micros(F.from_utc_timestamp(at, zone))
    midnight = local - F.pmod(local, F.lit(DAY_US)) + DAY_US
    ends = F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(midnight), zone))
    return F.greatest(F.least(lasts, ends - F.unix_micros(at)), F.lit(0))


def seen_by_batch(spec: Any, events: DataFrame, every: int) -> DataFrame:
    """
    Return for each micro-batch its watermark plus the delay.

    That is the latest event time of earlier micro-batches. Under `close_idle_after` it may be the
    processing time: the end of a micro-batch if the watermark hasn't moved for that duration.
    """
    latest = events.groupBy("batch").agg(F.max("at").alias("latest"))
    by_batch = Window.orderBy("batch")
    earlier = by_batch.rowsBetween(Window.unboundedPreceding, -1)
    latest = latest.withColumn("seen", F.max("latest").over(earlier))
    if (idle := spec.close_idle_after) is not None:
        moves = F.col("seen").isNull() | (F.col("latest") > F.col("seen"))
        latest = latest.withColumn("moved", F.max(F.when(moves, F.col("batch"))).over(earlier))
        ends = (F.col("batch") + 1) * every
        by_clock = F.when(ends - F.col("moved") * every >= span_us(idle), ends)
        latest = latest.withColumn("seen", F.greatest("seen", F.max(by_clock).over(by_batch)))
    # Spark's watermark has milliseconds.
    return latest.select("batch", (F.floor(F.col("seen") / 1000) * 1000).alias("seen"))
