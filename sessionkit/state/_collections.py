"""Composite types: optional values, lists, tuples, dicts and attrs classes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import pyarrow as pa

from sessionkit.errors import SpecError
from sessionkit.state._beside import UNSET, Beside
from sessionkit.state._types import (
    Convert,
    FieldType,
    Form,
    Widening,
    of_another_class,
    refused,
)


def _load(kind: FieldType, part: Any) -> Any:
    """Load an item; leave a null to `coerce`, which knows its path."""
    return None if part is None else kind.load(part)


@attrs.frozen
class OptionalType(FieldType):
    """`T | None`."""

    inner: FieldType
    plain: bool = attrs.field(init=False, eq=False, repr=False)

    @plain.default
    def _plain(self) -> bool:
        return self.inner.plain

    @property
    def form(self) -> Form:
        return ["optional", self.inner.form]

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    @property
    def exact(self) -> frozenset[type]:
        return self.inner.exact | {type(None)} if self.inner.exact else frozenset()

    def coerce(self, value: Any, path: str) -> Any:
        return None if value is None else self.inner.coerce(value, path)

    def dump(self, value: Any) -> Any:
        return None if value is None else self.inner.dump(value)

    def load(self, value: Any) -> Any:
        return None if value is None else self.inner.load(value)

    def widening(self, stored: Form) -> Widening:
        match stored:
            case ["optional", inner]:
                stored = inner
        return Widening(lambda convert: convert, [("", stored, self.inner)])


@attrs.frozen
class ListType(FieldType):
    """`list[T]`, or `tuple[T, ...]` if `cls` is tuple."""

    item: FieldType
    cls: type[list[Any]] | type[tuple[Any, ...]] = list

    @property
    def form(self) -> Form:
        return [self.cls.__name__, self.item.form]

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.item.arrow)

    def coerce(self, value: Any, path: str) -> Any:
        if not isinstance(value, self.cls):
            name = self.cls.__name__
            raise refused(value, path, f"a {name}", f"convert it with {name}(...)")
        return self.cls(self.item.coerce(item, f"{path}[{n}]") for n, item in enumerate(value))

    def dump(self, value: Iterable[Any]) -> list[Any]:
        return [self.item.dump(item) for item in value]

    def load(self, value: Iterable[Any]) -> Any:
        return self.cls(_load(self.item, item) for item in value)

    def widening(self, stored: Form) -> Widening | None:
        match stored:
            case [self.cls.__name__, item]:
                parts = [("[]", item, self.item)]
                return Widening(lambda convert: lambda items: list(map(convert, items)), parts)
        return None


@attrs.frozen
class TupleType(FieldType):
    """`tuple[A, B]`: a fixed number of items, with a type for each."""

    items: tuple[FieldType, ...]

    @property
    def form(self) -> Form:
        return ["items", *(item.form for item in self.items)]

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(f"_{n}", item.arrow) for n, item in enumerate(self.items)])

    def coerce(self, value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            hint = "build the tuple with exactly the declared items"
            raise refused(value, path, f"a tuple of {len(self.items)}", hint)
        pairs = enumerate(zip(self.items, value, strict=True))
        return tuple(kind.coerce(item, f"{path}[{n}]") for n, (kind, item) in pairs)

    def dump(self, value: tuple[Any, ...]) -> dict[str, Any]:
        pairs = enumerate(zip(self.items, value, strict=True))
        return {f"_{n}": kind.dump(item) for n, (kind, item) in pairs}

    def load(self, value: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_load(kind, value.get(f"_{n}")) for n, kind in enumerate(self.items))

    def widening(self, stored: Form) -> Widening | None:
        match stored:
            case ["items", *items] if len(items) == len(self.items):
                places = [f"[{n}]" for n in range(len(items))]
                return Widening(self._each_item, list(zip(places, items, self.items, strict=True)))
        return None

    @staticmethod
    def _each_item(*converts: Convert) -> Convert:
        by_name = {f"_{n}": convert for n, convert in enumerate(converts)}
        return lambda value: {name: convert(value[name]) for name, convert in by_name.items()}


@attrs.frozen
class DictType(FieldType):
    """`dict[K, V]`, in insertion order."""

    key: FieldType
    value: FieldType

    @property
    def form(self) -> Form:
        return ["dict", self.key.form, self.value.form]

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key.arrow, self.value.arrow)

    def coerce(self, value: Any, path: str) -> dict[Any, Any]:
        # One that makes missing values would come back as a dict that doesn't.
        if not isinstance(value, dict) or hasattr(value, "__missing__"):
            raise refused(value, path, "a dict", "convert it with dict(...)")
        return {
            self.key.coerce(key, f"{path} key"): self.value.coerce(item, f"{path}[{key!r}]")
            for key, item in value.items()
        }

    def dump(self, value: Mapping[Any, Any]) -> list[dict[str, Any]]:
        return [
            {"key": self.key.dump(key), "value": self.value.dump(item)}
            for key, item in value.items()
        ]

    def load(self, value: Iterable[Any]) -> dict[Any, Any]:
        # Arrow lists pairs, Spark's JSON entries of key and value.
        pairs = ((e["key"], e.get("value")) if isinstance(e, dict) else e for e in value)
        return {self.key.load(key): _load(self.value, item) for key, item in pairs}

    def widening(self, stored: Form) -> Widening | None:
        match stored:
            case ["dict", key, value]:
                parts = [(" key", key, self.key), ("[]", value, self.value)]
                return Widening(self._each_pair, parts)
        return None

    @staticmethod
    def _each_pair(of_key: Convert, of_value: Convert) -> Convert:
        return lambda pairs: [(of_key(key), of_value(value)) for key, value in pairs]


@attrs.frozen(init=False)
class RenamedFrom:
    """
    The former names of a field: `pages: Annotated[int, RenamedFrom("views")] = 0`.

    It acts when a query starts again from its checkpoint: state that is stored under a former name
    is read into this field. Without it, a state class is refused that has lost a field and got
    another one of the same type, since that may be a renaming. `RenamedFrom()`, without a name,
    says that it isn't: the field is new. `migrate` refuses a renamed field, as it takes no other
    state class.

    Attributes:
        names: The former names, in any order.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        for name in names:
            if not isinstance(name, str):
                found = f"`RenamedFrom` takes former names as text, found {name!r}"
                raise SpecError(found, 'write RenamedFrom("views")')
        object.__setattr__(self, "names", names)


