"""
Events join the open sessions of a group, which the functions of the user fold.

All are folded at once. Where some fail, or leave states that don't fit their fields, what becomes
of them is up to `on_error`: the reason is raised; or they're folded again without the events that
fail; or they're dropped. A spec whose functions don't fail gets no further than the first.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.boundaries import is_late
from sessionkit._engine.rows.objects import (
    build_events,
    decode_keys,
    decode_states,
    encode_states,
)
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import Rejected, key_columns, micros
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.careful_fold import CarefulFold, Members
from sessionkit._engine.sessions.cutting import (
    Instant,
    Piece,
    RuledIntervals,
    by_times,
    closed_pieces,
)
from sessionkit._engine.sessions.dropping import dropped_sessions, over_event, traced
from sessionkit._engine.sessions.events import WindowedEvents
from sessionkit._engine.sessions.fold import FoldError, SessionFold
from sessionkit._engine.sessions.intervals import Unions
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.planning import (
    late_session,
    read_events,
    sessions_after,
    timely,
)
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.rejecting import Session, Walk
from sessionkit._engine.sessions.results import Joined
from sessionkit.errors import StateValueError
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.timeouts import SessionRules

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]


def join(program: Program, sessions: pa.Table, arrived: pa.Table, horizon: Horizon) -> Joined:
    """
    Let events join the open sessions of a group.

    Args:
        program: The spec, compiled.
        sessions: The open sessions.
        arrived: The events, in any order.
        horizon: What the watermark has passed.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field, and the
            spec says `on_error="raise"`.
    """
    events, rejected = read_events(program, arrived)
    joined = _joined(program, sessions, events, horizon)
    return attrs.evolve(joined, rejected=rejected + joined.rejected) if rejected else joined


def _joined(
    program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Joined:
    rejected: list[Rejected] = []
    while True:
        found = timely(program, sessions, events, horizon)
        plan, distinct = found.plan, found.distinct
        for late in found.late:
            rejected += _late(program.spec, late)
        if plan is None:
            return Joined(sessions, 0, [*rejected, *distinct.rejected])
        objects, refused = build_events(program.spec, plan.events.table, plan.event_places)
        if refused:
            # What belongs together depends on the other events alone.
            reasons = {int(plan.event_places[place]): why for place, why in refused.items()}
            rejected += Rejected.with_reasons("quarantined", reasons, plan.events.table)
            events = distinct.with_others(plan.events.without(reasons))
            continue
        folded = _fold_plan(program, plan, objects)
        if not (folded.rejected or distinct.others):
            return Joined(folded.sessions, folded.events, rejected) if rejected else folded
        failed, left = [part for part in folded.rejected if part.kind == "failed"], None
        if program.duplicates is not None and program.spec.on_error == "reject":
            left = program.duplicates.left(distinct, failed)
        if left is None:
            rejected += [*distinct.rejected, *folded.rejected]
            return Joined(folded.sessions, folded.events, rejected)
        # What failed was not processed, so the next event with its id counts.
        rejected += failed
        events = left


def _late(spec: AnySessionSpec, late: Rejected) -> list[Rejected]:
    """Quarantine the late events that their class refuses."""
    _, refused = build_events(spec, late.rows)
    if not refused:
        return [late]
    others = [place for place in range(late.rows.num_rows) if place not in refused]
    reasons = [late.reasons[place] for place in others]
    return [
        *Rejected.with_reasons("quarantined", refused, late.rows),
        Rejected("late", reasons, late.rows.take(pa.array(others, pa.int64()))),
    ]


def _fold_plan(program: Program, plan: Plan, objects: list[Any]) -> Joined:
    """
    Fold every session of a plan that has events, given as objects in its order.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A state does not fit its fields, and the spec says so too; key and path
            are named.
    """
    spec, active = plan.spec, plan.active
    if plan.failures and spec.on_error == "raise":
        raise FoldError(*plan.failures[min(plan.failures)])
    states, failed = _folded(program.functions or SessionFold.of(spec), plan, objects)
    if failed and spec.on_error == "raise":
        failing = np.flatnonzero(active)[failed]
        for place, part in zip(failed, _parts(plan, failing), strict=True):
            states[place] = part.state_of(part.places)
        failed = []
    if plan.failures:
        failed = sorted({*failed, *np.flatnonzero(plan.failed[active]).tolist()})
    good, states = _without(active, states, failed) if failed else (active, states)
    try:
        columns = _columns(plan, good, states)
    except StateValueError:
        if spec.on_error == "raise":
            raise
        codec = codec_of(spec.state)
        misfits = [place for place, state in enumerate(states) if codec.misfit(state)]
        good, states = _without(good, states, misfits)
        columns = _columns(plan, good, states)
    if np.array_equal(good, active):
        return Joined(sessions_after(program, plan, good, columns), len(objects), [])
    left_out = _dropped if spec.on_error == "drop_session" else _rejected
    return left_out(program, plan, good, columns)


def _folded(fold: SessionFold, plan: Plan, objects: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the state of each session that has events, and the places of those that fail."""
    spec, active = plan.spec, plan.active
    keys: list[Any] = []
    held, counts_held = plan.held_of(active)
    if fold.create is not None:
        new = active.copy()
        new[active] = counts_held == 0
        keys = decode_keys(spec, plan.keys_of(new))
    opened = decode_states(spec.state, held)
    events = objects
    if fold.takes_time:
        events = fold.timed(objects, plan.events.starts[plan.event_places])
    counts = zip(counts_held.tolist(), plan.counts[active].tolist(), strict=True)
    return fold.fold_all(iter(keys), opened, events, counts)


