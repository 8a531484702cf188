"""
The fold of sessions by the functions of the user.

One loop folds all sessions, and tells only which of them fail, or leave states that don't fit their
fields. These are folded again, one step after another (`folding_walk`), with new objects, since the
functions may have changed the old ones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers
from sessionkit._engine.rows.objects import (
    build_events,
    check_fit,
    check_rows,
    collected,
    decode_keys,
    decode_states,
)
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.careful_fold import SessionFold
from sessionkit._engine.sessions.feature import Finished, Owners, Tell
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of

OBJECTS_AT_ONCE: Final = 2**16


class EventsBrokeError(BaseException):
    """
    Making the events broke, which is nobody's failure.

    The fold of a session asks for its events in the middle of the user's functions, whose errors
    are `Exception`s.
    """


def fold_by_functions(functions: SessionFold, plan: Plan) -> Folded:
    """
    Fold every session of a plan that has events, and no state yet.

    Raises:
        StateValueError: A state doesn't fit its fields, under `on_error="raise"`.
    """
    spec, known, refused = plan.spec, plan.states, dict[int, str]()
    chosen, numbers = plan.active, plan.event_numbers
    if known is not None:
        chosen = chosen & np.array([state is None for state in known])
        numbers = plan.events_of(chosen)
    keys: list[Any] = []
    # The rows of the open sessions that joined chosen sessions, and how many joined each.
    opened = plan.rows[plan.order[plan.opened[chosen[plan.joined]]]]
    opened_counts = (plan.unions.sizes - plan.counts)[chosen]
    if functions.create is not None:
        new = chosen.copy()
        # Of three sessions, two have events, with 1 and 0 open ones: [False, False, True].
        new[chosen] = opened_counts == 0
        keys = decode_keys(spec, plan.keys_of(new))
    try:
        states, failed = fold_all(
            functions,
            iter(keys),
            decode_states(spec.state, plan.sessions, opened),
            chain.from_iterable(_objects(functions, plan, numbers, refused)),
            zip(opened_counts.tolist(), plan.counts[chosen].tolist(), strict=True),
        )
    except EventsBrokeError as broke:
        raise (broke.__cause__ or broke) from None
    if refused:
        # Refused events hold no sessions together, so the others are judged again.
        rejected = SideOutput.with_reasons("quarantined", refused, plan.events.table)
        return Folded(left_out=refused, rejected=rejected)
    if known is not None:
        new_states = iter(states)
        pairs = zip(known, plan.active.tolist(), strict=True)
        states = [next(new_states) if state is None else state for state, has in pairs if has]
    return _encoded(plan, states, chosen, failed)


def _encoded(plan: Plan, states: list[Any], chosen: Mask, failed: Sequence[int]) -> Folded:
    """Return the columns of the states, or which sessions have failed or left what doesn't fit."""
    failing = np.zeros(len(chosen), np.bool_)
    try:
        columns = plan.encoded([one for one in states if one is not None] if failed else states)
    except StateValueError:
        if not failed and (plan.spec.on_error == "raise" or not chosen.any()):
            raise
        # All states are encoded at once, which doesn't say which of them don't fit.
        misfit = codec_of(plan.spec.state).misfit
        failing[plan.active] = [one is not None and misfit(one) is not None for one in states]
    else:
        if not failed:
            return Folded(columns)
    failing[np.flatnonzero(chosen)[failed]] = True
    return Folded(failing=failing, objects=states)


def _objects(
    functions: SessionFold, plan: Plan, numbers: Numbers, refused: dict[int, str]
) -> Iterator[Sequence[Any]]:
    """
    Yield events of a plan as objects, some at a time: an object is larger than a row.

    Events that their class refuses go into `refused` with the reasons, and no more are yielded.
    """
    for first in range(0, len(numbers), OBJECTS_AT_ONCE):
        some = numbers[first : first + OBJECTS_AT_ONCE]
        try:
            objects, reasons = build_events(plan.spec, plan.events.table, some)
            if functions.takes_time:
                objects = functions.timed(objects, plan.events.starts[some])
        except Exception as error:
            raise EventsBrokeError from error
        for nth, why in reasons.items():
            # `nth` counts the objects from 0: of the events 4 7 2, it's 1 for event 7.
            refused[int(some[nth])] = why
        if not refused:
            yield objects


def fold_all(  # noqa: C901, PLR0912 (one loop, for its speed)
    functions: SessionFold,
    new_keys: Iterator[Any],
    opened: Sequence[Any],
    events: Iterator[Any],
    counts: Iterable[tuple[int, int]],
) -> tuple[list[Any], list[int]]:
    """
    Return the states of sessions, None for failed ones, and which have failed, as numbers.

    `new_keys` has the keys of sessions without an open one, where there is a `create`. `counts` has
    the numbers of open sessions and of events of each session. The `opened` states may be changed.
    """
    cls, create = functions.spec.state, functions.create
    merge, update = functions.merge, functions.update
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
                for other in opened[first_old + 1 : old]:
                    returned = merge(state, other)
                    if returned.__class__ is cls:
                        state = returned
                    elif returned is not None or not merge_may:
                        _fail()
            elif create is None:
                state = cls()
            else:
                state = create(next(new_keys), next(session_events))
                if state.__class__ is not cls:
                    _fail()
            for event in session_events:
                returned = update(state, event)
                if returned.__class__ is cls:
                    state = returned
                elif returned is not None or not update_may:
                    _fail()
        except MemoryError:
            raise
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
    owners: Owners = range(len(results))
    failed: dict[int, Failure] = {}
    if finish is not None:
        results, owners, failed = _finished(spec, finish, tell(), results)
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, results)):
        # All results are encoded at once, and looked at singly only where one doesn't fit.
        with suppress(StateValueError):
            return Finished(codec.encode(results), owners, failed)
    misfits = _misfit_results(spec, sessions, results, owners)
    fitting = [number for number, row in enumerate(owners) if row not in misfits]
    columns = codec.encode([results[number] for number in fitting])
    return Finished(columns, [owners[number] for number in fitting], failed | misfits)


def _finished(
    spec: AnySessionSpec, finish: Callable[..., Any], sessions: Sequence[Any], states: list[Any]
) -> tuple[list[Any], Owners, dict[int, Failure]]:
    """Return the results of `finish`, the row of each result's session, and the failures."""
    results: list[Any] = []
    owners: list[int] = []
    failed: dict[int, Failure] = {}
    for row, (session, state) in enumerate(zip(sessions, states, strict=True)):
        try:
            result = finish(session, state)
            if result.__class__ is spec.result:
                results.append(result)
                owners.append(row)
            else:
                several = collected(result, spec, "finish")
                results += several
                owners += [row] * len(several)
        except MemoryError:
            raise
        except Exception as error:
            failure = call_failed("finish", finish, repr(session.key), error, session.session_start)
            if spec.on_error == "raise":
                raise UserFunctionError(*failure) from error
            failed[row] = failure
    everywhere = range(len(states))
    return results, everywhere if owners == list(everywhere) else owners, failed


def _misfit_results(
    spec: AnySessionSpec, sessions: pa.Table, results: list[Any], owners: Owners
) -> dict[int, Failure]:
    """Return the failures of sessions with a result of another class, or one that doesn't fit."""
    finish: Any = spec.finish
    keys, misfits = decode_keys(spec, sessions), dict[int, Failure]()
    for row, result in zip(owners, results, strict=True):
        try:
            check_rows([result], spec, "finish", finish, keys[row])
            check_fit([result], spec.result, "finish", finish, keys[row])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            misfits.setdefault(row, Failure.of(error))
    return misfits
