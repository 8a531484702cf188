"""
The fold of sessions by the functions of the user.

One loop folds all sessions, and tells only which of them fail. Where some do, or leave states that
don't fit their fields, `on_error` decides: the reason is raised, or they're folded again without
the events that fail. The second fold goes one step after another (`careful_fold`), with new
objects, since the functions may have changed the old ones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.objects import (
    build_events,
    check_fit,
    check_rows,
    collected,
    decode_keys,
    decode_states,
)
from sessionkit._engine.rows.tables import Rejected
from sessionkit._engine.sessions.careful_fold import SessionFold, careful_folds
from sessionkit._engine.sessions.failing import failing_events
from sessionkit._engine.sessions.feature import Finished, ResultPlaces, Tell
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of

OBJECTS_AT_ONCE: Final = 2**16


def fold_by_functions(functions: SessionFold, plan: Plan) -> Folded:
    """
    Fold every session of a plan that has events.

    Raises:
        UserFunctionError: A function failed, under `on_error="raise"`.
        StateValueError: A state doesn't fit its fields, under `on_error="raise"`.
    """
    spec, active = plan.spec, plan.active
    refused = dict[int, str]()
    keys: list[Any] = []
    # The places of the open sessions that joined sessions with events, and how many joined each.
    opened = plan.places[plan.order[plan.opened[active[plan.joined]]]]
    opened_counts = (plan.unions.sizes - plan.counts)[active]
    if functions.create is not None:
        new = active.copy()
        # Of three sessions, two have events, with 1 and 0 open ones: [False, False, True].
        new[active] = opened_counts == 0
        keys = decode_keys(spec, plan.keys_of(new))
    # A session that fails here is folded again with care, which tells what failed.
    states, failed = fold_all(
        functions,
        iter(keys),
        decode_states(spec.state, plan.sessions, opened),
        chain.from_iterable(_objects(functions, plan, refused)),
        zip(opened_counts.tolist(), plan.counts[active].tolist(), strict=True),
    )
    if refused:
        # Quarantined events hold no sessions together, so the others are planned again.
        quarantined = Rejected.with_reasons("quarantined", refused, plan.events.table)
        return Folded([], refused, quarantined)
    if plan.failures and spec.on_error == "raise":
        raise UserFunctionError(*plan.failures[min(plan.failures)])
    if failed and spec.on_error == "raise":
        # If sessions 0 and 2 have events, the second state, 1, belongs to session 2.
        failing, unions = np.flatnonzero(active)[failed], plan.unions
        parts = careful_folds(plan, unions.first[failing], unions.sizes[failing])
        for place, part in zip(failed, parts, strict=True):
            states[place] = part.state_of(part.places)
        failed = []
    if failed or plan.failures:
        return _rejecting(plan, states, failed)
    try:
        return Folded(plan.encoded(states))
    except StateValueError:
        if spec.on_error == "raise" or not (misfits := _misfits(plan, states)):
            raise
        return _rejecting(plan, states, misfits)


def _rejecting(plan: Plan, states: list[Any], failed: Sequence[int]) -> Folded:
    """Return the events that fail in failed sessions or, if none fails again, all states."""
    failing = np.flatnonzero(plan.active)[[*failed]]
    refolded, failures = failing_events(plan, failing)
    if failures:
        rejected = Rejected.with_failures("failed", failures, plan.all_events.table)
        return Folded([], failures, rejected)
    for place, session in zip(failed, failing.tolist(), strict=True):
        states[place] = refolded[session]
    misfits = _misfits(plan, states)
    return _rejecting(plan, states, misfits) if misfits else Folded(plan.encoded(states))


def _misfits(plan: Plan, states: Sequence[Any]) -> list[int]:
    """Return the places of the states that don't fit: encoding all at once doesn't name them."""
    codec = codec_of(plan.spec.state)
    return [place for place, state in enumerate(states) if codec.misfit(state)]


def _objects(
    functions: SessionFold, plan: Plan, refused: dict[int, str]
) -> Iterator[Sequence[Any]]:
    """
    Yield the events of a plan as objects, some at a time: an object is larger than a row.

    Events that their class refuses go into `refused` with the reasons, and no more are yielded.
    """
    for first in range(0, len(plan.event_places), OBJECTS_AT_ONCE):
        places = plan.event_places[first : first + OBJECTS_AT_ONCE]
        objects, reasons = build_events(plan.spec, plan.events.table, places)
        for place, why in reasons.items():
            # `place` counts the objects: of the events 4 7 2, the place 1 is event 7.
            refused[int(places[place])] = why
        if functions.takes_time:
            objects = functions.timed(objects, plan.events.starts[places])
        if not refused:
            yield objects


def fold_all(
    functions: SessionFold,
    new_keys: Iterator[Any],
    opened: Sequence[Any],
    events: Iterator[Any],
    counts: Iterable[tuple[int, int]],
) -> tuple[list[Any], list[int]]:
    """
    Return the states of sessions, None for failed ones, and the places of the failed ones.

    `new_keys` has the keys of sessions without an open one, where there is a `create`. `counts` has
    the numbers of open sessions and of events of each session. The `opened` states may be changed.
    """
    cls, create = functions.spec.state, functions.create
    merge_may = "merge" in functions.may_return_nothing
    update_may = "update" in functions.may_return_nothing
    states: list[Any] = []
    failed: list[int] = []
    old = 0
    for opened_count, event_count in counts:
        first_old, session_events = old, islice(events, event_count)
        old += opened_count
        try:
            if opened_count:
                state = opened[first_old]
            elif create is None:
                state = cls()
            else:
                state = create(next(new_keys), next(session_events))
                if state.__class__ is not cls:
                    _fail()
            for function, arguments, may_return_nothing in (
                (functions.merge, opened[first_old + 1 : old], merge_may),
                (functions.update, session_events, update_may),
            ):
                for argument in arguments:
                    returned = function(state, argument)
                    if returned.__class__ is cls:
                        state = returned
                    elif returned is not None or not may_return_nothing:
                        _fail()
        except Exception:  # noqa: BLE001 (the functions of the user)
            failed.append(len(states))
            state = None
            deque(session_events, 0)  # the next session has the events after these
        states.append(state)
    return states, failed


def _fail() -> NoReturn:
    """Stop the fold of a session: what a function returned isn't a state."""
    raise TypeError


