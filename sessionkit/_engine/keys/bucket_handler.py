"""All keys of a bucket at once, for users who fold with Arrow or NumPy: `by_bucket`."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.keys.table import age_clock, keys_schema, timer_columns
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.order import in_total_order, key_codes
from sessionkit._engine.rows.table import instants, key_columns, key_schema, micros, no_results
from sessionkit._instants import BEGINNING_US
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, call_failed, name_of
from sessionkit.spec.stateful import AnyStatefulSpec, BucketResult
from sessionkit.spec.views import BatchTimes
from sessionkit.state import Field, OptionalType, codec_of, inner_type, unreadable

__all__ = ["Folded", "fold_bucket"]

Numbers: TypeAlias = npt.NDArray[np.int64]


@attrs.frozen
class Folded:
    """
    What one call of a function under `by_bucket` came to.

    Attributes:
        keys: The table of keys from now on.
        rows: The result rows.
        failure: Why it failed, under `on_error="reject"`; then nothing has changed.
    """

    keys: pa.Table
    rows: pa.Table
    failure: Failure | None = None


def fold_bucket(
    spec: AnyStatefulSpec, keys: pa.Table, events: pa.Table, now: BatchTimes, processing_us: int
) -> Folded:
    """
    Hand the events of a bucket to `process`, and take over what it returns.

    Raises:
        UserFunctionError: It failed, or returned what it must not, and the spec says
            `on_error="raise"`.
    """
    if not events.num_rows:
        return Folded(keys, no_results(spec))
    row_codes, event_codes = key_codes([key_columns(keys), key_columns(events)])
    is_touched = np.isin(row_codes, event_codes)
    touched, untouched = keys.filter(pa.array(is_touched)), keys.filter(pa.array(~is_touched))
    order = in_total_order(event_codes, micros(events["time"]), events, 0)
    try:
        found = _called(spec, events.take(pa.array(order)), touched, now)
        states = _fitted(spec, found.states, _state_fields(spec), "states")
        rows = _fitted(spec, found.results, spec.result_fields, "results")
        stored = _stored(spec, touched, events, states, processing_us)
    except UserFunctionError as error:
        if spec.on_error == "raise":
            raise
        return Folded(keys, no_results(spec), Failure.of(error))
    return Folded(pa.concat_tables([untouched, stored]), rows)


def _called(
    spec: AnyStatefulSpec, events: pa.Table, touched: pa.Table, now: BatchTimes
) -> BucketResult:
    function: Any = spec.function
    try:
        found = function(_events_shown(spec, events), _states_shown(spec, touched), now)
    except Exception as error:
        keys = f"the {touched.num_rows} stored keys and {events.num_rows} events of a bucket"
        raise UserFunctionError(*call_failed("process", function, keys, error)) from error
    if not isinstance(found, BucketResult):
        what = f"`process` ({name_of(function)}) must return a BucketResult"
        hint = "write BucketResult(states=..., results=...)"
        raise UserFunctionError(with_hint(f"{what}, found {type(found).__name__}", hint))
    return found


def _events_shown(spec: AnyStatefulSpec, events: pa.Table) -> pa.Table:
    time = {} if spec.event_time is None else {spec.event_time: events["time"]}
    fields = codec_of(spec.event).type.fields
    columns = {field.name: events[f"event.{field.name}"] for field in fields}
    return pa.table({**columns, **time, **_keys_shown(spec, events)}).select(
        [*dict.fromkeys([*spec.keys, *time, *columns])]
    )


def _states_shown(spec: AnyStatefulSpec, rows: pa.Table) -> pa.Table:
    rows = rows.filter(rows["exists"])
    fields = codec_of(spec.state).type.fields
    columns = {field.name: rows[f"state.{field.name}"] for field in fields}
    return pa.table({**_keys_shown(spec, rows), **columns})


def _keys_shown(spec: AnyStatefulSpec, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(spec.keys, key_columns(rows), strict=True))


def _state_fields(spec: AnyStatefulSpec) -> Sequence[Field]:
    return (*spec.key_fields, *codec_of(spec.state).type.fields)


def _schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type.arrow) for field in fields])


def _fitted(
    spec: AnyStatefulSpec, table: pa.Table | None, fields: Sequence[Field], part: str
) -> pa.Table:
    """Return a table with exactly these columns in their types, or say what does not fit."""
    schema = _schema(fields)
    if table is None:
        return schema.empty_table()
    what = f"`process` ({_name(spec)}): `{part}`"
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
        if fitted[field.name].null_count and not isinstance(field.type, OptionalType):
            hint = "fill it, or declare the field Optional"
            raise UserFunctionError(with_hint(f"{what} has a null in `{field.name}`", hint))
        bad = unreadable(inner_type(field.type), fitted[field.name])
        if bad is not None and pc.any(bad[0]).as_py():
            hint = "an Enum takes the values of its members, a time the years 1 to 9999"
            raise UserFunctionError(
                with_hint(f"{what} has a value in `{field.name}` that cannot be read back", hint)
            )
    return fitted


def _name(spec: AnyStatefulSpec) -> str:
    function: Any = spec.function
    return name_of(function)


def _stored(
    spec: AnyStatefulSpec, touched: pa.Table, events: pa.Table, states: pa.Table, now_us: int
) -> pa.Table:
    """Return the rows of the keys that have a state from now on."""
    own_keys = [states[name] for name in spec.keys]
    row_codes, event_codes, codes = key_codes([key_columns(touched), key_columns(events), own_keys])
    _check_keys(spec, states, codes, event_codes)
    number = 1 + max(int(some.max()) for some in (row_codes, event_codes) if len(some))
    seen = np.full(number, BEGINNING_US, np.int64)
    seen[row_codes] = micros(touched["last_event_time"])
    np.maximum.at(seen, event_codes, micros(events["time"]))
    stamp = seen if age_clock(spec) == "event_time" else np.full(number, now_us, np.int64)
    created = stamp.copy()
    existed = touched["exists"].to_numpy()
    created[row_codes[existed]] = micros(touched["created"].filter(touched["exists"]))
    return pa.Table.from_arrays(
        [
            *own_keys,
            pa.array(np.ones(len(codes), np.bool_)),
            instants(seen[codes]),
            instants(np.full(len(codes), now_us, np.int64)),
            instants(created[codes]),
            instants(stamp[codes]),
            *timer_columns([{} for _ in codes]),
            *(states[field.name] for field in codec_of(spec.state).type.fields),
        ],
        schema=keys_schema(spec),
    )


def _check_keys(
    spec: AnyStatefulSpec, states: pa.Table, codes: Numbers, event_codes: Numbers
) -> None:
    what = f"`process` ({_name(spec)}): `states`"
    foreign = ~np.isin(codes, event_codes)
    if foreign.any():
        place = int(np.flatnonzero(foreign)[0])
        hint = "return keys that came with events in this call"
        raise UserFunctionError(
            with_hint(f"{what} has a key without events: {_key(spec, states, place)!r}", hint)
        )
    if len(np.unique(codes)) != len(codes):
        place = next(n for n, code in enumerate(codes) if code in codes[:n])
        found = f"{what} has two rows for {_key(spec, states, place)!r}"
        raise UserFunctionError(with_hint(found, "group by the key columns first"))


def _key(spec: AnyStatefulSpec, states: pa.Table, place: int) -> Any:
    names = [field.name for field in key_schema(spec)]
    row = states.slice(place, 1).select(list(spec.keys)).rename_columns(names)
    return decode_keys(spec, row)[0]
