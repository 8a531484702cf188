"""Which watermark delay to choose: how many events of the past would have been late under each."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sessionkit import SessionSpec, StatefulSpec
from sessionkit.arguments import Duration, duration_of, explains, quoted
from sessionkit.errors import SpecError

__all__ = ["LateEvents", "late_events"]

DELAYS: Final = ("0s", "1m", "2m", "5m", "10m", "20m", "1h", "2h", "6h", "12h", "1 day")
SHARES: Final = (0.5, 0.99, 0.999)
MICROSECOND: Final = timedelta(microseconds=1)


@attrs.frozen
class LateEvents:
    """
    How many events would have been late under each of some watermark delays.

    Attributes:
        events: How many events were looked at: those with an event time and a time of arrival.
        late: How many of them would have been late, by the delay.
        behind: By how much events were too old for a delay of zero: the median, the 99th and the
            99.9th percentile by 0.5, 0.99 and 0.999, and the maximum by 1. Percentiles are
            approximate. Zero for an event that wasn't late.
        gap: How long after its last event a session is over; the delay comes on top.
    """

    events: int
    late: Mapping[timedelta, int]
    behind: Mapping[float, timedelta]
    gap: timedelta

    def smallest(self, share: float = 0.001) -> timedelta:
        """
        Return the smallest of the delays under which at most this share of events is late.

        Raises:
            SpecError: There is none.
        """
        for delay, count in sorted(self.late.items()):
            if count <= share * self.events:
                return delay
        found = f"under each delay, more than {share:.2%} of the events would have been late"
        raise SpecError(found, f"pass longer delays; the latest needs {self.behind[1]}")

    def __str__(self) -> str:
        """Return a table: the share of late events, and when results come, by the delay."""
        lines = [f"{'delay':>16}  {'late':>12}  {'share':>8}  a session's row comes"]
        for delay, count in sorted(self.late.items()):
            share = count / max(self.events, 1)
            after = f"{delay + self.gap} after its last event"
            lines.append(f"{delay!s:>16}  {count:>12,}  {share:>8.3%}  {after}")
        return "\n".join(lines)


@explains
def late_events(
    history: DataFrame,
    spec: SessionSpec[Any, Any, Any] | StatefulSpec[Any, Any, Any],
    *,
    arrived: str,
    trigger: Duration = "1 minute",
    delays: Sequence[Duration] = DELAYS,
) -> LateEvents:
    """
    Return how many events of the past would have been late, under each of some delays.

    A watermark is the latest event time of earlier micro-batches less the delay. So history is cut
    into micro-batches by the time at which each event arrived, and each event is compared with the
    latest event time before its own micro-batch, as the spec would: a session takes an event until
    the watermark has passed the end of its window. Events so far ahead of their arrival that
    `max_future_skew` quarantines them count for nothing.

    That is what a query sees which keeps up. After a stop, it reads a backlog, where more events
    may be late: docs/how-to/catch-up.md.

    Args:
        history: A batch with the events.
        spec: The spec whose events they are. Where its gap is a function, it counts as zero, so the
            numbers are upper limits. `Lateness(allowed=...)` counts as a part of the delay.
        arrived: The column with the time at which an event arrived, such as `kafka_timestamp`.
        trigger: The interval of the query's trigger.
        delays: The delays to compare.

    Raises:
        SpecError: The spec has no event time, or a duration isn't one.
    """
    if spec.event_time is None:
        raise SpecError("the spec has no event time, so no event is late", "pass event_time=...")
    spans = sorted(duration_of(delay, "delays", zero_allowed=True) for delay in delays)
    gap = spec.timeout.gap if isinstance(spec, SessionSpec) else None
    window = timedelta(0) if gap is None or callable(gap) else duration_of(gap, "gap")
    at, came = (F.unix_micros(F.col(quoted(name))) for name in (spec.event_time, arrived))
    events = history.select(
        at.alias("at"),
        F.floor(came / (duration_of(trigger, "trigger") // MICROSECOND)).alias("batch"),
        came.alias("came"),
    ).dropna()
    if (skew := spec.inputs.max_future_skew) is not None:
        events = events.where(F.col("at") <= F.col("came") + skew // MICROSECOND)
    latest = events.groupBy("batch").agg(F.max("at").alias("latest"))
    earlier = Window.orderBy("batch").rowsBetween(Window.unboundedPreceding, -1)
    # Spark's watermark is in milliseconds.
    seen = F.floor(F.max("latest").over(earlier) / 1000) * 1000
    behind = F.col("seen") - F.col("at") - window // MICROSECOND
    compared = events.join(latest.select("batch", seen.alias("seen")), "batch").select(
        F.coalesce(behind, F.lit(-1)).alias("behind")
    )
    counts = [F.count_if(F.col("behind") >= span // MICROSECOND) for span in spans]
    shares = F.percentile_approx("behind", list(SHARES), 10_000)
    *late, quantiles, most, total = compared.agg(
        *counts, shares, F.max("behind"), F.count("*")
    ).collect()[0]
    values = [max(one or 0, 0) * MICROSECOND for one in (*(quantiles or [0, 0, 0]), most)]
    return LateEvents(
        total,
        dict(zip(spans, late, strict=True)),
        dict(zip((*SHARES, 1.0), values, strict=True)),
        window,
    )
