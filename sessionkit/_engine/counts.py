"""The counts of a micro-batch, with their names, metrics and explanations."""

from collections.abc import Callable
from datetime import timedelta
from itertools import zip_longest
from operator import add, attrgetter
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import LogBins, micros, ranks
from sessionkit._shown import as_call, html_table

BINS: Final = LogBins(relative_error=0.05)
"""Bins of durations in milliseconds, the precision of a watermark."""
SHARES: Final = (0.5, 0.99, 0.999, 1)
MILLISECOND: Final = timedelta(milliseconds=1)


@attrs.frozen
class Percentiles:
    """
    Percentiles of durations.

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
    A sketch of durations: the number of durations in each bin of `LogBins`.

    `+` adds two sketches.

    Attributes:
        bins: The number of durations in each bin: first negative durations, then durations up to a
            millisecond; the limit of each further bin is 10.5 % higher.
    """

    bins: tuple[int, ...] = ()

    @classmethod
    def of_times(cls, times: pa.ChunkedArray, latest_us: int) -> "DurationSketch":
        """Return the sketch of how much older than a latest event time the given times are."""
        durations_us = latest_us - micros(times)
        durations_ms = np.maximum(durations_us[durations_us >= 0] / 1_000, 1.0)
        powers = BINS.powers(durations_ms)
        # The durations -5 s, 1 ms, 1 ms and 1.1 ms give the bins [1, 2, 1].
        bins = np.bincount(1 + powers, minlength=1).tolist()
        bins[0] = len(durations_us) - len(durations_ms)
        return cls(tuple(bins))

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.bins)

    @property
    def percentiles(self) -> Percentiles | None:
        """The percentiles within 5 %, with negative durations as zero; None without durations."""
        if not self.count:
            return None
        positions = np.concatenate([ranks(share, np.array([self.count])) for share in SHARES])
        at = np.searchsorted(np.cumsum(self.bins), positions)
        middles = np.where(at > 0, np.rint(BINS.middles(at - 1)), 0)
        return Percentiles(*(number * MILLISECOND for number in middles.tolist()))

    def at_least(self, duration: timedelta) -> int:
        """Return how many durations are at least this long; the whole bin of `duration` counts."""
        power = BINS.powers(np.array([max(duration / MILLISECOND, 1.0)]))[0]
        return sum(self.bins[1 + power :])

    def __add__(self, other: "DurationSketch") -> "DurationSketch":
        """Return a single sketch of the durations in both."""
        return DurationSketch(tuple(map(sum, zip_longest(self.bins, other.bins, fillvalue=0))))


@attrs.frozen
class Declared:
    """
    The declaration of a count, for everything that shows it.

    Attributes:
        name: Its name in `Counts`.
        meaning: What it counts, as the description of its metric.
        metric: The name of its metric, without prefix and unit; None if it isn't a counter.
        is_end: Whether it's an outcome of events: each event has exactly one outcome, so these
            counts add up to `events`.
        is_rejected: Whether it counts rejected rows, with its name as their `kind`.
        needs_input: Whether it's zero in a micro-batch without input.
    """

    name: str
    meaning: str
    metric: str | None
    is_end: bool = False
    is_rejected: bool = False
    needs_input: bool = False


def _count(meaning: str, **declared: Any) -> Any:
    return attrs.field(default=0, metadata={"meaning": meaning, **declared})


