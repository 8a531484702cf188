"""
Sessions are folded by the functions of the user.

All are folded at once, in a loop that says only which sessions fail. Where some do, or leave states
that don't fit their fields, what becomes of them is up to `on_error`: the reason is raised, or
they're folded again without the events that fail. That is done one step after another
(`careful_fold`), from new objects since the functions may have changed the old ones. A spec whose
functions don't fail gets no further than the first.
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
        UserFunctionError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A state doesn't fit its fields, and the spec says so too.
    """
    spec, active = plan.spec, plan.active
    refused = dict[int, str]()
    keys: list[Any] = []
    # Which open sessions joined those with events, by their places, and how many each of these.
    opened = plan.places[plan.order[plan.opened[active[plan.joined]]]]
    opened_counts = (plan.unions.sizes - plan.counts)[active]
    if functions.create is not None:
        new = active.copy()
        # Of three sessions the last two have events, with 1 and 0 open sessions: the last is new,
        # [False, False, True].
        new[active] = opened_counts == 0
        keys = decode_keys(spec, plan.keys_of(new))
    # The quick way; a session that fails here is folded again with care, which says what failed.
    states, failed = fold_all(
        functions,
        iter(keys),
        decode_states(spec.state, plan.sessions, opened),
        chain.from_iterable(_objects(functions, plan, refused)),
        zip(opened_counts.tolist(), plan.counts[active].tolist(), strict=True),
    )
    if refused:
        # What belongs together depends on the other events alone.
        quarantined = Rejected.with_reasons("quarantined", refused, plan.events.table)
        return Folded([], refused, quarantined)
    if plan.failures and spec.on_error == "raise":
        raise UserFunctionError(*plan.failures[min(plan.failures)])
    if failed and spec.on_error == "raise":
        # Sessions 0 and 2 have events: the second state, 1, is that of session 2.
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
    """Return the events that fail in sessions whose states failed, or else all states."""
    failing = np.flatnonzero(plan.active)[[*failed]]
    found, failures = failing_events(plan, failing)
    if failures:
        rejected = Rejected.with_failures("failed", failures, plan.events.table)
        return Folded([], failures, rejected)
    for place, first in zip(failed, plan.unions.first[failing].tolist(), strict=True):
        states[place] = found[first]
    misfits = _misfits(plan, states)
    return _rejecting(plan, states, misfits) if misfits else Folded(plan.encoded(states))


def _misfits(plan: Plan, states: Sequence[Any]) -> list[int]:
    """Return the places of the states that don't fit: all are encoded at once, which tells none."""
    codec = codec_of(plan.spec.state)
    return [place for place, state in enumerate(states) if codec.misfit(state)]


def _objects(
    functions: SessionFold, plan: Plan, refused: dict[int, str]
) -> Iterator[Sequence[Any]]:
    """
    Yield the events of a plan as they are folded, some at a time: an object is larger than a row.

    Where their class refuses events, these are added with the reasons, and no more are yielded.
    """
    for first in range(0, len(plan.event_places), OBJECTS_AT_ONCE):
        places = plan.event_places[first : first + OBJECTS_AT_ONCE]
        objects, reasons = build_events(plan.spec, plan.events.table, places)
        for place, why in reasons.items():
            # `place` counts the objects: where they are the events 4 7 2, the place 1 is event 7.
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
    Return the states of many sessions, and the places of those that fail.

    `new_keys` are of those without an open session, where there is a `create`; `counts` says how
    many of the open sessions, whose states may be changed, and of the events are whose.
    """
    cls, create = functions.spec.state, functions.create
    merge_may = "merge" in functions.may_return_nothing
    update_may = "update" in functions.may_return_nothing
    states: list[Any] = []
    failed: list[int] = []
    old = 0
    for opened_count, event_count in counts:
        first_old, own = old, islice(events, event_count)
        old += opened_count
        try:
            if opened_count:
                state = opened[first_old]
            elif create is None:
                state = cls()
            else:
                state = create(next(new_keys), next(own))
                if state.__class__ is not cls:
                    _fail()
            for function, given, may_return_nothing in (
                (functions.merge, opened[first_old + 1 : old], merge_may),
                (functions.update, own, update_may),
            ):
                for one in given:
                    returned = function(state, one)
                    if returned.__class__ is cls:
                        state = returned
                    elif returned is not None or not may_return_nothing:
                        _fail()
        except Exception:  # noqa: BLE001 (the functions of the user)
            failed.append(len(states))
            state = None
            deque(own, 0)  # the next session has the events after these
        states.append(state)
    return states, failed


def _fail() -> NoReturn:
    """Stop the fold of a session: what a function returned isn't a state."""
    raise TypeError


# -- finish -----------------------------------------------------------------------------------


def finish_by_functions(spec: AnySessionSpec, given: pa.Table, tell: Tell) -> Finished:
    """Return the results of sessions: what `finish` returns, or their states without it."""
    finish, results = spec.finish, decode_states(spec.state, given)
    places: ResultPlaces = range(len(results))
    failed: dict[int, Failure] = {}
    if finish is not None:
        results, places, failed = _finished(spec, finish, tell(), results)
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, results)):
        # All results at once: each is looked at only where one of them doesn't fit.
        with suppress(StateValueError):
            return Finished(codec.encode(results), places, failed)
    misfits = _misfit_results(spec, given, results, places)
    good = [number for number, place in enumerate(places) if place not in misfits]
    columns = codec.encode([results[number] for number in good])
    return Finished(columns, [places[number] for number in good], failed | misfits)


def _finished(
    spec: AnySessionSpec, finish: Callable[..., Any], sessions: Sequence[Any], states: list[Any]
) -> tuple[list[Any], ResultPlaces, dict[int, Failure]]:
    """Return what `finish` returns, for each result the place of its session, and the failures."""
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
    spec: AnySessionSpec, given: pa.Table, results: list[Any], places: ResultPlaces
) -> dict[int, Failure]:
    """Return the sessions of which a result isn't one, or doesn't fit its fields."""
    finish: Any = spec.finish
    keys, misfits = decode_keys(spec, given), dict[int, Failure]()
    for place, result in zip(places, results, strict=True):
        try:
            check_rows([result], spec, "finish", finish, keys[place])
            check_fit([result], spec.result, "finish", finish, keys[place])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            misfits.setdefault(place, Failure.of(error))
    return misfits
