"""How stored columns become those of a class that has changed: every rule, and nothing guessed."""

import json
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from sessionkit import SpecError
from sessionkit.errors import StateError, StateValueError
from sessionkit.state import DecimalType, RenamedFrom
from sessionkit.state._codec import Differences, changes_of, codec_of, form_text
from sessionkit.state._collections import forms_of
from sessionkit.state._fields import fields_of
from tests.support.strategies import annotated

FIELDS = annotated()
MAYBE: Any = float | None
SECONDS: Any = Annotated[timedelta, "seconds"]


def made(name: str = "Made", **fields: Any) -> Any:
    """Return an attrs class with fields of these annotations, or with all that attrs knows."""
    named = {
        name: kind if isinstance(kind, type(attrs.field())) else attrs.field(type=kind)
        for name, kind in fields.items()
    }
    return attrs.make_class(name, named, kw_only=True)


def read(old: Any, objects: list[Any], new: Any) -> list[Any]:
    """Store objects of one class, and read them as those of another."""
    codec = codec_of(old)
    stored = pa.table(codec.encode(objects), schema=codec.schema)
    # As they come back from a payload.
    forms = json.loads(json.dumps(forms_of(codec.type.fields)))
    found = Differences()
    changes = changes_of(forms, codec_of(new).type.fields, new.__name__, found)
    assert ([], []) == (found.problems, found.renames)
    columns = {name: stored[name] for name in stored.column_names}
    return codec_of(new).decode([one.column(columns, len(objects)) for one in changes])


def problems_of(old: Any, new: Any) -> list[str]:
    """Return why objects of one class can't be read as those of another."""
    found = Differences()
    changes_of(forms_of(fields_of(old).fields), fields_of(new).fields, new.__name__, found)
    return found.problems


