"""Classes that can be stored, and values for the fields of a class."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import GenericAlias
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import attrs
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit.spec.session import SessionSpec
from sessionkit.state import (
    SCALARS,
    AttrsType,
    BoolType,
    BytesType,
    DatetimeType,
    DecimalType,
    DictType,
    EnumType,
    FieldType,
    FloatType,
    IntType,
    ListType,
    OptionalType,
    StrType,
    TimedeltaType,
    TupleType,
    codec_of,
)

__all__ = ["AnySessionSpec", "attrs_classes", "keys_of", "objects_of"]

AnySessionSpec: TypeAlias = SessionSpec[Any, Any, Any]
T = TypeVar("T")
Scalars: TypeAlias = dict[type[Any], SearchStrategy[Any]]

TRIES: Final = 10
"""How often values are drawn for a class whose validators refuse some, before giving up."""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
INT64: Final = (-(2**63), 2**63 - 1)
ANY: Final[Scalars] = {
    IntType: st.integers(*INT64),
    FloatType: st.floats(),
    BoolType: st.booleans(),
    StrType: st.text(max_size=8),
    BytesType: st.binary(max_size=8),
}
# Sums of these neither overflow nor round, and small alphabets make equal values likely.
MODEST: Final = ANY | {
    IntType: st.integers(-1_000, 1_000),
    FloatType: st.integers(-8_000, 8_000).map(lambda eighths: eighths / 8),
    StrType: st.text("abc", max_size=2),
    BytesType: st.binary(max_size=2),
    DatetimeType: st.integers(0, 86_400).map(lambda seconds: START + timedelta(seconds=seconds)),
    TimedeltaType: st.integers(-3_600, 3_600).map(lambda seconds: timedelta(seconds=seconds)),
}


class Plan(Enum):
    """An enumeration of texts, for generated classes."""

    FREE = "free"
    PAID = "paid"


class Level(IntEnum):
    """An enumeration of whole numbers, for generated classes."""

    LOW = -1
    HIGH = 2


def objects_of(cls: type[T], *, modest: bool = False) -> SearchStrategy[T]:
    """
    Make objects of an attrs class, a value for each field by its declared type.

    Args:
        cls: The class of an event, a state or a result.
        modest: Keep to values whose sums neither overflow nor round, such as floats in eighths.

    Raises:
        FieldTypeError: Some of its fields cannot be stored.
    """
    return _values(codec_of(cls).type, MODEST if modest else ANY)


def keys_of(spec: AnySessionSpec) -> SearchStrategy[tuple[Any, ...]]:
    """Make keys, as tuples of modest values of the key columns."""
    return st.tuples(*(_values(field.type, MODEST) for field in spec.key_fields))


@st.composite
def attrs_classes(draw: DrawFn, *, max_leaves: int = 5) -> type[Any]:
    """
    Make attrs classes of one to four fields of every storable type, nested ones included.

    Use it with `objects_of`, such as in `attrs_classes().flatmap(objects_of)`.

    Args:
        draw: Passed by hypothesis.
        max_leaves: How many types without parts the annotation of one field may have.
    """
    scalars = st.sampled_from(SCALAR_ANNOTATIONS)
    # By itself `recursive` hardly ever stops at the first level.
    return draw(_classes(scalars | st.recursive(scalars, _nested, max_leaves=max_leaves)))


def _values(kind: FieldType, scalars: Scalars) -> SearchStrategy[Any]:
    """Make the values that a field of this type can hold."""
    match kind:
        case OptionalType(inner):
            return st.none() | _values(inner, scalars)
        case ListType(item, cls):
            return st.lists(_values(item, scalars), max_size=3).map(cls)
        case TupleType(items):
            return st.tuples(*(_values(item, scalars) for item in items))
        case DictType(key, value):
            return st.dictionaries(_values(key, scalars), _values(value, scalars), max_size=3)
        case EnumType(cls):
            return st.sampled_from(cls)
        case DecimalType(precision, scale):
            most = 10**precision - 1
            return _decimals(most if scalars is ANY else min(most, 1_000), scale)
        case AttrsType():
            return _objects(
                kind, st.tuples(*(_values(field.type, scalars) for field in kind.fields))
            )
    found = scalars.get(type(kind))
    if found is not None:
        return found
    # What is left is stored as a number.
    bounds = (kind.facts and kind.facts.bounds) or INT64
    return st.integers(*bounds if scalars is ANY else (0, 31)).map(kind.load)


@st.composite
def _objects(draw: DrawFn, kind: AttrsType, values: SearchStrategy[tuple[Any, ...]]) -> Any:
    for _ in range(TRIES):
        drawn = draw(values)
        try:
            return kind.build(*drawn)
        except Exception:  # noqa: BLE001, S112 (the user's own validators, of what is quarantined)
            continue
    return reject()


def _decimals(largest: int, scale: int) -> SearchStrategy[Decimal]:
    def scaled(number: int) -> Decimal:
        # From the parts: arithmetic would round to the digits of the current context.
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -scale))

    return st.integers(-largest, largest).map(scaled)


KEY_ANNOTATIONS: Final[tuple[Any, ...]] = (
    *(scalar for scalar in SCALARS if scalar is not float),
    *(Plan, Level),
    Annotated[Decimal, DecimalType(5, 2)],
)
SCALAR_ANNOTATIONS: Final = (*KEY_ANNOTATIONS, float)


def _nested(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda item: item | None),
        inner.map(lambda item: GenericAlias(list, (item,))),
        inner.map(lambda item: GenericAlias(tuple, (item, ...))),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: GenericAlias(tuple, (*items,))),
        st.tuples(st.sampled_from(KEY_ANNOTATIONS), inner).map(
            lambda pair: GenericAlias(dict, pair)
        ),
        _classes(inner),
    )


@st.composite
def _classes(draw: DrawFn, annotations: SearchStrategy[Any]) -> type[Any]:
    parts = draw(st.lists(annotations, min_size=1, max_size=4))
    names = [f"{draw(st.sampled_from(['', '_']))}field{place}" for place in range(len(parts))]
    return attrs.make_class(
        "Made",
        {name: attrs.field(type=part) for name, part in zip(names, parts, strict=True)},
        frozen=draw(st.booleans()),
        kw_only=draw(st.booleans()),
        slots=draw(st.booleans()),
    )