@attrs.frozen
class Field:
    """A field of a class: `alias` is its argument of `__init__`, `former` its former names."""

    name: str
    type: FieldType
    alias: str
    default: Callable[[], Any] | None = attrs.field(default=None, eq=False)
    former: tuple[str, ...] | None = attrs.field(default=None, eq=False)


@attrs.frozen
class AttrsType(FieldType):
    """An attrs class and its fields, in order."""

    cls: type[Any]
    fields: tuple[Field, ...]
    build: Callable[..., Any] = attrs.field(eq=False)
    beside: Beside | None = attrs.field(init=False, eq=False, repr=False)

    @beside.default
    def _beside(self) -> Beside | None:
        return Beside.of(self.cls, [field.name for field in self.fields])

    @property
    def form(self) -> Form:
        return ["class", forms_of(self.fields)]

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct(list(arrow_schema(self.fields)))

    def coerce(self, value: Any, path: str) -> Any:
        if type(value) is not self.cls:  # a subclass would lose its own fields
            name = self.cls.__name__
            hint = f"build a {name} where you set it"
            raise of_another_class(value, path, self.cls, f"a {name}", hint)
        parts = [
            field.type.coerce(getattr(value, field.name, UNSET), f"{path}.{field.name}")
            for field in self.fields
        ]
        made = self.build(*parts)
        if self.beside is not None:
            self.beside.check(value, made, path)
        return made

    def dump(self, value: Any) -> dict[str, Any]:
        return {field.name: field.type.dump(getattr(value, field.name)) for field in self.fields}

    def load(self, value: Mapping[str, Any]) -> Any:
        # Spark's JSON omits fields that are null.
        return self.build(*(_load(field.type, value.get(field.name)) for field in self.fields))


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type.arrow) for field in fields])


def forms_of(fields: Iterable[Field]) -> dict[str, Form]:
    return {field.name: field.type.form for field in fields}


def inner_type(kind: FieldType) -> FieldType:
    """Return the type inside any `OptionalType`."""
    return inner_type(kind.inner) if isinstance(kind, OptionalType) else kind
