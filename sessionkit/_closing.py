"""Sessions that are over: `finish` is called, and its result rows become a table."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._event_table import key_columns, micros
from sessionkit._functions import name_of
from sessionkit._instants import instant_of
from sessionkit._session_id import session_ids
from sessionkit._spec_input import key_class
from sessionkit._tables import state_columns
from sessionkit._transition import call_failed
from sessionkit.errors import StateValueError, UserFunctionError, with_hint
from sessionkit.session import Session, SessionSpec
from sessionkit.state import codec_of, decode_column

__all__ = ["Closed", "close", "decode_keys", "decode_states", "result_schema", "sessions_of"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]


@attrs.frozen
class Closed:
    """
    What became of sessions that are over.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        failed: The reasons of those whose `finish` failed, by their place.
    """

    rows: pa.Table
    failed: dict[int, str]


def result_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the result rows, under the names that users see."""
    return pa.schema([pa.field(field.name, field.type.arrow) for field in spec.result_fields])


def close(spec: AnySpec, over: pa.Table) -> Closed:
    """
    Finish sessions.

    Args:
        spec: Whose `finish` is called.
        over: The rows of the table of sessions.

    Raises:
        UserFunctionError: `finish` failed, and the spec says `on_error="raise"`.
    """
    if not over.num_rows:
        return Closed(result_schema(spec).empty_table(), {})
    sessions = sessions_of(spec, over)
    results: list[Any] = []
    places: list[int] = []
    failed: dict[int, str] = {}
    for place, (session, state) in enumerate(zip(sessions, decode_states(spec, over), strict=True)):
        try:
            rows = _rows(spec, session, state)
            if spec.on_error == "reject":
                _check_fit(spec, session.key, rows)
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failed[place] = str(error)
            continue
        results += rows
        places += [place] * len(rows)
    return Closed(_table(spec, over, [session.id for session in sessions], places, results), failed)


def sessions_of(spec: AnySpec, table: pa.Table) -> list[Session]:
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


def decode_keys(spec: AnySpec, table: pa.Table) -> list[Any]:
    """Return the key of every row, as the functions of the user see it."""
    columns = [
        decode_column(field.type, column)
        for field, column in zip(spec.key_fields, key_columns(table), strict=True)
    ]
    return list(map(key_class(tuple(spec.keys)), *columns))


def decode_states(spec: AnySpec, table: pa.Table) -> list[Any]:
    """Return the state of every session, new objects at every call."""
    codec = codec_of(spec.state)
    if not codec.type.fields:
        return [codec.type.build() for _ in range(table.num_rows)]
    return codec.decode(state_columns(table))


def _rows(spec: AnySpec, session: Session, state: Any) -> list[Any]:
    try:
        found = spec.finish(session, state)
        if found.__class__ is spec.result:
            return [found]
        if found is None:
            return []
        rows = list(found) if isinstance(found, Iterable) else [found]
    except Exception as error:
        raise UserFunctionError(
            call_failed("finish", spec.finish, session.key, error, session.start)
        ) from error
    for row in rows:
        if row.__class__ is not spec.result:
            what = f"`finish` ({name_of(spec.finish)}) must return {spec.result.__name__}"
            found_text = f"found {type(row).__name__}, for {session.key!r}"
            hint = "return a result row, a list of them, or None"
            raise UserFunctionError(with_hint(f"{what}, {found_text}", hint))
    return rows


def _check_fit(spec: AnySpec, key: Any, rows: list[Any]) -> None:
    try:
        codec_of(spec.result).encode(rows)
    except StateValueError as error:
        what = f"`finish` ({name_of(spec.finish)}), for {key!r}, returned a row that does not fit"
        message = f"{what}: {error}"
        raise UserFunctionError(message) from error


def _table(
    spec: AnySpec, over: pa.Table, ids: list[str], places: list[int], results: list[Any]
) -> pa.Table:
    taken = over.select(range(len(spec.keys) + 2)).take(pa.array(places, pa.int64()))
    try:
        columns = codec_of(spec.result).encode(results)
    except StateValueError:
        place, _ = codec_of(spec.result).first_misfit(results)
        _check_fit(spec, decode_keys(spec, over)[places[place]], [results[place]])
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
