"""Sessions under `SessionRules`, cut one instant after another as the documentation says it."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import attrs

from sessionkit import SessionRules
from sessionkit.timeouts._session_rules import CLOSED_BY, ClosedBy

Fails: TypeAlias = Callable[[Sequence[int], int], bool]
"""Whether a value fails after the values of its session so far."""


class Click(NamedTuple):
    """An event, and which rules it fires; `seq` is its place among the events of its instant."""

    key: str
    at: datetime
    value: int
    gap: timedelta
    ends: bool = False
    begins: bool = False
    keeps: bool = True
    campaign: str | None = None
    seq: int = 0
    opens: bool = True
    name: int = 0
    refused: bool = False


@attrs.define
class Cut:
    """One session: its bounds, the end exclusive, its values in order, and what ended it."""

    key: str
    start: datetime
    end: datetime
    values: list[int]
    campaign: str | None
    fired: list[tuple[datetime, bool, int, str]]

    @property
    def closed_by(self) -> str:
        return min(self.fired)[-1]

    @property
    def seen(self) -> tuple[object, ...]:
        return (self.key, self.start, self.end, self.values, self.closed_by)


class OwnRule(NamedTuple):
    """A rule of a test's own: its name, the rule after which it counts, and when it fires."""

    name: str
    after: ClosedBy
    begins: Callable[[Cut, Sequence[Click]], bool]


def never(values: Sequence[int], value: int) -> bool:
    return False


def naive_cuts(
    clicks: Iterable[Click],
    rules: SessionRules,
    fails: Fails = never,
    own: OwnRule | None = None,
    outside: list[Click] | None = None,
) -> list[Cut]:
    """
    Return the sessions of some events, every one on time, in order of key and start.

    Events of one time and one `seq` have no order: they're never parted. A value that fails after
    the values of its session so far is left out, and its instant judged again. So is an instant
    that would begin a session, if none of its events may open one; these go to `outside`.
    """
    outside = [] if outside is None else outside
    found: list[Cut] = []
    by_instant = sorted(clicks, key=lambda click: (click.key, click.at, click.seq, click.value))
    for (key, *_), run in groupby(by_instant, key=lambda click: (click.key, click.at, click.seq)):
        last = found.pop() if found and found[-1].key == key else None
        found += _after(last, list(run), rules, fails, own, outside=outside)
    for cut in found:
        fire_by_times(cut, rules)
    return found


def _after(
    last: Cut | None,
    instant: list[Click],
    rules: SessionRules,
    fails: Fails,
    own: OwnRule | None,
    *,
    outside: list[Click],
) -> list[Cut]:
    """Return the last session after an instant, and the one that begins there, if one does."""
    if not instant:
        return [last] if last else []
    before, (key, at, *_) = deepcopy(last), instant[0]
    found = [last] if last else []
    if last is None or is_over(last, instant, rules, own):
        if rules.opens_with is not None and not any(click.opens for click in instant):
            outside += instant
            return [before] if before else []
        found.append(Cut(key, at, at, [], None, []))
    values = [*found[-1].values]
    for place, click in enumerate(instant):
        if fails(values, click.value):
            left = instant[:place] + instant[place + 1 :]
            return _after(before, left, rules, fails, own, outside=outside)
        values.append(click.value)
    take(found[-1], instant, rules)
    return found


def naive_arrivals(
    batches: Iterable[Iterable[Click]], rules: SessionRules
) -> tuple[list[Cut], list[Click]]:
    """
    Return the sessions of events in order of arrival, and the events outside any session.

    Each micro-batch takes the sessions so far and its events in the order of time. Every event is
    ahead of the watermark, so no session that it could join is over.
    """
    found, outside = list[Cut](), list[Click]()
    for batch in batches:
        parts: list[Cut | Alone] = [*found, *(_alone(click, rules) for click in batch)]
        parts.sort(key=lambda part: (part.key, part.start))
        found = []
        for (key, at), same in groupby(parts, key=lambda part: (part.key, part.start)):
            instant, last = list(same), found[-1] if found and found[-1].key == key else None
            if last is None or _is_apart(at, last, rules):
                alone = [part.click for part in instant if isinstance(part, Alone)]
                if len(alone) == len(instant) and not any(click.opens for click in alone):
                    outside += alone
                    continue
                last = Cut(key, at, at, [], None, [])
                found.append(last)
            for part in instant:
                last.end = max(last.end, part.end)
                last.values += part.values if isinstance(part, Cut) else [part.click.value]
    for cut in found:
        cut.values.sort()
        fire_by_times(cut, rules)
    return found, outside


