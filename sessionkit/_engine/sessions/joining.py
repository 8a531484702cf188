"""
The events of a micro-batch join the open sessions of a group.

    read      their windows, and what features read of them
    accept    the events that are neither late nor repeats, and their plan
    fold      the states of their sessions, and the rows of these
"""

from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, concat, instants, left_over, micros, numbers_in
from sessionkit._engine.boundaries import is_late, window_end
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.rows.tables import SALT, Rejected
from sessionkit._engine.sessions.folds import refused_first
from sessionkit._engine.sessions.plan import (
    Folded,
    Horizon,
    Plan,
    WindowedEvents,
    members_of,
)
from sessionkit._engine.sessions.program import Program
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.timeouts._policies import EventTimeGap

REPEATS: Final = "an event with its event_id was processed already"
LATE_EVENT: Final = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY: Final = (
    "its own window is over: event time + gap, or midnight, is at or before the watermark"
)
LATE_SESSION: Final = "the session it would join is over: its end is at or before the watermark"
OUTSIDE: Final = "no session is open at its time, and by `opens_with` it may not open one"
LATE_HEARTBEAT: Final = "no open session is there at its time, which is at or before the watermark"


@attrs.frozen
class JoinedEvents:
    """The rows of sessions after events joined, the number of these, and the rejected events."""

    sessions: pa.Table
    events: int
    rejected: list[Rejected]


