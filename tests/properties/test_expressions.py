"""
Random expressions over aggregates, against exact arithmetic in plain Python.

Sessions merge, micro-batches are cut anywhere, each begins from what the one before has stored, and
state is stored in both layouts. Floats are such that no sum of them rounds, so all are compared to
the last bit; but deviations, which round.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sessionkit import EventTimeGap, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support.naive_aggregates import Act, of_session
from tests.support.strategies import acts

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP: Final = timedelta(seconds=10)
STORAGES: Final = [
    Storage(layout="buckets", bucket_count=1),
    Storage(layout="pages", bucket_count=1),
]
WHERE: Final = [None, "is_good", "is_bad"]
"""Some select no event of a session, so that there is no value."""

wheres = st.sampled_from(WHERE)
times = st.integers(0, 12).map(lambda steps: NOON + steps * GAP / 2)
any_act = acts(
    at=st.none() | times | st.sampled_from([datetime(9999, 12, 31, tzinfo=UTC)]),
    day=st.just(NOON.date()),
    spent=st.integers(-3, 3).map(lambda n: timedelta(microseconds=n))
    | st.integers(-(2**58), 2**58).map(lambda n: timedelta(microseconds=n)),
    raw=st.none(),
    gap=st.just(GAP),
)
arrivals = st.lists(st.tuples(st.sampled_from("ab"), times, any_act), min_size=1, max_size=12)

Make = Callable[..., agg.Aggregate]


def _of(make: Make, *fields: str) -> SearchStrategy[agg.Aggregate]:
    return st.builds(make, st.sampled_from(fields), where=wheres)


LEAVES: Final[dict[str, SearchStrategy[Any]]] = {
    "number": st.builds(agg.count, where=wheres)
    | _of(agg.sum, "number", "maybe", "weight", "light", "price", "rebate")
    | _of(agg.max, "number", "maybe", "light", "price", "rebate")
    | _of(agg.min, "number", "weight", "price"),
    "span": st.builds(agg.duration, where=wheres) | _of(agg.sum, "spent") | _of(agg.max, "spent"),
    "instant": _of(agg.max, "at") | _of(agg.first, "at"),
    "text": _of(agg.first, "kind") | _of(agg.max, "kind"),
    "bool": _of(agg.any, "is_good", "is_bad") | _of(agg.max, "is_bad"),
}
CONSTANTS: Final[dict[str, SearchStrategy[Any]]] = {
    "number": st.sampled_from([0, 1, -7, 10**18, 0.5, -0.0, 1e300, math.inf])
    | st.sampled_from([Decimal("0.5"), Decimal("-12.345678"), Decimal(10) ** 30]),
    "span": st.sampled_from([timedelta(0), GAP, timedelta(microseconds=-1)]),
    "instant": st.just(NOON + GAP),
    "text": st.sampled_from(["buy", "c"]),
    "bool": st.booleans(),
}
SIGNS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "eq": lambda left, right: left.eq(right),
    "ne": lambda left, right: left.ne(right),
    "least": agg.least,
    "greatest": agg.greatest,
    "fill_null": lambda left, right: left.fill_null(right),
}
OF_NUMBERS: Final = [(sign, "number", "number") for sign in "+-*/"]
RULES: Final[dict[str, list[tuple[str, str, str]]]] = {
    "number": [*OF_NUMBERS, *OF_NUMBERS, ("/", "span", "span")],
    "span": [
        ("+", "span", "span"),
        ("-", "span", "span"),
        ("*", "span", "number"),
        ("/", "span", "number"),
        ("-", "instant", "instant"),
    ],
    "instant": [("+", "instant", "span"), ("-", "instant", "span")],
    "text": [],
    "bool": [
        ("&", "bool", "bool"),
        ("|", "bool", "bool"),
        *((sign, kind, kind) for sign in ("<", "<=", ">", ">=", "eq", "ne") for kind in LEAVES),
    ],
}
"""The operators that give each type, with the types of their operands."""


@st.composite
def expressions(draw: DrawFn, kind: str, depth: int) -> Any:
    """Make an expression of a type."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(LEAVES[kind])
    signed = kind in {"number", "span"}
    one = draw(st.sampled_from(["binary", "binary", "chosen", "unary" if signed else "binary"]))
    if one == "unary":
        inner = draw(expressions(kind, depth - 1))
        return draw(st.sampled_from([abs(inner), -inner]))
    if one == "chosen" or not RULES[kind]:
        sign, left, right = draw(st.sampled_from(["least", "greatest", "fill_null"])), kind, kind
    else:
        sign, left, right = draw(st.sampled_from(RULES[kind]))
    first = draw(expressions(left, depth - 1))
    is_constant = sign not in "&|" and draw(st.booleans())
    second = draw(CONSTANTS[right] if is_constant else expressions(right, depth - 1))
    made = SIGNS[sign](first, second)
    if kind == "bool" and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([~made, first.is_null()]))
    return made


