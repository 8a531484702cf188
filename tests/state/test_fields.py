"""Which classes can be stored: every type that is accepted, and every doubt that is refused."""

import enum
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypeVar,
    Union,
)
from uuid import UUID

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sessionkit import SpecError
from sessionkit.errors import StateValueError
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType, DictType, ListType, OptionalType, TupleType
from sessionkit.state._derived import EnumType, LiteralType, SecondsType
from sessionkit.state._fields import field_type, fields_of
from sessionkit.state._scalars import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StrType,
    TimedeltaType,
    TimeType,
    UUIDType,
)
from sessionkit.state._types import FieldType
from tests.support.refusals import refusal as refused
from tests.support.refusals import says
from tests.support.strategies import Colour, Email, Level, Plan, Rights, Seconds, Side, Step

KNOWN = (
    "use int, float, bool, str, bytes, datetime, date, timedelta, time, Decimal, UUID, an Enum, "
    "Literal, Optional, list, dict, tuple, or an attrs class of these"
)
ONE_TYPE = "name the one type of the field"
EQUAL_KEY = "use a key that is equal to itself, such as str"
T = TypeVar("T")


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Flagged(enum.Enum):
    """Members that are booleans, which are stored neither as texts nor as numbers."""

    YES = True


class Nothing(enum.Enum):
    """An enumeration without members."""


class Pair(NamedTuple):
    """A named tuple, whose fields would be lost."""

    left: int
    right: int


class Typed(typing.TypedDict):
    left: str


class BaseModel:
    """The base of a model, as Pydantic has it: attrs can't decorate what is made of it."""

    model_fields: typing.ClassVar[dict[str, Any]] = {}


class Model(BaseModel):
    left: str


class Plain:
    """A class of no kind that is known."""


@attrs.define
class Item:
    price: float


@attrs.define
class Later:
    """Annotations as text, also of a class that comes later in the module."""

    last: "Below | None"
    many: "dict[str, list[Below]]"


@attrs.define
class Below:
    number: "int"


@attrs.define
class Node:
    value: int
    next: "Node | None"


@attrs.define
class Hen:
    """A class that contains itself by way of another."""

    eggs: "list[Egg]"


@attrs.define
class Egg:
    hen: "Hen"


@attrs.define
class Box(Generic[T]):
    """A class with a type to be filled in."""

    content: T


def refusal(annotation: Any) -> str:
    """Return the text with which the only field of a class is refused."""
    return refused(fields_of, attrs.make_class("Visit", {"field": attrs.field(type=annotation)}))


@pytest.mark.parametrize(
    ("annotation", "expected", "arrow"),
    [
        (int, IntType(), pa.int64()),
        (float, FloatType(), pa.float64()),
        (bool, BoolType(), pa.bool_()),
        (str, StrType(), pa.string()),
        (bytes, BytesType(), pa.binary()),
        (datetime, DatetimeType(), pa.timestamp("us", tz="UTC")),
        (date, DateType(), pa.date32()),
        (timedelta, TimedeltaType(), pa.duration("us")),
        (time, TimeType(), pa.int64()),
        (Decimal, DecimalType(), pa.decimal128(38, 18)),
        (Annotated[Decimal, DecimalType(5, 2)], DecimalType(5, 2), pa.decimal128(5, 2)),
        (Annotated[Decimal, DecimalType(38, 0)], DecimalType(38, 0), pa.decimal128(38, 0)),
        (Annotated[int, "seconds"], IntType(), pa.int64()),
        (Plan, EnumType(Plan, StrType()), pa.string()),
        (Colour, EnumType(Colour, StrType()), pa.string()),
        (Level, EnumType(Level, IntType()), pa.int64()),
        (Rights, EnumType(Rights, IntType()), pa.int64()),
        (Side, LiteralType(Side, ("left", "right"), StrType()), pa.string()),
        (Step, LiteralType(Step, (1, 2, 3), IntType()), pa.int64()),
        (Side | None, OptionalType(LiteralType(Side, ("left", "right"), StrType())), pa.string()),
        (UUID, UUIDType(), pa.string()),
        (Email, StrType(), pa.string()),
        (NewType("Work", Email), StrType(), pa.string()),
        (Seconds, SecondsType(), pa.float64()),
        (int | None, OptionalType(IntType()), pa.int64()),
        (Optional[int], OptionalType(IntType()), pa.int64()),  # noqa: UP045 - the spelling under test
        (Union[None, int], OptionalType(IntType()), pa.int64()),  # noqa: UP007 - as above
        (list[int], ListType(IntType()), pa.list_(pa.int64())),
        (typing.List[int], ListType(IntType()), pa.list_(pa.int64())),  # noqa: UP006 - as above
        (list[int | None], ListType(OptionalType(IntType())), pa.list_(pa.int64())),
        (tuple[int, ...], ListType(IntType(), tuple), pa.list_(pa.int64())),
        (
            tuple[int, str],
            TupleType((IntType(), StrType())),
            pa.struct({"_0": pa.int64(), "_1": pa.string()}),
        ),
        (tuple[int], TupleType((IntType(),)), pa.struct({"_0": pa.int64()})),
        (dict[str, int], DictType(StrType(), IntType()), pa.map_(pa.string(), pa.int64())),
        (
            dict[str, list[bool]],
            DictType(StrType(), ListType(BoolType())),
            pa.map_(pa.string(), pa.list_(pa.bool_())),
        ),
    ],
)
def test_every_type_that_is_known_has_an_encoding(
    annotation: Any, expected: FieldType, arrow: pa.DataType
) -> None:
    """An annotation is read into its type, which says how it lies in Arrow."""
    assert expected == field_type(annotation, "field")
    assert arrow == expected.arrow


