"""What a class declares is one of its fields, wherever a class is read; else it's refused."""

import abc
import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import attr
import attrs
import pytest

from sessionkit import (
    KeyState,
    Memory,
    NoTimeout,
    Session,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.errors import DriverError
from sessionkit.spec.logic import Functions
from sessionkit.state._codec import codec_of
from sessionkit.state._fields import fields_of
from sessionkit.testing import SessionDriver, StatefulDriver, StoredKey
from sessionkit.testing.generators import objects_of
from tests.support.refusals import refusal, says

T = TypeVar("T")
RULES: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "gap": "30m",
    "watermark_delay": "0s",
}


@attrs.define
class View:
    page: str = "/"


@dataclass
class Visit:
    page: str = "/"

    def update(self, event: View) -> None:
        self.page = event.page

    def merge(self, other: "Visit") -> None:
        self.page = other.page


@dataclass(frozen=True)
class Frozen:
    page: str = "/"


# -- classes that declare more than their fields ------------------------------------------------


class Purchase(View):
    price: float = 0.0


class PurchaseOfDataclass(Visit):
    price: float = 0.0


class PurchaseOfFrozen(Frozen):
    price: float = 0.0


class Text(View):
    price: "float" = 0.0


class Private(View):
    _price: float = 0.0


class WithoutValue(View):
    price: float


class Constants(Visit):
    """Only one of these is a constant."""

    CURRENCY: ClassVar[str] = "EUR"
    RATE: Final = 1.2
    price: float = 0.0


@attrs.define
class BelowPurchase(Purchase):
    """The class in between has no decorator."""

    number: int = 0


@dataclass
class BelowDataclass(PurchaseOfDataclass):
    number: int = 0


class OtherType(Visit):
    page: int = 0  # type: ignore[assignment]


class OtherDefault(View):
    page: str = "/home"


class DefaultAlone(Visit):
    page = "/home"


@dataclass
class DefaultOfDataclass(Visit):
    page = "/home"


class Priced:
    price: float = 0.0


@attrs.define
class WithMixin(Priced, View):
    """The field of the mixin is no field."""


class Placeholder(View):
    price = attrs.field(default=0.0)


class DataclassPlaceholder(Visit):
    price = dataclasses.field(default=0.0)


@attrs.define
class HalfAnnotated:
    """Without `auto_attribs`, as one field has no annotation, attrs takes no annotation as one."""

    page = attrs.field(type=str, default="/")
    price: float = 0.0


@attr.s
class Classic:
    page = attr.ib(type=str, default="/")
    price: float = 0.0


@attrs.define
class AttrsOfDataclass(Visit):
    """Attrs doesn't know the field of the dataclass."""

    price: float = 0.0


@dataclass
class DataclassOfAttrs(View):
    """Nor does a dataclass know a field of attrs."""

    price: float = 0.0


@attrs.define
class Box(Generic[T]):
    page: str = "/"


class BoxOfInt(Box[int]):
    price: float = 0.0


@dataclass
class Scaled:
    page: str
    scale: InitVar[int]
    price: float = 0.0


class TakesMore(Visit):
    def __init__(self, page: str = "/", price: float = 0.0) -> None:
        super().__init__(page)
        self.price = price


@dataclass(init=False)
class TakesLess:
    page: str
    price: float

    def __init__(self, page: str = "/") -> None:
        self.page, self.price = page, 0.0


LOSING: dict[type[Any], str] = {
    Purchase: "`Purchase.price` isn't a field",
    PurchaseOfDataclass: "`PurchaseOfDataclass.price` isn't a field",
    PurchaseOfFrozen: "`@dataclass(frozen=True)` above `class PurchaseOfFrozen(Frozen):`",
    Text: "`Text.price` isn't a field",
    Private: "`Private._price` isn't a field",
    WithoutValue: "`WithoutValue.price` isn't a field",
    Constants: "`Constants.price` isn't a field",
    BelowPurchase: "`Purchase.price` isn't a field of BelowPurchase",
    BelowDataclass: "`PurchaseOfDataclass.price` isn't a field of BelowDataclass",
    OtherType: "`OtherType.page` doesn't change the field",
    OtherDefault: "`OtherDefault.page` doesn't change the field",
    DefaultAlone: "`DefaultAlone.page` doesn't change the field",
    DefaultOfDataclass: "write `page: ... = ...`",
    WithMixin: "`Priced.price` isn't a field of WithMixin",
    Placeholder: "`Placeholder.price` isn't a field",
    DataclassPlaceholder: "`DataclassPlaceholder.price` isn't a field",
    HalfAnnotated: "`HalfAnnotated.price` isn't a field",
    Classic: "write `price: ... = attrs.field(default=...)`",
    AttrsOfDataclass: "`Visit.page` isn't a field of AttrsOfDataclass",
    DataclassOfAttrs: "`@attrs.define` above `class DataclassOfAttrs(View):`, in place of",
    BoxOfInt: "`@attrs.define` above `class BoxOfInt(Box):`",
    Scaled: "the argument `scale` of __init__",
    TakesMore: "the argument `price` of __init__",
    TakesLess: "a class whose __init__ doesn't take `price`",
}


