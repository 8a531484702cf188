"""Declare, guard and explain watermarks, with checks that Spark makes late or never."""

import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from io import StringIO
from itertools import chain, takewhile
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._arguments import check_column, explains, one_of, quoted
from sessionkit._instants import EPOCH, Duration, duration_of, duration_text
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import check_event_time, check_frame, is_future
from sessionkit.spark.jobs.checks import WATERMARK_METADATA
from sessionkit.spark.progress import (
    check_query,
    dropped_in,
    event_times_in,
    has_run,
    instant_in,
    watermark_in,
)
from sessionkit.spec.base import MILLISECOND, whole_milliseconds

__all__ = ["check_watermarks", "declare_watermark", "explain_watermark", "guard_future"]

Policy: TypeAlias = Literal["min", "max"]
"""
Which of several sources moves the watermark of a query: the slowest (`min`) or the fastest (`max`).

It's Spark's setting `spark.sql.streaming.multipleWatermarkPolicy`; see `check_watermarks`.
"""

WatermarkState: TypeAlias = Literal[
    "no_batch", "undeclared", "waiting", "moving", "idle", "stalled", "held_back", "ahead_of_clock"
]
"""Why the watermark of a query moves, or doesn't; `WatermarkReport` says what each name means."""

ZeroDelay: TypeAlias = Literal["refused", "drops_ties"]
"""
Whether `declare_watermark` takes a delay of zero.

`"refused"`: no, it raises a `SpecError`. `"drops_ties"`: yes. The watermark is then the newest
event time itself, so Spark drops a row with this event time if it comes one micro-batch later.
"""

Progress: TypeAlias = Mapping[str, Any]
POLICY_SETTING: Final = "spark.sql.streaming.multipleWatermarkPolicy"
# Spark 4.0 and later put the operator's id before the column.
OPERATOR: Final = re.compile(r"EventTimeWatermark (?:[0-9a-f-]{36}, )?\S+#\d+: \w+, .+")


@attrs.frozen
class Watermark:
    """A watermark that a frame declares: its event-time column, and its delay."""

    event_time: str
    delay: timedelta


@explains
def declared_watermarks(frame: DataFrame) -> tuple[Watermark, ...]:
    """
    Return the watermarks that the columns of a frame carry; a copy of a column carries its own.

    If the column has been dropped, the frame no longer shows its watermark.
    """
    check_frame(frame, "frame")
    return tuple(
        Watermark(field.name, field.metadata[WATERMARK_METADATA] * MILLISECOND)
        for field in frame.schema.fields
        if WATERMARK_METADATA in field.metadata
    )


@explains
def declare_watermark(
    frame: DataFrame,
    event_time: str,
    watermark_delay: Duration,
    *,
    zero_delay: ZeroDelay = "refused",
) -> DataFrame:
    """
    Declare the watermark of a stream with `withWatermark`, after checks.

    The watermark is the newest event time seen minus the delay. Spark advances it between
    micro-batches, and never moves it back. A stateful operator drops a row whose event time is the
    watermark or earlier; a windowed aggregation drops a row whose window ends by then. A batch has
    no watermark: its frame is checked in the same way and returned unchanged.

    Example:
        from sessionkit.spark.watermarks import declare_watermark

        # stream: a stream with the columns user, ts (a timestamp) and page
        watermarked = declare_watermark(stream, "ts", "10 minutes")

    Args:
        frame: A stream or a batch.
        event_time: The event-time column: a timestamp, at the top level.
        watermark_delay: How late a row may arrive, in event time: `"10 minutes"`, `"10m"`, a
            `timedelta`.
        zero_delay: Pass `"drops_ties"` to allow a delay of zero. The watermark is then the newest
            event time itself, so Spark drops a row with this event time that comes in a later
            micro-batch.

    Raises:
        SchemaError: The column is missing, is nested or isn't a timestamp, or a watermark is
            already declared.
        SpecError: The delay isn't a duration in whole milliseconds, or is zero without
            `zero_delay="drops_ties"`.
    """
    check_column("event_time", event_time, "ts")
    span = whole_milliseconds(watermark_delay, "watermark_delay", zero_allowed=True)
    one_of(get_args(ZeroDelay), "zero_delay", zero_delay, "leave it out, or confirm 'drops_ties'")
    if not span and zero_delay == "refused":
        found = f"`watermark_delay` is {watermark_delay!r}: rows of the newest time can be dropped"
        hint = "pass '1 millisecond' to keep them, or confirm with zero_delay='drops_ties'"
        raise SpecError(found, hint)
    check_frame(frame, "frame")
    check_event_time(frame.schema, event_time)
    if not frame.isStreaming:
        return frame
    for existing in declared_watermarks(frame):
        found = f"a watermark is already declared, on `{existing.event_time}` with a delay of "
        found += f"{duration_text(existing.delay)}; a stream has one at most"
        raise SchemaError(found, "declare it once, where the frame is read")
    return frame.withWatermark(quoted(event_time), f"{span // MILLISECOND} milliseconds")


