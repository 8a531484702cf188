"""Aggregates at their limits: sums that do not fit, lists that are full, values that tie."""

import math
import struct
from datetime import timedelta
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionkit import EventTimeGap, SessionSpec, SpecError, Storage
from sessionkit import aggregates as agg
from sessionkit.addons.presets import ga4_engaged
from sessionkit.aggregates._events import evaluated
from sessionkit.errors import StateError, StateValueError
from sessionkit.testing import SessionDriver, at, minutes
from tests.support.refusals import refusal, says

LARGEST = 2**63 - 1
MOST = Decimal("99999999999999999999.999999999999999999")


@attrs.frozen
class Act:
    kind: str
    number: int = 0
    price: Decimal = Decimal(0)
    spent: timedelta = timedelta(0)


def spec_of(event: type[Any] = Act, **aggregates: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(
        event, aggregates, keys={"user": str}, event_time="ts", gap="10m", watermark_delay="1 hour"
    )


def driven(spec: SessionSpec[Any, Any, Any], *batches: list[tuple[int, Any]]) -> Any:
    """Return a driver that has run batches of (minutes after ten, event)."""
    driver = SessionDriver(spec)
    for batch in batches:
        for minute, event in batch:
            driver.add("ann", at("10:00") + minutes(minute), event)
        driver.run_batch()
    return driver


def states(driver: Any) -> list[Any]:
    """Return the rows of the open sessions so far, in order."""
    return [session.state for session in driver.open_sessions()]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", LARGEST),
        ("number", -LARGEST - 1),
        ("price", MOST),
        ("price", MOST.copy_negate()),
        ("spent", timedelta(microseconds=LARGEST)),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_sum_that_does_not_fit_stops_the_query(field: str, value: Any, cut: int) -> None:
    """The text names the aggregate and the key, and what is stored stays as it was."""
    events = [(0, Act("see")), (1, Act("see", **{field: value})), (2, Act("see", **{field: value}))]
    driver = driven(spec_of(total=agg.sum(field)), events[:cut])
    before = driver.snapshot()
    for minute, event in events[cut:]:
        driver.add("ann", at("10:00") + minutes(minute), event)

    with pytest.raises(StateValueError) as raised:
        driver.run_batch()

    assert f"`total`, `sum('{field}')`, does not fit" in str(raised.value)
    assert "Key(user='ann')" in str(raised.value)
    assert before.groups == driver.snapshot().groups


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 2**40, -(2**40)])
def test_sums_are_exact_up_to_the_last_number_that_fits(value: int) -> None:
    """What one addition passes and the next takes back was never too large."""
    events = [(0, Act("a", value)), (1, Act("b", value)), (2, Act("c", -value)), (3, Act("d", 0))]

    assert [value] == [
        state.total for state in states(driven(spec_of(total=agg.sum("number")), events))
    ]


def test_what_a_micro_batch_leaves_of_a_sum_must_fit() -> None:
    """An event that would take it back later comes too late; together, they count at once."""
    events = [(0, Act("a", LARGEST)), (1, Act("b", 1)), (2, Act("c", -1))]
    spec = attrs.evolve(spec_of(total=agg.sum("number")), on_error="reject")

    together, apart = driven(spec, events), driven(spec, *([event] for event in events))

    assert [(LARGEST, 0), (LARGEST - 1, 1)] == [
        (state.total, driver.counts.failed)
        for driver in (together, apart)
        for state in states(driver)
    ]


def test_a_sum_that_does_not_fit_fails_the_events_of_its_session() -> None:
    """Under `on_error="reject"` those of the micro-batch fail, and other sessions go on."""
    driver = driven(
        attrs.evolve(spec_of(events=agg.count(), total=agg.sum("number")), on_error="reject"),
        [(0, Act("a", LARGEST)), (16, Act("b", 1))],
        [(8, Act("bridge", 5)), (40, Act("c", 2))],
    )

    assert [(1, LARGEST), (1, 1), (1, 2)] == [attrs.astuple(state) for state in states(driver)]
    assert ["`total`, `sum('number')`, would not fit its type"] == [
        rejection.reason for rejection in driver.take_rejections("failed")
    ]
    assert (3, 1) == (driver.counts.processed, driver.counts.failed)
    assert driver.counts.is_balanced


# Those of a constant, of `inf - inf` on Intel, and one with a payload.
BITS = (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001)
NANS = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in BITS]


@attrs.frozen
class Load:
    weight: float
    light: float | None = None


