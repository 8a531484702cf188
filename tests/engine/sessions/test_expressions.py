"""Operators over aggregates, at the limits of their types and where there is no value."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.state import DecimalType
from sessionkit.testing import SessionDriver, at, minutes

LARGEST = 2**63 - 1
SECOND = timedelta(seconds=1)


class Plan(Enum):
    FREE = "free"
    PAID = "paid"


@attrs.frozen(kw_only=True)
class Act:
    kind: str = ""
    number: int = 0
    maybe: int | None = None
    weight: float = 0.0
    price: Annotated[Decimal, DecimalType(9, 2)] = Decimal(0)
    amount: Decimal = Decimal(0)
    spent: timedelta = timedelta(0)
    at: datetime = datetime(2026, 3, 8, tzinfo=UTC)
    plan: Plan = Plan.FREE
    tags: tuple[int, ...] = ()


def spec_of(**aggregates: agg.Aggregate) -> SessionSpec[Act, Any, Any]:
    return SessionSpec.aggregate(
        Act, aggregates, keys={"user": str}, event_time="ts", gap="10m", watermark_delay="1 hour"
    )


def driven(spec: SessionSpec[Act, Any, Any], *acts: Act) -> Any:
    """Return a driver that has run these events, a minute apart."""
    driver = SessionDriver(spec)
    for number, act in enumerate(acts):
        driver.add("ann", at("10:00") + minutes(number), act)
    driver.run_batch()
    return driver


def value(aggregate: agg.Aggregate, *acts: Act) -> Any:
    (session,) = driven(spec_of(found=aggregate), *acts or [Act()]).open_sessions()
    return session.state.found


NUMBER, MAYBE, WEIGHT = agg.sum("number"), agg.max("maybe"), agg.sum("weight")
COUNT: Any = agg.count()
SPENT, PRICE, AMOUNT = agg.sum("spent"), agg.max("price"), agg.sum("amount")


@pytest.mark.parametrize(
    ("expression", "act", "expected"),
    [
        (agg.max("number") - agg.min("number"), Act(number=3), 0),
        (7 - NUMBER, Act(number=3), 4),
        (-NUMBER, Act(number=3), -3),
        (abs(NUMBER), Act(number=-3), 3),
        (NUMBER / 2, Act(number=3), 1.5),
        (NUMBER * 0.5, Act(number=3), 1.5),
        (SPENT / agg.count(), Act(spent=SECOND), SECOND),
        (SPENT / 3, Act(spent=timedelta(microseconds=5)), timedelta(microseconds=2)),
        (SPENT / 2, Act(spent=timedelta(microseconds=-5)), timedelta(microseconds=-3)),
        (SPENT * 0.5, Act(spent=timedelta(microseconds=3)), timedelta(microseconds=2)),
        (SPENT * Decimal("0.5"), Act(spent=timedelta(microseconds=3)), timedelta(microseconds=2)),
        (SPENT / SECOND, Act(spent=1.5 * SECOND), 1.5),
        (agg.max("at") - SECOND, Act(at=at("10:00")), at("10:00") - SECOND),
        (agg.max("at") - agg.min("at"), Act(), timedelta(0)),
        (PRICE * 3, Act(price=Decimal("1.25")), Decimal("3.75")),
        (PRICE / 3, Act(price=Decimal("1.25")), Decimal("0.416667")),
        (PRICE + WEIGHT, Act(price=Decimal("1.25"), weight=0.5), 1.75),
    ],
)
def test_numbers_and_times_are_worked_out(
    expression: agg.Aggregate, act: Act, expected: Any
) -> None:
    """Integers, times and decimals exactly, rounded half up; the rest as floats."""
    assert expected == value(expression, act)


@pytest.mark.parametrize(
    ("expression", "act"),
    [
        (NUMBER + 1, Act(number=LARGEST)),
        (NUMBER - 1, Act(number=-LARGEST - 1)),
        (NUMBER * NUMBER, Act(number=2**32)),
        (-NUMBER, Act(number=-LARGEST - 1)),
        (abs(NUMBER), Act(number=-LARGEST - 1)),
        (SPENT * 2, Act(spent=timedelta(microseconds=LARGEST))),
        (SPENT * 1e300, Act(spent=SECOND)),
        (SPENT * math.nan, Act(spent=SECOND)),
        (AMOUNT * AMOUNT, Act(amount=Decimal("1e19"))),
        (agg.max("at") + timedelta(days=9), Act(at=datetime(9999, 12, 31, tzinfo=UTC))),
        (NUMBER / NUMBER, Act()),
        (SPENT / NUMBER, Act()),
        (SPENT / SPENT, Act()),
        (SPENT / WEIGHT, Act()),
        (AMOUNT / AMOUNT, Act()),
        (WEIGHT / -0.0, Act(weight=1.0)),
        (MAYBE + 1, Act()),
        (MAYBE > 1, Act()),
        (MAYBE.eq(MAYBE), Act()),
        (agg.least(MAYBE, MAYBE), Act()),
        (MAYBE.fill_null(agg.min("maybe")), Act()),
        ((MAYBE > 1) & (NUMBER < 1), Act()),
        ((MAYBE > 1) | (NUMBER > 1), Act()),
        (~(MAYBE > 1), Act()),
    ],
)
def test_what_has_no_value_is_none(expression: agg.Aggregate, act: Act) -> None:
    """Of a null, of a division by zero, and of a number that doesn't fit; never a wrong one."""
    assert value(expression, act) is None


