"""
How the events of a micro-batch join the open sessions of a group.

    read      their windows, and what features read of them
    accept    the events that are neither late nor repeat another, and the plan for these
    fold      the states of the sessions that they make, and of these the rows
"""

from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, concat, instants, left_over, micros
from sessionkit._engine.boundaries import is_late, window_end
from sessionkit._engine.rows.kept import has_state, salts_of
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.intervals import Members, WindowedEvents
from sessionkit._engine.sessions.lateness import Horizon
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit._engine.sessions.program import Program

REPEATS: Final = "an event with its event_id was processed already"


@attrs.frozen
class Joined:
    """The rows of sessions after events have joined them, how many did, and those that didn't."""

    sessions: pa.Table
    events: int
    rejected: list[Rejected]


@attrs.frozen
class Accepted:
    """
    The plan for the events that can be processed, None without one, and those that can't be.

    `repeats` are the events that repeat one of these: they count after all where it fails.
    """

    plan: Plan | None
    late: list[Rejected]
    repeats: WindowedEvents | None = None


def join(program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> Joined:
    """Let events, in any order, join the open sessions of a group."""
    events, rejected = _read(program, arrived)
    while True:
        accepted = _accept(program, sessions, events, horizon)
        for late in accepted.late:
            rejected += program.fold.refuse_first(late)
        repeats, plan = accepted.repeats, accepted.plan
        if plan is None:
            return Joined(sessions, 0, [*rejected, *_rejected_repeats(repeats)])
        folded = program.fold.fold(plan)
        # What failed was not processed, so the next event with its id counts.
        counts_anew = folded.gone and repeats is not None and len(repeats.starts)
        if folded.plan is not None and not counts_anew:
            rejected += [*_rejected_repeats(repeats), *folded.rejected]
            if folded.late:
                why = dict.fromkeys(folded.late, program.lateness.why_session)
                rejected += Rejected.with_reasons("late", why, plan.events.table)
            number = int(folded.plan.counts[folded.good].sum())
            return Joined(_sessions_after(program, folded.plan, folded), number, rejected)
        rejected += folded.rejected
        events = plan.events.without(folded.gone).joined(repeats)


def _rejected_repeats(repeats: WindowedEvents | None) -> list[Rejected]:
    if repeats is None:
        return []
    return Rejected.chosen("duplicate", REPEATS, repeats.table, np.ones(len(repeats.starts), bool))


def _read(program: Program, arrived: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
    """Return the events of a table with their windows, and those that can't be processed."""
    starts, rejected = micros(arrived["time"]), list[Rejected]()
    events = WindowedEvents(arrived, starts, window_end(starts, program.gap_us))
    for feature in program.features:
        events, refused = feature.read(events)
        rejected += refused
    return events, rejected


# -- which events count -------------------------------------------------------------------------


def _accept(
    program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Accepted:
    """Plan for the events that are neither late nor repeat another."""
    late = list[Rejected]()
    if horizon.late_event_us is not None:
        events, late = _in_time(program, events, horizon, horizon.late_event_us)
    accepted = _planned(program, sessions, events, late, horizon)
    if horizon.late_session_us is None:
        return accepted
    # An event that repeats another joins no session, so it's found first. Where the other one is
    # late, it isn't one.
    while (plan := accepted.plan) is not None:
        is_over = _joins_late(plan, horizon.late_session_us)
        if not is_over.any():
            break
        why = program.lateness.why_session
        late = late + Rejected.chosen("late", why, plan.events.table, is_over)
        events = plan.events.only(~is_over).joined(accepted.repeats)
        accepted = _planned(program, sessions, events, late, horizon)
    return _without_late_repeats(program, sessions, accepted, horizon)


def _joins_late(plan: Plan, late_us: int) -> Mask:
    """Mark the events that would join a session which is over by an instant."""
    mask = np.zeros(len(plan.events.starts), np.bool_)
    mask[plan.places_of(is_late(plan.unions.closes, late_us))] = True
    return mask


def _in_time(
    program: Program, events: WindowedEvents, horizon: Horizon, late_us: int
) -> tuple[WindowedEvents, list[Rejected]]:
    """Return the events whose own windows aren't over, and the late ones."""
    late = is_late(program.cuts.over_at(events), late_us)
    if not late.any():
        return events, []
    if horizon.late_session_us is not None:
        late &= events.keep_open(gap_inclusive=program.cuts.rules.gap_inclusive)
    rejected = Rejected.chosen("late", program.lateness.why_event, events.table, late)
    return events.only(~late), rejected


def _without_late_repeats(
    program: Program, sessions: pa.Table, accepted: Accepted, horizon: Horizon
) -> Accepted:
    """
    Count a repeat as late if it were so as the first of its id, where events are judged alone.

    Of an event that extends no session, that depends on which sessions the others make. It
    makes none of them another one, so it's judged after them.
    """
    repeats, event_us, session_us = (
        accepted.repeats,
        horizon.late_event_us,
        horizon.late_session_us,
    )
    if repeats is None or event_us is None or session_us is None:
        return accepted
    behind = is_late(repeats.ends, event_us)
    behind &= ~repeats.keep_open(gap_inclusive=program.cuts.rules.gap_inclusive)
    if not behind.any():
        return accepted
    asked, others = repeats.only(behind), accepted.plan.events if accepted.plan else None
    plan = _united(program, sessions, asked.joined(others), horizon)
    late = np.zeros(len(repeats.starts), np.bool_)
    late[behind] = _joins_late(plan, session_us)[: len(asked.starts)]
    rejected = Rejected.chosen("late", program.lateness.why_session, repeats.table, late)
    return attrs.evolve(accepted, late=accepted.late + rejected, repeats=repeats.only(~late))


def _planned(
    program: Program,
    sessions: pa.Table,
    events: WindowedEvents,
    late: list[Rejected],
    horizon: Horizon,
) -> Accepted:
    """Plan for the events that don't repeat another."""
    repeats: WindowedEvents | None = None
    for feature in program.features:
        events, others = feature.distinct(sessions, events)
        repeats = others or repeats
    if not len(events.starts):
        return Accepted(None, late, repeats)
    return Accepted(_united(program, sessions, events, horizon), late, repeats)


def _united(program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon) -> Plan:
    """Return which sessions and events, at least one, belong together."""
    spec = program.spec
    own = range(len(spec.keys))
    of_events, of_sessions = map(events.table.column, own), map(sessions.column, own)
    # The number of each event's key, and of each session's; -1 for a session without events:
    # events of b, a, b and sessions of a, c give [0, 1, 0] and [1, -1].
    numbers, of_stored = key_numbers(list(of_events), list(of_sessions))
    places = np.flatnonzero((of_stored >= 0) & has_state(sessions))
    untouched, salts = left_over(sessions, places), salts_of(sessions)
    keys = np.concatenate([of_stored[places], numbers])
    starts = np.concatenate([micros(sessions["start"])[places], events.starts])
    ends = np.concatenate([micros(sessions["end"])[places], events.ends])
    order = in_total_order(keys, starts, events.table, len(places), spec.sequence)
    members = spec, events, sessions, places, order, keys, starts, ends
    unions, failures = program.cuts.united(Members(*members))
    return Plan(*members, untouched, salts, unions, horizon, program.cuts, failures)


# -- what is stored -----------------------------------------------------------------------------


def _sessions_after(program: Program, plan: Plan, folded: Folded) -> pa.Table:
    """Return the rows of all sessions: those without events as they were, and the folded ones."""
    good = folded.good
    counts = plan.counts + plan.of_opened(np.add, plan.had)
    own = [
        *plan.key_columns_of(good),
        instants(plan.unions.start[good]),
        instants(plan.unions.end[good]),
        pa.array(counts[good]),
        pa.array(plan.salts_of(good)),
    ]
    columns: dict[str, pa.Array] = dict(zip(program.schema.names, own, strict=False))
    for feature in program.features:
        for field, column in zip(feature.fields, feature.columns(plan, good), strict=True):
            columns[field.name] = column
    arrays = [*columns.values(), *folded.states]
    parts = [plan.untouched, pa.Table.from_arrays(arrays, schema=program.schema)]
    if not plan.active.all():
        passed = plan.touched.take(pa.array(plan.order[plan.unions.first[~plan.active]]))
        for feature in program.features:
            passed = feature.passed(plan, passed)
        parts.append(passed)
    return concat(parts)