def bits_of(row: Any) -> dict[str, Any]:
    """Return a row with each float as its bits."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(item) for item in value]
        return struct.pack(">d", value).hex() if isinstance(value, float) else value

    return {name: one(value) for name, value in attrs.asdict(row, recurse=False).items()}


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("field", ["weight", "light"])
def test_nan_and_zero_each_count_as_one_value_whatever_their_bits(field: str, cut: int) -> None:
    """Whatever their bits are, and however events are cut, they count, tie and are kept as one."""
    values = [0.0, *NANS, -0.0]
    every = {name: getattr(agg, name)(field) for name in ("min", "max", "first", "last", "collect")}
    every |= {"distinct": agg.count_distinct(field), "top": agg.top(field, 9)}
    every |= {"path": agg.path(field), "steps": agg.steps(field, -0.0, NANS[1])}
    every |= {"median": agg.percentile(field, 0.5), "most": agg.percentile(field, 1)}
    events = [(0, Load(one, one)) for one in values] + [(1, Load(one, one)) for one in values]
    zero, nan = "0" * 16, struct.pack(">d", math.nan).hex()
    batches = [events[cut], events[-1]], events[:cut], events[cut + 1 : -1]

    (state,) = states(driven(spec_of(Load, **every), *batches))

    assert {
        "min": zero,
        "max": nan,
        "first": zero,
        "last": nan,
        "collect": 2 * [zero, zero, nan, nan, nan],
        "distinct": 2,
        "top": [nan, zero],
        "path": [zero, nan, zero, nan],
        "steps": 2,
        "median": nan,
        "most": nan,
    } == bits_of(state)


def test_nan_after_nan_counts_as_no_step() -> None:
    """Two values are asked for, and NaN is one, as zero is."""
    for pair in ((math.nan, -math.nan), (0.0, -0.0)):
        assert says(refusal(agg.steps, "weight", *pair), "two different values")


def test_a_session_of_count_and_sum_takes_at_most_64_bytes() -> None:
    """With a key of 8 bytes, start, end, count and sum take at most 64 bytes of the payload."""
    spec = attrs.evolve(
        spec_of(events=agg.count(), total=agg.sum("number")),
        keys={"user": int},
        storage=Storage(bucket_count=1),
    )
    driver = SessionDriver(spec)
    for user in range(2_000):
        driver.add(user, at("10:00"), Act("a", 1))
    driver.run_batch()

    (group,) = driver.snapshot().groups.values()

    assert len((group.value or ())[-1]) / 2_000 <= 64


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"total": agg.mean("number")}, "aggregate `total` is 'mean(number), None' in the spec"),
        ({"total": agg.sum("spent")}, "`Row.total` is timedelta in the class, int in the"),
        ({"total": agg.sum("number"), "time": agg.sum("spent")}, "`Row.time` isn't in the chec"),
    ],
)
def test_other_aggregates_refuse_the_checkpoint(changed: Any, found: str) -> None:
    """The message says what it was and what it is."""
    driver = driven(spec_of(total=agg.sum("number")), [(0, Act("a", 1))])

    with pytest.raises(StateError) as refused:
        SessionDriver.restore(spec_of(**changed), driver.snapshot()).open_sessions()

    assert found in str(refused.value)
    assert "Hint: add a new aggregate with `.from_now()`" in str(refused.value)


ADDED: dict[str, Any] = {
    "events": agg.count(),
    "some": agg.count(where=pc.field("number") > 1),
    "total": agg.sum("number"),
    "paid": agg.sum("price"),
    "time": agg.sum("spent"),
    "mean": agg.mean("number"),
    "least": agg.min("number"),
    "most": agg.max("kind"),
    "first": agg.first("kind"),
    "last": agg.last("kind"),
    "kinds": agg.count_distinct("kind"),
    "list": agg.collect("kind"),
    "median": agg.percentile("spent", 0.5),
    "is_b": agg.any(pc.field("kind") == "b"),
    "are_b": agg.all(pc.field("kind") == "b"),
}
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("events", "some", "total", "kinds"), 0),
    **dict.fromkeys(("mean", "least", "most", "first", "last", "median")),
    "paid": Decimal(0),
    "time": minutes(0),
    "list": [],
    "is_b": False,
    "are_b": True,
}


@pytest.mark.parametrize("name", ADDED)
def test_an_aggregate_may_be_added_from_now_on(name: str) -> None:
    """A session that was open has it of later events, and one that wasn't has it of all."""
    before = [(0, Act("a", 9, Decimal(9), minutes(9))), (2, Act("c", 7, Decimal(7)))]
    after = [(1, Act("b", 2, Decimal(2), minutes(2))), (3, Act("b", 1)), (60, Act("d", 5))]
    driver = driven(spec_of(number=agg.count()), before)
    added = spec_of(number=agg.count(), **{name: ADDED[name].from_now()})

    driver = SessionDriver.restore(added, driver.snapshot())
    assert [(2, NOTHING[name])] == [attrs.astuple(state) for state in states(driver)]
    for minute, event in after:
        driver.add("ann", at("10:00") + minutes(minute), event)
    driver.run_batch()

    fresh = driven(spec_of(number=agg.count(), **{name: ADDED[name]}), after)
    first, second = (attrs.astuple(state)[1] for state in states(fresh))
    assert [(4, first), (1, second)] == [attrs.astuple(state) for state in states(driver)]


