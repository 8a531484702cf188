"""Declare, guard and explain watermarks, with checks that Spark makes late or never."""

from datetime import timedelta
from typing import Literal, TypeAlias

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionkit._instants import Duration, duration_of, duration_text
from sessionkit.arguments import explains
from sessionkit.errors import SchemaError, SpecError, with_hint
from sessionkit.spark._columns import (
    check_event_time,
    check_frame,
    is_future,
    quoted,
    read_delay,
)
from sessionkit.spark._watermark_report import (
    POLICY_SETTING,
    Policy,
    WatermarkReport,
    WatermarkState,
    explain_watermark,
    watermark_lag,
    watermark_of,
)
from sessionkit.spark.jobs.checks import WATERMARK_METADATA
from sessionkit.spec.base import MILLISECOND

__all__ = [
    "Policy",
    "Watermark",
    "WatermarkReport",
    "WatermarkState",
    "ZeroDelay",
    "check_watermarks",
    "declare_watermark",
    "declared_watermarks",
    "explain_watermark",
    "guard_future",
    "watermark_lag",
    "watermark_of",
]

ZeroDelay: TypeAlias = Literal["refused", "drops_ties"]
"""
Whether `declare_watermark` takes a delay of zero.

`"refused"`: it raises a `SpecError`. `"drops_ties"`: it takes it. The watermark is then the newest
event time itself, so Spark drops a row with that event time if it comes one micro-batch later.
"""


@attrs.frozen
class Watermark:
    """
    A watermark that a frame declares.

    Attributes:
        column: The event-time column; after a windowed aggregation the column of the window.
        delay: How far the watermark trails the newest event time.
    """

    column: str
    delay: timedelta


@explains
def declared_watermarks(frame: DataFrame) -> tuple[Watermark, ...]:
    """
    Return the watermarks that the columns of a frame carry.

    A copy of an event-time column carries the watermark too, so there may be several. If the
    column has been dropped, the frame no longer shows that there is one.
    """
    check_frame(frame, "frame")
    return tuple(
        Watermark(field.name, field.metadata[WATERMARK_METADATA] * MILLISECOND)
        for field in frame.schema.fields
        if WATERMARK_METADATA in field.metadata
    )


@explains
def declare_watermark(
    frame: DataFrame, column: str, delay: Duration, *, zero_delay: ZeroDelay = "refused"
) -> DataFrame:
    """
    Declare the watermark of a stream: `withWatermark`, checked before anything starts.

    The watermark is the newest event time seen minus the delay, in whole milliseconds. Spark
    advances it between micro-batches, so earlier batches decide which rows of a batch are late.
    It never goes back. Stateful operators drop a row whose event time `<=` the watermark.

    A batch has no watermark: its frame is checked in the same way and returned unchanged.

    Example:
        from sessionkit.spark.watermarks import declare_watermark

        # stream: a stream with the columns user, ts (a timestamp) and page
        watermarked = declare_watermark(stream, "ts", "10 minutes")

    Args:
        frame: A stream or a batch.
        column: The event time: a timestamp, at the top level.
        delay: How late a row may arrive, in event time: `"10 minutes"`, `"10m"`, a `timedelta`.
        zero_delay: Pass `"drops_ties"` to allow a delay of zero. The watermark is then the newest
            event time of the previous batch, so every row with that same event time is dropped.

    Raises:
        SchemaError: The column is missing, is nested or isn't a timestamp, or a watermark is
            already declared on this or another column, which Spark refuses after the start.
        SpecError: The delay isn't a duration, isn't a whole number of milliseconds (Spark drops
            the rest), or is zero without `zero_delay="drops_ties"`.
    """
    span = read_delay(delay, zero_allowed=True)
    if not span and zero_delay == "refused":
        found = (
            f"`delay` is zero, found {delay!r}: the watermark is then the newest event time, and "
            "rows that share it are dropped if they arrive one micro-batch later"
        )
        hint = "pass '1 millisecond' to keep them, or confirm with zero_delay='drops_ties'"
        raise SpecError(with_hint(found, hint))
    check_frame(frame, "frame")
    check_event_time(frame.schema, column)
    if not frame.isStreaming:
        return frame
    for there in declared_watermarks(frame):
        found = (
            f"a watermark is already declared, on `{there.column}` with a delay of "
            f"{duration_text(there.delay)}; a stream of rows has one at most"
        )
        raise SchemaError(with_hint(found, "declare it once, where the frame is read"))
    return frame.withWatermark(quoted(column), f"{span // MILLISECOND} milliseconds")


