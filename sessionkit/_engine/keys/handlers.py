"""
Call a function under `by_bucket`, and store what it returns.

It gets all keys of a bucket at once, for users who fold with Arrow or NumPy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, concat, instants, key_columns, micros, split, whole
from sessionkit._engine.keys.program import KeyProgram, timer_columns
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, call_failed, name_of
from sessionkit.spec.stateful import BucketResult
from sessionkit.spec.views import BatchTimes
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
)
from sessionkit.state._types import FieldType


def fold_bucket(
    program: KeyProgram, keys: pa.Table, events: pa.Table, now: BatchTimes, processing_us: int
) -> tuple[pa.Table, pa.Table, Failure | None]:
    """
    Pass the events of a bucket to `process`, and store the states that it returns.

    Returns:
        The keys from now on, the result rows, and under `on_error="reject"` why the function
        failed; a failure changes no key.

    Raises:
        UserFunctionError: The function failed or returned something invalid, under
            `on_error="raise"`.
    """
    if not events.num_rows:
        return keys, program.no_rows, None
    event_codes, row_codes = key_numbers(key_columns(events), key_columns(keys))
    # The stored keys have the codes 1 -1 0 if the second of three has no events.
    touched, untouched = split(keys, row_codes >= 0)
    order = in_total_order(event_codes, micros(events["time"]), events, 0)
    state_fields = (*program.spec.key_fields, *program.state_fields)
    try:
        result = _called(program, events.take(pa.array(order)), touched, now)
        states = _fitted(program, result.states, state_fields, "states")
        rows = _fitted(program, result.results, program.spec.result_fields, "results")
        stored = _stored(program, touched, events, states, processing_us)
    except UserFunctionError as error:
        if not program.rejects:
            raise
        return keys, program.no_rows, Failure.of(error)
    return concat([untouched, stored]), rows, None


def _called(
    program: KeyProgram, events: pa.Table, touched: pa.Table, now: BatchTimes
) -> BucketResult:
    spec, function = program.spec, program.function
    stored = touched.filter(touched["exists"])
    states = {f.name: stored[f"state.{f.name}"] for f in program.state_fields}
    shown = pa.table({**dict(zip(spec.keys, key_columns(stored), strict=True)), **states})
    time = {} if spec.event_time is None else {spec.event_time: events["time"]}
    fields = codec_of(spec.event).type.fields
    columns = {field.name: events[f"event.{field.name}"] for field in fields}
    keys = dict(zip(spec.keys, key_columns(events), strict=True))
    # If names clash, a key wins over the time, and the time over a field.
    arrived = pa.table({**keys, **time, **columns, **time, **keys})
    try:
        result = function(arrived, shown, now)
    except MemoryError:
        raise
    except Exception as error:
        of_what = f"the {touched.num_rows} stored keys and {events.num_rows} events of a bucket"
        raise UserFunctionError(*call_failed("process", function, of_what, error)) from error
    if not isinstance(result, BucketResult):
        what = f"`process` ({name_of(program.function)}) must return a BucketResult"
        hint = "write BucketResult(states=..., results=...)"
        raise UserFunctionError(with_hint(f"{what}, found {type(result).__name__}", hint))
    return result


def _fitted(
    program: KeyProgram, table: pa.Table | None, fields: Sequence[Field], part: str
) -> pa.Table:
    """Return a table with exactly the columns of `fields`, in their types; check all values."""
    schema = pa.schema([pa.field(field.name, field.type.arrow) for field in fields])
    if table is None:
        return schema.empty_table()
    what = f"`process` ({name_of(program.function)}): `{part}`"
    names = list(schema.names)
    if not isinstance(table, pa.Table) or sorted(table.column_names) != sorted(names):
        found = table.column_names if isinstance(table, pa.Table) else type(table).__name__
        hint = f"return a pyarrow Table with the columns {', '.join(names)}"
        raise UserFunctionError(with_hint(f"{what} has other columns, found {found}", hint))
    try:
        fitted = table.select(names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        hint = f"cast its columns to {', '.join(f'{f.name}: {f.type}' for f in schema)}"
        raise UserFunctionError(with_hint(f"{what} does not fit: {error}", hint)) from error
    for field in fields:
        _check_values(what, field.type, whole(fitted[field.name]), field.name)
    return fitted


def _check_values(what: str, kind: FieldType, values: pa.Array, path: str) -> None:
    """Check that each value of a column, and each nested value, can be read back as its type."""
    if isinstance(kind, OptionalType):
        kind, values = kind.inner, values.drop_null()
    if values.null_count:
        hint = "fill it, or declare the field Optional"
        raise UserFunctionError(with_hint(f"{what} has a null in `{path}`", hint))
    if kind.fitted(values).null_count:
        hint = "an Enum takes the values of its members, a time the years 1 to 9999"
        raise UserFunctionError(
            with_hint(f"{what} has a value in `{path}` that cannot be read back", hint)
        )
    for part, nested, where in _parts(kind, values):
        _check_values(what, part, nested, path + where)


def _parts(kind: FieldType, values: pa.Array) -> list[tuple[FieldType, pa.Array, str]]:
    """Return the type, column and path of each part of non-null values."""
    match kind:
        case ListType(item):
            return [(item, values.flatten(), "[]")]
        case DictType(of_key, of_value):
            # A map is a list of pairs: {a: 1, b: 2}, {c: 3} have the keys a, b, c.
            pairs = values.cast(
                pa.list_(pa.struct([values.type.key_field, values.type.item_field]))
            ).flatten()
            return [(of_key, pairs.field(0), " key"), (of_value, pairs.field(1), "[]")]
        case TupleType(items):
            return [(item, values.field(n), f"[{n}]") for n, item in enumerate(items)]
        case AttrsType(_, fields):
            return [(f.type, values.field(n), f".{f.name}") for n, f in enumerate(fields)]
    return []


def _stored(
    program: KeyProgram, touched: pa.Table, events: pa.Table, states: pa.Table, now_us: int
) -> pa.Table:
    """Return the stored rows of the keys that have a state from now on."""
    state_keys = [states[name] for name in program.spec.keys]
    event_codes, row_codes = key_numbers(key_columns(events), key_columns(touched))
    _, codes = key_numbers(key_columns(events), state_keys)
    _check_keys(program, states, codes)
    # The latest event time of each key with events, by its code.
    latest_us = np.full(1 + event_codes.max(), BEGINNING_US, np.int64)
    latest_us[row_codes] = micros(touched["last_event_time"])
    # `latest_us[codes] = times` would keep the last event of a key instead of the latest. Events
    # with the codes 0 1 1 at 30, 40, 20, and key 0 last seen at 50, give 50 40.
    np.maximum.at(latest_us, event_codes, micros(events["time"]))
    by_event_time = program.age_clock == "event_time"
    stamp = latest_us if by_event_time else np.full(len(latest_us), now_us, np.int64)
    created = stamp.copy()
    existed = touched["exists"].to_numpy()
    # A state that already existed keeps its time of creation.
    created[row_codes[existed]] = micros(touched["created"].filter(touched["exists"]))
    return pa.Table.from_arrays(
        [
            *state_keys,
            pa.array(np.ones(len(codes), np.bool_)),
            instants(latest_us[codes]),
            instants(np.full(len(codes), now_us, np.int64)),
            instants(created[codes]),
            instants(stamp[codes]),
            *timer_columns([{} for _ in codes]),
            *(states[field.name] for field in program.state_fields),
        ],
        schema=program.schema,
    )


def _check_keys(program: KeyProgram, states: pa.Table, codes: Numbers) -> None:
    what = f"`process` ({name_of(program.function)}): `states`"
    foreign = codes < 0
    if foreign.any():
        key = _key(program, states, int(np.flatnonzero(foreign)[0]))
        hint = "return keys that came with events in this call"
        raise UserFunctionError(with_hint(f"{what} has a key without events: {key!r}", hint))
    if len(np.unique(codes)) != len(codes):
        place = next(n for n, code in enumerate(codes) if code in codes[:n])
        found = f"{what} has two rows for {_key(program, states, place)!r}"
        raise UserFunctionError(with_hint(found, "group by the key columns first"))


def _key(program: KeyProgram, states: pa.Table, place: int) -> Any:
    row = states.slice(place, 1).select(list(program.spec.keys))
    names = [field.name for field in program.spec.key_schema]
    return decode_keys(program.spec, row.rename_columns(names))[0]
