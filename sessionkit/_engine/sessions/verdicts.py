"""
The verdict on each event of a micro-batch: it counts, or it doesn't, and why.

The events of a key are judged in the order of time, then of the sequence if there is one, then of
their content. The first line of this table that holds is the verdict on an event:

    quarantined   its class refuses it, or its gap isn't valid, whatever `on_error` says
    failed        a function of the event alone raises, for its gap or a rule
    late          its own window is over, under `judged_by="event"`. One that extends no session is
                  late behind the watermark, unless a session is open at its time. (Under
                  `order="event_time"`, it's at or before the watermark when it comes; the others
                  wait until the watermark reaches them: see `told_in_order`)
    duplicate     an event before it with its id counts, or did in an earlier micro-batch. An id is
                  known until the watermark reaches the end of its session plus
                  `drop_duplicates_for`, without which there are no duplicates
    outside       no session is open at its time, and it may not open one. It's late instead if a
                  session of this event alone would be over
    late          its session, with all its events, is over, under `judged_by="session"`
    failed        a function fails over it, under `on_error="reject"`: with `merge`, that's over all
                  new events that reach up to the open session, with `state_gap` over the last one
                  of the instant. Or it leaves a state that can't be stored, in a session whose
                  state can't be stored at the end of the micro-batch
    processed     otherwise: it counts

While an event has no verdict yet, those after it are judged as if it counts. Once it has one, they
are judged again as if it had never come; only events that have failed, or are late with their
session, stay so.

An instant is the events of a key at one time, or with a sequence at one time and number of it. They
are judged together: but for those with another verdict, all are in one session, or all are outside.

Nearly always nothing is in dispute, and all keys are judged at once, by their times. What is in
dispute is walked, one instant of a key after the other: by times and rules alone (`walk`), or with
the states, where events fail or the gap depends on the state (`folding_walk`). Classes are asked
when objects are made, so mostly last: an event that is refused then is taken out, and the others
are judged again.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import compress, repeat
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, micros
from sessionkit._engine.boundaries import is_late, window_end
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.careful_fold import careful_folds
from sessionkit._engine.sessions.cutting import NO_ID, CurrentSession, Intervals, closed, numbered
from sessionkit._engine.sessions.folding_walk import FoldingWalk
from sessionkit._engine.sessions.plan import (
    Folded,
    Horizon,
    Members,
    Plan,
    Repeats,
    Unions,
    WindowedEvents,
    by_times,
    members_of,
)
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.walk import STORED, LateInWalk, Verdict, Walk
from sessionkit.spec.functions import Failure
from sessionkit.spec.logic import Functions
from sessionkit.spec.session import AnySessionSpec

LATE_EVENT: Final = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY: Final = (
    "its own window is over: event time + gap, or midnight, is at or before the watermark"
)
LATE_SESSION: Final = "the session it would join is over: its end is at or before the watermark"
LATE_HEARTBEAT: Final = "no open session is there at its time, which is at or before the watermark"
REPEATS: Final = "an event with its event_id was processed already"
OUTSIDE: Final = "no session is open at its time, and by `opens_with` it may not open one"


@attrs.frozen
class JoinedEvents:
    """The rows of sessions after events joined, the number of these, and the rejected events."""

    sessions: pa.Table
    events: int
    rejected: list[SideOutput]


def join(program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> JoinedEvents:
    """
    Let events, in any order, join the open sessions of a group: read, judge and fold them.

    Where classes refuse events, in a fold or after it, or a sum gets too large, the others are
    judged again without these events: mostly once. Where functions fail, only the failing sessions
    are walked, once.
    """
    events, rejected = _read(program, arrived, horizon)
    members = members_of(program.spec, sessions, events) if len(events.starts) else None
    while members is not None and len(members.events.starts):
        verdicts = Verdicts.of(program, sessions, members, horizon)
        plan, folded = verdicts.plan(), Folded()
        if plan is not None:
            folded = program.fold.fold(plan)
        if plan is not None and folded.failing is not None:
            verdicts.walk_failing(plan, folded)
            plan = verdicts.plan()
            folded = Folded() if plan is None else program.fold.fold(plan)
        if folded.left_out:
            rejected += folded.rejected
            members = verdicts.without(verdicts.counting[[*folded.left_out]])
            continue
        if verdicts.codes.any():
            if refused := verdicts.refused_unfolded():
                # Without it, others may be in a session, or repeat no event.
                rejected += SideOutput.with_reasons("quarantined", refused, members.events.table)
                members = verdicts.without([*refused])
                continue
            rejected += verdicts.rejected()
        if plan is None:
            break
        return JoinedEvents(program.stored(plan, folded), len(plan.events.starts), rejected)
    return JoinedEvents(sessions, 0, rejected)


def _windowed(program: Program, rows: pa.Table) -> tuple[WindowedEvents, list[SideOutput]]:
    """Read the windows of events, and what features need; return the rejected events too."""
    starts, rejected = micros(rows["time"]), list[SideOutput]()
    events = WindowedEvents(rows, starts, window_end(starts, program.gap_us))
    for feature in program.features:
        events, refused = feature.read(events)
        rejected += refused
    return events, rejected


def told_in_order(program: Program, told: SideOutput) -> list[SideOutput]:
    """Judge events that can't wait for their turn: late, unless the table's first line holds."""
    if told.kind != "late":
        return [told]
    events, rejected = _windowed(program, told.rows)
    return rejected + _late(program.spec, told.reasons[0] or "", events.table)


def _late(spec: AnySessionSpec, why: str, rows: pa.Table) -> list[SideOutput]:
    """Return events as late, but for those that their class refuses, where it's asked."""
    refused = build_events(spec, rows)[1] if isinstance(spec.logic, Functions) else {}
    accepted = np.ones(rows.num_rows, np.bool_)
    accepted[[*refused]] = False
    late = SideOutput.chosen("late", why, rows, accepted)
    return SideOutput.with_reasons("quarantined", refused, rows) + late