@pytest.mark.parametrize(
    "key", [int, bool, str, bytes, datetime, date, timedelta, time, Decimal, Plan, Level, Colour]
)
def test_a_dict_may_have_any_key_that_is_equal_to_itself(key: Any) -> None:
    """All types without parts are keys, save floats."""
    assert DictType(field_type(key, "key"), IntType()) == field_type(dict[key, int], "field")


def test_a_class_is_read_with_its_parts() -> None:
    """The fields of a class come in their order, and a class in a field is read alike."""
    cls = attrs.make_class(
        "Visit", {"pages": attrs.field(type=int), "last": attrs.field(type=Item)}
    )
    expected = [("pages", IntType()), ("last", fields_of(Item))]
    assert expected == [(field.name, field.type) for field in fields_of(cls).fields]
    assert (
        pa.struct({"pages": pa.int64(), "last": pa.struct({"price": pa.float64()})})
        == fields_of(cls).arrow
    )


def test_annotations_in_quotes_are_resolved() -> None:
    """Annotations in quotes are resolved, also inside others and where the class comes later."""
    below = AttrsType(Below, fields_of(Below).fields, Below)
    expected = [OptionalType(below), DictType(StrType(), ListType(below))]
    assert expected == [field.type for field in fields_of(Later).fields]


def test_a_class_is_compiled_once() -> None:
    """The second look at a class costs nothing: it gives the same object."""
    assert codec_of(Item) is codec_of(Item)


def test_a_private_attribute_is_stored_under_its_own_name() -> None:
    """`__init__` takes a private attribute without its underscore, or by the alias it has."""
    cls = attrs.make_class(
        "Visit", {"_pages": attrs.field(type=int), "n": attrs.field(type=int, alias="number")}
    )
    expected = [("_pages", "pages"), ("n", "number")]
    assert expected == [(field.name, field.alias) for field in fields_of(cls).fields]
    objects = [cls(pages=1, number=2)]
    codec = codec_of(cls)
    assert ["_pages", "n"] == codec.schema.names
    assert objects == codec.decode(codec.encode(objects))


