"""Convert objects to Arrow columns and back, even if their class has changed in between."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit.errors import StateError, StateValueError
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
    arrow_schema,
    inner_type,
)
from sessionkit.state._fields import fields_of
from sessionkit.state._types import Convert, FieldType, Form, same

Places: TypeAlias = npt.NDArray[np.int64] | None
CODE: Final = ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__")
"""The methods that attrs and dataclasses call in `__init__`."""
MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


@attrs.frozen
class ClassCodec:
    """The conversion between objects of an attrs class and Arrow columns, one for each field."""

    type: AttrsType

    @cached_property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.type.fields)

    def encode(self, objects: Sequence[Any]) -> list[pa.Array]:
        """Return an Arrow array for each field; a `StateValueError` names the path of a misfit."""
        name, fields = self.type.cls.__name__, self.type.fields
        return [
            encode_column(field.type, values, f"{name}.{field.name}")
            for field, values in zip(fields, self._values(objects), strict=True)
        ]

    def _values(self, objects: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each field; refuse an object with more than its fields, or less."""
        beside = self.type.beside
        values = None if beside is None else beside.columns_of(objects)
        if values is not None:
            return values
        for value in () if beside is None else beside.found_in(objects):
            self.type.coerce(value, self.type.cls.__name__)
        try:
            return [list(map(attrgetter(field.name), objects)) for field in self.type.fields]
        except AttributeError:
            for value in objects:
                self.type.coerce(value, self.type.cls.__name__)  # names the field
            raise

    def misfit(self, candidate: Any) -> StateValueError | None:
        """Return the error that encoding an object raises; None if it can be encoded."""
        try:
            self.encode([candidate])
        except StateValueError as error:
            return error
        return None

    @cached_property
    def computes(self) -> bool:
        """Whether code of the class runs where an object is made of its fields."""
        return _computes(self.type)

    def changed(self, columns: Sequence[pa.Array]) -> tuple[int, str] | None:
        """Return the first object that is another one when it's read, by position, and how."""
        again = self.encode(self.decode(columns))
        for field, column, other in zip(self.type.fields, columns, again, strict=True):
            if column.equals(other):
                continue
            # By their text, NaN equals NaN.
            for place, values in enumerate(zip(*map(_shown, (column, other)), strict=True)):
                if values[0] != values[1]:
                    name = f"{self.type.cls.__name__}.{field.name}"
                    return place, f"`{name}` is {values[0]}, and would be read as {values[1]}"
        return None

    def copied(self, value: Any) -> Any:
        """
        Return a deep copy of an object.

        Collections of immutable values are copied in one step. `deepcopy` visits each item, which
        takes a hundred times longer.
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
        """Return the position of the first object that can't be encoded, and its error."""
        for place, candidate in enumerate(objects):
            if (error := self.misfit(candidate)) is not None:
                return place, error
        raise StateValueError(f"the {len(objects)} objects fit one by one, but not together")

    def decode(self, columns: Iterable[pa.Array], places: Places = None) -> list[Any]:
        """Rebuild the objects from at least one column, in the order of the fields."""
        types = map(attrgetter("type"), self.type.fields)
        return list(map(self.type.build, *map(decode_column, types, columns, repeat(places))))


def _computes(kind: FieldType) -> bool:
    match kind:
        case AttrsType():
            made = attrs.fields(kind.cls) if attrs.has(kind.cls) else ()
            runs = any(field.converter is not None for field in made)
            runs |= any(hasattr(kind.cls, name) for name in CODE)
            return runs or any(_computes(field.type) for field in kind.fields)
        case OptionalType(inner=inner) | ListType(item=inner) | DictType(value=inner):
            return _computes(inner)
        case TupleType(items=items):
            return any(map(_computes, items))
    return False


def _shown(column: pa.Array) -> list[str]:
    return list(map(repr, column.to_pylist()))


def _is_flat(kind: FieldType) -> bool:
    """Return whether a type is a collection of immutable values."""
    kind = inner_type(kind)
    if isinstance(kind, DictType):
        return inner_type(kind.value).facts is not None
    return isinstance(kind, ListType) and inner_type(kind.item).facts is not None