@explains
def check_watermarks(*frames: DataFrame, policy: Policy = "min") -> None:
    """
    Check the watermarks of streams that a union or a join combines in one query.

    It returns None, or raises.

    The query has one watermark. The setting `spark.sql.streaming.multipleWatermarkPolicy`, which
    the checkpoint keeps from the first start, says how the watermarks of its sources combine:

    * `min`: the slowest source decides. No row is dropped because another source is ahead, but a
      silent source blocks everything: one that has sent no rows yet counts as 1970.
    * `max`: the fastest source decides. A silent source blocks nothing. Rows of a slower source are
      dropped once they trail the fastest one by more than its delay.

    Or union the frames first, and declare one watermark on the result: no source then blocks.

    Args:
        frames: The streams, before they are combined. Batches are skipped.
        policy: The setting that the query is written for: `"min"` or `"max"`.

    Raises:
        SchemaError: A stream has no watermark.
        SpecError: `policy` is neither of the two, or there are several streams and the Spark
            session has the other setting.
    """
    one_of(get_args(Policy), "policy", policy, "leave it out for 'min', Spark's default")
    for frame in frames:
        check_frame(frame, "frames")
    streams = [(place, frame) for place, frame in enumerate(frames, 1) if frame.isStreaming]
    for place, frame in streams:
        if not declared_watermarks(frame):
            found = f"stream {place} of {len(frames)} has no watermark, so its rows may be dropped"
            hint = "call declare_watermark on each stream, or once on the union of all"
            raise SchemaError(found, hint)
    if len(streams) <= 1:
        return
    setting = str(streams[0][1].sparkSession.conf.get(POLICY_SETTING)).lower()
    if setting != policy:
        found = f"the policy must be {policy!r}, but {POLICY_SETTING} is {setting!r}"
        hint = f'spark.conf.set("{POLICY_SETTING}", "{policy}") before the first start'
        raise SpecError(found, f"{hint}; a checkpoint keeps its first policy")


@explains
def guard_future(
    frame: DataFrame,
    event_time: str,
    max_future_skew: Duration = "1 day",
    *,
    into: str = "quarantined_time",
) -> DataFrame:
    """
    Keep event times from the future from moving the watermark.

    One event time from the year 2999 moves the watermark there for good, and every later row is
    dropped. So call this before `declare_watermark`: an event time further ahead of the clock than
    the skew moves to the new column `into`, and becomes null itself. Such a row doesn't move the
    watermark, and stateful operators never drop it as late. A window drops it, so count such rows
    first: `guarded.observe("future", F.count("quarantined_time"))`. For a deduplication, add `into`
    to the keys. `sessionize` does all this itself.

    Args:
        frame: A stream or a batch.
        event_time: The event-time column: a timestamp, at the top level.
        max_future_skew: How far ahead of the clock an event time may be. The clock is processing
            time: the start of the micro-batch or, for a batch, of the query.
        into: The name of the new column, which comes last.

    Raises:
        SchemaError: The column is missing or isn't a timestamp, a column `into` already exists, or
            a watermark is already declared.
        SpecError: The skew isn't a duration.
    """
    skew = duration_of(max_future_skew, "max_future_skew", zero_allowed=True)
    check_frame(frame, "frame")
    check_column("event_time", event_time, "ts")
    check_column("into", into, "quarantined_time")
    check_event_time(frame.schema, event_time)
    if into in frame.columns:
        found = f"there is already a column `{into}`, where event times from the future would go"
        raise SchemaError(found, "pass another name: into=...")
    if frame.isStreaming and declared_watermarks(frame):
        found = "a watermark is already declared, so an event time from the future would move it"
        raise SchemaError(found, "call guard_future first, then declare_watermark")
    time = F.col(quoted(event_time))
    ahead = is_future(time, skew, is_batch=not frame.isStreaming)
    guarded = {event_time: F.when(ahead, None).otherwise(time), into: F.when(ahead, time)}
    return frame.withColumns(guarded)