def join(program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> JoinedEvents:
    """
    Let events, in any order, join the open sessions of a group.

    Where an event can't be folded, the rest is planned again: without it, other events may belong
    together, be late, or be the first of their id. Each round leaves out an event for good, so
    there are at most as many rounds as events; mostly there are two.
    """
    starts, rejected = micros(arrived["time"]), list[Rejected]()
    events = WindowedEvents(arrived, starts, window_end(starts, program.gap_us))
    for feature in program.features:
        events, refused = feature.read(events)
        rejected += refused
    while True:
        accepted = _accept(program, sessions, events, horizon)
        plan, outside, repeats = accepted.plan, accepted.outside, accepted.repeats
        for part in accepted.late:
            rejected += refused_first(program.spec, part)
        after, number = sessions, 0
        if plan is not None:
            folded = program.fold.fold(plan)
            rejected += folded.rejected
            if folded.left_out:
                # A failed event isn't processed, so the next event with its id counts, and a
                # session that it would have ended goes on.
                events = plan.all_events.without(folded.left_out).joined(repeats)
                continue
            after, number = sessions_after(program, plan, folded), len(plan.events.starts)
        if repeats is not None:
            all_repeats = np.ones(len(repeats.starts), np.bool_)
            rejected += Rejected.chosen("duplicate", REPEATS, repeats.table, all_repeats)
        if outside is not None:
            are_outside = np.ones(len(outside.starts), np.bool_)
            for part in Rejected.chosen("outside", OUTSIDE, outside.table, are_outside):
                rejected += refused_first(program.spec, part)
        return JoinedEvents(after, number, rejected)


# -- which events count -------------------------------------------------------------------------


def horizon_of(program: Program, clocks: BatchClocks) -> Horizon:
    """Return what the watermark of a micro-batch has passed, by the rules of a spec."""
    spec, watermark_us, since_us = program.spec, clocks.watermark_us, clocks.since_us
    late_us: int | None = watermark_us
    forgotten_us = watermark_us - program.stays_us
    if spec.lateness.allowed is not None:
        late_us = watermark_us - span_us(spec.lateness.allowed)
    if watermark_us == BEGINNING_US:
        late_us = forgotten_us = BEGINNING_US
    if program.in_time_order:
        # Events of an instant are folded in one micro-batch, and later arrivals are late.
        late_us, forgotten_us = None, BEGINNING_US
    # A restart may change functions, and rules that are code.
    is_fixed = isinstance(spec.timeout, EventTimeGap) and not callable(spec.timeout.gap)
    lasts_us, from_us = program.gap_us if is_fixed else 0, BEGINNING_US
    if since_us is not None:
        # Sessions of a seed may have had other rules.
        if not program.in_time_order:
            forgotten_us = max(forgotten_us, since_us)
        forgotten_us, lasts_us, from_us = max(forgotten_us, clocks.idle_us), 0, since_us
    by_event = spec.lateness.judged_by == "event"
    # The window of an event that keeps no session open is over as soon as it happens.
    by_session = not by_event or program.cuts.rules.extends is not None
    return Horizon(
        late_event_us=late_us if by_event else None,
        late_session_us=late_us if by_session else None,
        forgotten_us=forgotten_us,
        lasts_us=lasts_us,
        salted=(watermark_us, program.stays_us, from_us),
    )


def _why_late(program: Program, *, by_session: bool) -> str:
    lateness = program.spec.lateness
    if by_session:
        why = LATE_HEARTBEAT if lateness.judged_by == "event" else LATE_SESSION
    else:
        why = LATE_EVENT if program.cuts.rules.midnight is None else LATE_DAY
    return f"{why}, less `Lateness(allowed=...)`" if lateness.allowed else why


@attrs.frozen
class Accepted:
    """
    The events that count, and the others.

    Attributes:
        plan: The plan of the events that count; None if none does.
        late: The late events.
        outside: The events outside any session, if any.
        repeats: The repeats of planned events, if any. They may count where another event fails, as
            may those outside any session.
    """

    plan: Plan | None
    late: list[Rejected]
    outside: WindowedEvents | None
    repeats: WindowedEvents | None


def _accept(
    program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Accepted:
    """
    Plan for the events that are neither late, nor outside any session, nor repeats.

    Where both windows and sessions are judged, an event that keeps no session open is judged by its
    session. Each round but the last leaves out events, so the rounds end.
    """
    event_us, session_us, late = horizon.late_event_us, horizon.late_session_us, list[Rejected]()
    if event_us is not None:
        are_late = is_late(program.cuts.over_at(events), event_us)
        if session_us is not None:
            are_late &= events.keep_open(gap_inclusive=program.cuts.rules.gap_inclusive)
        if are_late.any():
            why = _why_late(program, by_session=False)
            late += Rejected.chosen("late", why, events.table, are_late)
            events = events.only(~are_late)
    outside: WindowedEvents | None = None
    while True:
        repeats: WindowedEvents | None = None
        for feature in program.features:
            events, repeated = feature.distinct(sessions, events)
            repeats = repeated or repeats
        plan = _united(program, sessions, events, horizon) if len(events.starts) else None
        # A repeat joins no session, so repeats are found first. Where the first event of an id is
        # left out, the next one isn't a repeat.
        if plan is None:
            break
        if plan.outside:
            left_out = np.isin(np.arange(len(plan.events.starts)), [*plan.outside])
            outside = plan.events.only(left_out).joined(outside)
        elif session_us is None or not (left_out := _joins_late(plan, session_us)).any():
            break
        else:
            why = _why_late(program, by_session=True)
            late += Rejected.chosen("late", why, plan.events.table, left_out)
        events = plan.events.only(~left_out).joined(repeats)
    accepted = Accepted(plan, late, outside, repeats)
    if outside is not None:
        accepted = _with_late_outside(program, accepted, outside, session_us)
    return (
        accepted
        if repeats is None
        else _with_late_repeats(program, sessions, accepted, repeats, horizon)
    )


def _with_late_outside(
    program: Program, accepted: Accepted, outside: WindowedEvents, late_us: int | None
) -> Accepted:
    """Tell the events outside any session that are late: a session of each alone would be over."""
    plan, late = accepted.plan, accepted.late
    if late_us is not None:
        are_late = is_late(program.cuts.over_at(outside), late_us)
        why = _why_late(program, by_session=True)
        late = late + Rejected.chosen("late", why, outside.table, are_late)
        outside = outside.only(~are_late)
    if plan is not None:
        plan = attrs.evolve(plan, left_out=outside)
    return attrs.evolve(accepted, plan=plan, late=late, outside=outside)


def _with_late_repeats(
    program: Program,
    sessions: pa.Table,
    accepted: Accepted,
    repeats: WindowedEvents,
    horizon: Horizon,
) -> Accepted:
    """
    Tell the repeats that are late: those that would be late as the first of their id.

    Where it extends no session, that depends on the sessions of the others. It doesn't change
    these, so it's judged after them.
    """
    event_us, session_us = horizon.late_event_us, horizon.late_session_us
    if event_us is None or session_us is None:
        return accepted
    inclusive, plan = program.cuts.rules.gap_inclusive, accepted.plan
    late_alone = is_late(repeats.ends, event_us) & ~repeats.keep_open(gap_inclusive=inclusive)
    if not late_alone.any():
        return accepted
    unjudged, planned = repeats.only(late_alone), plan.events if plan else None
    united = _united(program, sessions, unjudged.joined(planned), horizon)
    are_late = np.zeros(len(repeats.starts), np.bool_)
    are_late[late_alone] = _joins_late(united, session_us)[: len(unjudged.starts)]
    why = _why_late(program, by_session=True)
    late = accepted.late + Rejected.chosen("late", why, repeats.table, are_late)
    return attrs.evolve(accepted, late=late, repeats=repeats.only(~are_late))


def _joins_late(plan: Plan, late_us: int) -> Mask:
    """Mark the events whose planned session is over by an instant."""
    mask = np.zeros(len(plan.events.starts), np.bool_)
    mask[plan.places_of(is_late(plan.unions.closes, late_us))] = True
    return mask


def _united(program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon) -> Plan:
    """Plan which sessions and events, at least one, belong together."""
    members = members_of(program.spec, sessions, events)
    unions, failures, outside = program.cuts.united(members)
    named = attrs.asdict(members, recurse=False)
    plan = Plan(**named, unions=unions, horizon=horizon, failures=failures, outside=outside)
    is_joined = unions.sizes > 1
    return plan.parted(program.cuts.column) if (is_joined & ~plan.active).any() else plan


# -- what is stored -----------------------------------------------------------------------------


def sessions_after(program: Program, plan: Plan, folded: Folded) -> pa.Table:
    """Return the rows of all sessions: unchanged ones without events, and folded ones."""
    active, unions = plan.active, plan.unions
    # Sessions with 2 and 1 new events, and open ones with 5 and none before, have 7 and 1.
    counts = plan.counts + plan.of_opened(np.add, numbers_in(plan.sessions, "events")[plan.places])
    keys, salts = plan.keys_of(active), plan.salts_of(active)
    columns: dict[str, pa.Array] = {
        **dict(zip(program.schema.names, keys.columns, strict=False)),
        "start": instants(unions.start[active]),
        "end": instants(unions.end[active]),
        "events": pa.array(counts[active]),
        SALT.name: pa.array(salts),
    }
    for feature in program.features:
        for field, column in zip(feature.fields, feature.columns(plan, active), strict=True):
            columns[field.name] = column
    arrays = [*columns.values(), *folded.states]
    parts = [
        left_over(plan.sessions, plan.places),
        pa.Table.from_arrays(arrays, schema=program.schema),
    ]
    if not active.all():
        # A session without events is one open session, its only interval.
        passed = plan.touched.take(pa.array(plan.order[unions.first[~active]]))
        for feature in program.features:
            passed = feature.passed(plan, passed)
        parts.append(passed)
    return concat(parts)