def test_an_aggregate_that_was_added_later_may_not_claim_the_whole_session() -> None:
    """One of a whole session can't begin later, nor can one that is stored already."""
    for whole in (agg.duration(), ga4_engaged(page_view="number")):
        with pytest.raises(SpecError, match="is of a whole session, so it can't begin with later"):
            whole.from_now()
    driver = driven(spec_of(total=agg.sum("number")), [(0, Act("a", 1))])

    for now in (spec_of(total=agg.sum("number").from_now()), spec_of(total=agg.max("number"))):
        with pytest.raises(StateError, match="(?s)aggregate `total` is .* under another name"):
            states(SessionDriver.restore(now, driver.snapshot()))


def test_aggregates_may_be_dropped_put_in_another_order_and_counts_added() -> None:
    """An open session has its values for those that stay; it knows the number of its events."""
    both = spec_of(total=agg.sum("number"), time=agg.sum("spent"), last=agg.last("kind"))
    driver = driven(both, [(0, Act("a", 1)), (1, Act("b", 2))])

    again = SessionDriver.restore(
        spec_of(last=agg.last("kind"), number=agg.count(), total=agg.sum("number")),
        driver.snapshot(),
    )

    (session,) = again.open_sessions()
    assert ("b", 2, 3) == (session.state.last, session.state.number, session.state.total)


@pytest.mark.parametrize("gap", ["1m", "10m", "1 hour"])
def test_the_last_event_stays_the_last_under_another_gap(gap: str) -> None:
    """The end of a session that is carried over doesn't say when its last event was."""
    spec = spec_of(last=agg.last("kind"), lasted=agg.duration())
    driver = driven(spec, [(6, Act("last")), (1, Act("first"))])
    driver = driver.migrate(attrs.evolve(spec, timeout=EventTimeGap(gap)))

    driver.run_batch()
    driver.add("ann", at("10:05"), Act("between"))
    driver.run_batch()

    assert [("last", minutes(5))] == [attrs.astuple(state) for state in states(driver)]


def test_a_gap_of_each_event_may_be_a_function() -> None:
    """It alone is called for every event."""
    spec = attrs.evolve(
        spec_of(events=agg.count(), last=agg.last("kind")),
        timeout=EventTimeGap(lambda event: event.spent, max_gap="10m"),
    )
    acts = [(0, Act("a", spent=minutes(1))), (1, Act("b", spent=minutes(2))), (9, Act("c"))]

    driver = driven(spec, acts)

    assert [(2, "b")] == [attrs.astuple(state) for state in states(driver)]
    assert ["the gap is not positive"] == [one.reason for one in driver.take_rejections()]


def test_conditions_keep_the_order_of_the_rows() -> None:
    """However the rows are chunked, each condition is that of its own row."""
    table = pa.table({"number": pa.array(range(3_000))})
    chunked = pa.concat_tables([table.slice(start, 7) for start in range(0, 3_000, 7)])

    (is_odd, number) = evaluated(
        chunked, [pc.bit_wise_and(pc.field("number"), 1) == 1, pc.field("number")]
    )

    assert [n % 2 == 1 for n in range(3_000)] == is_odd.to_pylist()
    assert list(range(3_000)) == number.to_pylist()


def test_an_expression_may_be_asked_from_now_on() -> None:
    """Its aggregates then have only the later events of a session that is open."""
    driver = driven(spec_of(events=agg.count()), [(0, Act("a", 3))])
    held = (agg.sum("number") > 3).from_now()

    driver = SessionDriver.restore(spec_of(events=agg.count(), held=held), driver.snapshot())
    driver.add("ann", at("10:01"), Act("b", 3))
    driver.run_batch()

    assert [(2, False)] == [attrs.astuple(state) for state in states(driver)]