def _without(good: Mask, states: list[Any], failed: list[int]) -> tuple[Mask, list[Any]]:
    """Return which sessions are good, and their states, without some of these states."""
    left, gone = good.copy(), set(failed)
    left[np.flatnonzero(good)[failed]] = False
    return left, [state for place, state in enumerate(states) if place not in gone]


def _columns(plan: Plan, good: Mask, states: list[Any]) -> list[pa.Array]:
    """
    Return the states of some sessions as columns.

    Raises:
        StateValueError: A state does not fit its fields; key and path are named.
    """

    def key_at(place: int) -> Any:
        return decode_keys(plan.spec, plan.keys_of(good).slice(place, 1))[0]

    return encode_states(plan.spec.state, states, key_at)


def _parts(plan: Plan, sessions: Numbers) -> list[CarefulFold]:
    """Return the folds of some sessions of a plan."""
    members = Members(plan.spec, plan.touched, plan.events, plan.order)
    return list(members.parts(plan.unions.first[sessions], plan.unions.sizes[sessions]))


# -- dropped whole ------------------------------------------------------------------------------


def _dropped(program: Program, plan: Plan, good: Mask, states: list[pa.Array]) -> Joined:
    failed = plan.active & ~good
    failures = [_first_failure(plan, part) for part in _parts(plan, np.flatnonzero(failed))]
    sessions = traced(plan, failed, sessions_after(program, plan, good, states))
    rejected = dropped_sessions(plan, failed, failures)
    return Joined(sessions, int(plan.counts[good].sum()), rejected)


def _first_failure(plan: Plan, part: CarefulFold) -> Failure:
    """Return why a session can't be folded: over the first event that fails, if one does alone."""
    for strict in (set[int](), {*part.places}):
        again = attrs.evolve(part, known=plan.failures, strict=strict)
        try:
            again.state_of(part.places)
        except FoldError as error:
            event = None if error.place is None else part.event_at(error.place)
            events = [one for one in part.numbers if one >= 0] if event is None else [event]
            return over_event(plan, Failure.of(error), events)
    none_alone = Failure("its session can't be folded, though each event can")
    return over_event(plan, none_alone, [one for one in part.numbers if one >= 0])


# -- without the events that fail ---------------------------------------------------------------