@pytest.mark.parametrize(
    ("condition", "act", "expected"),
    [
        (NUMBER > 2, Act(number=3), True),
        (NUMBER >= 3.0, Act(number=3), True),
        (NUMBER < Decimal("3.01"), Act(number=3), True),
        (2 < NUMBER, Act(number=2), False),
        (NUMBER.eq(3), Act(number=3), True),
        (NUMBER.ne(3), Act(number=3), False),
        (WEIGHT > math.inf, Act(weight=math.nan), True),
        (WEIGHT.eq(math.nan), Act(weight=math.nan), True),
        (WEIGHT.eq(0.0), Act(weight=-0.0), True),
        (agg.first("kind") >= "b", Act(kind="a"), False),
        (agg.first("plan").eq(Plan.PAID), Act(plan=Plan.PAID), True),
        (PRICE.eq(Decimal("1.5")), Act(price=Decimal("1.50")), True),
        (agg.duration() < SECOND, Act(), True),
        (MAYBE.is_null(), Act(), True),
        ((MAYBE > 1) & (NUMBER > 1), Act(), False),
        ((MAYBE > 1) | (NUMBER < 1), Act(), True),
        (~(NUMBER > 1) & agg.any(pc.field("kind") == "a"), Act(kind="a"), True),
        ((MAYBE > 1).fill_null(value=False), Act(), False),
    ],
)
def test_conditions_are_as_in_sql(condition: agg.Aggregate, act: Act, expected: bool) -> None:
    """NaN is greater than all numbers, and what decides a condition wins over a null."""
    assert value(condition, act) is expected


def test_least_and_greatest_pass_over_none() -> None:
    """They bring numbers to one type, and NaN is the greatest."""
    acts = [Act(number=3, maybe=2, weight=math.nan)]

    assert [2.0, 3.0] == [
        value(pick(NUMBER, MAYBE, 2.5), *acts) for pick in (agg.least, agg.greatest)
    ]
    assert math.isnan(value(agg.greatest(WEIGHT, 1.0), *acts))
    assert "a" == value(agg.least(agg.first("kind"), "b"), Act(kind="a"))
    assert Decimal("2.50") == value(agg.greatest(MAYBE, Decimal("2.50")))
    assert 2 == value(agg.count(at_most=2), Act(), Act(), Act())


def test_results_have_sparks_digits_and_may_be_missing_where_they_may_not_fit() -> None:
    """Whether a field is Optional is known before there are sessions."""
    typed: dict[str, tuple[agg.Aggregate, Any]] = {
        "added": (NUMBER + 1, int | None),
        "half": (NUMBER / 2, float),
        "ratio": (NUMBER / agg.count(), float | None),
        "float": (WEIGHT + 1, float),
        "time": (SPENT * 2, timedelta | None),
        "share": (SPENT / SECOND, float),
        "instant": (agg.max("at") - SECOND, datetime | None),
        "product": (PRICE * 3, Annotated[Decimal, DecimalType(11, 2)] | None),
        "price": (PRICE + PRICE, Annotated[Decimal, DecimalType(10, 2)] | None),
        "each": (AMOUNT / agg.count(), Annotated[Decimal, DecimalType(38, 18)] | None),
        "most": (agg.least(PRICE, Decimal("1.125")), Annotated[Decimal, DecimalType(10, 3)]),
        "is_more": (NUMBER > 1, bool),
        "is_maybe": (MAYBE > 1, bool | None),
        "known": (MAYBE.fill_null(0), int),
        "few": (agg.least(MAYBE, 3), int),
    }

    spec = spec_of(**{name: aggregate for name, (aggregate, _) in typed.items()})

    found = {field.name: field.type for field in attrs.fields(spec.result)}
    assert {name: kind for name, (_, kind) in typed.items()} == found


def test_each_aggregate_of_an_expression_is_stored_once() -> None:
    """The operators may change while a checkpoint lives; the aggregates may not."""
    buys = agg.count(where=pc.field("kind") == "buy")
    driver = driven(spec_of(found=(NUMBER - buys) * (NUMBER + buys)), Act(kind="buy", number=5))

    changed = spec_of(found=(buys > 0) & (NUMBER > 4))
    (session,) = SessionDriver.restore(changed, driver.snapshot()).open_sessions()

    assert session.state.found is True
    for other in (NUMBER > 4, buys > agg.max("number"), agg.mean("number") > buys):
        with pytest.raises(StateError, match="aggregate `found`"):
            SessionDriver.restore(spec_of(found=other), driver.snapshot()).open_sessions()


