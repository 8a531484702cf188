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
"""Whether a value fails after those of its session so far."""


class Click(NamedTuple):
    """An event, and which rules it fires; `seq` is its place among those of its instant."""

    key: str
    at: datetime
    value: int
    gap: timedelta
    ends: bool = False
    begins: bool = False
    keeps: bool = True
    campaign: str | None = None
    seq: int = 0


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
    clicks: Iterable[Click], rules: SessionRules, fails: Fails = never, own: OwnRule | None = None
) -> list[Cut]:
    """
    Return the sessions of some events, every one on time, in order of key and start.

    Events of one time and one `seq` have no order: they're never parted. A value that fails after
    those of its session so far isn't there: its instant is judged again.
    """
    found: list[Cut] = []
    by_instant = sorted(clicks, key=lambda one: (one.key, one.at, one.seq, one.value))
    for (key, *_), run in groupby(by_instant, key=lambda one: (one.key, one.at, one.seq)):
        last = found.pop() if found and found[-1].key == key else None
        found += _after(last, list(run), rules, fails, own)
    for cut in found:
        _fire_by_times(cut, rules)
    return found


def _after(
    last: Cut | None, instant: list[Click], rules: SessionRules, fails: Fails, own: OwnRule | None
) -> list[Cut]:
    """Return the last session after an instant, and the one that begins there, if one does."""
    if not instant:
        return [last] if last else []
    before, (key, at, *_) = deepcopy(last), instant[0]
    found = [last] if last else []
    if last is None or _is_over(last, instant, rules, own):
        found.append(Cut(key, at, at, [], None, []))
    values = [*found[-1].values]
    for place, one in enumerate(instant):
        if fails(values, one.value):
            return _after(before, instant[:place] + instant[place + 1 :], rules, fails, own)
        values.append(one.value)
    _take(found[-1], instant, rules)
    return found


def _is_over(cut: Cut, instant: Sequence[Click], rules: SessionRules, own: OwnRule | None) -> bool:
    at = instant[0].at
    if rules.starts_with is not None and any(one.begins for one in instant):
        _fire(cut, at, "starts_with")
    campaigns = {one.campaign for one in instant} - {None, cut.campaign}
    if rules.changes_of and campaigns:
        _fire(cut, at, "changes_of")
    if own is not None and own.begins(cut, instant):
        cut.fired.append((at, False, CLOSED_BY.index(own.after), own.name))
    if cut.fired or _comes_after(at, cut.end, inclusive=rules.gap_inclusive):
        return True
    if rules.max_duration and at - cut.start > rules.max_duration:
        return True
    return rules.midnight is not None and _day(at, rules.midnight) != _day(
        cut.start, rules.midnight
    )


def _take(cut: Cut, instant: Sequence[Click], rules: SessionRules) -> None:
    at = instant[0].at
    own = timedelta(0) if rules.gap_inclusive else timedelta(microseconds=1)
    for one in instant:
        keeps = one.keeps or rules.extends is None
        cut.end = max(cut.end, at + (one.gap if keeps else own))
        cut.values.append(one.value)
        cut.campaign = one.campaign or cut.campaign
    if rules.state_gap is not None and any(one.keeps or rules.extends is None for one in instant):
        cut.end = at + rules.state_gap(cut)
    if rules.until is not None and any(one.ends for one in instant):
        _fire(cut, at, "until")
    if rules.max_events and len(cut.values) >= rules.max_events:
        _fire(cut, at, "max_events")


def _fire_by_times(cut: Cut, rules: SessionRules) -> None:
    _fire(cut, cut.end, "gap", after=rules.gap_inclusive)
    if rules.max_duration:
        _fire(cut, cut.start + rules.max_duration, "max_duration", after=True)
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