def _codec(cls: Any) -> ClassCodec:
    return ClassCodec(fields_of(cls))


codec_of: Final[Callable[[Any], ClassCodec]] = lru_cache(maxsize=256)(_codec)
"""Returns the codec of an attrs class; a `SpecError` names the unsupported fields."""


def encode_column(kind: FieldType, values: list[Any], path: str) -> pa.Array:
    """Return the values of a field as an Arrow array; a `StateValueError` names a misfit's path."""
    if not set(map(type, values)) <= kind.exact:
        values = [kind.coerce(value, path) for value in values]
    try:
        return pa.array(values if kind.plain else list(map(kind.dump, values)), type=kind.arrow)
    except MISFITS as misfit:
        for value in values:
            kind.coerce(value, path)
        raise StateValueError(f"`{path}` can't be stored as {kind.arrow}: {misfit}") from misfit


def decode_column(
    kind: FieldType, column: pa.Array | pa.ChunkedArray, places: Places = None
) -> list[Any]:
    """Return the values of a field at the given positions (all by default), in python form."""
    values = column
    if isinstance(column, pa.ChunkedArray):
        # `combine_chunks` copies even a column of a single chunk.
        values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    stored = values.type
    # Times become integers, which take much less time than datetimes.
    if pa.types.is_timestamp(stored) or pa.types.is_duration(stored):
        stored = pa.int64()
    if not values.null_count and (pa.types.is_integer(stored) or pa.types.is_floating(stored)):
        values = values.view(stored).to_numpy()
    if places is not None:
        values = values[places] if isinstance(values, np.ndarray) else values.take(places)
    listed: list[Any] = values.tolist()
    return listed if kind.plain else list(map(kind.load, listed))


# -- schema evolution: a class that has changed since its objects were stored -------------------
#
# A new field reads as its default, a removed field is dropped, and a renamed field declares its
# former name (`RenamedFrom`). An int may become a float, a type may become Optional, a Decimal may
# get more digits, and an Enum more members, also inside lists, tuples, dicts and classes. Every
# other change is refused.

BY_HAND: Final = "undo the change, or, for a state, convert stored values with `upgrade=`"


@attrs.frozen
class Differences:
    """The differences between a class and the stored form of its objects."""

    problems: list[str] = attrs.field(factory=list)  # one line for each unsupported change
    # A question and a hint for each new field that may be a removed field under a new name.
    renames: list[tuple[str, str]] = attrs.field(factory=list)
    stored: dict[str, bool] = attrs.field(factory=dict)  # whether a field is stored, by its path


