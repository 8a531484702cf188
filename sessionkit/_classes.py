"""The classes of events, states and rows: attrs classes, and dataclasses read like them."""

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast, get_type_hints

import attrs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record: TypeAlias = attrs.AttrsInstance | DataclassInstance
else:
    Record = object

Attributes: TypeAlias = tuple["attrs.Attribute[Any]", ...]
_FROZEN_SETATTR: Final = attrs.make_class("_Frozen", [], frozen=True).__setattr__


def is_record(value: object) -> TypeGuard[type[Any]]:
    """Return whether a value is an attrs class or a dataclass."""
    return isinstance(value, type) and (attrs.has(value) or dataclasses.is_dataclass(value))


def is_frozen(cls: type[Any]) -> bool:
    """Return whether the objects of a class can't be changed in place."""
    if dataclasses.is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # not in its stub
    return cls.__setattr__ is _FROZEN_SETATTR


def attributes_of(cls: Any) -> Attributes:
    """Return the fields of a class with their types; those of a dataclass as attrs has them."""
    if attrs.has(cls):
        attrs.resolve_types(cls, include_extras=True)
        return cast("Attributes", attrs.fields(cls))
    return _of_dataclass(cls)


@lru_cache(maxsize=256)
def _of_dataclass(cls: Any) -> Attributes:
    types = get_type_hints(cls, include_extras=True)
    made = {
        one.name: attrs.field(
            default=_default(one),
            init=one.init,
            repr=one.repr,
            eq=one.compare,
            kw_only=bool(one.kw_only),
            type=types[one.name],
            alias=one.name,
        )
        for one in dataclasses.fields(cls)
    }
    return cast("Attributes", attrs.fields(attrs.make_class(cls.__name__, made)))


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return attrs.Factory(field.default_factory)
    return attrs.NOTHING if field.default is dataclasses.MISSING else field.default
