"""Attributes of an object beside its fields: nothing stores them, so they're refused."""

import functools
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
import pytest

from sessionkit import (
    Functions,
    KeyState,
    KeyTimes,
    Memory,
    NoTimeout,
    SessionSpec,
    StatefulSpec,
    UserFunctionError,
)
from sessionkit.errors import DriverError, StateValueError
from sessionkit.state._codec import codec_of
from sessionkit.testing import SessionDriver, StatefulDriver, at
from sessionkit.testing.strategies import check_spec

T = TypeVar("T")
RULES: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "gap": "30m",
    "watermark_delay": "0s",
}


@dataclass
class Page:
    url: str = "/"


@dataclass
class Data:
    pages: int = 0
    last: Page | None = None
    all: list[Page] = field(default_factory=list)
    by_name: dict[str, Page] = field(default_factory=dict)
    pair: tuple[int, Page] | None = None


@attrs.define(slots=False)
class InDict:
    pages: int = 0


@dataclass
class Slotted:
    __slots__ = ("pages", "seen")
    pages: int


@attrs.define
class Base:
    pages: int = 0


class OnlyMethods(Base):
    """A class without slots below one with slots: its objects have a dict."""


class Mixin:
    """As in most programs, without `__slots__`."""


@attrs.define
class WithMixin(Mixin):
    pages: int = 0


@attrs.define
class Unset:
    pages: int
    title: str = ""


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [Data(), InDict(), Slotted(0), OnlyMethods(), WithMixin()],
    ids=lambda m: type(m).__name__,
)
def test_an_attribute_that_is_no_field_is_refused_with_its_name(made: Any) -> None:
    """However the class is made: it would be gone after the micro-batch."""
    name = type(made).__name__
    codec = codec_of(type(made))
    assert codec.misfit(made) is None

    made.seen = 1
    expected = f"`{name}.seen` isn't a field of {name}, and would be lost"
    expected += f"\n\nHint: declare `seen: ...` in {name}, with its type"
    assert expected == str(codec.misfit(made))


def test_a_misspelt_field_is_refused_with_the_field_that_is_meant() -> None:
    """`state.pagse = 1` sets another attribute."""
    made: Any = Data()
    made.pagse = 1
    assert "\n\nHint: write `pages`, if it's meant" in str(codec_of(Data).misfit(made))


def page(**attributes: Any) -> Page:
    made = Page("/a")
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (Data(last=page(seen=1)), "Data.last.seen"),
        (Data(all=[page(), page(seen=1)]), "Data.all[1].seen"),
        (Data(by_name={"a": page(seen=1)}), "Data.by_name['a'].seen"),
        (Data(pair=(1, page(seen=1))), "Data.pair[1].seen"),
    ],
)
def test_the_path_leads_to_the_attribute(made: Any, path: str) -> None:
    """In an object inside the object, and in the elements of its collections."""
    assert f"`{path}` isn't a field of Page" in str(codec_of(Data).misfit(made))


def test_a_method_that_an_attribute_hides_is_refused() -> None:
    """The next micro-batch would have the method again."""
    made: Any = OnlyMethods()
    made.__class__ = type("Calling", (OnlyMethods,), {"ask": lambda self: 1, "__module__": "users"})
    made.ask = 5
    text = str(codec_of(type(made)).misfit(made))
    assert "`Calling.ask` isn't what the fields of Calling make of it" in text


@pytest.mark.parametrize("made", [Unset(1), InDict(1)], ids=lambda made: type(made).__name__)
def test_a_field_that_was_deleted_is_named(made: Any) -> None:
    """Not with an AttributeError of Python's."""
    name, cls = "pages", type(made)
    delattr(made, name)
    assert f"`{cls.__name__}.pages` must be an int, found Unset" in str(codec_of(cls).misfit(made))


@pytest.mark.parametrize("made", [defaultdict(int), Counter("a")])
def test_a_dict_that_makes_missing_values_is_refused(made: Any) -> None:
    """The next micro-batch would have a plain one, whose `update` and `[]` do something else."""
    cls = attrs.make_class("Visit", {"counts": attrs.field(type=dict[str, int])})
    assert "convert it with dict(...)" in str(codec_of(cls).misfit(cls(made)))
    assert codec_of(cls).misfit(cls(OrderedDict(a=1))) is None