def test_equality_is_that_of_the_expressions() -> None:
    """So specs are compared as before, and a 1 isn't a 1.0 or a True."""
    one, other, third = ((NUMBER > limit) & (WEIGHT < 2.0) for limit in (1, 1, 1.0))

    assert one == other
    assert hash(one) == hash(other)
    assert one != third
    assert MAYBE.fill_null(1) != MAYBE.fill_null(value=True)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.first("kind") - agg.count(), "`-` takes numbers, or times and timedeltas, "),
        (lambda: agg.first("kind") - agg.count(), "(first('kind') - count())`"),
        (lambda: agg.first("kind") > 1, "`>` takes values of one type, or numbers, found str and"),
        (lambda: agg.first("plan").eq("free"), "found enum and str"),
        (lambda: agg.duration() > 10, "found timedelta and int"),
        (lambda: agg.max("at") + agg.max("at"), "found datetime and datetime"),
        (lambda: agg.collect("number") + 1, "found list and int"),
        (lambda: agg.count_by("kind").is_null(), "`is_null` takes a plain value, found dict"),
        (lambda: ~agg.count(), "`~` takes a bool, found int"),
        (lambda: -agg.first("kind"), "`neg` takes a number or a timedelta, found str"),
        (lambda: agg.count() & agg.any(pc.field("kind") == "a"), "`&` takes bools, found int"),
        (lambda: agg.sum("nmber") + 1, "`found` is `sum('nmber')`, and Act has no field `nmber`"),
        (lambda: COUNT == 1, "`found` must be an aggregate, found False"),
        (lambda: agg.count() + 2**63, "`+` of an aggregate: `9223372036854775808` must be an int"),
        (lambda: agg.count() + Decimal("1e40"), "must be a Decimal of 38 digits"),
        (lambda: COUNT + {1}, "`+` of an aggregate can't take {1}"),
        (lambda: agg.count() > pc.field("number"), "can't take <pyarrow.compute.Expression"),
        (lambda: (COUNT > 1) & (COUNT == 3), "`&` of an aggregate can't take False"),
        (lambda: (COUNT == 3) | (COUNT > 1), "`|` of an aggregate can't take False"),
        (lambda: 1 < agg.count() < 3, "`(count() > 1)` is neither true nor false before"),
        (lambda: ~sum([COUNT] * 99, COUNT), "count()))`: `~` takes a bool, found int"),
        (lambda: agg.least(agg.count()), "`least` takes several values, at least one of them"),
        (lambda: agg.least(1, 2), "at least one of them an aggregate, found (1, 2)"),
    ],
)
def test_what_no_session_has_is_refused(made: Any, found: str) -> None:
    """When it's made, or when the spec is."""
    with pytest.raises(SpecError) as refused:
        spec_of(found=made())

    assert found in str(refused.value)
    assert "\n\nHint: " in str(refused.value)


def test_a_duration_may_be_that_of_chosen_events() -> None:
    """It's None without any, and unlike that of all events it may begin later."""
    views = agg.duration(where=pc.field("kind") == "view")
    acts = [Act(), Act(kind="view"), Act(), Act(kind="view"), Act()]

    assert minutes(2) == value(views, *acts)
    assert value(views, Act()) is None
    assert minutes(4) == value(agg.duration(), *acts)
    driver = driven(spec_of(n=agg.count()), *acts)
    later = spec_of(n=agg.count(), found=views.from_now())
    (session,) = SessionDriver.restore(later, driver.snapshot()).open_sessions()
    assert session.state.found is None


@pytest.mark.parametrize(
    ("numbers", "sample", "population"),
    [([5], None, 0.0), ([2, 4], math.sqrt(2), 1.0), ([1, 2, 3, 4], math.sqrt(5 / 3), 1.25**0.5)],
)
def test_a_deviation_is_that_of_a_sample_unless_asked(
    numbers: list[int], sample: float | None, population: float
) -> None:
    """A single value has none as a sample, and 0 as a population."""
    acts = [Act(number=number) for number in numbers]

    assert (sample, population) == pytest.approx(
        (value(agg.stddev("number"), *acts), value(agg.stddev("number", population=True), *acts))
    )
    squared = value(agg.stddev("number", variance=True), *acts)
    assert squared == (None if sample is None else pytest.approx(sample**2))
    assert value(agg.stddev("maybe", population=True), *acts) is None


def test_a_deviation_beyond_all_floats_is_nan() -> None:
    """As in Spark, one infinite value has no mean."""
    assert math.isnan(value(agg.stddev("weight"), Act(weight=math.inf), Act(weight=1.0)))
    assert math.isnan(value(agg.stddev("weight"), Act(weight=math.nan), Act(weight=1.0)))