def _read(
    program: Program, arrived: pa.Table, horizon: Horizon
) -> tuple[WindowedEvents, list[SideOutput]]:
    """Read events; return those whose own windows aren't over, and the rejected ones."""
    events, rejected = _windowed(program, arrived)
    if horizon.late_event_us is None:
        return events, rejected
    are_late = is_late(program.cuts.over_at(events), horizon.late_event_us)
    if horizon.late_session_us is not None:
        # An event that keeps no session open is judged by the session that is open at its time.
        are_late &= events.keep_open(gap_inclusive=program.cuts.rules.gap_inclusive)
    if are_late.any():
        why = LATE_EVENT if program.cuts.rules.midnight is None else LATE_DAY
        why = _why_late(program, why)
        rejected += _late(program.spec, why, events.table.filter(pa.array(are_late)))
        events = events.only(~are_late)
    return events, rejected


def _why_late(program: Program, why: str) -> str:
    return f"{why}, less `Lateness(allowed=...)`" if program.spec.lateness.allowed else why


@attrs.define(eq=False, slots=False)
class Verdicts:
    """
    The verdicts on the events of a micro-batch, and the sessions of those that count.

    A session is known by its *first* place, the one of its first interval.

    Attributes:
        members: The open sessions, and the events whose own windows aren't over.
        repeats: Which events have the id of another one; None if none has.
        kept: The members without these repeats.
        unions: What is kept, as the gap and times join it; None if nothing is.
        codes: The verdict on each event, by its number.
        why: Why an event is refused or fails, by its number.
        is_walked: Which places were walked.
        as_joined: Whether the sessions are the unions.
        walked: The sessions of the walks, by their first places.
        states: The states that are known, by the first places of their sessions.
    """

    program: Program
    horizon: Horizon
    members: Members
    repeats: Repeats | None
    kept: Members
    unions: Unions | None
    codes: npt.NDArray[np.int8]
    is_walked: Mask
    why: dict[int, Failure] = attrs.field(factory=dict, init=False)
    as_joined: bool = attrs.field(default=True, init=False)
    walked: dict[int, CurrentSession] = attrs.field(factory=dict, init=False)
    states: dict[int, Any] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(
        cls, program: Program, sessions: pa.Table, members: Members, horizon: Horizon
    ) -> "Verdicts":
        """Judge events, at least one, by times and rules."""
        rules, kept, repeats = program.cuts.rules, members, None
        codes = np.zeros(len(members.events.starts), np.int8)
        for feature in program.features:
            repeats = feature.repeats(sessions, members) or repeats
        if repeats is not None:
            codes[repeats.mask] = Verdict.REPEAT
            kept = members.without(repeats.mask)
        unions = by_times(rules, kept) if len(kept.order) else None
        is_walked = np.zeros(len(members.order), np.bool_)
        found = cls(program, horizon, members, repeats, kept, unions, codes, is_walked)
        in_order = rules.ordered or rules.state_gap is not None
        if (in_order or horizon.late_session_us is not None) and len(places := found._disputed()):
            found._walk(found._around(places), folds=rules.state_gap is not None)
        return found

    def plan(self) -> Plan | None:
        """Plan the sessions of the events that count; None if none does."""
        members, unions, states = self.kept, self.unions, None
        if unions is not None and not self.as_joined:
            counts = self.codes == Verdict.COUNTS
            members = self.members.without(~counts)
            unions = self._united(unions, counts) if counts.any() else None
        if unions is None or not len(members.events.starts):
            return None
        if members.spec.sequence is not None:
            unions = numbered(members, unions)
        if self.states:
            states = [self.states.get(first) for first in self.firsts.tolist()]
        plan = Plan.of(members, unions, self.horizon, states)
        is_joined = unions.sizes > 1
        return plan.parted(self.program.cuts.column) if (is_joined & ~plan.active).any() else plan

    @property
    def counting(self) -> Numbers:
        """The numbers of the events that count, which the plan numbers from 0."""
        return np.flatnonzero(self.codes == Verdict.COUNTS)

    def without(self, numbers: Numbers | Sequence[int]) -> Members:
        """Return the members without some events, by their numbers."""
        mask = np.zeros(len(self.codes), np.bool_)
        mask[numbers] = True
        return self.members.without(mask)

    def refused_unfolded(self) -> dict[int, str]:
        """Return why their class refuses events that no fold has asked for, by their numbers."""
        unfolded = np.isin(self.codes, (Verdict.OUTSIDE, Verdict.LATE, Verdict.REPEAT))
        numbers, spec = np.flatnonzero(unfolded), self.program.spec
        if not (len(numbers) and isinstance(spec.logic, Functions)):
            return {}
        refused = build_events(spec, self.members.events.table, numbers)[1]
        return {int(numbers[nth]): why for nth, why in refused.items()}

    def rejected(self) -> list[SideOutput]:
        """Return the events that don't count, and why."""
        rows, late = self.members.events.table, LATE_SESSION
        if self.program.spec.lateness.judged_by == "event":
            late = LATE_HEARTBEAT
        found = list[SideOutput]()
        for verdict, kind, reason in (
            (Verdict.OUTSIDE, "outside", OUTSIDE),
            (Verdict.LATE, "late", _why_late(self.program, late)),
            (Verdict.REPEAT, "duplicate", REPEATS),
        ):
            found += SideOutput.chosen(kind, reason, rows, self.codes == verdict)
        for verdict, kind in ((Verdict.REFUSED, "quarantined"), (Verdict.FAILED, "failed")):
            numbers = np.flatnonzero(self.codes == verdict).tolist()
            found += SideOutput.with_failures(kind, {n: self.why[n] for n in numbers}, rows)
        return found

    # -- what is in dispute ---------------------------------------------------------------------

    @cached_property
    def places(self) -> Numbers:
        """The places of what is kept."""
        if self.repeats is None:
            return np.arange(len(self.members.order))
        return np.flatnonzero(~self._by_place(self.repeats.mask))

    @cached_property
    def firsts(self) -> Numbers:
        """The first places of the sessions of the plan: without walks, those of the unions."""
        return self.places if self.unions is None else self.places[self.unions.first]

    @cached_property
    def keys(self) -> Numbers:
        """The number of the key at each place."""
        return self.members.keys[self.members.order]

    @cached_property
    def repeating(self) -> Mask:
        """Which keys, by their numbers, have repeats."""
        mask = np.zeros(1 + self.members.keys.max(), np.bool_)
        if self.repeats is not None:
            mask[self.keys[self._by_place(self.repeats.mask)]] = True
        return mask

    @cached_property
    def is_stored(self) -> Mask:
        """Which places have events whose ids were processed earlier."""
        none = np.zeros(len(self.codes), np.bool_)
        return self._by_place(none if self.repeats is None else self.repeats.is_stored)

    @cached_property
    def intervals(self) -> Intervals:
        ids = None
        if self.repeats is not None:
            ids = np.concatenate([np.full(len(self.members.rows), NO_ID), self.repeats.ids])
        return Intervals(self.program.cuts.rules, self.members, ids)

    @cached_property
    def lateness(self) -> LateInWalk:
        late_us, events = self.horizon.late_session_us, self.members.events
        if late_us is None:
            return LateInWalk()
        alone = self._by_place(is_late(self.program.cuts.over_at(events), late_us))
        return LateInWalk(late_us, alone, of_repeats=self.horizon.late_event_us is not None)

    def _by_place(self, of_events: Mask) -> Mask:
        """Return a mask of events by place; it's False for open sessions."""
        none = np.zeros(len(self.members.rows), np.bool_)
        mask: Mask = np.concatenate([none, of_events])[self.members.order]
        return mask

    def _disputed(self) -> Numbers:
        """Return places of the sessions in dispute; the events of other late ones are late."""
        found, unions, lateness = list[Numbers](), self.unions, self.lateness
        rules = self.program.cuts.rules
        if unions is not None and (rules.ordered or rules.state_gap is not None):
            kept = self.intervals if self.repeats is None else Intervals(rules, self.kept)
            found.append(self.firsts[kept.disputed(unions)])
        if unions is not None and lateness.late_us is not None:
            over = is_late(unions.closes, lateness.late_us)
            # Open sessions stay as they are, and an event that repeats a late one may count.
            opened = unions.reduced(np.logical_or, self.kept.order < len(self.kept.rows))
            walks = opened | self.repeating[self.keys[self.firsts]]
            found.append(self.firsts[over & walks])
            late = self.members.order[self.places[unions.spread(over & ~walks)]]
            if len(late):
                self.codes[late - len(self.members.rows)] = Verdict.LATE
                self.as_joined = False
        if self.repeats is not None and lateness.of_repeats and lateness.alone is not None:
            found.append(np.flatnonzero(self._by_place(self.repeats.mask) & lateness.alone))
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _around(self, places: Numbers) -> Mask:
        """Mark all that verdicts at some places may concern: sessions, and keys that repeat ids."""
        repeats, around = self.repeating[self.keys], np.zeros(len(self.keys), np.bool_)
        if self.unions is not None:
            chosen, alone = np.zeros(len(self.unions), np.bool_), places[~repeats[places]]
            firsts = self.places[self.unions.first]
            chosen[np.searchsorted(firsts, alone, side="right") - 1] = True
            around[self.places] = self.unions.spread(chosen)
        whole = np.zeros(len(self.repeating), np.bool_)
        whole[self.keys[places]] = True
        return np.where(repeats, whole[self.keys], around)

    # -- walks ----------------------------------------------------------------------------------

    def walk_failing(self, plan: Plan, folded: Folded) -> None:
        """Walk where sessions of the plan fail; the states of the others are known."""
        around, firsts = self._around(self.firsts[folded.failing]), self.firsts[plan.active]
        stays = ~around[firsts]
        known = compress(folded.objects, stays.tolist())
        self.states = dict(zip(firsts[stays].tolist(), known, strict=True))
        self._walk(around, folds=True)

    def _walk(self, around: Mask, *, folds: bool) -> None:
        """Judge the marked places one instant of a key after the other."""
        opened, order, keys = len(self.members.rows), self.members.order, self.keys
        numbers = order[around] - opened
        self.codes[numbers[numbers >= 0]] = Verdict.COUNTS
        self.walked = {first: one for first, one in self.walked.items() if not around[first]}
        self.is_walked, self.as_joined = self.is_walked | around, False
        # A part is what is marked of a key at consecutive places.
        goes_on = around[1:] & around[:-1] & (keys[1:] == keys[:-1])
        first = np.flatnonzero(around & ~np.concatenate([[False], goes_on]))
        sizes = 1 + np.flatnonzero(around & ~np.concatenate([goes_on, [False]])) - first
        parts = repeat(None) if not folds else careful_folds(self.members, first, sizes)
        for at, size, part in zip(first.tolist(), sizes.tolist(), parts, strict=False):
            walk = self._over(at, size)
            if part is None:
                self.walked |= {session.first: session for session in walk.sessions()}
            else:
                folding = FoldingWalk(walk, part)
                folding.run()
                self.walked |= {session.first: session for session, _ in folding.ended}
                self.states |= {session.first: state for session, state in folding.ended}
                self.why |= {int(order[at]) - opened: why for at, why in folding.failures.items()}
            self.codes[order[[*walk.verdicts]] - opened] = [*walk.verdicts.values()]

    def _over(self, first: int, size: int) -> Walk:
        """Return the walk over some places of a key."""
        intervals, holders = self.intervals.part(first, size), None
        if self.repeating[self.keys[first]]:
            stored = compress(intervals, self.is_stored[first : first + size])
            holders = dict.fromkeys((one.event_id for one in stored), STORED)
        return Walk(self.program.cuts.rules, self.lateness, intervals, holders)

    def _united(self, unions: Unions, counts: Mask) -> Unions:
        """Return the sessions of the events that count; set their first places."""
        sessions, stays = [*self.walked.values()], ~self._by_place(~counts)
        firsts = self.places[unions.first]
        whole = unions.reduced(np.logical_or, (stays & ~self.is_walked)[self.places])
        closes, closed_by = closed(self.program.cuts.rules, sessions)
        firsts = np.concatenate([firsts[whole], np.array([*self.walked], np.int64)])
        order = np.argsort(firsts)
        self.firsts = firsts[order]
        # Of the places 0 1 2 3 stay 0 2 3, which are 0 1 2 then.
        first: Numbers = (np.cumsum(stays) - stays)[self.firsts]
        starts = np.array([session.start for session in sessions], np.int64)
        ends = np.array([session.end for session in sessions], np.int64)
        return Unions(
            first,
            np.diff(first, append=int(stays.sum())),
            np.concatenate([unions.start[whole], starts])[order],
            np.concatenate([unions.end[whole], ends])[order],
            np.concatenate([unions.closes[whole], closes])[order],
            np.concatenate([unions.closed_by[whole], closed_by])[order],
        )