# -- the places where a class is read -----------------------------------------------------------


def nothing(*_: Any) -> None:
    """Take anything."""


def functions(**classes: Any) -> SessionSpec[Any, Any, Any]:
    logic: Any = Functions(
        create=lambda key, event: Visit(),
        update=nothing,
        merge=nothing,
        finish=nothing,
        **{"event": View, "state": Visit, "result": Visit, **classes},
    )
    return SessionSpec(logic=logic, **RULES)


def stateful(**classes: Any) -> StatefulSpec[Any, Any, Any]:
    named = {"event": View, "state": Visit, "result": Visit, **classes}
    return StatefulSpec(keys={"user": str}, process=nothing, timeout=NoTimeout(), **named)


def remembering(cls: Any) -> SessionSpec[Any, Any, Any]:
    memory = Memory(time_to_live="9 days", remember=lambda session, state: cls(), remembered=cls)
    return SessionSpec.of(Visit, **RULES, memory=memory)


def upgrading(cls: Any) -> SessionSpec[Any, Any, Any]:
    def from_v1(old: Any) -> Visit:
        return Visit(old.page)

    from_v1.__annotations__["old"] = cls
    return SessionSpec.of(Visit, **RULES, storage=Storage(version=2, upgrade={1: from_v1}))


def nested(annotation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(cls: Any) -> Any:
        return functions(
            state=attrs.make_class("Outer", {"inner": attrs.field(type=annotation(cls))})
        )

    return read


PLACES: dict[str, Callable[[Any], Any]] = {
    "event": lambda cls: functions(event=cls),
    "state": lambda cls: functions(state=cls),
    "result": lambda cls: functions(result=cls),
    "memory": remembering,
    "upgrade": upgrading,
    "event of aggregates": lambda cls: SessionSpec.aggregate(cls, {"n": agg.count()}, **RULES),
    "result of aggregates": lambda cls: SessionSpec.aggregate(
        View, {"page": agg.first("page")}, result=cls, **RULES
    ),
    "event of rows": lambda cls: SessionSpec.per_event(cls, **RULES),
    "event of keys": lambda cls: stateful(event=cls),
    "state of keys": lambda cls: stateful(state=cls),
    "result of keys": lambda cls: stateful(result=cls),
    "nested": nested(lambda cls: cls),
    "optional": nested(lambda cls: cls | None),
    "in a list": nested(lambda cls: list[cls]),  # type: ignore[valid-type]
    "in a tuple": nested(lambda cls: tuple[int, cls]),  # type: ignore[valid-type]
    "in a dict": nested(lambda cls: dict[str, cls]),  # type: ignore[valid-type]
    "generated": objects_of,
}


@pytest.mark.parametrize("place", PLACES)
def test_what_isnt_a_field_is_refused_wherever_a_class_is_read(place: str) -> None:
    """It would be neither read nor stored: the text names it, and how to make a field of it."""
    for cls, found in LOSING.items():
        assert says(refusal(PLACES[place], cls), found)


def test_all_that_is_lost_is_told_at_once() -> None:
    """With the class that has no decorator, and what to write."""

    class Both(View):
        price: float = 0.0
        currency: str = "EUR"

    expected = (
        "`Both.price` and `Both.currency` aren't fields, and would be neither read nor stored: "
        "Both has no decorator of its own"
        "\n\nHint: write `@attrs.define` above `class Both(View):`; a constant is a ClassVar"
    )
    assert expected == refusal(fields_of, Both)


def test_the_named_tuple_of_a_key_declares_its_fields_itself() -> None:
    """A subclass of it has the fields of its base."""

    class User(NamedTuple):
        user: str

    class Customer(User):
        rank: int = 0

    def create(key: Any, event: View) -> Visit:
        return Visit()

    def finish(session: Any, state: Visit) -> Visit:
        return state

    create.__annotations__["key"] = Customer
    finish.__annotations__["session"] = Session[Customer]
    named: dict[str, Any] = {"update": Visit.update, "merge": Visit.merge}
    for by in ({"create": create}, {"finish": finish}):
        text = refusal(lambda by=by: SessionSpec(logic=Functions(**named, **by), **RULES))
        assert says(text, "`Customer.rank` isn't a field", "Hint: ")


# -- classes without such a name ----------------------------------------------------------------


class OnlyMethods(View):
    """Methods, properties, constants and texts."""

    __slots__ = ()
    CURRENCY: ClassVar[str] = "EUR"
    RATE: "ClassVar[float]" = 1.2
    LIMIT: Final = 3
    other = "a constant, too"

    @property
    def is_home(self) -> bool:
        return self.page == self.other

    @cached_property
    def length(self) -> int:
        return len(self.page)

    def update(self, event: View) -> None:
        """Do nothing."""


class HasPage(Protocol):
    page: str


class Needs(abc.ABC):
    """A mixin that says which field it needs, and a constant."""

    page: str
    unit: ClassVar[str] = "EUR"


@attrs.define
class WithNeeds(Needs, HasPage, View):
    """The field is that of View."""

    price: float = 0.0

    @cached_property
    def twice(self) -> float:
        return 2 * self.price


@dataclass
class OfDataclass(Needs, Visit):
    """Names without a field that dataclasses know."""

    CURRENCY: ClassVar[str] = "EUR"
    scale: InitVar[int] = 1
    _: KW_ONLY
    price: float = 0.0


@attr.s(auto_attribs=True)
class Annotated:
    page: str = "/"
    _price: float = 0.0


@attr.s
class WithoutAnnotations:
    page = attr.ib(type=str, default="/")


@attrs.define
class BoxOfPages(Box[int]):
    price: float = 0.0


@dataclass(init=False)
class OtherOrder:
    """It takes its fields in another order."""

    page: str
    title: str

    def __init__(self, title: str = "home", page: str = "/") -> None:
        self.page, self.title = page, title


@dataclass
class Between:
    """The argument between its fields isn't one of them."""

    page: str = "/"
    scale: InitVar[int] = 1
    price: float = 0.0


KEPT: dict[type[Any], list[str]] = {
    OnlyMethods: ["page"],
    WithNeeds: ["page", "price"],
    OfDataclass: ["page", "price"],
    Annotated: ["page", "_price"],
    WithoutAnnotations: ["page"],
    BoxOfPages: ["page", "price"],
    OtherOrder: ["page", "title"],
    Between: ["page", "price"],
}


@pytest.mark.parametrize("place", PLACES)
def test_methods_and_constants_are_no_fields_and_pass(place: str) -> None:
    """So do mixins that name the fields of others, and what dataclasses give a meaning."""
    for cls, fields in KEPT.items():
        # A class of the results of aggregates has exactly their fields.
        if place != "result of aggregates" or fields == ["page"]:
            assert PLACES[place](cls) is not None
            assert fields == [field.name for field in fields_of(cls).fields]


@pytest.mark.parametrize(
    "value",
    [OtherOrder("home", "/a"), Between("/a", price=2.0), OfDataclass("/a", price=2.0)],
    ids=lambda value: type(value).__name__,
)
def test_an_object_is_made_of_its_fields_by_their_names(value: Any) -> None:
    """Where `__init__` takes them in another order, or takes more than them."""
    codec = codec_of(type(value))
    assert [value] == codec.decode(codec.encode([value]))


# -- events of a driver -------------------------------------------------------------------------


def test_an_event_of_a_driver_has_no_more_than_the_spec_reads() -> None:
    """An object of a subclass is one, unless it has a value that no column takes."""
    driver = SessionDriver(SessionSpec.aggregate(View, {"n": agg.count()}, **RULES))
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)

    driver.add("ann", noon, OnlyMethods("/a"))
    for event, found in (
        (Purchase("/a"), "`Purchase.price` isn't a field"),
        (WithNeeds("/a", 5.0), "the event is a WithNeeds"),
        (TakesMoreView("/a", 5.0), "the argument `price` of __init__"),
    ):
        with pytest.raises(DriverError, match=found):
            driver.add("ann", noon, event)
    assert 1 == driver.run_batch().counts.events


class TakesMoreView(View):
    def __init__(self, page: str, price: float = 0.0) -> None:
        super().__init__(page)
        self.price = price


def test_the_state_of_a_driver_is_of_the_class_of_the_spec() -> None:
    """Of a subclass, the driver would store the fields of its base alone."""

    def process(key: Any, events: list[View], state: KeyState[Visit], times: Any) -> None:
        """Do nothing."""

    spec: Any = StatefulSpec(keys={"user": str}, process=process, timeout=NoTimeout(), result=Visit)
    with pytest.raises(DriverError, match="must be a Visit, found OfDataclass"):
        StatefulDriver(spec, state=[StoredKey(key="ann", state=OfDataclass("/a", price=2.0))])


def test_the_rule_raises_a_spec_error() -> None:
    """On the driver, where the spec is made."""
    with pytest.raises(SpecError):
        SessionSpec.of(PurchaseOfDataclass, **RULES)
