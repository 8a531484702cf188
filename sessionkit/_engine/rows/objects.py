"""Convert rows to objects of the user's classes, and what functions return to columns."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, TypeVar

import pyarrow as pa

from sessionkit._arrays import key_columns, whole
from sessionkit.aggregates._events import Condition, evaluated
from sessionkit.errors import StateError, StateValueError, UserFunctionError, with_hint
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import key_class
from sessionkit.spec.functions import forgotten, name_of, wrong_class
from sessionkit.state._codec import Places, codec_of, decode_column, encode_column
from sessionkit.state._collections import Field

S = TypeVar("S")
TRIED: Final = 100
"""How many states of a class with code of its own are read again, to see if they are the same."""


def decode_keys(spec: AnySpec, table: pa.Table) -> list[Any]:
    """Return the key of every row as the named tuple that user functions receive."""
    columns = [
        decode_column(field.type, column)
        for field, column in zip(spec.key_fields, key_columns(table), strict=True)
    ]
    # Skip the named tuple's `__new__`, which is written in Python and slower.
    make: Any = partial(tuple.__new__, key_class(tuple(spec.keys)))
    # The columns a, b and 1, 2 give the keys (a, 1) and (b, 2).
    return list(map(make, zip(*columns, strict=True)))


def encode_keys(spec: AnySpec, keys: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
    """Return keys as the columns of a table; a `StateValueError` names a misfit's path."""
    return {
        f"key.{field.name}": encode_column(
            field.type, [key[place] for key in keys], f"key.{field.name}"
        )
        for place, field in enumerate(spec.key_fields)
    }


def decode_states(cls: type[S], table: pa.Table, places: Places = None) -> list[S]:
    """Return the states at the given positions (all by default), as new objects in each call."""
    codec = codec_of(cls)
    if not codec.type.fields:
        return [codec.type.build() for _ in range(_number(table, places))]
    columns = map(table.column, map("state.{}".format, codec.schema.names))
    try:
        return codec.decode(columns, places)
    except Exception as error:
        what = f"a stored state cannot be read as {cls.__name__}: {type(error).__name__}: {error}"
        hint = "let the class take what it has taken before, or raise `version`"
        raise StateError(what, hint) from error


def encode_states(
    cls: type[Any], states: Sequence[Any], key_at: Callable[[int], Any]
) -> list[pa.Array]:
    """
    Return states as columns, one for each field; `key_at` returns the key of a state, for errors.

    Raises:
        StateValueError: A value doesn't fit its field; the error names key and path.
    """
    codec = codec_of(cls)
    try:
        columns = codec.encode(states)
    except StateValueError:
        place, misfit = codec.first_misfit(states)
        raise StateValueError(f"the state of {key_at(place)!r} does not fit: {misfit}") from misfit
    if codec.computes and (changed := codec.changed([one[:TRIED] for one in columns])):
        place, how = changed
        hint = (
            "let a converter or `__post_init__` leave what it has made as it is; or compute the "
            "value in your functions"
        )
        raise StateValueError(f"the state of {key_at(place)!r} does not fit: {how}", hint)
    return columns


def _number(table: pa.Table, places: Places) -> int:
    return table.num_rows if places is None else len(places)