def _rejected(program: Program, plan: Plan, good: Mask, states: list[pa.Array]) -> Joined:
    """
    Fold the sessions that failed again, from what is stored, without the events that fail.

    All that the gap alone would join is cut again too: where a rule cuts depends on what's before.
    What comes out is a plan again, without these events. So what holds for a plan (ids, duplicates,
    revisions, what rules store) holds for it.
    """
    found, failures = list[Session](), dict[int, Failure]()
    rules = plan.spec.rules or _gap_alone(plan.spec)
    intervals = _intervals(program, plan)
    whole = by_times(rules, intervals)
    failed = plan.unions.spread(plan.active & ~good)
    concerned: Mask = np.logical_or.reduceat(failed, whole.first)
    reach = plan.unions.spread(plan.unions.first + plan.unions.sizes)
    members = Members(plan.spec, plan.touched, plan.events, plan.order)
    for part in members.parts(whole.first[concerned], whole.sizes[concerned]):
        own = intervals.part(rules, part.first, len(part.numbers))
        found += Walk(part, rules, own, reach[part.first :], failures).sessions()
    late_us = plan.horizon.late_us if program.late_by_session else None
    left, late = _in_time(plan, rules, intervals, found, late_us)
    again: Mask = whole.spread(concerned)[plan.unions.first]
    after = _replanned(plan, rules, again, left, [*failures, *late])
    rejected = Rejected.with_failures("failed", failures, plan.events.table)
    reasons = dict.fromkeys(late, late_session(program))
    rejected += Rejected.with_reasons("late", reasons, plan.events.table)
    is_new = np.arange(len(after.counts)) >= len(after.counts) - len(left)
    folded = is_new & after.active
    new = [one.state for one, came in zip(left, folded[is_new], strict=True) if came]
    encoded = _columns(after, folded, new)
    stays = pa.array(~again[good])
    both = zip(states, encoded, strict=True)
    columns = [pa.concat_arrays([old.filter(stays), one]) for old, one in both]
    folded[~is_new] = good[~again]
    sessions = sessions_after(program, after, folded, columns)
    return Joined(sessions, int(after.counts[folded].sum()), rejected)


def _gap_alone(spec: AnySessionSpec) -> SessionRules:
    return SessionRules(spec.timeout.longest, gap_inclusive=spec.timeout.gap_inclusive)


def _intervals(program: Program, plan: Plan) -> RuledIntervals:
    """Return what the sessions of a plan are made of, as the rules see it."""
    events, touched, order = plan.events, plan.touched, plan.order
    numbers, found = key_numbers(key_columns(events.table), key_columns(touched))
    bounds = (
        np.concatenate([found, numbers]),
        np.concatenate([micros(touched["start"]), events.starts]),
        np.concatenate([micros(touched["end"]), events.ends]),
    )
    if program.rules is not None:
        return program.rules.intervals(touched, events, order, bounds)
    return RuledIntervals.by_gap(*(column[order] for column in bounds))


def _in_time(
    plan: Plan,
    rules: SessionRules,
    intervals: RuledIntervals,
    found: Sequence[Session],
    late_us: int | None,
) -> tuple[list[Session], list[int]]:
    """Return sessions, the stored ones alone where they're late, and the events that so are."""
    numbers = plan.order - plan.touched.num_rows
    left, late = list[Session](), list[int]()
    closes, _ = closed_pieces(rules, [one.piece for one in found])
    for one, closes_us in zip(found, closes.tolist(), strict=True):
        events = [number for number in numbers[one.places].tolist() if number >= 0]
        over = late_us is not None and is_late(closes_us, late_us)
        if (events and not over) or (not events and len(one.places) == 1):
            left.append(one)
            continue
        late += events
        # A stored session is over here only where it's kept beyond that, so as it is.
        for place in one.places:
            if numbers[place] < 0:
                instant = Instant.of(intervals.part(rules, place, 1))
                piece = Piece.at(instant).after(rules, instant)
                left.append(Session(one.turn, instant, piece, None, None, [place]))
    return left, late


def _replanned(
    plan: Plan, rules: SessionRules, again: Mask, sessions: Sequence[Session], gone: Sequence[int]
) -> Plan:
    """Return a plan with others in place of some sessions, after those that stay."""
    stored, unions = plan.touched.num_rows, plan.unions
    stays = np.ones(stored + len(plan.events.starts), np.bool_)
    stays[stored + np.array(gone, np.int64)] = False
    places = np.array([place for one in sessions for place in one.places], np.int64)
    members = np.concatenate([np.flatnonzero(unions.spread(~again)), places])
    order = (np.cumsum(stays) - 1)[plan.order[members]]
    pieces = [one.piece for one in sessions]
    new: list[npt.NDArray[Any]] = [
        np.array([len(one.places) for one in sessions], np.intp),
        np.array([one.start for one in pieces], np.int64),
        np.array([one.end for one in pieces], np.int64),
        *closed_pieces(rules, pieces),
    ]
    old: list[npt.NDArray[Any]]
    old = [unions.sizes, unions.start, unions.end, unions.closes, unions.closed_by]
    columns = [np.concatenate([one[~again], two]) for one, two in zip(old, new, strict=True)]
    others = Unions(np.cumsum(columns[0]) - columns[0], *columns)
    is_event = order >= stored
    return attrs.evolve(
        plan,
        events=plan.events.without(gone),
        order=order,
        is_event=is_event,
        unions=others,
        counts=others.sums(is_event.astype(np.int64)),
        failures={},
    )