# -- finish -----------------------------------------------------------------------------------


def finish_by_functions(spec: AnySessionSpec, sessions: pa.Table, tell: Tell) -> Finished:
    """Return the results of sessions: what `finish` returns, or their states without it."""
    finish, results = spec.finish, decode_states(spec.state, sessions)
    places: ResultPlaces = range(len(results))
    failed: dict[int, Failure] = {}
    if finish is not None:
        results, places, failed = _finished(spec, finish, tell(), results)
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, results)):
        # All results are encoded at once, and looked at singly only where one doesn't fit.
        with suppress(StateValueError):
            return Finished(codec.encode(results), places, failed)
    misfits = _misfit_results(spec, sessions, results, places)
    fitting = [number for number, place in enumerate(places) if place not in misfits]
    columns = codec.encode([results[number] for number in fitting])
    return Finished(columns, [places[number] for number in fitting], failed | misfits)


def _finished(
    spec: AnySessionSpec, finish: Callable[..., Any], sessions: Sequence[Any], states: list[Any]
) -> tuple[list[Any], ResultPlaces, dict[int, Failure]]:
    """Return the results of `finish`, the place of each result's session, and the failures."""
    results: list[Any] = []
    places: list[int] = []
    failed: dict[int, Failure] = {}
    for place, (session, state) in enumerate(zip(sessions, states, strict=True)):
        try:
            result = finish(session, state)
            if result.__class__ is spec.result:
                results.append(result)
                places.append(place)
            else:
                several = collected(result, spec, "finish")
                results += several
                places += [place] * len(several)
        except Exception as error:
            failure = call_failed("finish", finish, repr(session.key), error, session.session_start)
            if spec.on_error == "raise":
                raise UserFunctionError(*failure) from error
            failed[place] = failure
    everywhere = range(len(states))
    return results, everywhere if places == list(everywhere) else places, failed


def _misfit_results(
    spec: AnySessionSpec, sessions: pa.Table, results: list[Any], places: ResultPlaces
) -> dict[int, Failure]:
    """Return the failures of sessions with a result of another class, or one that doesn't fit."""
    finish: Any = spec.finish
    keys, misfits = decode_keys(spec, sessions), dict[int, Failure]()
    for place, result in zip(places, results, strict=True):
        try:
            check_rows([result], spec, "finish", finish, keys[place])
            check_fit([result], spec.result, "finish", finish, keys[place])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            misfits.setdefault(place, Failure.of(error))
    return misfits