@attrs.frozen
class WatermarkReport:
    """
    The watermark of a query, and why it moves or doesn't.

    Attributes:
        state: `no_batch`: no micro-batch has run. `undeclared`: the query has no watermark.
            `waiting`: no event time has moved it yet. `moving`: it advances with the events.
            `idle`: no rows arrive. `stalled`: rows arrive, but none is newer. `held_back`: under
            policy `min`, some sources send nothing while others do. `ahead_of_clock`: an event
            time from the future has moved it past the clock.
        watermark: The watermark in force in the last micro-batch, in event time; None for none.
        since: The start of the first known micro-batch with this watermark, in processing time.
        silent: Under `held_back`: the descriptions of the sources without a row since then.
        dropped: The number of late rows that stateful operators dropped, in the batches that the
            query remembers. For a windowed aggregation, Spark counts groups of late rows.
    """

    state: WatermarkState
    watermark: datetime | None = None
    since: datetime | None = None
    silent: tuple[str, ...] = ()
    dropped: int = 0


@explains
def explain_watermark(query: StreamingQuery) -> WatermarkReport:
    """
    Explain where the watermark of a query is, since when, and what holds it back.

    This reads the last hundred reports of Spark, the plan of the last micro-batch, and the setting
    `spark.sql.streaming.multipleWatermarkPolicy` of the active session; a restarted query keeps the
    setting of its checkpoint. Spark doesn't report the watermark of each source. A source counts as
    silent if it has sent no row since the watermark last moved, and others have. A source that
    sends only old rows isn't found.

    Args:
        query: A query, running or stopped.

    Returns:
        A `WatermarkReport`. `watermark` is an event time; `since` is the processing time from which
        on it has stood there; `silent` has the sources that hold it back; `dropped` is the number
        of late rows. `state` says what it does:

        * `no_batch`: no micro-batch has run.
        * `undeclared`: the query has no watermark.
        * `waiting`: no event time has moved it yet.
        * `moving`: it advances with the events.
        * `idle`: no rows arrive, as after a run under `availableNow`.
        * `stalled`: rows arrive, but none is newer.
        * `held_back`: under the policy `min`, some sources send nothing while others do.
        * `ahead_of_clock`: an event time from the future has moved it past the clock.
    """
    check_query(query)
    return _report(list(filter(has_run, query.recentProgress)), by_slowest=_follows_slowest(query))


def _report(batches: Sequence[Progress], *, by_slowest: bool) -> WatermarkReport:
    if not batches:
        return WatermarkReport("no_batch")
    last = batches[-1]
    if "watermark" not in event_times_in(last):
        return WatermarkReport("undeclared")
    watermark, silent = watermark_in(last), tuple[str, ...]()
    # The batches since the watermark last moved, in order.
    same = takewhile(lambda batch: watermark_in(batch) == watermark, reversed(batches))
    current = [*same][::-1]
    state: WatermarkState = "moving" if last["numInputRows"] else "idle"
    if (watermark or EPOCH) > instant_in(last["timestamp"]):
        state = "ahead_of_clock"
    # The rows of the last batch don't count yet: they move the watermark of the next batch.
    elif any(batch["numInputRows"] for batch in current[:-1]):
        rows: dict[str, int] = {}
        for source in chain.from_iterable(batch["sources"] for batch in current):
            name = source["description"]
            rows[name] = rows.get(name, 0) + source["numInputRows"]
        silent = tuple(name for name, count in rows.items() if by_slowest and not count)
        state = "held_back" if silent else "stalled"
    elif watermark is None:
        state = "waiting"
    dropped = sum(map(dropped_in, batches))
    return WatermarkReport(state, watermark, instant_in(current[0]["timestamp"]), silent, dropped)


def _follows_slowest(query: StreamingQuery) -> bool:
    """Return whether a query has several watermarks, and follows the slowest."""
    session = SparkSession.getActiveSession()
    policy = "min" if session is None else str(session.conf.get(POLICY_SETTING))
    # Only the plan shows the number of watermarks publicly.
    with redirect_stdout(StringIO()) as plan:
        query.explain()
    # An operator of a frame that is used twice appears in the plan twice, with the same id.
    return policy.lower() != "max" and len({*OPERATOR.findall(plan.getvalue())}) > 1