@attrs.frozen
class FieldChange:
    """How to read a field from stored columns; a new field has no source column."""

    field: Field
    source: str | None
    convert: Convert | None

    @property
    def is_none(self) -> bool:
        """Whether the field is stored under its name, in its type."""
        return self.convert is None and self.source == self.field.name

    def column(self, stored: Mapping[str, pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
        """Return the column of the field from the stored columns by name."""
        name, kind = self.field.name, self.field.type
        if self.source is None:
            values = [self._default() for _ in range(rows)]
            return pa.chunked_array([encode_column(kind, values, name)])
        column = stored[self.source]
        if self.convert is None:
            return column
        try:
            values = list(map(_unless_null(self.convert), column.to_pylist()))
            return pa.chunked_array([pa.array(values, kind.arrow)])
        except MISFITS as misfit:
            found = f"a stored value of `{name}` doesn't fit its new type: {misfit}"
            raise StateError(found, BY_HAND) from misfit

    def value(self, stored: Mapping[str, Any]) -> Any:
        """Return the value of the field from a nested object."""
        if self.source is None:
            return self.field.type.dump(self._default())
        value = stored[self.source]
        return value if self.convert is None else _unless_null(self.convert)(value)

    def _default(self) -> Any:
        return self.field.default() if self.field.default is not None else None


def changes_of(
    stored: Mapping[str, Form], fields: Sequence[Field], path: str, found: Differences
) -> list[FieldChange]:
    """Return the change of each field, from stored forms by name; add differences to `found`."""
    changes = [_change(stored, field, f"{path}.{field.name}", found) for field in fields]
    sources = {change.source for change in changes}
    for change in changes:
        name, field = f"{path}.{change.field.name}", change.field
        found.stored[name] = change.source is not None
        if change.source is None and field.former is None and field.default is not None:
            removed = [
                old for old in stored if old not in sources and _fits(stored[old], field.type)
            ]
            if removed:
                names = ", ".join(f"`{old}`" for old in removed)
                verb = "isn't" if len(removed) == 1 else "aren't"
                question = f"`{name}` isn't in the checkpoint, and {names} {verb} in the class"
                renamed = f'`{field.name}: Annotated[..., RenamedFrom("{removed[0]}")]`'
                hint = f"write {renamed} if it was `{removed[0]}`, and `RenamedFrom()` if it is new"
                found.renames.append((f"{question}: was it renamed?", hint))
    return changes


def change_of(
    name: str, stored: Mapping[str, Form], kind: AttrsType, found: Differences
) -> FieldChange:
    """Return the change of a column of objects, from the stored forms of their fields."""
    changes = changes_of(stored, kind.fields, kind.cls.__name__, found)
    return FieldChange(Field(name, kind, name), name, _of_class(changes, stored))


def _fits(stored: Form, kind: FieldType) -> bool:
    differences = Differences()
    _conversion(stored, kind, "", differences)
    return not (differences.problems or differences.renames) and all(differences.stored.values())


def _change(stored: Mapping[str, Form], field: Field, path: str, found: Differences) -> FieldChange:
    names = (field.name, *(field.former or ()))
    source = next((name for name in names if name in stored), None)
    if source is not None:
        return FieldChange(field, source, _conversion(stored[source], field.type, path, found))
    if field.default is None:
        found.problems.append(f"`{path}` isn't in the checkpoint, and has no default")
        return FieldChange(field, None, None)
    try:
        field.type.coerce(field.default(), path)
    except ValueError as error:
        line = f"`{path}` isn't in the checkpoint; its default: {error}".split("\n")[0]
        found.problems.append(line)
    return FieldChange(field, None, None)


def _conversion(stored: Form, kind: FieldType, path: str, found: Differences) -> Convert | None:
    """Return the function that converts stored values to a type; None if they need no change."""
    if stored == kind.form:
        return None
    match stored:
        case ["class", fields] if isinstance(kind, AttrsType):
            return _of_class(changes_of(fields, kind.fields, path, found), fields)
    widening = kind.widening(stored)
    if widening is None:
        now, then = form_text(kind.form), form_text(stored)
        found.problems.append(f"`{path}` is {now} in the class, {then} in the checkpoint")
        return None
    parts = [_conversion(form, part, path + at, found) for at, form, part in widening.parts]
    if parts and not any(parts):
        return None
    return widening.made(*(_unless_null(convert or same) for convert in parts))


def _of_class(changes: Sequence[FieldChange], stored: Mapping[str, Form]) -> Convert | None:
    if all(change.is_none for change in changes) and len(changes) == len(stored):
        return None
    return lambda value: {change.field.name: change.value(value) for change in changes}


def _unless_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def form_text(form: Form) -> str:
    """Return a form as the annotation that declares it."""
    match form:
        case ["optional", inner]:
            return f"{form_text(inner)} | None"
        case ["tuple", item]:
            return f"tuple[{form_text(item)}, ...]"
        case ["items", *items]:
            return f"tuple[{', '.join(map(form_text, items))}]"
        case ["class", fields]:
            texts = (f"{name}: {form_text(part)}" for name, part in sorted(fields.items()))
            return f"a class ({', '.join(texts)})"
        case ["enum", base]:
            return f"an Enum of {form_text(base)}"
        case [name, *parts]:
            return f"{name}[{', '.join(map(form_text, parts))}]"
    return str(form)
