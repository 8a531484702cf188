"""Choose a gap: the sessions under each gap, and where their number hardly changes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from sessionkit import SpecError
from sessionkit._for_addons import Duration, duration_of, duration_text, explains, names_of, span_us
from sessionkit.addons.gap.limits import Limits, limits_of
from sessionkit.addons.gap.picture import svg_of, text_of
from sessionkit.addons.gap.tallies import FOLDS, GRID, REASONS, TOTAL, UNITS, Tally
from sessionkit.addons.gap.valley import (
    SIGMAS_OF_A_FOLD,
    Mixture,
    Valley,
    mixture_of,
    pauses_by_bin,
    valley_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sessionkit.addons.gap.engine import Counted

__all__ = ["gaps"]

SHOWN: Final = (
    *("1s", "10s", "30s", "1m", "2m", "5m", "10m", "15m", "20m", "30m", "45m"),
    *("1h", "2h", "4h", "6h", "12h", "1 day", "2 days", "1 week", "2 weeks", "4 weeks"),
)
ROUND: Final = tuple(
    timedelta(seconds=number * unit)
    for unit, numbers in (
        (1, (1, 2, 5, 10, 15, 20, 30, 45)),
        (60, (1, 2, 5, 10, 15, 20, 30, 45)),
        (3_600, (1, 2, 3, 4, 6, 8, 12)),
        (86_400, (1, 2, 3, 5, 7, 14, 28)),
    )
    for number in numbers
)
MOST_PARTS: Final = 100
SURE: Final = FOLDS - 1
"""On how many groups of keys advice must hold to be called sure."""


@attrs.frozen
class SessionsOfGap:
    """
    The sessions under one gap.

    Attributes:
        gap: The gap.
        sessions: Their number.
        events_each: The mean number of events in one.
        single: The number of sessions of one event.
        median: The median of their lengths, from the first event to the last; of an even number of
            sessions, the mean of the two in the middle.
        with_twice: The number of sessions under twice the gap.
        with_half: The number of sessions under half the gap.
    """

    gap: timedelta
    sessions: int
    events_each: float
    single: int
    median: timedelta
    with_twice: int
    with_half: int

    @property
    def lost_with_twice(self) -> float:
        """The share of the sessions that twice the gap would take away."""
        return 1 - self.with_twice / self.sessions

    @property
    def more_with_half(self) -> float:
        """How many more sessions half the gap would make, as a share of these sessions."""
        return self.with_half / self.sessions - 1


@attrs.frozen
class Gaps:
    """
    The sessions under each gap, the pauses between events, and which gap they suggest.

    `print(found)` shows the table, `print(found.picture())` the pauses, and a notebook both.

    Attributes:
        rows: The sessions under each gap, the shortest first.
        events: The number of events.
        keys: The number of keys that have events.
        keys_of_one: The number of keys with a single event, which say nothing about a gap.
        rejected: The number of rows that are no events: without a time (`time`) or a key (`key`),
            or more than `max_future_skew` ahead of the clock (`future`).
        gap_inclusive: Whether an event exactly a gap later belongs to the session.
        suggested: A gap in the valley: of the round ones on which at least nine groups of keys
            agree, or else most of them, the nearest to the crossing, or to the bottom of the valley
            where it has no crossing. None where there's no valley.
        valley: From where to where the number of sessions hardly changes; None if nowhere.
        crossing: The pause that is as likely within a visit as between visits, if pauses are a
            mixture of two log-normal distributions. None where there's no valley, or none between
            its two parts.
        agreeing: How many of ten groups of keys, each by itself, have a valley with `suggested`.
        by: The same for each value of the column `by`, as text.
    """

    rows: tuple[SessionsOfGap, ...]
    events: int
    keys: int
    keys_of_one: int
    rejected: Mapping[str, int]
    gap_inclusive: bool
    suggested: timedelta | None
    valley: tuple[timedelta, timedelta] | None
    crossing: timedelta | None
    agreeing: int
    by: Mapping[str | None, "Gaps"]
    _found: Valley | None = attrs.field(repr=False)
    _mixture: Mixture | None = attrs.field(repr=False)
    _pauses: Any = attrs.field(repr=False, eq=False)
    _asked: Mapping[str, Any] = attrs.field(repr=False, eq=False)

    def advice(self) -> str:
        """Return in a few sentences which gap to take, why, and how sure that is."""
        rest = f"It rests on {self.keys - self.keys_of_one:,} keys with two events or more."
        if self.suggested is None or self.valley is None or self._found is None:
            return (
                "There is no valley: the number of sessions changes with every gap, so no gap is "
                "right. Let an explicit end, a rule such as `until`, or `changes_of` say where a "
                f"session ends. {rest}"
            )
        low, high = map(duration_text, self.valley)
        found = self._found
        text = (
            f"Take {duration_text(self.suggested)}. From {low} to {high} the number of sessions "
            f"hardly changes: each doubling of the gap takes away {found.change:.1%} to "
            f"{found.most:.1%} of them, and {found.peak:.0%} or more on both sides of this valley."
        )
        if self.crossing is not None:
            is_in = self.valley[0] <= self.crossing <= self.valley[1]
            text += (
                f" A pause of {duration_text(self.crossing)} is as likely within a visit as "
                f"between visits{'' if is_in else ', but that is outside of the valley'}."
            )
        sure = "It's sure" if self.agreeing >= SURE else "It isn't sure"
        return (
            f"{self._doubt()}{text} {sure}: {self.agreeing} of {FOLDS} groups of keys, each by "
            f"itself, have a valley there. {rest}"
        )

    def _doubt(self) -> str:
        """Return what to look at first, if a stretch of the valley has no pause at all."""
        empty = list[timedelta]()
        for row in self.rows:
            is_next = not empty or row.gap <= 2 * empty[-1]
            if is_next and row.with_twice == row.sessions and self._is_in_valley(row.gap):
                empty.append(row.gap)
        if not empty:
            return ""
        low, high = map(duration_text, (empty[0], 2 * empty[-1]))
        return (
            f"Look at the times first: no pause is between {low} and {high}, and people pause for "
            "any time. So the times may be made up, or have lost digits, such as their minutes. "
            "Then the rest doesn't count. "
        )

    def _is_in_valley(self, gap: timedelta) -> bool:
        """Return whether a gap and twice the gap are in the valley."""
        return self.valley is not None and self.valley[0] <= gap <= self.valley[1] / 2

    def limits(
        self,
        gap: Duration | None = None,
        *,
        durations: Sequence[Duration] = ("1h", "2h", "4h", "8h", "12h", "1 day", "2 days"),
        events: Sequence[int] = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000),
    ) -> Limits:
        """
        Count the sessions that `max_duration` or `max_events` would cut, such as those of bots.

        It finds the sessions, so it takes as long as `sessions(...).agg(...)`.

        Args:
            gap: The gap of the sessions; None takes `suggested`.
            durations: The values of `max_duration` to compare.
            events: The values of `max_events` to compare.

        Raises:
            SpecError: No gap is given, and none is suggested; or a limit is invalid.
        """
        if gap is None and self.suggested is None:
            found = "`limits` counts sessions under a gap, and there is no valley to take one from"
            raise SpecError(found, 'pass one, such as gap="30 minutes"')
        chosen = duration_of(self.suggested if gap is None else gap, "gap")
        spans = sorted(duration_of(one, "durations") for one in durations)
        return limits_of(self._asked, chosen, spans, sorted(events))

    def picture(self) -> str:
        """Return the pauses as text: how many there are of each length, and the valley."""
        return text_of(self._pauses, self._found)

    def svg(self) -> str:
        """Return the pauses as SVG, with the two parts of the mixture, the valley and gaps."""
        chosen = None if self.suggested is None else self.suggested.total_seconds()
        return svg_of(self._pauses, self._mixture, self._found, chosen)

    def _repr_html_(self) -> str:
        return f"{self.svg()}<p>{escape(self.advice())}</p><pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        """Return a table with the sessions under each gap."""
        head = f"{'gap':>12}  {'sessions':>13}  {'events each':>11}  {'of one event':>12}  "
        lines = [f"{head}{'median length':>17}  {'twice the gap':>13}  {'half':>8}"]
        for row in self.rows:
            marked = row.gap == self.suggested
            lines.append(
                f"{duration_text(row.gap):>12}  {row.sessions:>13,}  {row.events_each:>11.2f}  "
                f"{row.single / row.sessions:>12.1%}  {_short(row.median):>17}  "
                f"{0 - row.lost_with_twice:>+13.1%}  {row.more_with_half:>+8.1%}"
                f"{'  <- suggested' if marked else ''}"
            )
        counted = f"{self.events:,} events of {self.keys:,} keys"
        if any(self.rejected.values()):
            texts = {"time": "no time", "future": "a time in the future", "key": "no key"}
            left = ", ".join(
                f"{count:,} with {texts[reason]}"
                for reason, count in self.rejected.items()
                if count
            )
            counted += f"; rows that are no events: {left}"
        return "\n".join([*lines, counted])


def _short(span: timedelta) -> str:
    whole = timedelta(seconds=round(span.total_seconds()))
    return (
        str(whole) if span >= timedelta(seconds=10) or not span else f"{span.total_seconds():g} s"
    )


@explains
def gaps(
    frame: "DataFrame",
    *,
    keys: str | Sequence[str],
    event_time: str,
    by: str | None = None,
    gaps: Sequence[Duration] = (),
    gap_inclusive: bool = True,
    max_future_skew: Duration | None = "1 day",
) -> Gaps:
    """
    Count the sessions under many gaps, and say which gap fits the pauses between events.

    A gap is right where it hardly matters. Pauses within a visit are short, pauses between visits
    long; between the two lies a valley, where a longer gap joins few sessions. If the data have no
    valley, `suggested` is None. See docs/how-to/choose-a-gap.md.

    All numbers of sessions are exact. Spark or Sail reads the frame once, and shuffles a hash of
    the key with the time of each event; a task sorts the events of its keys in memory. If the tasks
    disagree much about the median length of sessions, it reads the frame a second time.

    Args:
        frame: A batch of past events.
        keys: The key column or columns, such as the user.
        event_time: The timestamp column that says when an event happened.
        by: A column, such as the device. The result then also has the numbers for each of its
            values, under `Gaps.by`. The column counts as one of the keys, in these and in all other
            numbers.
        gaps: Gaps to show, in addition to the round ones from a second to four weeks.
        gap_inclusive: Whether an event exactly a gap later belongs to the session, as in
            `SessionRules`.
        max_future_skew: Rows whose time is further ahead of the clock count as rejected, as in
            `Inputs`. None takes every time.

    Returns:
        A `Gaps`. `print` it for a table; `rows` has for each gap `gap`, `sessions` and more;
        `suggested` is the gap that fits, `advice()` says why, and `picture()` shows the pauses.

    Raises:
        SchemaError: A column is missing, or the event time isn't a timestamp.
        SpecError: A duration is invalid, the frame is a stream or has no events, or `by` has more
            than a hundred values.
    """
    # PySpark is imported when it's needed: `python -m sessionkit` lists the command without it.
    from sessionkit.addons.gap.engine import check_frame_of, counted, events_of  # noqa: PLC0415

    names = names_of(keys)
    shown = sorted({duration_of(gap, "gaps") for gap in (*SHOWN, *gaps)})
    skew = None if max_future_skew is None else duration_of(max_future_skew, "max_future_skew")
    check_frame_of(frame, [*names, *([by] if by is not None else [])], event_time)
    # A session is cut after a pause longer than this many microseconds.
    short = 0 if gap_inclusive else 1
    spans = [span_us(gap) for gap in shown]
    halves = [span // 2 if gap_inclusive else (span + 1) // 2 - 1 for span in spans]
    limits = [span - short for span in spans]
    twice = [2 * span - short for span in spans]
    edges = sorted({0, *GRID.tolist(), *limits, *halves, *twice})
    tally = Tally(limits, edges, by is not None)
    found = counted(events_of(frame, names, event_time, by, skew), tally)
    if not found.events:
        rows = ", ".join(f"{found.rejected[reason]} without {reason}" for reason in ("time", "key"))
        raise SpecError(f"the frame has no events; of its rows, {rows}", "pass past events")
    if len(found.parts) > MOST_PARTS + 1:
        text = (
            f"`by` has {len(found.parts) - 1} values in `{by}`, and at most {MOST_PARTS} are shown"
        )
        raise SpecError(text, "pass a column with fewer values")
    asked = {
        "frame": frame,
        "keys": names,
        "event_time": event_time,
        "gap_inclusive": gap_inclusive,
        "max_future_skew": skew,
    }
    places = list(zip(shown, limits, twice, halves, strict=True))

    def of_part(part: str, by_value: Mapping[str | None, Gaps]) -> Gaps:
        return _gaps_of(found, part, places, asked, by_value)

    parts = {_value(part): of_part(part, {}) for part in sorted(found.parts) if part != TOTAL}
    return of_part(TOTAL, parts)


def _value(part: str) -> str | None:
    """Return the value of `by`: other than a null, it has a sign in front."""
    return part[1:] if part.startswith("=") else None


def _gaps_of(
    found: "Counted",
    part: str,
    places: Sequence[tuple[timedelta, int, int, int]],
    asked: Mapping[str, Any],
    by: Mapping[str | None, Gaps],
) -> Gaps:
    of = found.parts[part]
    keys, one = sum(of.keys), of.keys_of_one
    values, folds = of.pauses  # a row of counts for each tenth of the keys
    counts = folds.sum(axis=0)
    events = keys + int(counts.sum())
    rows = []
    for number, (gap, limit, twice, half) in enumerate(places):
        here, double, halved = (
            keys + int(counts[values >= least].sum()) for least in (limit, twice, half)
        )
        single = int(of.lone[1][of.lone[0] >= limit].sum())
        median = timedelta(microseconds=of.medians[number])
        rows.append(SessionsOfGap(gap, here, events / here, single, median, double, halved))
    unit = UNITS[of.unit]
    pauses = pauses_by_bin(values, counts, unit)
    valley = valley_of(pauses, keys)
    mixture, choice = None, NO_CHOICE
    if valley is not None:
        own = [
            valley_of(pauses_by_bin(values, counts_of, unit), keys_of, SIGMAS_OF_A_FOLD)
            for keys_of, counts_of in zip(of.keys, folds, strict=True)
        ]
        mixture = mixture_of(pauses)
        choice = _choice(valley, None if mixture is None else mixture.crossing(), own)
    return Gaps(
        rows=tuple(rows),
        events=events,
        keys=keys,
        keys_of_one=one,
        rejected=dict(found.rejected) if part == TOTAL else dict.fromkeys(REASONS, 0),
        gap_inclusive=bool(asked["gap_inclusive"]),
        suggested=choice.suggested,
        valley=choice.valley,
        crossing=choice.crossing,
        agreeing=choice.agreeing,
        by=by,
        found=valley,
        mixture=mixture,
        pauses=pauses,
        asked=asked,
    )


@attrs.frozen
class Choice:
    """What a valley suggests; its attributes are those of `Gaps`."""

    suggested: timedelta | None = None
    valley: tuple[timedelta, timedelta] | None = None
    crossing: timedelta | None = None
    agreeing: int = 0


NO_CHOICE: Final = Choice()


def _choice(valley: Valley, crossing: float | None, own: Sequence[Valley | None]) -> Choice:
    """Choose a gap in a valley; `own` has the valley of each group of keys by itself."""
    low, high = valley.low, valley.high
    at = crossing if crossing is not None and low <= crossing <= high else valley.bottom
    inside = [gap for gap in ROUND if low <= _octaves(gap) <= high]
    ranked = [
        (min(_agreeing(own, gap), SURE), -abs(_octaves(gap) - at), gap)
        for gap in inside or [_rounded(at)]
    ]
    suggested = max(ranked)[-1]
    return Choice(
        suggested,
        (_rounded(low), _rounded(high)),
        None if crossing is None else _rounded(crossing),
        _agreeing(own, suggested),
    )


def _octaves(span: timedelta) -> float:
    return float(np.log2(span.total_seconds()))


def _agreeing(valleys: Sequence[Valley | None], gap: timedelta) -> int:
    """Return how many of these valleys a gap is in."""
    return sum(one is not None and one.low <= _octaves(gap) <= one.high for one in valleys)


def _rounded(octaves: float) -> timedelta:
    """Return a duration of two digits or so, such as `37 minutes` or `1 hour 10 minutes`."""
    seconds = 2.0**octaves
    for unit in (86_400, 3_600, 60, 1):
        if seconds >= unit:
            smaller = unit if seconds >= 10 * unit else unit / 6
            return timedelta(milliseconds=round(round(seconds / smaller) * smaller * 1_000))
    return timedelta(milliseconds=max(round(seconds * 1_000), 1))