def build_events(
    spec: AnySpec, table: pa.Table, places: Places = None
) -> tuple[list[Any], dict[int, str]]:
    """
    Return the events at the given positions (all by default) as objects, and refusals by position.

    An event that the class refuses (in a validator or converter) is None among the objects.
    """
    codec, first = codec_of(spec.event), 1 + len(spec.keys)
    columns = list(map(table.column, range(first, first + len(codec.type.fields))))
    if not columns:
        return [codec.type.build() for _ in range(_number(table, places))], {}
    types = map(attrgetter("type"), codec.type.fields)
    values = list(map(decode_column, types, columns, repeat(places)))
    try:
        return list(map(codec.type.build, *values)), {}
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (the user's own validators and converters)
        return _objects_one_by_one(codec.type.build, values, spec.event.__name__)


def _objects_one_by_one(
    build: Callable[..., Any], values: list[list[Any]], name: str
) -> tuple[list[Any], dict[int, str]]:
    objects: list[Any] = []
    refused: dict[int, str] = {}
    for place, row in enumerate(zip(*values, strict=True)):
        try:
            objects.append(build(*row))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 (the user's own validators and converters)
            objects.append(None)
            refused[place] = f"{name} refused it: {type(error).__name__}: {error}"
    return objects, refused


def key_struct(spec: AnySpec, table: pa.Table) -> pa.StructArray | None:
    return as_struct(spec.key_fields, key_columns(table))


def as_struct(
    fields: Sequence[Field],
    columns: Sequence[pa.Array | pa.ChunkedArray],
    missing: pa.Array | None = None,
) -> pa.StructArray | None:
    """Return columns as a struct; None without columns, since Spark has no empty struct."""
    if not fields:
        return None
    parts = [pa.field(field.name, field.type.arrow) for field in fields]
    return pa.StructArray.from_arrays(list(map(whole, columns)), fields=parts, mask=missing)


def collected(returned: Any, spec: AnySpec, role: str) -> list[Any]:
    """Return the rows that a function returned as a list; run a generator to its end."""
    if returned.__class__ is spec.result:
        return [returned]
    if returned is None and role not in spec.must_return:
        return []
    if isinstance(returned, Generator):
        return yielded(returned, role)
    # Iterating a dict yields keys, and a text characters: neither is a row.
    is_list = isinstance(returned, Iterable) and not isinstance(returned, Mapping | str | bytes)
    return list(returned) if is_list else [returned]


def yielded(generator: Generator[Any, Any, Any], role: str) -> list[Any]:
    """Return what a generator yields; refuse a value returned at its end, which would be lost."""
    rows: list[Any] = []
    while True:
        try:
            rows.append(next(generator))
        except StopIteration as end:
            if end.value is None:
                return rows
            found = f"`{role}` is a generator, and returns a {type(end.value).__name__} at its end"
            raise UserFunctionError(
                with_hint(found, "yield it, then write `return` alone")
            ) from None


def check_rows(
    rows: list[Any], spec: AnySpec, role: str, function: Callable[..., Any], key: Any
) -> None:
    """Check that each row is an object of the result class, or raise a UserFunctionError."""
    cls = spec.result
    for row in rows:
        if row.__class__ is not cls:
            what = f"`{role}` ({name_of(function)}), for {key!r}, must return"
            hint = "return a result row, a list of them, or None"
            if isinstance(row, Mapping):
                fields = ", ".join(f"{field.alias}=..." for field in codec_of(cls).type.fields)
                hint = f"{hint}; write {cls.__name__}({fields})"
            if row is None and role in spec.must_return:
                hint = forgotten(cls)
            raise UserFunctionError(wrong_class(what, cls, row, hint))


def check_fit(  # noqa: PLR0917 (the objects, and then their origin for errors)
    objects: list[Any],
    cls: type[Any],
    role: str,
    function: Callable[..., Any],
    key: Any,
    what: str = "returned a row that",
) -> list[pa.Array]:
    """
    Return objects as columns, one for each field.

    Raises:
        UserFunctionError: A value doesn't fit; the error names the function, the key and the path.
    """
    try:
        return codec_of(cls).encode(objects)
    except StateValueError as misfit:
        who = f"`{role}` ({name_of(function)}), for {key!r}"
        raise UserFunctionError(f"{who}, {what} does not fit: {misfit}") from misfit


def conditions_met(
    spec: AnySpec, events: pa.Table, conditions: Collection[Condition]
) -> list[pa.Array]:
    """Return a boolean column for each condition: which events meet it."""
    names = codec_of(spec.event).schema.names
    fields = events.select([f"event.{name}" for name in names]).rename_columns(names)
    return evaluated(fields, conditions)