# -- what follows from the fields ---------------------------------------------------------------


@dataclass
class Cached:
    pages: int = 0

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.pages

    @functools.cached_property
    def array(self) -> Any:
        return np.array([self.pages, 1.0, np.nan])

    @functools.cached_property
    def helper(self) -> object:
        return object()

    @functools.cached_property
    def fails(self) -> float:
        return 1 / self.pages


@attrs.define
class CachedInSlots:
    pages: int = 0

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.pages


class BelowSlots(CachedInSlots):
    """Its objects have a dict, too."""


@attrs.define(slots=False)
class Derived:
    pages: int = 0

    def __attrs_post_init__(self) -> None:
        self.twice = 2 * self.pages


@pytest.mark.parametrize(
    "cls", [Cached, CachedInSlots, BelowSlots, Derived], ids=lambda cls: cls.__name__
)
def test_what_follows_from_the_fields_is_no_value_of_its_own(cls: type[Any]) -> None:
    """A cached property passes; but not one that an update has left behind its fields."""
    made = cls(3)
    assert codec_of(cls).misfit(made) is None
    assert 6 == made.twice
    assert codec_of(cls).misfit(made) is None

    made.pages = 4
    text = str(codec_of(cls).misfit(made))
    assert f"`{cls.__name__}.twice` isn't what the fields of {cls.__name__} make of it" in text
    assert "make it a property" in text


def test_values_that_cannot_be_compared_pass() -> None:
    """Two plain objects are never equal; arrays are compared as they look."""
    made = Cached(3)
    assert made.helper is not None
    assert made.array is not None
    assert codec_of(Cached).misfit(made) is None

    made = Cached(3)
    assert made.fails
    made.pages = 0
    assert "`Cached.fails` isn't a field" in str(codec_of(Cached).misfit(made))


@dataclass
class Of(Generic[T]):
    pages: int = 0


@attrs.define(slots=False, unsafe_hash=True, cache_hash=True)
class Hashed:
    pages: int = 0


@attrs.define(slots=False)
class BelowWithDict(Base):
    """One field is in a slot, and one in a dict."""

    title: str = ""


class Reading:
    """A descriptor that gives another value than it holds."""

    def __get__(self, made: Any, _: Any = None) -> Any:
        return "" if made is None else vars(made)["title"].upper()

    def __set__(self, made: Any, value: str) -> None:
        vars(made)["title"] = value


@dataclass
class Described:
    title: str = Reading()  # type: ignore[assignment]


class Asked(Data):
    """It gives another value than it holds, too."""

    def __getattribute__(self, name: str) -> Any:
        return 7 if name == "pages" else super().__getattribute__(name)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (BelowWithDict(3, "a"), [3, "a"]),
        (OnlyMethods(3), [3]),
        (Described("a"), ["A"]),
        (Asked(3), [7, None, [], [], None]),
    ],
)
def test_fields_in_slots_and_in_dicts_are_read(made: Any, expected: list[Any]) -> None:
    """In a slot, in a dict, or where a class gives something else than it holds."""
    encoded = codec_of(type(made)).encode([made])
    assert expected == [column.to_pylist()[0] for column in encoded]


def test_one_object_of_many_with_such_an_attribute_is_found() -> None:
    """Though another one lacks a field that the class has a default for."""
    codec, made = codec_of(Data), [Data() for _ in range(5)]
    del made[1].pages
    assert 5 == len(codec.encode(made)[0])
    vars(made[3])["seen"] = 1
    with pytest.raises(StateValueError, match="`Data.seen` isn't a field"):
        codec.encode(made)


def test_what_python_and_attrs_keep_in_an_object_passes() -> None:
    """The class of a generic one, and its hash."""
    assert codec_of(Of).misfit(Of[int](3)) is None
    made = Hashed(3)
    assert hash(made)
    assert codec_of(Hashed).misfit(made) is None


# -- in a query ---------------------------------------------------------------------------------


@dataclass
class View:
    number: int = 0


