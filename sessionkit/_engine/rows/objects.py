"""Rows of Arrow tables as the objects of the user's classes."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import key_columns, prefixed_columns
from sessionkit.errors import StateMismatchError, StateValueError, with_hint
from sessionkit.spec.shared import AnySpec, key_class
from sessionkit.state._codec import codec_of, decode_column

S = TypeVar("S")


def decode_keys(spec: AnySpec, table: pa.Table) -> list[Any]:
    """Return the key of every row, as the functions of the user see it."""
    columns = [
        decode_column(field.type, column)
        for field, column in zip(spec.key_fields, key_columns(table), strict=True)
    ]
    # What a named tuple does in Python, without the call of its own `__new__`.
    make: Any = partial(tuple.__new__, key_class(tuple(spec.keys)))
    return list(map(make, zip(*columns, strict=True)))


def decode_states(cls: type[S], table: pa.Table) -> list[S]:
    """Return the state of every row, new objects at every call."""
    codec = codec_of(cls)
    if not codec.type.fields:
        return [codec.type.build() for _ in range(table.num_rows)]
    columns = prefixed_columns(table, "state.")
    try:
        return codec.decode(columns)
    except Exception as error:
        what = f"a stored state cannot be read as {cls.__name__}: {type(error).__name__}: {error}"
        hint = "let the class take what it has taken before, or raise `version`"
        raise StateMismatchError(with_hint(what, hint)) from error


def encode_states(
    cls: type[Any], states: Sequence[Any], key_at: Callable[[int], Any]
) -> list[pa.Array]:
    """
    Return states as columns, one a field.

    Args:
        cls: Their class.
        states: The states.
        key_at: Gives the key of the state at a place, for the message.

    Raises:
        StateValueError: A value does not fit its field; key and path are named.
    """
    codec = codec_of(cls)
    try:
        return codec.encode(states)
    except StateValueError:
        place, misfit = codec.first_misfit(states)
        message = f"the state of {key_at(place)!r} does not fit: {misfit}"
        raise StateValueError(message) from misfit


def build_events(
    spec: AnySpec, table: pa.Table, places: npt.NDArray[np.int64] | None = None
) -> tuple[list[Any], dict[int, str]]:
    """
    Return the events of a table as objects of the user's class.

    Args:
        spec: Whose class.
        table: The rows.
        places: Which of them, in which order; all of them by default.

    Returns:
        The objects, and the reasons for those that their own class refuses (a validator, a
        converter), by their place among the objects. These are None.
    """
    codec, first = codec_of(spec.event), 1 + len(spec.keys)
    columns = table.columns[first : first + len(codec.type.fields)]
    if not columns:
        number = table.num_rows if places is None else len(places)
        return [codec.type.build() for _ in range(number)], {}
    if places is not None:
        taken = pa.array(places)
        columns = list(map(methodcaller("take", taken), columns))
    values = list(map(decode_column, map(attrgetter("type"), codec.type.fields), columns))
    try:
        return list(map(codec.type.build, *values)), {}
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
        except Exception as error:  # noqa: BLE001 (the user's own validators and converters)
            objects.append(None)
            refused[place] = f"{name} refused it: {type(error).__name__}: {error}"
    return objects, refused
