"""
The verdict on each event, as the page says it: one key, one instant after the other.

An event that fails, or is late with its session, leaves no trace. So all events of its key are
judged anew without it, from the beginning, and nothing is remembered but that verdict.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

import attrs

from sessionkit import SessionRules
from tests.support.naive_rules import Click, Cut, fire_by_times, is_over, take


class Functions(NamedTuple):
    """
    What the functions of a spec do, on what the state of a session lists.

    Attributes:
        update: The list after an event; None where it fails.
        merges: Whether two lists can be merged.
        fits: Whether a list can be stored.
        gap_fails: Whether `state_gap` fails.
    """

    update: Callable[[list[Any], int], list[Any] | None]
    merges: Callable[[list[Any], list[Any]], bool]
    fits: Callable[[list[Any]], bool]
    gap_fails: Callable[[list[Any]], bool]


@attrs.frozen
class Settings:
    """The options of a spec that decide over its events; ids are remembered if it drops repeats."""

    rules: SessionRules
    functions: Functions
    in_order: bool
    by_session: bool
    drops_repeats: bool
    sequence: bool
    allowed: timedelta = timedelta(0)


@attrs.define(eq=False)
class Open(Cut):
    """A session, what its state lists, the ids of its events, and what joined it just now."""

    state: list[Any] = attrs.field(factory=list)
    ids: set[int] = attrs.field(factory=set)
    opened: list["Open"] = attrs.field(factory=list)
    events: list[Click] = attrs.field(factory=list)

    @property
    def closes(self) -> datetime:
        return min(self.fired)[0]


class SettledError(Exception):
    """An event has a verdict for good, so the others are judged anew."""


@attrs.define
class Key:
    """The open sessions of a key, the ids that it knows, and the verdicts of a micro-batch."""

    settings: Settings
    opened: list[Open]
    known: set[int]
    late_at: datetime | None
    settled: dict[Click, str] = attrs.field(factory=dict, init=False)
    verdicts: dict[Click, str] = attrs.field(factory=dict, init=False)
    strict: set[Click] = attrs.field(factory=set, init=False)

    def judge(self, events: Sequence[Click]) -> list[Open]:
        """Return the sessions of the key; `verdicts` then has the events that don't count."""
        for event in events:
            if (verdict := at_first(event, self.settings.rules)) is not None:
                self.settled[event] = verdict
            elif not self.settings.by_session and self._keeps(event) and self._is_late_alone(event):
                self.settled[event] = "late"
        while True:
            try:
                return self._tried(events)
            except SettledError:
                continue

    def _tried(self, events: Sequence[Click]) -> list[Open]:
        self.verdicts, counted = {**self.settled}, dict[int, Click]()
        parts: list[Open | Click] = [*self.opened]
        parts += [event for event in events if event not in self.settled]
        sessions: list[Open] = []
        for _, same in groupby(sorted(parts, key=self._order), key=lambda p: self._order(p)[:-1]):
            instant = list(same)
            opened = [part for part in instant if isinstance(part, Open)]
            left = [part for part in instant if isinstance(part, Click)]
            while opened or left:
                last = sessions[-1] if sessions else None
                new, repeats = self._parted(left, counted)
                if not (new or opened):
                    self._repeat(repeats, last)
                    break
                fired = self._fired(last, opened, new)
                if fired is not None and not opened and not self._may_open(new):
                    for event in new:
                        counted = {name: one for name, one in counted.items() if one != event}
                        is_late = self._is_late_alone(event)
                        self.verdicts[event] = "late" if is_late else "outside"
                    left = repeats
                    continue
                if fired is not None:
                    self._end(last, fired)
                    start = opened[0].start if opened else new[0].at
                    last = Open(instant[0].key, start, start, [], None, [])
                    sessions.append(last)
                assert last is not None
                self._join(last, opened, new)
                self.verdicts |= dict.fromkeys(repeats, "duplicate")
                break
        if sessions:
            self._end(sessions[-1], [])
        return [part for one in sessions for part in ([one] if one.events else one.opened)]

    def _order(self, part: Open | Click) -> tuple[datetime, bool, int, int]:
        is_event, sequence = isinstance(part, Click), self.settings.sequence
        at = part.at if isinstance(part, Click) else part.start
        seq = part.seq if isinstance(part, Click) and sequence else 0
        # A sequence makes each an instant of its own: an open session comes before its start.
        return at, is_event and sequence, seq, part.value if isinstance(part, Click) else -1

    def _parted(
        self, left: Sequence[Click], counted: dict[int, Click]
    ) -> tuple[list[Click], list[Click]]:
        """Return the events whose ids are new, and the others."""
        new, repeats = list[Click](), list[Click]()
        for event in left:
            name = event.name if self.settings.drops_repeats else event.value
            is_repeat = self.settings.drops_repeats and (name in self.known or name in counted)
            (repeats if is_repeat else new).append(event)
            if not is_repeat:
                counted[event.name] = event
        return new, repeats

    def _repeat(self, repeats: Sequence[Click], last: Open | None) -> None:
        """Judge repeats at whose instant no other event counts."""
        for event in repeats:
            is_apart = self._fired(last, [], [event]) is not None
            is_late = is_apart and not self.settings.by_session and self._is_late_alone(event)
            self.verdicts[event] = "late" if is_late else "duplicate"

    def _keeps(self, event: Click) -> bool:
        return self.settings.rules.extends is None or event.keeps

    def _is_late_alone(self, event: Click) -> bool:
        """Return whether a session of this event alone would be over."""
        if self.late_at is None:
            return False
        alone = Cut(event.key, event.at, event.at, [], None, [])
        take(alone, [event], attrs.evolve(self.settings.rules, until=None, max_events=None))
        fire_by_times(alone, self.settings.rules)
        return min(alone.fired)[0] <= self.late_at

    def _may_open(self, new: Sequence[Click]) -> bool:
        return self.settings.rules.opens_with is None or any(event.opens for event in new)

    def _fired(
        self, last: Open | None, opened: Sequence[Open], new: Sequence[Click]
    ) -> list[Any] | None:
        """Return the rules that fire where an instant begins a session; None where it joins one."""
        if last is None:
            return []
        seen = Cut(last.key, last.start, last.end, [], last.campaign, [*last.fired])
        instant: list[Any] = [*new] or [_as_event(opened[0])]
        if not is_over(seen, instant, self.settings.rules, None):
            return None
        return seen.fired[len(last.fired) :]

    def _join(self, session: Open, opened: Sequence[Open], new: Sequence[Click]) -> None:
        for part in opened:
            session.end = max(session.end, part.end)
            session.campaign = part.campaign or session.campaign
            session.values += part.values
            session.opened.append(part)
            session.state += part.state if self.settings.rules.state_gap else []
        session.events += new
        if not new:
            return
        rules = self.settings.rules
        if rules.state_gap is None:
            take(session, new, rules)
            return
        for event in new:
            session.state = self._added(session.state, event)
        if any(map(self._keeps, new)) and self.settings.functions.gap_fails(session.state):
            self._settle(new[-1], "failed")
        end = session.end
        take(session, new, attrs.evolve(rules, state_gap=None))
        session.end = end
        if any(map(self._keeps, new)):
            session.end = new[0].at + rules.state_gap(session.state)
        elif not session.opened and len(session.events) == len(new):
            session.end = new[0].at + (timedelta(0) if rules.gap_inclusive else MICRO)

    def _end(self, session: Open | None, fired: Sequence[Any]) -> None:
        """End a session: its events may be late, then each may fail."""
        if session is None:
            return
        session.fired += fired
        fire_by_times(session, self.settings.rules)
        if not session.events:
            # Open sessions that reach up to each other are joined only by events.
            if len(session.opened) == 1:
                session.opened[0].fired = session.fired
            return
        by_session = self.settings.by_session or self.settings.rules.extends is not None
        if by_session and self.late_at is not None and session.closes <= self.late_at:
            self.settled |= dict.fromkeys(session.events, "late")
            raise SettledError
        if self.settings.rules.state_gap is None:
            session.state = self._merged(session)
            for event in session.events:
                session.state = self._added(session.state, event)
        if not self.settings.functions.fits(session.state) and not self.strict.issuperset(
            session.events
        ):
            self.strict.update(session.events)
            raise SettledError

    def _merged(self, session: Open) -> list[Any]:
        """Return what the open sessions list; if they can't be merged, the bridge fails."""
        merged: list[Any] = []
        for number, part in enumerate(session.opened):
            if number and not self.settings.functions.merges(merged, part.state):
                earlier = [event for event in session.events if event.at < part.start]
                rules = self.settings.rules
                leading = [
                    event for event in earlier if not _is_apart(part.start, event, rules)
                ] or session.events
                for event in leading:
                    self.settled[event] = "failed"
                raise SettledError
            merged = [*merged, *part.state]
        return merged

    def _added(self, state: list[Any], event: Click) -> list[Any]:
        added = self.settings.functions.update(state, event.value)
        if added is None or (event in self.strict and not self.settings.functions.fits(added)):
            self._settle(event, "failed")
        assert added is not None
        return added

    def _settle(self, event: Click, verdict: str) -> None:
        self.settled[event] = verdict
        raise SettledError


