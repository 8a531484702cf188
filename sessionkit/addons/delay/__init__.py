"""Which watermark delay to choose: how many events of the past would have been late under each."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from sessionkit import Counts, SessionRules, SessionSpec, SpecError, StatefulSpec
from sessionkit._for_addons import Duration, duration_of, explains, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["late_events"]

Spec: TypeAlias = SessionSpec[Any, Any, Any] | StatefulSpec[Any, Any, Any]

DELAYS: Final = ("0s", "1m", "2m", "5m", "10m", "20m", "1h", "2h", "6h", "12h", "1 day")
SHARES: Final = (0.5, 0.99, 0.999)
MICROSECOND: Final = timedelta(microseconds=1)
BAR: Final = 20


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

    def advice(self, share: float = 0.001) -> str:
        """
        Return a sentence: what the smallest delay for this share costs and gains.

        Raises:
            SpecError: As from `smallest`.
        """
        best = self.smallest(share)
        text = f"With a delay of {best}, {self._share(best):.3%} of the events would be late"
        if not (shorter := [delay for delay in self.late if delay < best]):
            return f"{text}."
        other = max(shorter)
        text += f"; with {other}, {self._share(other):.3%}, and results would come"
        return f"{text} {best - other} earlier."

    def _share(self, delay: timedelta) -> float:
        return self.late[delay] / max(self.events, 1)

    def __str__(self) -> str:
        """Return a table: the share of late events, and when results come, by the delay."""
        lines = [f"{'delay':>16}  {'late':>12}  {'share':>8}  {'':{BAR}}  a session's row comes"]
        for delay, count in sorted(self.late.items()):
            share = self._share(delay)
            shown = f"{delay!s:>16}  {count:>12,}  {share:>8.3%}  {'▇' * round(BAR * share):{BAR}}"
            lines.append(f"{shown}  {delay + self.gap} after its last event")
        return "\n".join(lines)


@explains
def late_events(
    history: "DataFrame | Counts",
    spec: Spec,
    *,
    arrived: str | None = None,
    trigger: Duration = "1 minute",
    delays: Sequence[Duration] = DELAYS,
) -> LateEvents:
    """
    Return how many events would have been late, under each of some delays.

    They are the events of the past, or those of a running query, by its counts:
    `late_events(status(query).totals, visits)`. A query measures how far its events come behind,
    see `Counts.behind`. Its numbers are upper limits: a delay may be up to 10 % shorter for the
    same number of late events, and they're less exact under `midnight` and `extends`, where each
    event counts as one whose session is over at once.

    For the past, a watermark is the latest event time of earlier micro-batches less the delay. So
    history is cut into micro-batches by the time at which each event arrived, and each event is
    compared with the latest event time before its own micro-batch, as the spec would: a session
    takes an event until the watermark has passed the end of its window, and under
    `order="event_time"` the event itself.
    Events so far ahead of their arrival that `max_future_skew` quarantines them count for nothing.
    The number is never too low, if rows without an event time or a time of arrival don't count.

    That is what a query sees which keeps up. After a stop, it reads a backlog, where more events
    may be late: docs/how-to/catch-up.md.

    Args:
        history: A batch with the events; or the counts of micro-batches of a query.
        spec: The spec whose events they are. The numbers are upper limits where its gap is a
            function, which counts as zero; under `extends`, where each event counts as one that
            meets no session; and under `close_idle_after`. `Lateness(allowed=...)` counts as a part
            of the delay.
        arrived: For a batch: the column with the time at which an event arrived, such as
            `kafka_timestamp`.
        trigger: The interval of the query's trigger.
        delays: The delays to compare.

    Raises:
        SpecError: The spec has no event time, a duration isn't one, a batch comes without
            `arrived`, or no row or count has what is compared.
    """
    if isinstance(history, Counts):
        return _measured(history, spec, delays)
    if arrived is None:
        found = "`arrived` says when each event of a batch arrived, found None"
        raise SpecError(found, 'name its column: arrived="kafka_timestamp"')
    # The command loads what it needs only when it runs.
    from pyspark.sql import functions as F  # noqa: PLC0415

    from sessionkit.addons.delay.batches import lasts_us, seen_by_batch  # noqa: PLC0415

    time, gap, spans = _rules(spec, delays)
    every = duration_of(trigger, "trigger") // MICROSECOND
    at, came = (F.unix_micros(F.col(quoted(name))) for name in (time, arrived))
    events = history.select(
        at.alias("at"),
        F.floor(came / every).alias("batch"),
        lasts_us(spec, time, _window(spec)).alias("lasts"),
    ).dropna()
    if (skew := spec.inputs.max_future_skew) is not None:
        # At the end of its micro-batch, when it's processed.
        ends = (F.col("batch") + 1) * every
        events = events.where(F.col("at") <= ends + skew // MICROSECOND)
    behind = F.col("seen") - F.col("at") - F.col("lasts")
    compared = events.join(seen_by_batch(spec, events, every), "batch").select(
        F.coalesce(behind, F.lit(-1)).alias("behind")
    )
    counts = [F.count_if(F.col("behind") >= span // MICROSECOND) for span in spans]
    shares = F.percentile_approx("behind", list(SHARES), 10_000)
    *late, quantiles, most, total = compared.agg(
        *counts, shares, F.max("behind"), F.count("*")
    ).collect()[0]
    if not total:
        raise _nothing_to_compare(history, time, arrived)
    values = [max(one or 0, 0) * MICROSECOND for one in (*(quantiles or [0, 0, 0]), most)]
    return LateEvents(
        total,
        dict(zip(spans, late, strict=True)),
        dict(zip((*SHARES, 1.0), values, strict=True)),
        gap,
    )


def _nothing_to_compare(history: "DataFrame", *names: str) -> SpecError:
    from pyspark.sql import functions as F  # noqa: PLC0415

    counts = (F.count(quoted(name)).alias(f"{place}") for place, name in enumerate(names))
    rows, *known = history.agg(F.count(F.lit(1)), *counts).collect()[0]
    shown = ", ".join(f"{count} with `{name}`" for name, count in zip(names, known, strict=True))
    found = f"no row of history shows how late it came: of {rows} rows there are {shown}"
    return SpecError(
        found, f"pass rows that have both, and no time from the future in `{names[0]}`"
    )


def _measured(counts: Counts, spec: Spec, delays: Sequence[Duration]) -> LateEvents:
    """Return the late events of a running query, which measures how far its events come behind."""
    _, gap, spans = _rules(spec, delays)
    rules = spec.timeout
    is_cut = isinstance(rules, SessionRules) and rules.midnight is not None
    window = timedelta(0) if is_cut else _window(spec)
    if (behind := counts.behind.percentiles) is None:
        hint = "pass counts of later micro-batches: there is no watermark in the first"
        raise SpecError("the counts have no event whose delay was measured", hint)
    late = {span: counts.behind.at_least(span + window) for span in spans}
    too_old = (max(one - window, timedelta(0)) for one in attrs.astuple(behind))
    by_share = dict(zip((*SHARES, 1.0), too_old, strict=True))
    return LateEvents(counts.behind.count, late, by_share, gap)


def _rules(spec: Spec, delays: Sequence[Duration]) -> tuple[str, timedelta, list[timedelta]]:
    """Return the event time of a spec, after which gap a session is over, and the delays."""
    if spec.event_time is None:
        raise SpecError("the spec has no event time, so no event is late", "pass event_time=...")
    spans = sorted(duration_of(delay, "delays", zero_allowed=True) for delay in delays)
    return spec.event_time, _gap(spec), spans


def _gap(spec: Spec) -> timedelta:
    gap = spec.timeout.gap if isinstance(spec, SessionSpec) else None
    return timedelta(0) if gap is None or callable(gap) else duration_of(gap, "gap")


def _window(spec: Spec) -> timedelta:
    """Return how long after its time an event is in time at least, unless midnight comes first."""
    extends = spec.timeout.extends if isinstance(spec.timeout, SessionRules) else None
    # In time order an event is late as soon as the watermark has reached it.
    at_once = spec.order == "event_time" or extends is not None
    return timedelta(0) if at_once else _gap(spec)