class Alone(NamedTuple):
    """An event that belongs to no session yet, with its window."""

    key: str
    start: datetime
    end: datetime
    click: Click


def _alone(click: Click, rules: SessionRules) -> Alone:
    no_gap = timedelta(0) if rules.gap_inclusive else timedelta(microseconds=1)
    window = click.gap if click.keeps or rules.extends is None else no_gap
    return Alone(click.key, click.at, click.at + window, click)


def _is_apart(at: datetime, last: Cut, rules: SessionRules) -> bool:
    zone = rules.midnight
    is_another_day = zone is not None and _day(at, zone) != _day(last.start, zone)
    return is_another_day or _comes_after(at, last.end, inclusive=rules.gap_inclusive)


def is_over(cut: Cut, instant: Sequence[Click], rules: SessionRules, own: OwnRule | None) -> bool:
    at = instant[0].at
    if rules.starts_with is not None and any(click.begins for click in instant):
        _fire(cut, at, "starts_with")
    campaigns = {click.campaign for click in instant} - {None, cut.campaign}
    if rules.changes_of and campaigns:
        _fire(cut, at, "changes_of")
    if own is not None and own.begins(cut, instant):
        cut.fired.append((at, False, CLOSED_BY.index(own.after), own.name))
    if cut.fired or _comes_after(at, cut.end, inclusive=rules.gap_inclusive):
        return True
    if rules.max_duration and _comes_after(
        at, cut.start + rules.max_duration, inclusive=rules.max_duration_inclusive
    ):
        return True
    return rules.midnight is not None and _day(at, rules.midnight) != _day(
        cut.start, rules.midnight
    )


def take(cut: Cut, instant: Sequence[Click], rules: SessionRules) -> None:
    at = instant[0].at
    no_gap = timedelta(0) if rules.gap_inclusive else timedelta(microseconds=1)
    for click in instant:
        keeps = click.keeps or rules.extends is None
        cut.end = max(cut.end, at + (click.gap if keeps else no_gap))
        cut.values.append(click.value)
        cut.campaign = click.campaign or cut.campaign
    keeps = rules.extends is None or any(click.keeps for click in instant)
    if rules.state_gap is not None and keeps:
        cut.end = at + rules.state_gap(cut)
    if rules.until is not None and any(click.ends for click in instant):
        _fire(cut, at, "until")
    if rules.max_events and len(cut.values) >= rules.max_events:
        _fire(cut, at, "max_events")


def fire_by_times(cut: Cut, rules: SessionRules) -> None:
    _fire(cut, cut.end, "gap", after=rules.gap_inclusive)
    if rules.max_duration:
        longest = cut.start + rules.max_duration
        _fire(cut, longest, "max_duration", after=rules.max_duration_inclusive)
    if rules.midnight:
        next_day = _day(cut.start, rules.midnight) + timedelta(days=1)
        midnight = datetime.combine(next_day, time(), ZoneInfo(rules.midnight))
        _fire(cut, midnight.astimezone(cut.start.tzinfo), "midnight")


def _fire(cut: Cut, at: datetime, rule: ClosedBy, *, after: bool = False) -> None:
    """Note that a rule fires at an instant, or just after it."""
    cut.fired.append((at, after, CLOSED_BY.index(rule), rule))


def _comes_after(at: datetime, end: datetime, *, inclusive: bool) -> bool:
    return at > end if inclusive else at >= end


def _day(at: datetime, zone: str) -> date:
    return at.astimezone(ZoneInfo(zone)).date()