@st.composite
def changed_classes(draw: DrawFn) -> tuple[Any, Any, list[Any], list[Any]]:
    """Make a class and a later one of it, objects of the first, and what they are then."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    values: dict[str, Any] = {}
    said: list[tuple[str, str]] = []
    for place in range(draw(st.integers(1, 4))):
        name, part = f"field{place}", draw(FIELDS)
        old[name], values[name] = part.annotation, part.values
        match draw(st.sampled_from(["kept", "dropped", "renamed", "optional", "in a list"])):
            case "kept":
                new[name] = part.annotation
                said.append((name, name))
            case "renamed":
                new[f"new_{name}"] = Annotated[part.annotation, RenamedFrom(f"x{place}", name)]
                said.append((name, f"new_{name}"))
            case "optional":
                new[name] = part.annotation | None
                said.append((name, name))
            case "in a list":
                old[name], values[name] = list[part.annotation], st.lists(part.values, max_size=2)  # type: ignore[name-defined]
                new[name] = list[part.annotation | None]  # type: ignore[name-defined]
                said.append((name, name))
    new_field: Any = Annotated[dict[str, int], RenamedFrom()]
    new["added"] = attrs.field(type=new_field, factory=dict)
    before, after = made(**old), made(**dict(reversed(new.items())))
    objects = draw(st.lists(st.builds(before, **values), min_size=1, max_size=3))
    expected = [
        after(**{new_name: getattr(one, old_name) for old_name, new_name in said})
        for one in objects
    ]
    return before, after, objects, expected


@given(changed=changed_classes())
def test_a_class_may_change_in_many_ways_at_once(
    changed: tuple[Any, Any, list[Any], list[Any]],
) -> None:
    """Fields of any type are kept, dropped, renamed, added, made Optional, and put elsewhere."""
    before, after, objects, expected = changed

    assert repr(expected) == repr(read(before, objects, after))


@given(changed=changed_classes())
def test_a_class_inside_may_change_as_one_outside(
    changed: tuple[Any, Any, list[Any], list[Any]],
) -> None:
    """In a field, a list, a tuple, a dict, and where it may be missing."""
    before, after, objects, expected = changed

    def around(cls: Any) -> Any:
        inside = cls | None
        return made(
            one=cls,
            maybe=inside,
            items=list[cls],
            pair=tuple[int, cls],
            several=tuple[inside, ...],  # type: ignore[valid-type]
            named=dict[str, cls],
        )

    def holding(cls: Any, parts: list[Any]) -> Any:
        return cls(
            one=parts[0],
            maybe=None,
            items=parts,
            pair=(1, parts[0]),
            several=(None, *parts),
            named=dict.fromkeys(["a"], parts[-1]),
        )

    old, new = around(before), around(after)
    found = read(old, [holding(old, objects), holding(old, objects[:1])], new)

    assert repr([holding(new, expected), holding(new, expected[:1])]) == repr(found)


class Plan(Enum):
    FREE = "free"


class MorePlans(Enum):
    FREE = "free"
    PAID = "paid"


class OtherPlans(Enum):
    """Plans of which a former one is now another."""

    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "OtherPlans":
        return cls.OTHER


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (int, float, 3, 3.0),
        (int, float | None, 2**53, 2.0**53),
        (int | None, float | None, None, None),
        (list[int], list[float], [1, 2], [1.0, 2.0]),
        (tuple[int, ...], tuple[float, ...], (1,), (1.0,)),
        (tuple[int, str], tuple[float, str], (1, "a"), (1.0, "a")),
        (dict[str, int], dict[str, float | None], {"a": 1}, {"a": 1.0}),
        (
            dict[str, timedelta],
            dict[str, timedelta | None],
            {"a": timedelta(1)},
            {"a": timedelta(1)},
        ),
        (Annotated[Decimal, DecimalType(5, 2)], Decimal, Decimal("1.25"), Decimal("1.25")),
        (list[int] | None, list[int | None] | None, None, None),
        (Plan, MorePlans, Plan.FREE, MorePlans.FREE),
        (dict[Plan, int], dict[MorePlans, int], {Plan.FREE: 1}, {MorePlans.FREE: 1}),
        (Plan, OtherPlans, Plan.FREE, OtherPlans.OTHER),
        (Literal["a"], Literal["a", "b"], "a", "a"),
        (Literal[1, 2], int, 2, 2),
        (list[str], list[Literal["a"]], ["a"], ["a"]),
        (NewType("Email", str), str, "a", "a"),
        (UUID, str, UUID(int=10), "00000000-0000-0000-0000-00000000000a"),
        (timedelta, SECONDS, timedelta(microseconds=-1), timedelta(microseconds=-1)),
        (
            SECONDS,
            timedelta,
            timedelta(days=-9, microseconds=1),
            timedelta(days=-9, microseconds=1),
        ),
    ],
)
def test_a_type_may_take_more_than_before(old: Any, new: Any, before: Any, after: Any) -> None:
    """Nothing is lost on the way."""
    first, later = made(value=old), made(value=new)

    (found,) = read(first, [first(value=before)], later)

    assert (after, type(after)) == (found.value, type(found.value))


def test_the_default_of_a_new_field_is_made_for_each_object() -> None:
    """A list that two objects shared would be one list."""
    first = made(a=int)
    later = made(
        a=int,
        const=attrs.field(type=str, default="x"),
        own=attrs.field(type=list[int], factory=list),
        maybe=attrs.field(type=MAYBE, default=None),
    )

    one, two = read(first, [first(a=1), first(a=2)], later)

    assert (later(a=1, const="x", own=[], maybe=None), later(a=2)) == (one, two)
    assert one.own is not two.own


def test_a_field_that_was_renamed_twice_is_found_under_each_name() -> None:
    """Groups that were stored long ago have the first one; its own name comes before all."""
    later = made(c=Annotated[int, RenamedFrom("a", "b")])
    for old in (made(a=int), made(b=int), made(c=int), made(c=int, b=str)):
        values = {field.name: "x" if field.type is str else 7 for field in attrs.fields(old)}
        assert [later(c=7)] == read(old, [old(**values)], later)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (int, str, "`Made.value` is str in the class, int in the checkpoint"),
        (float, int, "`Made.value` is int in the class, float in the checkpoint"),
        (int | None, int, "`Made.value` is int in the class, int | None in the checkpoint"),
        (list[int | None], list[int], "`Made.value[]` is int in the class, int | None in the"),
        (list[int] | None, list[int | None], "is list[int | None] in the class, list[int] | None"),
        (list[int], tuple[int, ...], "is tuple[int, ...] in the class, list[int] in the"),
        (tuple[int, str], tuple[int, str, int], "tuple[int, str, int] in the class, tuple[int, s"),
        (dict[str, int], dict[bytes, int], "`Made.value key` is bytes in the class, str in"),
        (dict[str, int], dict[str, str], "`Made.value[]` is str in the class, int in the"),
        (Plan, str, "`Made.value` is str in the class, an Enum of str in the checkpoint"),
        (str, Plan, "`Made.value` is an Enum of str in the class, str in the checkpoint"),
        (str, UUID, "`Made.value` is uuid in the class, str in the checkpoint"),
        (float, SECONDS, "`Made.value` is seconds in the class, float in the checkpoint"),
        (int, SECONDS, "`Made.value` is seconds in the class, int in the checkpoint"),
        (Decimal, Annotated[Decimal, DecimalType(20, 18)], "decimal[20, 18] in the class"),
        (int, Decimal, "`Made.value` is decimal[38, 18] in the class, int in the checkpoint"),
        (made(a=int), made(a=str), "`Made.value.a` is str in the class, int in the checkpoint"),
        (made(a=int), made(b=int), "`Made.value.b` isn't in the checkpoint, and has no default"),
        (made(a=int), int, "is int in the class, a class (a: int) in the checkpoint"),
    ],
)
def test_what_no_rule_covers_is_named(old: Any, new: Any, text: str) -> None:
    """The path of the field, what it is now, and what it was."""
    (found,) = problems_of(made(value=old), made(value=new))

    assert text in found


def test_every_difference_is_named() -> None:
    """A new field needs a default that stands alone and fits; one inside of another, too."""
    by_self = attrs.Factory(lambda self: self.a, takes_self=True)
    later = made(
        a=str,
        b=int,
        c=attrs.field(type=int, default=by_self),
        d=attrs.field(type=int, default="1"),
        e=list[made(x=int, y=int)],  # type: ignore[misc]
    )
    expected = [
        "`Made.a` is str in the class, int in the checkpoint",
        "`Made.b` isn't in the checkpoint, and has no default",
        "`Made.c` isn't in the checkpoint, and has no default",
        "`Made.d` isn't in the checkpoint; its default: `Made.d` must be an int, found str",
        "`Made.e[].y` isn't in the checkpoint, and has no default",
    ]

    assert expected == problems_of(made(a=int, e=list[made(x=int)]), later)  # type: ignore[misc]


def test_a_stored_text_that_a_literal_no_longer_has_is_refused() -> None:
    """It's named, as is a member that an Enum no longer has."""
    first = made(value=Literal["a", "b"])
    with pytest.raises(StateValueError, match="the value 'b' isn't 'a'"):
        read(first, [first(value="b")], made(value=Literal["a"]))