MICRO = timedelta(microseconds=1)


def at_first(event: Click, rules: SessionRules) -> str | None:
    """Return the verdict on an event by its class, or its gap; below 0 stands for a failure."""
    if event.refused or not event.gap or event.gap > rules.longest:
        return "quarantined"
    return "failed" if event.gap < timedelta(0) else None


def _as_event(part: Open) -> Click:
    """Return an open session as an event that ends no other one."""
    return Click(part.key, part.start, 0, timedelta(0))


def _is_apart(at: datetime, event: Click, rules: SessionRules) -> bool:
    keeps = rules.extends is None or event.keeps
    end = event.at + (event.gap if keeps else timedelta(0) if rules.gap_inclusive else MICRO)
    return at > end if rules.gap_inclusive else at >= end


@attrs.define
class NaiveVerdicts:
    """
    Runs micro-batches of one key, each at its watermark.

    Attributes:
        closed: The sessions that have closed: start, end, state, and the rule that ended them.
        waiting: The events that wait for the watermark, under `order="event_time"`.
    """

    settings: Settings
    remembered_for: timedelta = timedelta(0)
    opened: list[Open] = attrs.field(factory=list, init=False)
    closed: list[Open] = attrs.field(factory=list, init=False)
    waiting: list[Click] = attrs.field(factory=list, init=False)
    remembered: list[tuple[set[int], datetime]] = attrs.field(factory=list, init=False)

    def run(self, events: Sequence[Click], watermark: datetime | None) -> dict[Click, str]:
        """Run a micro-batch; return the events that don't count, and why."""
        in_order, verdicts = self.settings.in_order, dict[Click, str]()
        if not in_order:
            self._close(watermark)
        if in_order:
            behind = [one for one in events if watermark is not None and one.at <= watermark]
            verdicts = {one: at_first(one, self.settings.rules) or "late" for one in behind}
            self.waiting += [one for one in events if one not in verdicts]
            events = [one for one in self.waiting if watermark is not None and one.at <= watermark]
            self.waiting = [one for one in self.waiting if one not in events]
        late_at = None if in_order or watermark is None else watermark - self.settings.allowed
        known = {name for ids, _ in self.remembered for name in ids}
        known |= {name for one in self.opened for name in one.ids}
        key = Key(self.settings, self.opened, known, late_at)
        if events:
            self.opened = [self._settled(session) for session in key.judge(events)]
        if in_order:
            self._close(watermark)
        return verdicts | key.verdicts

    def _settled(self, session: Open) -> Open:
        """Return a session as it's stored after a micro-batch."""
        ids = {event.name for event in session.events}.union(*(one.ids for one in session.opened))
        ids |= session.ids
        return attrs.evolve(session, ids=ids, opened=[], events=[])

    def _close(self, watermark: datetime | None) -> None:
        if watermark is None:
            return
        over = [one for one in self.opened if one.closes + self.settings.allowed <= watermark]
        self.opened = [one for one in self.opened if one not in over]
        self.closed += over
        if self.settings.drops_repeats:
            self.remembered += [(one.ids, one.end + self.remembered_for) for one in over]
            self.remembered = [one for one in self.remembered if one[1] > watermark]