def test_fields_may_be_named_only() -> None:
    """A class whose `__init__` takes fields by name only is built by name, in any order."""
    cls = attrs.make_class(
        "Visit",
        {
            "_a": attrs.field(type=int, kw_only=True),
            "b": attrs.field(type=str),
            "c": attrs.field(type=int, kw_only=True, default=0),
        },
    )
    objects = [cls("text", a=1, c=3)]
    assert objects == codec_of(cls).decode(codec_of(cls).encode(objects))


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Any, "`Visit.field`: Any"),
        (object, "`Visit.field`: object"),
        (list, "`Visit.field`: list"),
        (dict, "`Visit.field`: dict"),
        (tuple, "`Visit.field`: tuple"),
        (tuple[()], "`Visit.field`: tuple[()]"),
        (set[int], "`Visit.field`: set[int]"),
        (set, "`Visit.field`: set"),
        (frozenset[int], "`Visit.field`: frozenset[int]"),
        (complex, "`Visit.field`: complex"),
        (int | str, "`Visit.field`: int | str"),
        (int | str | None, "`Visit.field`: int | str | None"),
        (Union[int, str], f"`Visit.field`: {Union[int, str]}"),  # noqa: UP007 - the spelling under test
        (list[Any], "`Visit.field[]`: Any"),
        (tuple[int, Any], "`Visit.field[1]`: Any"),
        (tuple[Any, ...], "`Visit.field[]`: Any"),
        (dict[str, Any], "`Visit.field[]`: Any"),
        (dict[Any, int], "`Visit.field key`: Any"),
        (dict[float, int], "`Visit.field key`: float"),
        (dict[str | None, int], "`Visit.field key`: str | None"),
        (dict[tuple[int, int], int], "`Visit.field key`: tuple[int, int]"),
        (dict[Item, int], "`Visit.field key`: Item"),
        (Mixed, "`Visit.field`: Mixed"),
        (Flagged, "`Visit.field`: Flagged"),
        (Nothing, "`Visit.field`: Nothing"),
        (Annotated[Decimal, DecimalType(39, 0)], "DecimalType(precision=39, scale=0)"),
        (Annotated[Decimal, DecimalType(0, 0)], "DecimalType(precision=0, scale=0)"),
        (Annotated[Decimal, DecimalType(5, 6)], "DecimalType(precision=5, scale=6)"),
        (Annotated[Decimal, DecimalType(5, -1)], "DecimalType(precision=5, scale=-1)"),
        (Plain, "`Visit.field`: Plain"),
        (Pair, "`Visit.field`: Pair"),
        (pd.Timestamp, "`Visit.field`: Timestamp"),
        (np.int64, "`Visit.field`: int64"),
        (np.ndarray, "`Visit.field`: ndarray"),
        (bytearray, "`Visit.field`: bytearray"),
        (Literal["a", 1], "`Visit.field`: typing.Literal['a', 1]"),
        (Literal[True], "`Visit.field`: typing.Literal[True]"),
        (Literal[2**63], f"`Visit.field`: typing.Literal[{2**63}]"),
        (Literal[Plan.FREE], "`Visit.field`: typing.Literal[<Plan.FREE: 'free'>]"),
        (NewType("Anything", object), "`Visit.field`: object"),
        (dict[Seconds, int], "`Visit.field key`: typing.Annotated[datetime.timedelta, 'seconds']"),
        (Sequence[int], "`Visit.field`: collections.abc.Sequence[int]"),
        (Mapping[str, int], "`Visit.field`: collections.abc.Mapping[str, int]"),
        (T, "`Visit.field`: ~T"),
        (Box, "`Visit.field.content`: ~T"),
        (enum.Enum("Huge", {"MANY": 2**63}), "`Visit.field`: Huge"),
        ([int], "`Visit.field`: [<class 'int'>]"),
        ({"a": int}, "`Visit.field`: {'a': <class 'int'>}"),
    ],
)
def test_what_is_ambiguous_or_unknown_is_refused(annotation: Any, found: str) -> None:
    """A field that cannot be stored for certain is refused with its path and what to do."""
    text = refusal(annotation)
    assert says(text, "`Visit` can't be stored:", f"{found} can't be stored; ", "\n\nHint: ")


def test_all_problems_are_told_at_once() -> None:
    """Every field that is refused has a line, those of nested classes under their path."""
    inner = attrs.make_class(
        "Inner", {"raw": attrs.field(type=object), "good": attrs.field(type=int)}
    )
    outer = attrs.make_class(
        "Outer",
        {
            "tags": attrs.field(type=set[str]),
            "inner": attrs.field(type=dict[float, list[inner]]),  # type: ignore[valid-type]
            "made": attrs.field(type=int, init=False, default=0),
            "bare": attrs.field(),
        },
    )
    expected = (
        "`Outer` can't be stored:\n"
        "  `Outer.tags`: set[str] can't be stored; use list[...], which keeps an order\n"
        f"  `Outer.inner key`: float can't be stored; {EQUAL_KEY}\n"
        f"  `Outer.inner[][].raw`: object can't be stored; {ONE_TYPE}\n"
        "  `Outer.made`: a field with init=False can't be stored; make it an argument of __init__\n"
        "  `Outer.bare`: a field without a type can't be stored; annotate it"
        f"\n\nHint: {KNOWN}"
    )
    assert expected == refused(fields_of, outer)


