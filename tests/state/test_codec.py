"""The codec: attrs objects become Arrow columns and come back, and what does not fit is refused."""

import enum
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import inf, isnan, nan
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit.errors import StateValueError
from sessionkit.state._codec import codec_of, decode_column, encode_column
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import DecimalType
from tests.support.refusals import says
from tests.support.strategies import Colour, Level, Plan, classes_with_objects, instants

NEW_YORK = ZoneInfo("America/New_York")
Place = namedtuple("Place", ["row", "seat"])  # noqa: PYI024 - an untyped one, as users have them


class OldColour(str, enum.Enum):  # noqa: UP042 - what code before Python 3.11 has
    """Members that are texts, but print as the name of the member."""

    RED = "red"


@attrs.define
class Item:
    price: float


@attrs.define
class SpecialItem(Item):
    """A kind of item with a field more."""

    discount: float = 0.0


@attrs.define
class Visit:
    items: list[Item]
    pages: int = 0
    limits: dict[str, tuple[int, str]] = attrs.Factory(dict)
    last: Item | None = None


SCALARS: Any = [int, float, bool, str, bytes, date, datetime, timedelta, time, Decimal, Plan]
COLLECTIONS: Any = [list[int], tuple[int, ...], tuple[int, str], dict[str, int], Item]


def stored(annotation: Any, value: object) -> Any:
    kind = field_type(annotation, "Visit.field")
    (back,) = decode_column(kind, encode_column(kind, [value], "Visit.field"))
    return back


def refusal(encode: Callable[[], object]) -> str:
    """Return the text with which a value is refused."""
    with pytest.raises(StateValueError) as refused:
        encode()
    return str(refused.value)


@given(made=classes_with_objects(), cut=st.integers(0, 5))
def test_objects_come_back_as_they_were(made: tuple[type[Any], list[Any]], cut: int) -> None:
    """With the same values, types and order, from columns of the schema, whole or in pieces."""
    cls, objects = made
    codec = codec_of(cls)
    whole = pa.table(codec.encode(objects), schema=codec.schema)
    # The text shows what `==` does not: NaN, the types of numbers, the order of a dict.
    assert repr(objects) == repr(codec.decode(codec.encode(objects)))
    pieces = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    assert repr(objects) == repr(codec.decode(pieces.columns))


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, np.int64(3), 3),
        (int, np.uint8(3), 3),
        (int, Level.HIGH, 2),
        (float, np.float32(0.5), 0.5),
        (float, np.float64(0.1), 0.1),
        (float, 2**53, 9007199254740992.0),
        (float, np.int64(-3), -3.0),
        (float, inf, inf),
        (bool, np.bool_(True), True),  # noqa: FBT003 - the value under test
        (str, np.str_("a"), "a"),
        (str, Colour.RED, "red"),
        (str, OldColour.RED, "red"),
        (bytes, bytearray(b"a"), b"a"),
        (bytes, memoryview(b"a"), b"a"),
        (
            datetime,
            pd.Timestamp("2024-01-01T00:00:00.000001Z"),
            datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
        ),
        (timedelta, pd.Timedelta(microseconds=1), timedelta(microseconds=1)),
        (Decimal, 7, Decimal(7)),
        (Decimal, Decimal("1E+19"), Decimal(10**19)),
        (tuple[int, int], Place(1, 2), (1, 2)),
        (tuple[int, ...], Place(1, 2), (1, 2)),
        (dict[str, int], OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    ],
)
def test_what_stands_for_a_type_without_loss_becomes_that_type(
    annotation: Any, value: object, expected: object
) -> None:
    """Scalars of NumPy and pandas and subclasses are accepted, and come back as plain values."""
    back = stored(annotation, value)
    assert expected == back
    assert type(expected) is type(back)


