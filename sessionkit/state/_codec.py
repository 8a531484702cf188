"""Convert the objects of an attrs class to the columns of an Arrow table, and back."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit.errors import StateValueError
from sessionkit.state._collections import AttrsType, DictType, ListType, inner_type
from sessionkit.state._fields import fields_of
from sessionkit.state._scalars import EnumType
from sessionkit.state._types import FieldType

T = TypeVar("T")
HALF_WORD: Final = 32
MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


@attrs.frozen
class ClassCodec:
    """Convert objects of one attrs class to Arrow columns, one for each field, and back."""

    type: AttrsType

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema: a column for each field."""
        return pa.schema([pa.field(field.name, field.type.arrow) for field in self.type.fields])

    def encode(self, objects: Sequence[Any]) -> list[pa.Array]:
        """Return one Arrow array for each field; a `StateValueError` names the path of a misfit."""
        name = self.type.cls.__name__
        return [
            encode_column(
                field.type, list(map(attrgetter(field.name), objects)), f"{name}.{field.name}"
            )
            for field in self.type.fields
        ]

    def misfit(self, candidate: Any) -> StateValueError | None:
        """Return why an object can't be encoded; None if it can."""
        try:
            self.encode([candidate])
        except StateValueError as error:
            return error
        return None

    def copied(self, value: Any) -> Any:
        """
        Return a deep copy of an object.

        A list, dict or tuple of plain values, such as a `list[int]`, is copied as a whole. So a
        long one costs a hundredth of what it costs to look at each item.
        """
        copies: dict[int, Any] = {}
        for field in self.type.fields:
            if _is_flat(field.type):
                part = getattr(value, field.name, None)
                if part.__class__ is tuple:
                    copies[id(part)] = part
                elif part.__class__ in {list, dict}:
                    copies[id(part)] = part.copy()
        return deepcopy(value, copies)

    def first_misfit(self, objects: Sequence[Any]) -> tuple[int, StateValueError]:
        """Return the place of the first object that can't be encoded, and why; there is one."""
        for place, candidate in enumerate(objects):
            if (error := self.misfit(candidate)) is not None:
                return place, error
        every = f"the {len(objects)} objects fit one by one, but not together"
        raise StateValueError(every)

    def decode(self, columns: Sequence[pa.Array]) -> list[Any]:
        """Rebuild the objects from their columns, in the order of the fields; at least one."""
        types = map(attrgetter("type"), self.type.fields)
        return list(map(self.type.build, *map(decode_column, types, columns)))


def _is_flat(kind: FieldType) -> bool:
    """Return whether values are collections of values that nobody can change."""
    kind = inner_type(kind)
    if isinstance(kind, DictType):
        return inner_type(kind.value).facts is not None
    return isinstance(kind, ListType) and inner_type(kind.item).facts is not None


def _made_once(make: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    # mypy holds that a class may not be hashable.
    return cast("Callable[[type[Any]], T]", lru_cache(maxsize=256)(make))


@_made_once
def codec_of(cls: type[Any]) -> ClassCodec:
    """Return the codec of an attrs class, made once; a `FieldTypeError` names what has no type."""
    return ClassCodec(fields_of(cls))


def encode_column(kind: FieldType, values: list[Any], path: str) -> pa.Array:
    """Return the values of one field as an Arrow array; a `StateValueError` names a misfit."""
    if not set(map(type, values)) <= kind.exact:
        values = [kind.coerce(value, path) for value in values]
    try:
        return pa.array(values if kind.plain else list(map(kind.dump, values)), type=kind.arrow)
    except MISFITS as misfit:
        for value in values:
            kind.coerce(value, path)
        found = f"`{path}` can't be stored as {kind.arrow}: {misfit}"
        raise StateValueError(found) from misfit


def decode_column(kind: FieldType, column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of one field in their python form."""
    values = _listed(column)
    return values if kind.plain else list(map(kind.load, values))


def unreadable(kind: FieldType, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, str] | None:
    """Return which values of a column stand for none of Python, and why; None where all do."""
    if isinstance(kind, EnumType):
        members = pa.array([member.value for member in kind.cls], kind.arrow)
        unknown = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, value_set=members)))
        return unknown, f"isn't a member of {kind.cls.__name__}"
    if kind.facts is None or kind.facts.bounds is None:
        return None
    first, last = kind.facts.bounds
    numbers = stored_numbers(column)
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return outside.fill_null(fill_value=False), f"is outside {kind.facts.within}"


def stored_numbers(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return times, days or truth values as the numbers by which they are stored."""
    half = pa.int32() if column.type.bit_width == HALF_WORD else pa.int64()
    return column.cast(half).cast(pa.int64())


def _listed(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values; without nulls, times and numbers as NumPy's numbers."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = whole.type
    if whole.null_count:
        listed: list[Any] = whole.to_pylist()
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        listed = whole.view(pa.int64()).to_numpy().tolist()
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        listed = whole.to_numpy().tolist()
    else:
        listed = whole.to_pylist()
    return listed