@pytest.mark.parametrize(
    ("cls", "path"),
    [(Node, "Node.next`: Node"), (Hen, "Hen.eggs[].hen`: Hen"), (Egg, "Egg.hen.eggs[]`: Egg")],
)
def test_a_class_that_contains_itself_is_refused(cls: type[Any], path: str) -> None:
    """A class without an end has no schema, whether it names itself or another that does."""
    assert f"`{path} can't be stored; a class cannot contain itself" in refused(fields_of, cls)


def test_a_name_that_cannot_be_resolved_is_refused() -> None:
    """Annotations in quotes that name nothing known say so, with what to do."""
    cls = attrs.make_class("Visit", {"n": attrs.field(type=int)})
    cls.__annotations__ = {"n": "Nowhere"}
    expected = (
        "`Visit`: the name 'Nowhere' in its annotations can't be stored; "
        "define the class and the types of its fields at the top level of a module"
    )
    assert expected in refused(fields_of, cls)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (3, "3 (int) isn't a class"),
        ("Visit", "'Visit' (str) isn't a class"),
        (list[int], "list[int] (GenericAlias) isn't a class"),
        (Plain, "Hint: write `@attrs.define` above `class Plain:`"),
        (Pair, "Hint: write `@attrs.define` above `class Pair:`, without NamedTuple; its fields"),
        (Typed, "Hint: write `@attrs.define` above `class Typed:`, without TypedDict; its fields"),
        (Model, "Hint: write `@attrs.define` above `class Model:`, without BaseModel; its fields"),
        (dict, "found dict, which has no fields\n\nHint: pass an attrs class or a dataclass"),
    ],
)
def test_what_is_no_attrs_class_is_refused(wrong: Any, found: str) -> None:
    """Neither a value nor an undecorated class has fields."""
    assert found in refused(fields_of, wrong)


def test_a_single_annotation_is_refused_with_its_path() -> None:
    """The type of a key column is refused under the name of that column."""
    expected = (
        f"`keys.user key`: float can't be stored; {EQUAL_KEY}; "
        "`keys.user[]`: set[int] can't be stored; use list[...], which keeps an order"
        f"\n\nHint: {KNOWN}"
    )
    assert expected == refused(field_type, dict[float, set[int]], "keys.user")


@pytest.mark.parametrize("text", ["int |", "enum.Nowhere", "'int' | None"])
def test_an_annotation_that_cannot_be_read_is_refused(text: str) -> None:
    """Annotations in quotes that are no expression, or fail, name their class."""
    cls = attrs.make_class("Visit", {"n": attrs.field(type=int)})
    cls.__module__, cls.__annotations__ = __name__, {"n": text}
    with pytest.raises(SpecError, match="`Visit`"):
        fields_of(cls)


def test_a_single_problem_has_its_own_hint() -> None:
    """Of a type written as text, and of one that has no encoding."""
    assert (
        "`keys.user`: the text 'string' can't be stored\n\nHint: write the type itself, such as str"
        == (refused(field_type, "string", "keys.user"))
    )
    assert refused(field_type, set[int], "keys.user").count("list[...]") == 1


@pytest.mark.parametrize("number", range(6))
def test_an_object_of_a_class_that_was_defined_again_says_so(number: int) -> None:
    """As where a cell of a notebook is run again: two classes have one name, also inside others."""

    def cell() -> tuple[Any, Any]:
        geo = attrs.make_class("Geo", {"country": attrs.field(type=str)})
        Level = enum.Enum("Level", {"LOW": "low"})  # noqa: N806 (a class)
        return geo("DE"), Level("low")

    (before, low), (after, low_again) = cell(), cell()
    geo: Any = type(before)
    level: Any = type(low)
    annotation, value = [
        (geo, after),
        (list[geo], [before, after]),
        (dict[str, geo], {"a": after}),
        (tuple[geo, int], (after, 1)),
        (level, low_again),
        (geo | None, after),
    ][number]
    with pytest.raises(StateValueError) as refused:
        field_type(annotation, "View.x").coerce(value, "View.x")

    name = "Level" if number == 4 else "Geo"
    assert f", found one of another {name}: the class was defined again" in str(refused.value)
    assert "in a notebook, run its cell again" in str(refused.value)
