"""Sessions that are over: `finish` is called, and its result rows become a table."""

from typing import Any

import attrs
import pyarrow as pa

from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._engine.rows.results import check_fit, check_rows, collected
from sessionkit._engine.rows.table import Rejected, key_columns, micros, result_schema
from sessionkit._engine.sessions.ids import session_ids
from sessionkit._functions import call_failed
from sessionkit._instants import instant_of
from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.session import AnySessionSpec, Session
from sessionkit.state import codec_of

__all__ = ["Closed", "close", "sessions_of"]


@attrs.frozen
class Closed:
    """
    What became of sessions that are over.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        failed_output: Those whose `finish` failed.
        sessions: How many closed, without those.
    """

    rows: pa.Table
    failed_output: list[Rejected]
    sessions: int


def close(spec: AnySessionSpec, over: pa.Table) -> Closed:
    """
    Finish sessions.

    Args:
        spec: Whose `finish` is called.
        over: The rows of the table of sessions.

    Raises:
        UserFunctionError: `finish` failed, and the spec says `on_error="raise"`.
    """
    if not over.num_rows:
        return Closed(result_schema(spec).empty_table(), [], 0)
    sessions = sessions_of(spec, over)
    results: list[Any] = []
    places: list[int] = []
    failed: dict[int, str] = {}
    for place, (session, state) in enumerate(
        zip(sessions, decode_states(spec.state, over), strict=True)
    ):
        try:
            rows = _rows(spec, session, state)
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failed[place] = str(error)
            continue
        results += rows
        places += [place] * len(rows)
    rows_of_all = _table(spec, over, [session.id for session in sessions], places, results)
    return Closed(
        rows_of_all,
        Rejected.with_reasons("failed_output", failed, over),
        over.num_rows - len(failed),
    )


def sessions_of(spec: AnySessionSpec, table: pa.Table) -> list[Session]:
    """Return the sessions of a table, without their states."""
    keys = decode_keys(spec, table)
    starts, ends = micros(table["start"]).tolist(), micros(table["end"]).tolist()
    ids = session_ids([field.type for field in spec.key_fields], keys, starts)
    return list(
        map(
            Session,
            keys,
            ids,
            map(instant_of, starts),
            map(instant_of, ends),
            table["events"].to_pylist(),
        )
    )


def _rows(spec: AnySessionSpec, session: Session, state: Any) -> list[Any]:
    finish = spec.finish
    if finish is None:
        return [state]
    try:
        rows = collected(finish(session, state), spec.result)
    except Exception as error:
        raise UserFunctionError(
            call_failed("finish", finish, repr(session.key), error, session.start)
        ) from error
    check_rows(rows, spec.result, "finish", finish, session.key)
    if spec.on_error == "reject":
        check_fit(rows, spec.result, "finish", finish, session.key)
    return rows


def _table(
    spec: AnySessionSpec, over: pa.Table, ids: list[str], places: list[int], results: list[Any]
) -> pa.Table:
    taken = over.select(range(len(spec.keys) + 2)).take(pa.array(places, pa.int64()))
    try:
        columns = codec_of(spec.result).encode(results)
    except StateValueError:
        place, _ = codec_of(spec.result).first_misfit(results)
        key = decode_keys(spec, over)[places[place]]
        finish: Any = spec.finish
        check_fit([results[place]], spec.result, "finish", finish, key)
        raise
    return pa.Table.from_arrays(
        [
            *key_columns(taken),
            pa.array([ids[place] for place in places], pa.string()),
            taken["start"],
            taken["end"],
            *columns,
        ],
        schema=result_schema(spec),
    )