@dataclass
class Visit:
    """It counts in an attribute that isn't a field, from the fourth page on."""

    numbers: list[int] = field(default_factory=list)

    def update(self, event: View) -> None:
        self.numbers.append(event.number)
        if event.number == 3:
            self.seen = getattr(self, "seen", 0) + 1

    def merge(self, other: "Visit") -> None:
        self.numbers += other.numbers


def fed(spec: Any, *numbers: int) -> Any:
    driver = SessionDriver(spec)
    for number in numbers:
        driver.add("ann", at("10:00") + timedelta(minutes=number), View(number))
    return driver


def test_a_session_with_such_a_state_stops_the_query() -> None:
    """The text names the key, the class and the attribute."""
    with pytest.raises(StateValueError, match="Key.user='ann'. does not fit: `Visit.seen` isn't"):
        fed(SessionSpec.of(Visit, **RULES), 1, 2, 3).run_batch()


def test_the_event_after_which_a_state_does_not_fit_is_rejected() -> None:
    """As any other that leaves a state that doesn't fit; the function is named."""
    driver = fed(SessionSpec.of(Visit, **RULES, on_error="reject"), 1, 2, 3, 4)
    driver.run_batch()
    (failed,) = driver.take_rejections("failed")
    assert {"number": 3} == failed.event
    assert "`update` (" in failed.reason
    assert "left a state that does not fit: `Visit.seen` isn't a field of Visit" in failed.reason

    driver.advance_watermark_to(at("12:00"))
    driver.run_until_idle()
    assert [Visit([1, 2, 4])] == driver.take_results()


def test_check_spec_finds_an_attribute_that_is_no_field() -> None:
    """It fails for the first event that sets the attribute."""

    @dataclass
    class Always:
        pages: int = 0

        def update(self, event: View) -> None:
            self.pages += 1
            self.seen = 1

        def merge(self, other: "Always") -> None:
            self.pages += other.pages

    with pytest.raises(AssertionError, match="`Always.seen` isn't a field"):
        check_spec(SessionSpec.of(Always, **RULES), max_examples=5)


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_a_state_of_a_key_is_refused_where_it_is_set(on_error: Any) -> None:
    """And where it is changed after that."""

    def process(key: Any, events: list[View], state: KeyState[Page], times: KeyTimes) -> None:
        value: Any = state.get(Page())
        if events[0].number == 1:
            value.seen = 1
        state.set(value)
        if events[0].number == 2:
            value.seen = 1

    spec: Any = StatefulSpec(
        keys={"user": str}, process=process, result=Page, timeout=NoTimeout(), on_error=on_error
    )
    for number in (1, 2):
        driver: Any = StatefulDriver(spec)
        driver.add("ann", View(number))
        if on_error == "raise":
            with pytest.raises((UserFunctionError, StateValueError), match=r"`Page.seen` isn't a"):
                driver.run_batch()
        else:
            driver.run_batch()
            (failed,) = driver.take_rejections("failed")
            assert "`Page.seen` isn't a field of Page" in failed.reason


@pytest.mark.parametrize("role", ["finish", "remember"])
def test_a_row_and_a_memory_are_refused_with_their_function(role: str) -> None:
    """As what doesn't fit is."""

    def finish(session: Any, state: Visit) -> Page:
        return page(seen=1) if role == "finish" else page()

    def remember(session: Any, state: Visit) -> Page:
        return page(seen=1)

    memory = Memory(time_to_live="9 days", remember=remember) if role == "remember" else None
    logic: Any = Functions(update=Visit.update, merge=Visit.merge, state=Visit, finish=finish)
    driver = fed(SessionSpec(logic=logic, **RULES, memory=memory), 1)
    driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    with pytest.raises(UserFunctionError, match=rf"`{role}` .*does not fit: `Page.seen` isn't"):
        driver.run_until_idle()


def test_an_event_of_a_driver_is_refused_with_such_an_attribute() -> None:
    """No column would take its value."""
    driver: Any = SessionDriver(SessionSpec.of(Visit, **RULES))
    event: Any = View(1)
    event.price = 5.0
    with pytest.raises(DriverError, match="`View.price` isn't a field of View"):
        driver.add("ann", at("10:00"), event)
