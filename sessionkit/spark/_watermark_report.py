"""What the progress of a query reveals about its watermark, and what it can't."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._engine.wire.packing import WATERMARK_COLUMN
from sessionkit._instants import EPOCH, duration_text
from sessionkit.arguments import explains
from sessionkit.spark.progress import (
    DROPPED,
    event_times_in,
    has_run,
    instant_in,
    newest_event_in,
    spark_watermark_in,
    total,
    watermark_in,
)

Policy: TypeAlias = Literal["min", "max"]
"""
Which of several sources moves the watermark of a query: the slowest (`min`), or the fastest.

It's Spark's setting `spark.sql.streaming.multipleWatermarkPolicy`; `check_watermarks` says what
each of the two costs.
"""

Progress: TypeAlias = Mapping[str, Any]
WatermarkState: TypeAlias = Literal[
    "no_batch", "undeclared", "waiting", "moving", "idle", "stalled", "held_back", "ahead_of_clock"
]
"""
Why the watermark of a query moves, or doesn't, as of its last micro-batch.

`WatermarkReport` says what each name means.
"""

POLICY_SETTING: Final = "spark.sql.streaming.multipleWatermarkPolicy"
# Spark 4.0 and later put the operator's id before the column.
OPERATOR: Final = re.compile(r"EventTimeWatermark (?:[0-9a-f-]{36}, )?(\S+)#\d+: \w+, (.+)")
SHOWN_AS: Final = {WATERMARK_COLUMN: "the event time of the spec"}


@attrs.frozen
class WatermarkReport:
    """
    Where the watermark of a query stands, and why.

    Attributes:
        state: `no_batch`: no micro-batch has run. `undeclared`: the query has no watermark.
            `waiting`: no event time has moved it yet. `moving`: it advances with the events.
            `idle`: no rows arrive. `stalled`: rows arrive, but none is newer. `held_back`: under
            policy `min`, some sources send nothing while others do. `ahead_of_clock`: an event
            time from the future has moved it past the clock.
        watermark: In force in the last micro-batch, in event time; None while there is none.
        since: The start of the first known micro-batch with this watermark, in processing time.
        silent: Under `held_back`: the descriptions of the sources without a row since then.
        dropped: How many late rows stateful operators dropped, in the batches that the query
            remembers. For a windowed aggregation, Spark counts groups of late rows.
        text: All this in words.
    """

    state: WatermarkState
    watermark: datetime | None
    since: datetime | None
    silent: tuple[str, ...]
    dropped: int
    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@attrs.frozen
class _Record:
    """The batches that a query remembers, and its watermark operators."""

    batches: Sequence[Progress]
    operators: tuple[tuple[str, str], ...]
    policy: Policy

    @property
    def last(self) -> Progress:
        return self.batches[-1]

    @property
    def current(self) -> Sequence[Progress]:
        """The batches since the watermark last moved."""
        now = watermark_in(self.last)
        run = list(takewhile(lambda batch: watermark_in(batch) == now, reversed(self.batches)))
        return run[::-1]

    @property
    def silent(self) -> tuple[str, ...]:
        """The sources without a row since the watermark last moved."""
        rows = Counter[str]()
        for batch in self.current:
            for source in batch["sources"]:
                rows[source["description"]] += source["numInputRows"]
        return tuple(name for name, count in rows.items() if not count)

    @property
    def is_slowest_of_several(self) -> bool:
        """Whether the watermark is that of the slowest of several sources."""
        return self.policy == "min" and len(self.operators) > 1


@explains
def watermark_of(query: StreamingQuery) -> datetime | None:
    """
    Return the watermark that was in force in the last micro-batch, in UTC.

    The events of that batch move it for the next one. It is None before the first batch, without
    a watermark, and while Spark shows 1970 because no event time has moved it yet. A watermark
    after the year 9999 is returned as the last instant of that year. For a spec with
    `close_idle_after`, it's that of the bucket that is furthest ahead of Spark's watermark, of
    those that were called.
    """
    progress = query.lastProgress
    return None if progress is None else watermark_in(progress)


@explains
def watermark_lag(
    query: StreamingQuery,
    *,
    behind: Literal["event_time", "clock"] = "event_time",
    now: datetime | None = None,
) -> timedelta | None:
    """
    Return how far the watermark trails the newest event time, or the clock.

    * `"event_time"`: the newest event time in the batches that the query remembers, minus the
      watermark. It equals the delay, or more until the next batch uses the event times of the last
      one. If a query has several watermarks, Spark reports the event times of the first only.
    * `"clock"`: processing time minus the watermark. It grows while no newer rows arrive, so it is
      the one to monitor. It is negative if the watermark is ahead of the clock.

    Args:
        query: A query, running or stopped.
        behind: What to compare the watermark with.
        now: The processing time, timezone-aware; by default this machine's clock.

    Returns:
        The lag; None without a watermark, or if no event time is remembered.
    """
    watermark = watermark_of(query)
    if watermark is None:
        return None
    if behind == "clock":
        return (now or datetime.now(UTC)) - watermark
    newest = newest_event_in(query.recentProgress)
    return None if newest is None else newest - watermark


@explains
def explain_watermark(query: StreamingQuery) -> WatermarkReport:
    """
    Explain where the watermark of a query stands, since when, and what holds it back.

    This reads `query.recentProgress`, which covers the last hundred batches or idle reports, the
    plan of the last batch, and the watermark policy of the active session. Their limits:

    * Progress doesn't contain a watermark for each source. A source is named as holding the
      watermark back if others have sent rows since it last moved and this one hasn't. A source
      that sends only old rows isn't found.
    * Spark reports the event times of one watermark operator only.
    * A restarted query keeps the policy of its checkpoint, which may differ from the session's.

    Args:
        query: A query, running or stopped.
    """
    batches = list(filter(has_run, query.recentProgress))
    session = SparkSession.getActiveSession()
    setting = "min" if session is None else str(session.conf.get(POLICY_SETTING))
    policy: Policy = "max" if setting.lower() == "max" else "min"
    # Column and delay of each watermark are public in the plan only.
    with redirect_stdout(StringIO()) as plan:
        query.explain()
    # An operator of a frame that is used twice appears in the plan twice, with the same id.
    found = {match[0]: match for match in OPERATOR.finditer(plan.getvalue())}
    operators = tuple((SHOWN_AS.get(match[1], match[1]), match[2]) for match in found.values())
    return _report(_Record(batches, operators, policy))


def _report(record: _Record) -> WatermarkReport:
    if not record.batches:
        text = "No micro-batch has run yet."
        return WatermarkReport("no_batch", None, None, (), 0, text)
    if "watermark" not in event_times_in(record.last):
        text = (
            "The query has no watermark: state is never dropped, and no row is late.\n"
            "Hint: declare one with declare_watermark, before the stateful operator."
        )
        return WatermarkReport("undeclared", None, None, (), 0, text)
    state = _state(record)
    silent = record.silent if state == "held_back" else ()
    since = instant_in(record.current[0]["timestamp"])
    dropped = sum(total(batch["stateOperators"], DROPPED) for batch in record.batches)
    lines = [_headline(record), _reason(record, state)]
    if dropped:
        first, last = record.batches[0]["batchId"], record.last["batchId"]
        lines.append(f"Late rows dropped in batches {first} to {last}: {dropped}.")
    text = "\n".join(lines)
    return WatermarkReport(state, watermark_in(record.last), since, silent, dropped, text)


def _state(record: _Record) -> WatermarkState:
    watermark = watermark_in(record.last)
    if watermark is not None and watermark > instant_in(record.last["timestamp"]):
        return "ahead_of_clock"
    # The rows of the last batch don't count yet: they move the watermark of the next batch.
    if any(batch["numInputRows"] for batch in record.current[:-1]):
        return "held_back" if record.is_slowest_of_several and record.silent else "stalled"
    if watermark is None:
        return "waiting"
    return "moving" if record.last["numInputRows"] else "idle"


def _headline(record: _Record) -> str:
    watermark, first = watermark_in(record.last), record.current[0]
    is_whole = first is not record.batches[0] or first["batchId"] == 0
    found = "No event time has moved the watermark"
    if watermark is not None:
        found = f"The watermark is {watermark.isoformat()}"
    since = f"since batch {first['batchId']} ({first['timestamp']})"
    declared = "; ".join(f"{column} - {delay}" for column, delay in record.operators)
    made_of = f" It is computed from: {declared}." if declared else ""
    return f"{found}, {since}{'' if is_whole else ' or before'}.{made_of}"


def _reason(record: _Record, state: WatermarkState) -> str:
    match state:
        case "waiting":
            return "The first event times set it for the batch after theirs."
        case "moving":
            return "Rows arrive, and set it for the next batch."
        # Buckets of a spec may follow the processing time.
        case "idle" if watermark_in(record.last) != spark_watermark_in(record.last):
            return (
                "No rows have moved it for as long as `close_idle_after` says, so it follows the "
                "clock, at the distance of the delay."
            )
        case "idle":
            return (
                "No rows arrive: only newer event times move it; the passing of time doesn't. "
                "What waits for it stays open."
            )
        case "stalled":
            rows = total(record.current, "numInputRows")
            found = f"{rows} rows have arrived since then, none with an event time that moves it"
            if record.is_slowest_of_several:
                return (
                    f"{found}: every source sends rows, but one sends event times that are too old "
                    "or null. Progress doesn't say which."
                )
            return f"{found}: all are null, or no newer than earlier ones."
        case "held_back":
            return (
                f"Rows have arrived, but none from {', '.join(record.silent)}. Under policy "
                "'min' the slowest source decides, and one that has sent nothing counts as 1970.\n"
                "Hint: have it send rows, or union the sources first and declare one watermark on "
                f"the result, or set {POLICY_SETTING} to 'max' before the first start."
            )
        case _:
            newest = max(record.batches, key=lambda batch: newest_event_in([batch]) or EPOCH)
            seen = newest_event_in([newest])
            by = "" if seen is None else f" Batch {newest['batchId']} contained {seen.isoformat()}."
            ahead = (watermark_in(record.last) or EPOCH) - instant_in(record.last["timestamp"])
            days, seconds = f"{ahead.days:,} days", duration_text(timedelta(seconds=ahead.seconds))
            return (
                f"It is {days if ahead.days else seconds} ahead of the clock, because of an event "
                f"time from the future.{by} It never goes back, and every older row is dropped.\n"
                "Hint: put guard_future before declare_watermark, and start with a new checkpoint."
            )
