"""Sessions are finished by `finish`: its results become columns."""

from contextlib import suppress
from typing import Any

import pyarrow as pa

from sessionkit._engine.rows.objects import (
    check_fit,
    check_rows,
    collected,
    decode_keys,
    decode_states,
)
from sessionkit._engine.sessions.emission import Finished, Places, Tell
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of


def finish_by_functions(spec: AnySessionSpec, given: pa.Table, tell: Tell) -> Finished:
    """Return the results of sessions: what `finish` returns, or their states without it."""
    states, finish, cls = decode_states(spec.state, given), spec.finish, spec.result
    everywhere = range(len(states))
    if finish is None:
        return _encoded(spec, given, states, everywhere, {})
    rows: list[Any] = []
    places: list[int] = []
    failed: dict[int, Failure] = {}
    for place, session, state in zip(everywhere, tell(), states, strict=True):
        try:
            result = finish(session, state)
            if result.__class__ is cls:
                rows.append(result)
                places.append(place)
            else:
                several = collected(result, spec, "finish")
                rows += several
                places += [place] * len(several)
        except Exception as error:
            failure = call_failed("finish", finish, repr(session.key), error, session.start)
            if spec.on_error == "raise":
                raise UserFunctionError(*failure) from error
            failed[place] = failure
    one_each = places == list(everywhere)
    return _encoded(spec, given, rows, everywhere if one_each else places, failed)


def _encoded(
    spec: AnySessionSpec,
    given: pa.Table,
    rows: list[Any],
    places: Places,
    failed: dict[int, Failure],
) -> Finished:
    """Return the columns of rows, without the sessions of which one isn't a result."""
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, rows)):
        with suppress(StateValueError):
            return Finished(codec.encode(rows), places, failed)
    finish: Any = spec.finish
    keys = decode_keys(spec, given)
    misfits: dict[int, Failure] = {}
    for place, row in zip(places, rows, strict=True):
        try:
            check_rows([row], spec, "finish", finish, keys[place])
            check_fit([row], spec.result, "finish", finish, keys[place])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            misfits.setdefault(place, Failure.of(error))
    left = [number for number, place in enumerate(places) if place not in misfits]
    columns = codec.encode([rows[number] for number in left])
    return Finished(columns, [places[number] for number in left], failed | misfits)