def test_a_span_that_no_float_of_seconds_is_equal_to_is_refused() -> None:
    """It would be another span from then on."""
    first = made(value=timedelta)
    with pytest.raises(StateError, match="`value` doesn't fit its new type"):
        read(first, [first(value=timedelta(days=200_000))], made(value=SECONDS))


def test_an_int_that_no_float_is_equal_to_is_refused() -> None:
    """It would be another number from then on."""
    first = made(value=int)
    with pytest.raises(StateError, match="`value` doesn't fit its new type") as refused:
        read(first, [first(value=2**53 + 1)], made(value=float))

    assert str(refused.value).endswith("convert stored values with `upgrade=`")


@pytest.mark.parametrize(
    "fields",
    [
        {"a": int, "b": Annotated[int, RenamedFrom("a")]},
        {"b": Annotated[int, RenamedFrom("b")]},
        {"b": Annotated[int, RenamedFrom("a")], "c": Annotated[int, RenamedFrom("x", "a")]},
    ],
)
def test_a_former_name_belongs_to_one_field(fields: dict[str, Any]) -> None:
    """Whose values they are would be a guess."""
    with pytest.raises(SpecError, match="is, or was, another field too"):
        fields_of(made(**fields))


@given(part=FIELDS, other=FIELDS)
def test_types_with_one_form_are_one_type(part: Any, other: Any) -> None:
    """A form says all of a type that a stored value depends on, and its text says as much."""
    one, two = (fields_of(made(value=kind.annotation)).fields for kind in (part, other))
    forms = [forms_of(fields)["value"] for fields in (one, two)]

    assert (forms[0] == forms[1]) == (form_text(forms[0]) == form_text(forms[1]))
    if forms[0] == forms[1]:
        assert one[0].type.arrow == two[0].type.arrow
