"""
Sessions are folded by the functions of the user.

All are folded at once, in a loop that says only which sessions fail. Where some do, or leave states
that don't fit their fields, what becomes of them is up to `on_error`: the reason is raised; or
they're folded again without the events that fail; or they're dropped. That is done one step after
another (`careful_fold`), from new objects since the functions may have changed the old ones. A spec
whose functions don't fail gets no further than the first.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events, decode_keys, decode_states
from sessionkit._engine.rows.table import Mask, Rejected
from sessionkit._engine.sessions.careful_fold import FoldError, SessionFold, careful_folds
from sessionkit._engine.sessions.dropping import dropped
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit._engine.sessions.rejecting import rejected
from sessionkit.errors import StateValueError
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of


def refused_first(spec: AnySessionSpec, late: Rejected) -> list[Rejected]:
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


def fold_by_functions(program: Program, plan: Plan) -> Folded:
    """
    Fold every session of a plan that has events.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A state doesn't fit its fields, and the spec says so too.
    """
    objects, refused = build_events(program.spec, plan.events.table, plan.event_places)
    if refused:
        # What belongs together depends on the other events alone.
        reasons = {int(plan.event_places[place]): why for place, why in refused.items()}
        quarantined = Rejected.with_reasons("quarantined", reasons, plan.events.table)
        return Folded(None, 0, quarantined, reasons)
    spec, active = program.spec, plan.active
    if plan.failures and spec.on_error == "raise":
        raise FoldError(*plan.failures[min(plan.failures)])
    states, failed = _folded(program.functions or SessionFold.of(spec), plan, objects)
    if failed and spec.on_error == "raise":
        failing, unions = np.flatnonzero(active)[failed], plan.unions
        parts = careful_folds(plan, unions.first[failing], unions.sizes[failing])
        for place, part in zip(failed, parts, strict=True):
            states[place] = part.state_of(part.places)
        failed = []
    if plan.failures:
        sessions = plan.owners[len(plan.places) + np.array([*plan.failures])]
        failed += (np.cumsum(active) - 1)[sessions].tolist()
    good, states = _without(active, states, failed) if failed else (active, states)
    try:
        columns = plan.encoded(good, states)
    except StateValueError:
        if spec.on_error == "raise":
            raise
        codec = codec_of(spec.state)
        misfits = [place for place, state in enumerate(states) if codec.misfit(state)]
        good, states = _without(good, states, misfits)
        columns = plan.encoded(good, states)
    if good is active:
        return Folded(program.sessions_after(plan, good, columns), len(objects), [])
    left_out = dropped if spec.on_error == "drop_session" else rejected
    return left_out(program, plan, good, columns)


def _folded(functions: SessionFold, plan: Plan, objects: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the state of each session that has events, and the places of those that fail."""
    spec, active = plan.spec, plan.active
    keys: list[Any] = []
    places, counts_stored = plan.states_of(active)
    if functions.create is not None:
        new = active.copy()
        new[active] = counts_stored == 0
        keys = decode_keys(spec, plan.keys_of(new))
    opened = decode_states(spec.state, plan.sessions, places)
    events = objects
    if functions.takes_time:
        events = functions.timed(objects, plan.events.starts[plan.event_places])
    counts = zip(counts_stored.tolist(), plan.counts[active].tolist(), strict=True)
    return fold_all(functions, iter(keys), opened, events, counts)


def fold_all(
    functions: SessionFold,
    new_keys: Iterator[Any],
    opened: Sequence[Any],
    events: Sequence[Any],
    counts: Iterable[tuple[int, int]],
) -> tuple[list[Any], list[int]]:
    """
    Return the states of many sessions, and the places of those that fail.

    `new_keys` are of those without an open session, where there is a `create`; `counts` says how
    many of the open sessions, whose states may be changed, and of the events are whose.
    """
    cls, create = functions.spec.state, functions.create
    needs_return = not functions.may_return_nothing
    states: list[Any] = []
    failed: list[int] = []
    old = new = 0
    for opened_count, event_count in counts:
        first_old, first_new = old, new
        old, new = old + opened_count, new + event_count
        try:
            if opened_count:
                state = opened[first_old]
            elif create is None:
                state = cls()
            else:
                state = create(next(new_keys), events[first_new])
                first_new += 1
                if state.__class__ is not cls:
                    _fail()
            for function, given in (
                (functions.merge, opened[first_old + 1 : old]),
                (functions.update, events[first_new:new]),
            ):
                for one in given:
                    found = function(state, one)
                    if found.__class__ is cls:
                        state = found
                    elif needs_return or found is not None:
                        _fail()
        except Exception:  # noqa: BLE001 (the functions of the user)
            failed.append(len(states))
            state = None
        states.append(state)
    return states, failed


def _fail() -> NoReturn:
    """Stop the fold of a session: what a function returned isn't a state."""
    raise TypeError


def _without(good: Mask, states: list[Any], failed: Collection[int]) -> tuple[Mask, list[Any]]:
    """Return which sessions are good, and their states, without some of these states."""
    left, gone = good.copy(), set(failed)
    left[np.flatnonzero(good)[[*gone]]] = False
    return left, [state for place, state in enumerate(states) if place not in gone]