@explains
def check_watermarks(*frames: DataFrame, policy: Policy = "min") -> None:
    """
    Check the watermarks of streams that a union or a join combines in one query.

    The query has one watermark. The setting `spark.sql.streaming.multipleWatermarkPolicy` decides
    how those of its sources combine:

    * `min`: the slowest source decides. No row is dropped because another source is ahead. But a
      source that has sent no rows yet counts as 1970, so a silent source blocks everything: no
      window closes, and no state is dropped. A source that falls silent later blocks it there.
    * `max`: the fastest source decides. A silent source blocks nothing, and rows of slower sources
      are dropped as soon as they trail the fastest one.

    The first start pins the policy in the checkpoint; the setting of a later session is ignored.
    There is a third way to keep silent sources from blocking: union the frames first, and declare
    one watermark on the result.

    Args:
        frames: The streams, before they are combined. Batches among them have no watermark and
            are skipped.
        policy: The policy that the query is written for.

    Raises:
        SchemaError: A stream has no watermark: that of the others would decide which of its rows
            are late.
        SpecError: The session has another policy.
    """
    for frame in frames:
        check_frame(frame, "frames")
    streams = [(place, frame) for place, frame in enumerate(frames, 1) if frame.isStreaming]
    for place, frame in streams:
        if not declared_watermarks(frame):
            found = f"stream {place} of {len(frames)} has no watermark, so it can't hold back"
            hint = "call declare_watermark on each stream, or once on the union of all"
            raise SchemaError(with_hint(f"{found} the watermark that drops its rows", hint))
    if len(streams) <= 1:
        return
    setting = str(streams[0][1].sparkSession.conf.get(POLICY_SETTING)).lower()
    if setting != policy:
        found = f"the policy must be {policy!r}, but {POLICY_SETTING} is {setting!r}"
        hint = f'spark.conf.set("{POLICY_SETTING}", "{policy}") before the first start'
        raise SpecError(with_hint(found, f"{hint}; a checkpoint keeps its first policy"))


@explains
def guard_future(
    frame: DataFrame,
    column: str,
    max_future_skew: Duration = "1 day",
    *,
    into: str = "quarantined_time",
) -> DataFrame:
    """
    Keep event times from the future from moving the watermark.

    One event time from the year 2999 moves the watermark there for good, and every later row is
    dropped. So call this before `declare_watermark`: if an event time is further ahead of the
    clock than the skew, it moves to the new column `into`, and the event time becomes null. For
    all other rows, `into` is null. A row without an event time doesn't move the watermark, and
    stateful operators never drop it as late. `sessionize` does this by itself.

    The result is one frame on purpose. Two frames would be two queries with different clocks, and
    a row near the limit could be in both or in neither. A window drops rows without an event time,
    so count them first: `guarded.observe("future", F.count("quarantined_time"))`. For a
    deduplication, add `into` to the keys.

    Args:
        frame: A stream or a batch.
        column: The event time: a timestamp, at the top level.
        max_future_skew: How far ahead of the clock an event time may be. The clock is processing
            time: for a stream the start of the micro-batch, for a batch that of the query.
        into: The name of the new column, which comes last.

    Raises:
        SchemaError: The column is missing or isn't a timestamp, a column `into` already exists, or
            a watermark is already declared.
        SpecError: The skew isn't a duration.
    """
    skew = duration_of(max_future_skew, "max_future_skew", zero_allowed=True)
    check_frame(frame, "frame")
    check_event_time(frame.schema, column)
    if into in frame.columns:
        found = f"there is already a column `{into}`, where event times from the future would go"
        raise SchemaError(with_hint(found, "pass another name: into=..."))
    if frame.isStreaming and declared_watermarks(frame):
        found = "a watermark is already declared, so an event time from the future would move it"
        raise SchemaError(with_hint(found, "call guard_future first, then declare_watermark"))
    time = F.col(quoted(column))
    ahead = is_future(time, skew)
    return frame.withColumns(
        {column: F.when(ahead, None).otherwise(time), into: F.when(ahead, time)}
    )
