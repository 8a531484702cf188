"""What is counted for every micro-batch: each count is declared here, and nowhere else."""

from collections.abc import Callable
from datetime import timedelta
from itertools import zip_longest
from operator import add, attrgetter
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import LogBins, micros, ranks

BINS: Final = LogBins(relative_error=0.05)
"""Of milliseconds, as a watermark is."""
SHARES: Final = (0.5, 0.99, 0.999, 1)
MILLISECOND: Final = timedelta(milliseconds=1)


@attrs.frozen
class Percentiles:
    """
    The longest of some durations, and how long most of them are at the most.

    Attributes:
        p50: The median.
        p99: The 99th percentile.
        p999: The 99.9th percentile.
        maximum: The longest.
    """

    p50: timedelta
    p99: timedelta
    p999: timedelta
    maximum: timedelta


@attrs.frozen
class DurationSketch:
    """
    How many of some durations are in each bin of `LogBins`: a sketch of them.

    Two of them add up with `+`.

    Attributes:
        bins: How many are in each bin: first the negative ones, then those of up to a millisecond;
            each further bin reaches 10.5 % further than the one before.
    """

    bins: tuple[int, ...] = ()

    @classmethod
    def of_times(cls, times: pa.ChunkedArray, latest_us: int) -> "DurationSketch":
        """Return how far some times are behind a latest one."""
        durations_us = latest_us - micros(times)
        durations_ms = np.maximum(durations_us[durations_us >= 0] / 1_000, 1.0)
        powers = BINS.powers(durations_ms)
        # Of the durations -5 s, 1 ms, 1 ms and 1.1 ms, the bins are [1, 2, 1].
        bins = np.bincount(1 + powers, minlength=1).tolist()
        bins[0] = len(durations_us) - len(durations_ms)
        return cls(tuple(bins))

    @property
    def count(self) -> int:
        """How many durations it has."""
        return sum(self.bins)

    @property
    def percentiles(self) -> Percentiles | None:
        """Their percentiles, within 5 %, and zero for negative ones; None where there is none."""
        if not self.count:
            return None
        wanted = np.concatenate([ranks(share, np.array([self.count])) for share in SHARES])
        at = np.searchsorted(np.cumsum(self.bins), wanted)
        middles = np.where(at > 0, np.rint(BINS.middles(at - 1)), 0)
        return Percentiles(*(number * MILLISECOND for number in middles.tolist()))

    def at_least(self, duration: timedelta) -> int:
        """Return how many are as long or longer; those in the bin of this duration all count."""
        power = BINS.powers(np.array([max(duration / MILLISECOND, 1.0)]))[0]
        return sum(self.bins[1 + power :])

    def __add__(self, other: "DurationSketch") -> "DurationSketch":
        """Return the sketch of the durations of both."""
        return DurationSketch(tuple(map(sum, zip_longest(self.bins, other.bins, fillvalue=0))))


@attrs.frozen
class Declared:
    """
    How a count is named and explained, wherever it's shown.

    Attributes:
        name: Its name in `Counts`.
        meaning: What it counts, as its metric says it.
        metric: The name of its metric, without prefix and unit; None where it isn't a counter.
        is_end: Whether each event ends in exactly one such count, so that they add up to `events`.
        is_rejected: Whether it counts rows that are set aside, under a `kind` of its name.
        needs_input: Whether it's zero in a micro-batch without input.
    """

    name: str
    meaning: str
    metric: str | None
    is_end: bool = False
    is_rejected: bool = False
    needs_input: bool = False


def _count(metric: str | None, meaning: str, **what: bool) -> Any:
    return attrs.field(default=0, metadata={"metric": metric, "meaning": meaning, **what})


