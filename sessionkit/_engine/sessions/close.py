"""Sessions that are over: `finish` is called, and its result rows become a table."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import micros, whole
from sessionkit._engine.rows.objects import (
    check_fit,
    check_rows,
    collected,
    decode_keys,
    decode_states,
)
from sessionkit._engine.rows.table import Rejected, key_columns, result_schema
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.plan import Closed, Places
from sessionkit._engine.sessions.program import Program
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session, session_of
from sessionkit.state._codec import codec_of


def close(program: Program, over: pa.Table) -> Closed:
    ids, remembered = ids_of(over), None
    if program.memory is not None and program.memory.remembering is not None:
        done = program.memory.remembering.in_turn(over, _told(program, over, ids))
        columns, places, failed = done.columns, done.places, done.failed
        remembered = done.remembered
    else:
        rows, places, failed = _finished(program, over, ids)
        columns, places, misfits = _encoded(program.spec, over, rows, places)
        failed |= misfits
    rejected: list[Rejected] = []
    if failed:
        named = over.append_column("session_id", pa.array(ids))
        rejected = Rejected.with_failures("failed_output", failed, named)
    found = result_rows(program, over, ids, places, columns)
    number = over.num_rows - len(failed)
    return Closed(found, rejected, number, places, failed.keys(), remembered=remembered)


def sessions_of(program: Program, table: pa.Table, ids: Sequence[str]) -> list[Session[Any]]:
    """Return the sessions of a table, without their states."""
    starts, ends = micros(table["start"]).tolist(), micros(table["end"]).tolist()
    events = table["events"].to_numpy().tolist()
    rules, keys = program.rules, decode_keys(program.spec, table)
    reasons = repeat("gap") if rules is None else rules.reasons(table).to_pylist()
    return list(map(session_of, keys, ids, starts, ends, events, reasons))


def result_rows(
    program: Program,
    over: pa.Table,
    ids: Sequence[str],
    places: Places,
    columns: Sequence[pa.Array],
) -> pa.Table:
    """
    Return the table of result rows, given the columns of their fields.

    `places` has for each row the place of its session; it's a range if each has one.
    """
    own = [*key_columns(over), pa.array(ids, pa.string()), over["start"], over["end"]]
    if program.rules is not None:
        reasons = program.rules.reasons(over)
        # A session that gives an early row isn't over.
        is_open = program.revisions is not None and program.revisions.early is not None
        own.append(pc.if_else(whole(over["is_final"]), reasons, None) if is_open else reasons)
    if program.memory is not None:
        own += program.memory.row_columns(over)
    if program.revisions is not None:
        own += over.select(["revision", "is_final", "supersedes"]).columns
    if not isinstance(places, range):
        taken = pa.array(places, pa.int64())
        own = [column.take(taken) for column in own]
    return pa.Table.from_arrays([*own, *columns], schema=result_schema(program.spec))


def _finished(
    program: Program, over: pa.Table, ids: Sequence[str]
) -> tuple[list[Any], Places, dict[int, Failure]]:
    """Return the rows of sessions, for each the place of its session, and why `finish` failed."""
    spec = program.spec
    states, finish, cls = decode_states(spec.state, over), spec.finish, spec.result
    everywhere = range(len(states))
    if finish is None:
        return states, everywhere, {}
    rows: list[Any] = []
    places: list[int] = []
    failed: dict[int, Failure] = {}
    sessions = _told(program, over, ids)
    for place, session, state in zip(everywhere, sessions, states, strict=True):
        try:
            found = finish(session, state)
            if found.__class__ is cls:
                rows.append(found)
                places.append(place)
            else:
                several = collected(found, spec, "finish")
                rows += several
                places += [place] * len(several)
        except Exception as error:
            failure = call_failed("finish", finish, repr(session.key), error, session.start)
            if spec.on_error == "raise":
                raise UserFunctionError(*failure) from error
            failed[place] = failure
    return rows, everywhere if places == list(everywhere) else places, failed


def _told(program: Program, over: pa.Table, ids: Sequence[str]) -> list[Session[Any]]:
    """Return sessions with all that `finish` is told of them."""
    sessions = sessions_of(program, over, ids)
    if program.revisions is not None:
        _number_rows(sessions, over)
    if program.memory is not None:
        program.memory.tell(sessions, over)
    return sessions


def _number_rows(sessions: Sequence[Session[Any]], given: pa.Table) -> None:
    """Set which of its rows each session gives."""
    facts = given["revision"].to_pylist(), given["is_final"].to_pylist()
    for session, revision, is_final in zip(sessions, *facts, strict=True):
        vars(session).update(revision=revision, is_final=is_final)


def _encoded(
    spec: AnySessionSpec, over: pa.Table, rows: list[Any], places: Places
) -> tuple[list[pa.Array], Places, dict[int, Failure]]:
    """Return the columns of rows, without the sessions of which one isn't a result, and why."""
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, rows)):
        with suppress(StateValueError):
            return codec.encode(rows), places, {}
    finish: Any = spec.finish
    keys = decode_keys(spec, over)
    failures: dict[int, Failure] = {}
    for place, row in zip(places, rows, strict=True):
        try:
            check_rows([row], spec, "finish", finish, keys[place])
            check_fit([row], spec.result, "finish", finish, keys[place])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failures.setdefault(place, Failure.of(error))
    left = [number for number, place in enumerate(places) if place not in failures]
    columns = codec.encode([rows[number] for number in left])
    return columns, [places[number] for number in left], failures