ANY: Final = [expressions(kind, depth=3) for kind in LEAVES]


def spec_of(
    aggregates: dict[str, agg.Aggregate], gap: timedelta, storage: Storage
) -> SessionSpec[Act, Any, Any]:
    return SessionSpec.aggregate(
        Act,
        aggregates,
        keys={"key": str},
        event_time="ts",
        timeout=EventTimeGap(gap),
        watermark_delay="1 hour",
        storage=storage,
    )


def compared(
    data: st.DataObject,
    aggregates: dict[str, agg.Aggregate],
    arrived: Sequence[tuple[str, datetime, Act]],
) -> list[tuple[list[tuple[Any, Act]], Any]]:
    """Run events in any order and cut, with a restart at each cut; return what sessions have."""
    arrived = data.draw(st.permutations(arrived))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=4)))
    gap = data.draw(st.sampled_from([GAP / 2, GAP]))
    spec = spec_of(aggregates, gap, data.draw(st.sampled_from(STORAGES)))
    driver = SessionDriver(spec)
    for start, stop in pairwise([0, *cuts, len(arrived)]):
        for key, at, act in arrived[start:stop]:
            driver.add(key, at, act)
        driver.run_batch()
        driver = SessionDriver.restore(spec, driver.snapshot())
    return [
        (
            [
                ((at, 0), act)
                for key, at, act in arrived
                if key == one.key.key and one.session_start <= at < one.session_end
            ],
            one.state,
        )
        for one in driver.open_sessions()
    ]


def shown(value: Any) -> Any:
    """Return a value with NaN equal to itself and both zeros equal."""
    return f"{value + 0.0!r}" if isinstance(value, float) else value


@given(data=st.data())
def test_expressions_are_those_of_exact_arithmetic(data: st.DataObject) -> None:
    """Whatever overflows, is divided by zero, isn't there, is NaN or has too many digits."""
    wanted = {f"of_{n}": data.draw(one) for n, one in enumerate(ANY)}

    found = compared(data, wanted, data.draw(arrivals))

    expected = [
        {name: shown(of_session(one, events)) for name, one in wanted.items()}
        for events, _ in found
    ]
    assert expected == [
        {name: shown(value) for name, value in attrs.asdict(row, recurse=False).items()}
        for _, row in found
    ]


NUMBERS: Final = st.sampled_from([0, 10**6, -(10**9)]).flatmap(
    lambda base: st.lists(st.integers(base - 50, base + 50), min_size=1, max_size=12)
)


@given(data=st.data())
def test_deviations_are_those_of_exact_squares(data: st.DataObject) -> None:
    """Within rounding: a mean that is stored is as precise as a float of its size."""
    template = data.draw(any_act)
    arrived = [
        ("a", data.draw(times), attrs.evolve(template, number=number, is_good=number % 3 > 0))
        for number in data.draw(NUMBERS)
    ]
    options: list[dict[str, Any]] = [
        {"where": where, "population": population}
        for where in WHERE[:2]
        for population in (False, True)
    ]
    wanted = {
        f"of_{n}": agg.stddev("number", variance=True, **one) for n, one in enumerate(options)
    }
    wanted |= {f"root_{n}": agg.stddev("number", **one) for n, one in enumerate(options)}

    found = compared(data, wanted, arrived)

    for events, row in found:
        for number, option in enumerate(options):
            values = [act.number for _, act in events if option["where"] is None or act.is_good]
            free = len(values) - (not option["population"])
            variance = getattr(row, f"of_{number}")
            if free < 1:
                assert variance is None
                continue
            mean = Fraction(sum(values), len(values))
            exact = Fraction(sum((value - mean) ** 2 for value in values)) / free
            rounding = Fraction(max(map(abs, values))) / 2**50
            assert abs(Fraction(variance) - exact) <= rounding * 100 + rounding**2
            assert math.isclose(math.sqrt(variance), getattr(row, f"root_{number}"))