@attrs.frozen
class Counts:
    """
    What became of the events of one micro-batch, or of a whole batch.

    Attributes:
        events: The rows that came in. Spark drops none of them, however late they are.
        processed: Events that became part of a session, or that the functions of a `StatefulSpec`
            were given.
        late: Events that came too late.
        duplicate: Events whose id was processed already, under `drop_duplicates_for`.
        quarantined: Rows that could not be events: a null key or time, a null in a required field.
        failed: Events for which a function raised, under `on_error="reject"`.
        buffered: Under `order="event_time"`, by how many the events that wait for the watermark
            have grown; negative where more were processed than came.
        sessions: Sessions that closed; one that late events reopen or revise closes again.
        timers: Named timers that fired, and keys that their timeout policy ended, of a
            `StatefulSpec`.
        rows: The result rows.
        revised: Those of them that replace earlier ones, of their session or of sessions that it
            has taken in.
        out_of_order: Sessions that closed, and had begun before the previous one of their key was
            over: an event was late for that one, or this one closed later. Their `since_previous`
            is negative. Zero without `memory`.
        failed_output: Sessions that closed and whose `finish` or `remember` raised, sessions that
            were dropped, and timers whose `on_timer` raised, unless `on_error="raise"`.
        erasures: Keys that were erased, see `erase` of `sessionize`. They aren't among the events.
        erased_states: What was stored of them: open sessions, closed ones that were kept for late
            events, remembered ids and sessions that were dropped; or the states of keys.
        erased_events: Their events that waited for the watermark. `buffered` falls by as many.
        unknown: The names of counts that Spark didn't report, see `batch_counts`.
        behind: How far events were behind the latest event time of earlier micro-batches, negative
            for those ahead of it; see `Lateness(measured=...)`. Without those in micro-batches that
            have no watermark. It doesn't count where counts are compared.
    """

    events: int = _count("events", "Rows that came in", needs_input=True)
    processed: int = _count("processed", "Events that became part of a result", is_end=True)
    late: int = _count(
        "late", "Events that came too late", is_end=True, is_rejected=True, needs_input=True
    )
    duplicate: int = _count("duplicate", "Events that came again", is_end=True, is_rejected=True)
    quarantined: int = _count(
        "quarantined",
        "Rows that couldn't be events",
        is_end=True,
        is_rejected=True,
        needs_input=True,
    )
    failed: int = _count(
        "failed", "Events for which a function raised", is_end=True, is_rejected=True
    )
    # It rises and falls, so its metric is a gauge: of how many wait.
    buffered: int = _count(None, "Events that wait for the watermark", is_end=True)
    sessions: int = _count("sessions_closed", "Sessions that closed")
    timers: int = _count("timers", "Timers that fired, and keys that ended")
    rows: int = _count("rows", "Result rows")
    revised: int = _count("revised", "Result rows that replace earlier ones")
    out_of_order: int = _count(
        "out_of_order", "Sessions that began before the previous one was over"
    )
    failed_output: int = _count("failed_output", "Outputs that failed", is_rejected=True)
    erasures: int = _count("erasures", "Keys that were erased", needs_input=True)
    erased_states: int = _count(
        "erased_states", "Stored rows of keys that were erased", needs_input=True
    )
    erased_events: int = _count(
        "erased_events", "Events that waited and were erased", is_end=True, needs_input=True
    )
    unknown: frozenset[str] = frozenset()
    behind: DurationSketch = attrs.field(default=DurationSketch(), eq=False, repr=False)

    @staticmethod
    def declared() -> "tuple[Declared, ...]":
        """Return what each count is called, and what it counts."""
        return DECLARED

    @property
    def is_balanced(self) -> bool:
        """Whether every event is accounted for exactly once."""
        return self.events == sum(self.ends.values())

    @property
    def ends(self) -> dict[str, int]:
        """What became of the events; balanced counts add up to `events`."""
        return {count.name: getattr(self, count.name) for count in DECLARED if count.is_end}

    def __add__(self, other: "Counts") -> "Counts":
        """Return the counts of two micro-batches together."""
        sums: dict[str, Any] = dict(
            zip(COUNTED, map(add, NUMBERS(self), NUMBERS(other)), strict=True)
        )
        unknown, behind = self.unknown | other.unknown, self.behind + other.behind
        return Counts(**sums, unknown=unknown, behind=behind)


DECLARED: Final = tuple(
    Declared(name=field.name, **field.metadata)
    for field in attrs.fields(Counts)
    if "meaning" in field.metadata
)
COUNTED: Final = tuple(count.name for count in DECLARED)
"""What a bucket counts, in the order in which it crosses to Spark."""
NUMBERS: Final[Callable[[Counts], tuple[int, ...]]] = attrgetter(*COUNTED)
"""Returns these of some counts."""
