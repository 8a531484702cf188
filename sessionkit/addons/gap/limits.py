"""Count the sessions that a longest duration or a largest number of events would cut."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import attrs

from sessionkit import Inputs, SessionRules, SpecError
from sessionkit import aggregates as agg
from sessionkit._for_addons import duration_text, span_us


@attrs.frozen
class Cut:
    """
    What a limit would cut.

    Attributes:
        sessions: The number of sessions that go beyond the limit.
        events: The number of events in them.
    """

    sessions: int
    events: int


@attrs.frozen
class Limits:
    """
    How many sessions are longer, or have more events, than each limit.

    Attributes:
        gap: The gap of the sessions.
        sessions: The number of all sessions.
        events: The number of all events.
        by_duration: What `max_duration` would cut: the sessions that are longer.
        by_events: What `max_events` would cut: the sessions with more events.
    """

    gap: timedelta
    sessions: int
    events: int
    by_duration: Mapping[timedelta, Cut]
    by_events: Mapping[int, Cut]

    def __str__(self) -> str:
        """Return a table with the sessions that each limit would cut."""
        texts = {f"longer than {duration_text(one)}": cut for one, cut in self.by_duration.items()}
        texts |= {f"more than {one:,} events": cut for one, cut in self.by_events.items()}
        lines = [f"{'sessions':>26}  {'number':>12}  {'share':>9}  of all events"]
        for text, cut in texts.items():
            share = cut.sessions / max(self.sessions, 1)
            of_events = cut.events / max(self.events, 1)
            lines.append(f"{text:>26}  {cut.sessions:>12,}  {share:>9.3%}  {of_events:>13.1%}")
        return "\n".join(lines)


def limits_of(
    asked: Mapping[str, Any], gap: timedelta, durations: Sequence[timedelta], events: Sequence[int]
) -> Limits:
    from pyspark.sql import functions as F  # noqa: PLC0415 - the command is listed without it

    from sessionkit.spark import sessions  # noqa: PLC0415

    if any(one < 1 for one in events):
        found = f"`events` must be numbers of events from one on, found {list(events)}"
        raise SpecError(found, "write events=[100, 1000]")
    rules = SessionRules(gap, gap_inclusive=asked["gap_inclusive"])
    found_sessions = sessions(
        asked["frame"],
        keys=asked["keys"],
        event_time=asked["event_time"],
        timeout=rules,
        inputs=Inputs(max_future_skew=asked["max_future_skew"]),
    ).agg(events=agg.count())
    lasts = F.unix_micros("last_event_time") - F.unix_micros("session_start")
    over = [lasts > span_us(one) for one in durations] + [F.col("events") > one for one in events]
    sums = [
        F.coalesce(F.sum(F.when(is_over, value)), F.lit(0))
        for is_over in (F.lit(1) == 1, *over)
        for value in (F.lit(1), F.col("events"))
    ]
    totals = found_sessions.agg(*(each.alias(f"n{place}") for place, each in enumerate(sums)))
    counts = list(totals.collect()[0])
    every, *cuts = (Cut(*counts[place : place + 2]) for place in range(0, len(counts), 2))
    by_duration = dict(zip(durations, cuts, strict=False))
    by_events = dict(zip(events, cuts[len(durations) :], strict=True))
    return Limits(gap, every.sessions, every.events, by_duration, by_events)
