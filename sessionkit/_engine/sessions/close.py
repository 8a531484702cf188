"""Sessions that are over: `finish` is called, and its result rows become a table."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.objects import (
    check_fit,
    check_rows,
    collected,
    decode_keys,
    decode_states,
)
from sessionkit._engine.rows.table import Rejected, key_columns, micros, result_schema, whole
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.plan import Closed, Places
from sessionkit._engine.sessions.program import Program
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session, session_of
from sessionkit.state._codec import codec_of


def close(program: Program, over: pa.Table) -> Closed:
    """
    Finish sessions.

    Raises:
        UserFunctionError: `finish` failed, and the spec says `on_error="raise"`.
    """
    ids = ids_of(over)
    found = _finished(program, over, ids)
    columns = _encoded(program.spec, over, found)
    return Closed(
        result_rows(program, over, ids, found.places, columns),
        Rejected.with_failures(
            "failed_output", found.failed, over.append_column("session_id", pa.array(ids))
        ),
        over.num_rows - len(found.failed),
        found.places,
        found.failed.keys(),
    )


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
    Return the table of result rows.

    Args:
        program: The spec, compiled.
        over: The sessions.
        ids: Their ids.
        places: For each row, the place of its session; a range if each has one.
        columns: The fields of the rows.
    """
    own = [*key_columns(over), pa.array(ids, pa.string()), over["start"], over["end"]]
    if program.rules is not None:
        own.append(_reasons(program, program.rules.reasons(over), over))
    if program.revisions is not None:
        own += [over[name] for name in ("revision", "is_final", "supersedes")]
    if not isinstance(places, range):
        taken = pa.array(places, pa.int64())
        own = [column.take(taken) for column in own]
    return pa.Table.from_arrays([*own, *columns], schema=result_schema(program.spec))


def _reasons(program: Program, reasons: pa.Array, given: pa.Table) -> pa.Array:
    """Return by which rules sessions are over, null for those that are open."""
    if program.revisions is None or program.revisions.early is None:
        return reasons
    return pc.if_else(whole(given["is_final"]), reasons, None)


@attrs.define
class _Finished:
    """
    What `finish` returned.

    Attributes:
        rows: The result rows.
        places: For each, the place of its session.
        failed: Why `finish` failed, by the place of the session.
    """

    rows: list[Any] = attrs.field(factory=list)
    places: Sequence[int] = attrs.field(factory=list)
    failed: dict[int, Failure] = attrs.field(factory=dict)

    def fail(self, failures: dict[int, Failure]) -> None:
        """Leave out sessions, and the rows that they have."""
        self.failed |= failures
        left = [n for n, place in enumerate(self.places) if place not in failures]
        self.rows = [self.rows[n] for n in left]
        self.places = [self.places[n] for n in left]


def _finished(program: Program, over: pa.Table, ids: Sequence[str]) -> _Finished:
    """Call `finish` for each session, once."""
    spec = program.spec
    states, finish, cls = decode_states(spec.state, over), spec.finish, spec.result
    everywhere = range(len(states))
    if finish is None:
        return _Finished(states, everywhere)
    sessions = sessions_of(program, over, ids)
    if program.revisions is not None:
        _tell_revisions(sessions, over)
    rows: list[Any] = []
    places: list[int] = []
    failed: dict[int, Failure] = {}
    for place, session, state in zip(everywhere, sessions, states, strict=True):
        try:
            found = finish(session, state)
            if found.__class__ is cls:
                rows.append(found)
                places.append(place)
            else:
                several = collected(found, cls)
                rows += several
                places += [place] * len(several)
        except Exception as error:
            failure = call_failed("finish", finish, repr(session.key), error, session.start)
            if spec.on_error == "raise":
                raise UserFunctionError(*failure) from error
            failed[place] = failure
    return _Finished(rows, everywhere if places == list(everywhere) else places, failed)


def _tell_revisions(sessions: Sequence[Session[Any]], given: pa.Table) -> None:
    """Let sessions say which of their rows they give."""
    told = zip(given["revision"].to_pylist(), given["is_final"].to_pylist(), strict=True)
    for session, (revision, is_final) in zip(sessions, told, strict=True):
        vars(session).update(revision=revision, is_final=is_final)


def _encoded(spec: AnySessionSpec, over: pa.Table, found: _Finished) -> list[pa.Array]:
    """Return the columns of the rows, without the sessions that have rows that aren't results."""
    codec = codec_of(spec.result)
    if {spec.result}.issuperset(map(type, found.rows)):
        with suppress(StateValueError):
            return codec.encode(found.rows)
    finish: Any = spec.finish
    keys = decode_keys(spec, over)
    failures: dict[int, Failure] = {}
    for place, row in zip(found.places, found.rows, strict=True):
        try:
            check_rows([row], spec.result, "finish", finish, keys[place])
            check_fit([row], spec.result, "finish", finish, keys[place])
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failures.setdefault(place, Failure.of(error))
    found.fail(failures)
    return codec.encode(found.rows)