@attrs.frozen(repr=False)
class Counts:
    """
    The counts of a micro-batch, or of a whole batch.

    Each event has exactly one outcome: `processed`, `late`, `duplicate`, `outside`, `quarantined`,
    `failed`, `buffered` or `erased_events`.

    Attributes:
        events: Input rows, whether they're valid events or not. Spark drops none of them, however
            late they are.
        processed: Events that became part of a session, or that the functions of a `StatefulSpec`
            received.
        late: Late events.
        duplicate: Events whose id was processed already, under `drop_duplicates_for`.
        outside: Events outside any session that may not open one, under `opens_with`.
        quarantined: Rows that aren't valid events: a null key or time, a null in a required field,
            a time too far ahead. Each has its reason.
        failed: Events for which a function raised, under `on_error="reject"`.
        buffered: Under `order="event_time"`, the change in the number of events that wait for the
            watermark; negative if more of them were processed than came.
        sessions: Sessions that closed, without those in `failed_output`; a session that late events
            reopen or revise closes again.
        timers: For a `StatefulSpec`, timers that fired, and keys that the timeout ended; each also
            if `on_timer` failed.
        rows: Result rows.
        revised: Result rows that replace earlier rows, whether of their own session or of sessions
            that have been merged into it.
        out_of_order: Closed sessions whose `since_previous` is negative: they began before the
            previous session of their key was over. An event that comes after the previous session
            has closed can begin such a session. With a gap that is a function, a session can also
            close after one that began later. Zero without `memory`.
        failed_output: Under `on_error="reject"`, sessions whose `finish` or `remember` raised, for
            an early row too, or whose `finish` returned None for a row that replaces another; and
            timers, and ends of keys, whose `on_timer` raised.
        erasures: Erased keys, see `erase` of `sessionize`. They aren't among the events.
        erased_states: Stored rows of erased keys: open sessions, closed sessions kept for late
            events, and remembered keys or ids; or the states of keys.
        erased_events: Buffered events of erased keys. They leave `buffered`, and count here.
        unknown: The names of counts that Spark didn't report, see `batch_counts`.
        behind: How much older events were than the latest event time of earlier micro-batches: a
            sketch of durations, negative for newer events; see `Lateness(measured=...)`. Leaves out
            micro-batches without a watermark. `==` between `Counts` ignores this.
    """

    events: int = _count("Rows that came in", needs_input=True)
    processed: int = _count("Events that became part of a result", is_end=True)
    late: int = _count("Events that came too late", is_end=True, is_rejected=True, needs_input=True)
    duplicate: int = _count("Events that came again", is_end=True, is_rejected=True)
    outside: int = _count("Events outside any session", is_end=True, is_rejected=True)
    quarantined: int = _count(
        "Rows that couldn't be events", is_end=True, is_rejected=True, needs_input=True
    )
    failed: int = _count("Events for which a function raised", is_end=True, is_rejected=True)
    # It rises and falls, so its metric is a gauge of the waiting events.
    buffered: int = _count("Events that wait for the watermark", is_end=True, metric=None)
    sessions: int = _count("Sessions that closed", metric="sessions_closed")
    timers: int = _count("Timers that fired, and keys that ended")
    rows: int = _count("Result rows")
    revised: int = _count("Result rows that replace earlier ones")
    out_of_order: int = _count("Sessions that began before the previous one was over")
    failed_output: int = _count("Outputs that failed", is_rejected=True)
    erasures: int = _count("Keys that were erased", needs_input=True)
    erased_states: int = _count("Stored rows of keys that were erased", needs_input=True)
    erased_events: int = _count("Events that waited and were erased", is_end=True, needs_input=True)
    unknown: frozenset[str] = frozenset()
    behind: DurationSketch = attrs.field(default=DurationSketch(), eq=False, repr=False)

    def __repr__(self) -> str:
        """Leave out counts that are zero."""
        return as_call(self)

    def _repr_html_(self) -> str:
        """Return the counts that aren't zero as a table, for notebooks."""
        rows = [
            (count.name, "unknown" if count.name in self.unknown else f"{number:,}", count.meaning)
            for count, number in zip(DECLARED, COUNTS_OF(self), strict=True)
            if number or count.name in {"events", *self.unknown}
        ]
        return html_table(("count", "number", "meaning"), rows)

    @staticmethod
    def declared() -> "tuple[Declared, ...]":
        """Return the declaration of each count."""
        return DECLARED

    @property
    def is_balanced(self) -> bool:
        """Whether each event has exactly one outcome: the values of `ends` add up to `events`."""
        return self.events == sum(self.ends.values())

    @property
    def ends(self) -> dict[str, int]:
        """The eight outcomes of events, by their names: a dict of counts, zeros too."""
        return {count.name: getattr(self, count.name) for count in DECLARED if count.is_end}

    def __add__(self, other: "Counts") -> "Counts":
        """Return the sum of two micro-batches' counts."""
        sums: dict[str, Any] = dict(
            zip(COUNTED, map(add, COUNTS_OF(self), COUNTS_OF(other)), strict=True)
        )
        unknown, behind = self.unknown | other.unknown, self.behind + other.behind
        return Counts(**sums, unknown=unknown, behind=behind)


DECLARED: Final = tuple(
    Declared(**{"name": field.name, "metric": field.name, **field.metadata})
    for field in attrs.fields(Counts)
    if "meaning" in field.metadata
)
COUNTED: Final = tuple(count.name for count in DECLARED)
"""The names of all counts, in the order in which a bucket passes them to Spark."""
REJECTED: Final = tuple(count.name for count in DECLARED if count.is_rejected)
"""The kinds of rejected rows: each is a count."""
COUNTS_OF: Final[Callable[[Counts], tuple[int, ...]]] = attrgetter(*COUNTED)
"""Returns the counts in the order of `COUNTED`."""