@pytest.mark.parametrize(
    ("annotation", "value", "wanted", "found"),
    [
        (int, True, "an int", "bool"),
        (int, np.bool_(True), "an int", np.bool_.__name__),  # noqa: FBT003
        (int, 1.0, "an int", "float"),
        (int, "1", "an int", "str"),
        (int, None, "an int", "NoneType"),
        (int, nan, "an int", "float"),
        (int, pd.NA, "an int", "NAType"),
        (int, 2**63, "an int", "a larger one"),
        (int, -(2**63) - 1, "an int", "a smaller one"),
        (int, np.uint64(2**63), "an int", "a larger one"),
        (float, True, "a float", "bool"),
        (float, None, "a float", "NoneType"),
        (float, Decimal(1), "a float", "Decimal"),
        (float, 2**53 + 1, "a float that holds it exactly", "int"),
        (bool, 1, "a bool", "int"),
        (bool, None, "a bool", "NoneType"),
        (str, b"a", "a str", "bytes"),
        (str, None, "a str", "NoneType"),
        (str, nan, "a str", "float"),
        (str, "\ud800", "a str that UTF-8 can encode", "str"),
        (bytes, "a", "bytes", "str"),
        (bytes, 3, "bytes", "int"),
        (datetime, datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None), "time zone", "datetime"),
        (datetime, pd.NaT, "a datetime", "NaTType"),
        (datetime, date(2024, 1, 1), "a datetime", "date"),
        (datetime, np.datetime64("2024-01-01"), "a datetime", "datetime64"),
        (datetime, pd.Timestamp("2024-01-01T00:00:00.000000001Z"), "microseconds", "Timestamp"),
        (datetime, datetime.max.replace(tzinfo=NEW_YORK), "within the years", "datetime"),
        (date, datetime(2024, 1, 1, tzinfo=UTC), "a date", "datetime"),
        (date, pd.NaT, "a date", "NaTType"),
        (timedelta, pd.NaT, "a timedelta", "NaTType"),
        (timedelta, 3, "a timedelta", "int"),
        (timedelta, timedelta.max, "64 bits of microseconds", "timedelta"),
        (timedelta, pd.Timedelta(1, "ns"), "whole microseconds", "Timedelta"),
        (time, 3, "a time", "int"),
        (time, time(9, tzinfo=UTC), "without a time zone", "time"),
        (Plan, "free", "a member of Plan", "str"),
        (Plan, Colour.RED, "a member of Plan", "Colour"),
        (list[int], (1,), "a list", "tuple"),
        (list[str], None, "a list", "NoneType"),
        (list[str], "ab", "a list", "str"),
        (tuple[int, ...], [1], "a tuple", "list"),
        (tuple[int, int], (1,), "a tuple of 2", "tuple"),
        (tuple[int, int], (1, 2, 3), "a tuple of 2", "tuple"),
        (dict[str, int], [("a", 1)], "a dict", "list"),
        (Item, SpecialItem(1.0), "a Item", "SpecialItem"),
        (Item, {"price": 1.0}, "a Item", "dict"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_hint(
    annotation: Any, value: object, wanted: str, found: str
) -> None:
    """A value of another type or size is refused, never rounded, cut or made null."""
    text = refusal(lambda: stored(annotation, value))
    assert says(text, "`Visit.field` must be ", wanted, f", found {found}\n\nHint: ")


@pytest.mark.parametrize(
    "value",
    ["1.5", Decimal("1.005"), Decimal(1000), Decimal("NaN"), Decimal("Infinity"), 1.5, True],
)
def test_decimals_fit_their_digits_or_are_refused(value: object) -> None:
    """A decimal with too many digits on either side of the point is refused, not rounded."""
    narrow = Annotated[Decimal, DecimalType(5, 2)]
    wanted = "`Visit.field` must be a Decimal of 5 digits, 2 of them after the point, found "
    assert wanted in refusal(lambda: stored(narrow, value))
    assert [Decimal("-999.99"), Decimal("999.99")] == [
        stored(narrow, Decimal("-999.99")),
        stored(narrow, Decimal("999.99")),
    ]


@pytest.mark.parametrize(
    ("path", "break_it"),
    [
        ("Visit.pages", lambda visit: setattr(visit, "pages", "two")),
        ("Visit.items[3].price", lambda visit: setattr(visit.items[3], "price", "dear")),
        ("Visit.items[1]", lambda visit: visit.items.__setitem__(1, None)),
        ("Visit.items", lambda visit: setattr(visit, "items", None)),
        ("Visit.limits['a'][0]", lambda visit: visit.limits.update(a=("1", ""))),
        ("Visit.limits['a']", lambda visit: visit.limits.update(a=None)),
        ("Visit.limits key", lambda visit: visit.limits.update({3: (1, "")})),
        ("Visit.last.price", lambda visit: setattr(visit, "last", Item(price="dear"))),  # type: ignore[arg-type]
    ],
)
def test_the_path_leads_to_the_value_that_does_not_fit(
    path: str, break_it: Callable[[Visit], object]
) -> None:
    """An error names the value by its way down from the class, the same in every row."""
    good = Visit(items=[Item(1.0) for _ in range(5)])
    bad = Visit(items=[Item(1.0) for _ in range(5)])
    break_it(bad)
    text = refusal(lambda: codec_of(Visit).encode([good, bad, good]))
    assert f"`{path}` must be " == text[: len(path) + 11]


def test_the_value_itself_is_not_in_the_text() -> None:
    """An error shows where and which type, not the value, which may be personal."""
    assert "secret" not in refusal(lambda: stored(int, "secret"))


@pytest.mark.parametrize("annotation", [*SCALARS, *COLLECTIONS])
def test_an_optional_field_holds_none_and_a_required_one_refuses_it(annotation: Any) -> None:
    """None comes back as None where it is declared, and is refused where it is not."""
    assert stored(annotation | None, None) is None
    text = refusal(lambda: stored(annotation, None))
    assert says(text, "`Visit.field` must be ", "Hint: declare it as `... | None`")
    assert "`Visit.field[0]` must be " in refusal(lambda: stored(list[annotation], [None]))


@given(
    instant=instants().filter(lambda instant: 1 < instant.year < 9999),
    zone=st.sampled_from([NEW_YORK, ZoneInfo("Asia/Kathmandu"), timezone(timedelta(hours=-23))]),
)
def test_an_instant_of_any_zone_comes_back_in_utc(instant: datetime, zone: Any) -> None:
    """The instant is kept to the microsecond, the zone is not."""
    assert repr(instant) == repr(stored(datetime, instant.astimezone(zone)))


def test_both_passes_through_a_repeated_hour_are_kept_apart() -> None:
    """The hour that a clock goes through twice in autumn is two hours."""
    first = datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK)
    assert [datetime(2024, 11, 3, 5, 30, tzinfo=UTC), datetime(2024, 11, 3, 6, 30, tzinfo=UTC)] == [
        stored(datetime, first),
        stored(datetime, first.replace(fold=1)),
    ]


def test_a_converter_of_a_class_is_run_again_by_decoding() -> None:
    """Objects are built by `__init__`, so their converters and validators hold after decoding."""
    cls = attrs.make_class("Made", {"n": attrs.field(type=int, converter=int)})
    codec = codec_of(cls)
    assert [cls(n=3)] == codec.decode(codec.encode([cls(n="3")]))


@pytest.mark.parametrize(
    ("annotation", "wire", "expected"),
    [
        (float, "NaN", nan),
        (bytes, "AP8=", b"\x00\xff"),
        (bytes, bytearray(b"a"), b"a"),
        (datetime, -1, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (date, -1, date(1969, 12, 31)),
        (timedelta, -1, timedelta(microseconds=-1)),
        (time, 34_200_000_001, time(9, 30, 0, 1)),
        (time, 24 * 3600 * 10**6 - 1, time.max),
        (Annotated[Decimal, DecimalType(5, 2)], "1.5", Decimal("1.50")),
        (Plan, "paid", Plan.PAID),
        (int | None, None, None),
        (list[date], [0, 1], [date(1970, 1, 1), date(1970, 1, 2)]),
        (tuple[int, str | None], {"_0": 1}, (1, None)),
        (dict[str, date], [{"key": "a", "value": 0}], {"a": date(1970, 1, 1)}),
        (dict[str, int | None], [{"key": "a"}], {"a": None}),
        (Item, {"price": 1.0}, Item(1.0)),
        (Item | None, None, None),
    ],
)
def test_what_spark_hands_over_is_read(annotation: Any, wire: object, expected: object) -> None:
    """Times as numbers, bytes and decimals as text, and objects that leave out their nulls."""
    assert repr(expected) == repr(field_type(annotation, "field").load(wire))


@given(value=st.text() | st.integers() | st.floats() | st.booleans() | st.none() | st.binary())
def test_a_value_is_kept_or_refused_never_changed(value: object) -> None:
    """Whatever is put into a field of whatever type comes back equal, or is refused."""
    for annotation in SCALARS:
        try:
            back = stored(annotation, value)
        except StateValueError:
            continue
        assert value == back or (isnan(back) and isnan(value))  # type: ignore[arg-type]


@attrs.define
class Shelf:
    """Collections of plain values, and one of objects."""

    flat: list[int]
    same: list[int]
    pairs: dict[str, float | None]
    fixed: tuple[str, ...]
    deep: list[list[int]]


def test_a_copy_shares_nothing_that_can_change() -> None:
    """Nor does it part what was one object; a tuple of plain values may be shared."""
    numbers = [1, 2]
    made = Shelf(numbers, numbers, {"a": 1.0, "b": None}, ("x",), [[1], [2]])
    copied = codec_of(Shelf).copied(made)

    assert made == copied
    assert copied.flat is copied.same
    for name in ("flat", "pairs", "deep"):
        assert getattr(made, name) is not getattr(copied, name)
    assert made.deep[0] is not copied.deep[0]
