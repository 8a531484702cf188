"""What hypothesis makes for the tests: annotations, attrs classes of them, and values that fit."""

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit.state import DecimalType
from tests.support import naive_aggregates

INTS: Final = st.integers(-(2**63), 2**63 - 1)
# A duration is stored as microseconds in 64 bits: less than a `timedelta` can hold.
LONGEST: Final = timedelta(microseconds=2**63 - 1)


class Plan(Enum):
    FREE = "free"
    PAID = "paid"


class Level(IntEnum):
    LOW = -1
    HIGH = 2


class Colour(StrEnum):
    """An enumeration whose members are texts themselves."""

    RED = "red"
    BLUE = ""


class Rights(IntFlag):
    READ = 1
    WRITE = 2
    OWN = 4


Side = Literal["left", "right"]
Step = Literal[1, 2, 3]
Email = NewType("Email", str)
Seconds = Annotated[timedelta, "seconds"]
LONGEST_IN_SECONDS: Final = timedelta(seconds=2**33)


@attrs.frozen
class Typed:
    """An annotation of a field, and the values that it takes."""

    annotation: Any
    values: SearchStrategy[Any]


def decimals(precision: int, scale: int) -> SearchStrategy[Decimal]:
    """Make decimals that fit, with exactly this many digits after the point."""
    largest = 10**precision - 1

    def scaled(number: int) -> Decimal:
        # From the parts: arithmetic would round to the digits of the current context.
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -scale))

    return st.integers(-largest, largest).map(scaled)


def instants() -> SearchStrategy[datetime]:
    """Make instants in UTC, without the `fold` that says nothing there."""
    return st.datetimes(timezones=st.just(UTC)).map(lambda instant: instant.replace(fold=0))


KEYS: Final = (
    Typed(int, INTS),
    Typed(bool, st.booleans()),
    Typed(str, st.text(max_size=8)),
    Typed(bytes, st.binary(max_size=8)),
    Typed(datetime, instants()),
    Typed(date, st.dates()),
    Typed(timedelta, st.timedeltas(-LONGEST, LONGEST)),
    Typed(time, st.times().map(lambda at: at.replace(fold=0))),
    Typed(Decimal, decimals(38, 18)),
    Typed(Annotated[Decimal, DecimalType(5, 2)], decimals(5, 2)),
    Typed(Plan, st.sampled_from(Plan)),
    Typed(Level, st.sampled_from(Level)),
    Typed(Colour, st.sampled_from(Colour)),
    Typed(Rights, st.integers(0, 7).map(Rights)),
    Typed(UUID, st.uuids()),
    Typed(Side, st.sampled_from(["left", "right"])),
    Typed(Step, st.integers(1, 3)),
    Typed(Email, st.text(max_size=8)),
)
SCALARS: Final = (
    *KEYS,
    Typed(float, st.floats()),
    Typed(Seconds, st.timedeltas(-LONGEST_IN_SECONDS, LONGEST_IN_SECONDS)),
)


def annotated(*, max_leaves: int = 5) -> SearchStrategy[Typed]:
    """Make annotations of every kind, nested, with their values."""
    return st.recursive(st.sampled_from(SCALARS), with_parts, max_leaves=max_leaves)


@st.composite
def attrs_classes(draw: DrawFn, fields: SearchStrategy[Typed] | None = None) -> Typed:
    """Make an attrs class of one to four fields, and its objects."""
    parts = draw(st.lists(annotated() if fields is None else fields, min_size=1, max_size=4))
    names = [f"{draw(st.sampled_from(['', '_']))}field{n}" for n in range(len(parts))]
    cls = attrs.make_class(
        "Made",
        {name: attrs.field(type=part.annotation) for name, part in zip(names, parts, strict=True)},
        frozen=draw(st.booleans()),
        kw_only=draw(st.booleans()),
        slots=draw(st.booleans()),
    )
    values = {name.lstrip("_"): part.values for name, part in zip(names, parts, strict=True)}
    return Typed(cls, st.builds(cls, **values))


@st.composite
def classes_with_objects(draw: DrawFn) -> tuple[type[Any], list[Any]]:
    """Make an attrs class together with a few of its objects."""
    made = draw(attrs_classes())
    return made.annotation, draw(st.lists(made.values, max_size=5))


def with_parts(parts: SearchStrategy[Typed]) -> SearchStrategy[Typed]:
    """Make annotations that have these as their parts, with their values."""
    return st.one_of(
        parts.map(_optional),
        parts.map(_list),
        parts.map(_tuple_of_any_length),
        st.lists(parts, min_size=1, max_size=3).map(_tuple),
        st.tuples(st.sampled_from(KEYS), parts).map(_dict),
        attrs_classes(parts),
    )


def _optional(part: Typed) -> Typed:
    return Typed(part.annotation | None, st.none() | part.values)


def _list(part: Typed) -> Typed:
    return Typed(list[part.annotation], st.lists(part.values, max_size=3))  # type: ignore[name-defined]


def _tuple_of_any_length(part: Typed) -> Typed:
    values = st.lists(part.values, max_size=3).map(tuple)
    return Typed(tuple[part.annotation, ...], values)  # type: ignore[name-defined]


def _tuple(parts: list[Typed]) -> Typed:
    places: Any = tuple(part.annotation for part in parts)
    return Typed(tuple[places], st.tuples(*(part.values for part in parts)))


def _dict(parts: tuple[Typed, Typed]) -> Typed:
    key, value = parts
    annotation = dict[key.annotation, value.annotation]  # type: ignore[name-defined]
    return Typed(annotation, st.dictionaries(key.values, value.values, max_size=3))


# Numbers in floats are such that no sum rounds. NaN is one value, whatever its bits: on Intel,
# `inf - inf` has the sign that `nan` has not.
FLOATS: Final = st.sampled_from([0.0, -0.0, -0.5, 2.25, 1024.0, math.nan, -math.nan])


def acts(**others: SearchStrategy[Any]) -> SearchStrategy[naive_aggregates.Act]:
    """Make acts of few values, so that many tie; `others` makes the fields that differ by test."""
    return st.builds(
        naive_aggregates.Act,
        kind=st.sampled_from(["buy", "see", ""]),
        number=st.integers(-3, 3) | st.integers(-(2**58), 2**58),
        maybe=st.none() | st.integers(0, 3),
        weight=FLOATS,
        light=st.none() | FLOATS,
        is_good=st.booleans(),
        is_bad=st.none() | st.booleans(),
        price=decimals(9, 2),
        rebate=st.none() | decimals(36, 18),
        colour=st.sampled_from(naive_aggregates.Colour),
        **others,
    )
