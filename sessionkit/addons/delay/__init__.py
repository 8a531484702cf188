"""Choose a watermark delay: count the events that would have been late under each delay."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from sessionkit import Counts, SessionRules, SessionSpec, SpecError, StatefulSpec
from sessionkit._for_addons import Duration, check_column, duration_of, explains, quoted, span_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["late_events"]

Spec: TypeAlias = SessionSpec[Any, Any, Any] | StatefulSpec[Any, Any, Any]

DELAYS: Final = ("0s", "1m", "2m", "5m", "10m", "20m", "1h", "2h", "6h", "12h", "1 day")
SHARES: Final = (0.5, 0.99, 0.999)
BAR: Final = 20


@attrs.frozen
class LateEvents:
    """
    The number of events that would have been late under each watermark delay.

    Attributes:
        events: The number of compared events, which have an event time and a time of arrival.
        late: The number of late events, by delay.
        behind: How much older than a delay of zero allows events were: the median, the 99th and
            the 99.9th percentile under 0.5, 0.99 and 0.999, and the maximum under 1. Percentiles
            are approximate. An event that wasn't late counts as zero.
        gap: The gap after which a session is over; results come after the gap and the delay.
    """

    events: int
    late: Mapping[timedelta, int]
    behind: Mapping[float, timedelta]
    gap: timedelta

    def smallest(self, share: float = 0.001) -> timedelta:
        """
        Return the smallest delay under which at most this share of events is late.

        Raises:
            SpecError: Under each delay, more events are late.
        """
        for delay, count in sorted(self.late.items()):
            if count <= share * self.events:
                return delay
        found = f"under each delay, more than {share:.2%} of the events would have been late"
        raise SpecError(found, f"pass longer delays; the latest needs {self.behind[1]}")

    def advice(self, share: float = 0.001) -> str:
        """
        Return a sentence on the cost and the benefit of the smallest delay for this share.

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
        """Return a table with the share of late events and the time of results, by delay."""
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
    Count the events that would have been late under each watermark delay.

    Pass past events, or the counts of a running query, which measures how late its events are:
    `late_events(status(query).totals, visits)`. A number from counts is never too low, but may be
    too high: counts keep the ages of events in bins, whose limits are about 10 % apart, and the
    whole bin that a delay falls into counts as late. It's higher still under the rules `midnight`
    and `extends`, where each event counts as if its session were over at once.

    Past events are cut into micro-batches by their time of arrival. The watermark is the latest
    event time of earlier micro-batches less the delay, and the spec's rules decide: an event is
    late once the watermark has reached its event time plus the gap or, under `order="event_time"`,
    its event time. Events that `max_future_skew` would quarantine, and rows without an event time
    or a time of arrival, don't count.

    The numbers hold for a query that keeps up. After a stop, a query reads a backlog, where more
    events may be late: docs/how-to/backfill.md#catch-up-after-a-stop.

    Args:
        history: A batch of past events, or the counts of a query's micro-batches.
        spec: The spec that reads the events. The numbers are upper limits if its gap is a function,
            which counts as zero; under `extends`, where each event counts as if it met no session;
            and under `close_idle_after`. `Lateness(allowed=...)` counts as a part of the delay.
        arrived: For a batch: the column with the time of arrival, such as `kafka_timestamp`.
        trigger: The interval of the query's trigger.
        delays: The delays to compare.

    Returns:
        A `LateEvents`. `late` maps each delay, a `timedelta`, to the number of late events;
        `events` is the number of compared events. `smallest(share)` returns the smallest delay
        under which at most this share of events is late; `advice()` says it in a sentence.

    Raises:
        SpecError: The spec has no event time, a duration is invalid, a batch comes without
            `arrived`, the batch has no event to compare, or the counts have measured none.
    """
    if isinstance(history, Counts):
        return _measured(history, spec, delays)
    if arrived is None:
        found = "`arrived` says when each event of a batch arrived, found None"
        raise SpecError(found, 'name its column: arrived="kafka_timestamp"')
    check_column("arrived", arrived, "kafka_timestamp")
    if arrived not in getattr(history, "columns", ()):
        found = f"`history` must be a frame with the column `{arrived}`, found {history!r}"
        raise SpecError(found, 'name a column that it has: arrived="kafka_timestamp"')
    # PySpark is imported when it's needed: `python -m sessionkit` lists the command without it.
    from pyspark.sql import functions as F  # noqa: PLC0415

    from sessionkit.addons.delay.batches import lasts_us, seen_by_batch  # noqa: PLC0415

    time, gap, spans = _rules(spec, delays)
    every = span_us(duration_of(trigger, "trigger"))
    at, arrival = (F.unix_micros(F.col(quoted(name))) for name in (time, arrived))
    events = history.select(
        at.alias("at"),
        F.floor(arrival / every).alias("batch"),
        lasts_us(spec, time, _window(spec)).alias("lasts"),
    ).dropna()
    if (skew := spec.inputs.max_future_skew) is not None:
        # The processing time of an event is the end of its micro-batch.
        ends = (F.col("batch") + 1) * every
        events = events.where(F.col("at") <= ends + span_us(skew))
    behind = F.col("seen") - F.col("at") - F.col("lasts")
    compared = events.join(seen_by_batch(spec, events, every), "batch").select(
        F.coalesce(behind, F.lit(-1)).alias("behind")
    )
    counts = [F.count_if(F.col("behind") >= span_us(span)) for span in spans]
    shares = F.percentile_approx("behind", list(SHARES), 10_000)
    *late, quantiles, most, total = compared.agg(
        *counts, shares, F.max("behind"), F.count("*")
    ).collect()[0]
    if not total:
        raise _nothing_to_compare(history, time, arrived)
    behind_us = [max(us or 0, 0) for us in (*(quantiles or [0, 0, 0]), most)]
    values = [timedelta(microseconds=us) for us in behind_us]
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
    _, gap, spans = _rules(spec, delays)
    rules = spec.timeout
    is_cut = isinstance(rules, SessionRules) and rules.midnight is not None
    window = timedelta(0) if is_cut else _window(spec)
    if (behind := counts.behind.percentiles) is None:
        hint = "pass counts of later micro-batches: there is no watermark in the first"
        raise SpecError("the counts have no event whose delay was measured", hint)
    late = {span: counts.behind.at_least(span + window) for span in spans}
    too_old = (max(delay - window, timedelta(0)) for delay in attrs.astuple(behind))
    by_share = dict(zip((*SHARES, 1.0), too_old, strict=True))
    return LateEvents(counts.behind.count, late, by_share, gap)


def _rules(spec: Spec, delays: Sequence[Duration]) -> tuple[str, timedelta, list[timedelta]]:
    """Return the event time column of a spec, its gap, and the sorted delays."""
    if not isinstance(spec, SessionSpec | StatefulSpec):
        found = f"`spec` must be a SessionSpec or a StatefulSpec, found {spec!r}"
        raise SpecError(found, "pass the one that the query runs")
    if spec.event_time is None:
        raise SpecError("the spec has no event time, so no event is late", "pass event_time=...")
    spans = sorted(duration_of(delay, "delays", zero_allowed=True) for delay in delays)
    return spec.event_time, _gap(spec), spans


def _gap(spec: Spec) -> timedelta:
    gap = spec.timeout.gap if isinstance(spec, SessionSpec) else None
    return timedelta(0) if gap is None or callable(gap) else duration_of(gap, "gap")


def _window(spec: Spec) -> timedelta:
    """Return how far the watermark may pass an event before the event is late, but for midnight."""
    extends = spec.timeout.extends if isinstance(spec.timeout, SessionRules) else None
    # In order of event time, an event is late as soon as the watermark reaches it.
    at_once = spec.order == "event_time" or extends is not None
    return timedelta(0) if at_once else _gap(spec)
