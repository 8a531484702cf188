"""What becomes of an event for which two reasons not to count meet, and who is to blame."""

from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import (
    Functions,
    Inputs,
    ProcessingTimeGap,
    SessionRules,
    SessionSpec,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, StatefulDriver, at


@attrs.frozen
class Step:
    """An event: its id, its number, and whether it may open a session or starts one."""

    gid: int
    number: int = 0
    op: bool = False
    starts: bool = False


@attrs.define
class Numbers:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Step) -> None:
        """Add a number, unless it's negative."""
        if event.number < 0:
            raise ValueError(event.number)
        self.numbers.append(event.number)

    def merge(self, other: "Numbers") -> None:
        self.numbers += other.numbers


def spec_of(way: str, **changes: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "watermark_delay": "1 day",
        "inputs": Inputs(event_id="gid", drop_duplicates_for="10 minutes"),
        "timeout": SessionRules("10 minutes", opens_with="op"),
        **changes,
    }
    if way == "aggregates":
        return SessionSpec.aggregate(Step, {"numbers": agg.collect("number")}, **settings)
    return SessionSpec.of(Numbers, **({"event": Step} | settings))


Events = list[tuple[str, Step]]
BOTH_WAYS = pytest.mark.parametrize("way", ["functions", "aggregates"])
BOTH_ORDERS = pytest.mark.parametrize("order", ["arrival", "event_time"])


def judged(
    spec: SessionSpec[Any, Any, Any], *batches: Events
) -> tuple[list[list[int]], set[tuple[str, int]]]:
    """Return the numbers in each session, and the events that don't count, with why."""
    driver = SessionDriver(spec)
    for batch in batches:
        for time, event in batch:
            driver.add("ann", at(time), event)
        driver.run_batch()
    driver.advance_watermark_to(at("2026-01-09 00:00"))
    driver.run_until_idle()
    rejected = {(one.kind, one.event["number"]) for one in driver.take_rejections() if one.event}
    assert driver.counts.is_balanced
    return [row.result.numbers for row in driver.take_rows()], rejected


def opener(gid: int, number: int) -> Step:
    return Step(gid, number, op=True)


@BOTH_WAYS
@BOTH_ORDERS
@pytest.mark.parametrize(
    ("events", "sessions", "outside"),
    [
        # The first event of the id is outside, so the second one counts, and takes others along.
        ([("10:00", Step(1, 1)), ("12:00", opener(1, 2)), ("12:00", Step(2, 3))], [[2, 3]], {1}),
        # Later ones, within the gap of that opener, too.
        (
            [("10:00", Step(1, 1)), ("12:00", opener(1, 2)), ("12:08", Step(2, 3))],
            [[2, 3]],
            {1},
        ),
        # It bridges two others.
        (
            [
                ("10:00", Step(1, 1)),
                ("11:55", opener(2, 2)),
                ("12:04", opener(1, 3)),
                ("12:13", Step(3, 4)),
            ],
            [[2, 3, 4]],
            {1},
        ),
        # Chains: the first three of the id are outside, the fourth opens a session.
        (
            [
                ("09:00", Step(1, 1)),
                ("10:00", Step(1, 2)),
                ("11:00", Step(1, 3)),
                ("12:00", opener(1, 4)),
                ("12:05", Step(2, 5)),
            ],
            [[4, 5]],
            {1, 2, 3},
        ),
        # Two ids: the second opener lets the repeat of the first id in.
        (
            [
                ("10:00", Step(1, 1)),
                ("10:01", Step(2, 2)),
                ("12:00", opener(2, 3)),
                ("12:05", Step(1, 4)),
            ],
            [[3, 4]],
            {1, 2},
        ),
        # Of two at one instant the first may not open, and the second one repeats it.
        ([("12:00", Step(1, 1)), ("12:00", opener(1, 2)), ("12:05", Step(2, 3))], [[2, 3]], {1}),
    ],
)
def test_an_event_counts_where_the_one_that_it_repeats_is_outside(
    way: str, order: str, events: Events, sessions: list[list[int]], outside: set[int]
) -> None:
    """And the others are judged with it, as if the event outside had never come."""
    found, rejected = judged(spec_of(way, order=order), events)

    assert sessions == found
    assert {("outside", number) for number in outside} == rejected


@BOTH_WAYS
def test_two_events_of_one_id_and_instant_that_may_not_open_are_both_outside(
    way: str,
) -> None:
    """Also where one would start a session: it ends none, since it may not open one."""
    rules = SessionRules("10 minutes", opens_with="op", starts_with="starts")
    spec = spec_of(way, timeout=rules, order="event_time")
    events = [
        ("11:58", opener(9, 0)),
        ("12:00", Step(1, 1, starts=True)),
        ("12:00", Step(1, 2)),
        ("12:05", Step(2, 3)),
    ]

    found, rejected = judged(spec, events)

    assert [[0, 2, 3]] == found
    assert {("outside", 1)} == rejected


@attrs.frozen
class Positive(Step):
    """An event whose class refuses number 0."""

    def __attrs_post_init__(self) -> None:
        if self.number == 0:
            raise ValueError("zero")


@pytest.mark.parametrize("others", [0, 1])
@BOTH_ORDERS
def test_an_event_that_its_class_refuses_is_quarantined_next_to_one_that_fails(
    others: int, order: str
) -> None:
    """Wherever it would be: outside any session, in one, or a repeat; `update` never sees it."""
    inputs = Inputs(event_id="gid", drop_duplicates_for="10 minutes") if others else Inputs()
    rules = SessionRules("10 minutes", opens_with=pc.field("op"))
    changes: dict[str, Any] = {"event": Positive, "timeout": rules, "inputs": inputs}
    spec = spec_of("functions", order=order, on_error="reject", **changes)
    driver = SessionDriver(spec)
    for time, gid, number, op in (
        ("10:00", 1, 0, False),
        ("12:00", 2, 1, True),
        ("12:01", 3, -1, False),
        ("12:02", 4, 0, False),
        ("12:03", 2, 0, False),
    ):
        driver.add_row(
            {"user": "ann", "ts": at(time), "gid": gid, "number": number, "op": op, "starts": False}
        )
    driver.run_batch()
    driver.advance_watermark_to(at("2026-01-09 00:00"))
    driver.run_until_idle()

    kinds = sorted((one.kind, one.event["number"]) for one in driver.take_rejections() if one.event)
    assert [("failed", -1), *[("quarantined", 0)] * 3] == kinds
    assert [[1]] == [row.result.numbers for row in driver.take_rows()]


# -- what isn't the user's fault ----------------------------------------------------------------


def broken(*_: Any) -> Any:
    raise MemoryError("out of memory")


def converted(number: int) -> int:
    return number or int(broken())


@attrs.frozen
class Large:
    """An event whose conversion needs more memory than there is."""

    number: int = attrs.field(converter=converted)


@attrs.define
class Total:
    total: int = 0


def folded(on_error: Any, **changes: Any) -> SessionDriver[Any, Any, Any]:
    """Return a query whose functions are broken by these changes."""

    def update(state: Total, event: Large) -> Total:
        return Total(state.total + event.number)

    functions: dict[str, Any] = {
        "event": Large,
        "state": Total,
        "result": Total,
        "update": update,
        "merge": lambda left, right: Total(left.total + right.total),
        "finish": lambda session, state: state,
    }
    names = functions.keys() | {"create"}
    functions |= {name: value for name, value in changes.items() if name in names}
    rules = {name: value for name, value in changes.items() if name not in names}
    return SessionDriver(
        SessionSpec(
            keys={"user": str},
            event_time="ts",
            logic=Functions(**functions),
            timeout=SessionRules("10 minutes", **rules),
            order="event_time" if "state_gap" in rules else "arrival",
            watermark_delay="1 day",
            on_error=on_error,
        )
    )


def run_to_the_end(driver: SessionDriver[Any, Any, Any]) -> None:
    driver.run_batch()
    driver.advance_watermark_to(at("2026-01-09 00:00"))
    driver.run_until_idle()


@pytest.mark.parametrize("on_error", ["raise", "reject"])
@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, 0),
        ({"update": broken}, 1),
        ({"create": broken}, 1),
        ({"finish": broken}, 1),
        ({"opens_with": broken}, 1),
        ({"state_gap": broken}, 1),
    ],
    ids=["class", "update", "create", "finish", "opens_with", "state_gap"],
)
def test_too_little_memory_ends_the_micro_batch(
    changes: dict[str, Any], number: int, on_error: Any
) -> None:
    """It's no event's failure, so none is quarantined or failed, and no state is stored."""
    driver = folded(on_error, **changes)
    driver.add_row({"user": "ann", "ts": at("10:00"), "number": number})

    with pytest.raises(MemoryError):
        run_to_the_end(driver)


def test_too_little_memory_ends_the_micro_batch_of_state_per_key() -> None:
    """As it does for sessions."""

    def process(key: Any, events: Any, state: Any, times: Any) -> None:
        broken()

    spec: Any = StatefulSpec(
        keys={"user": str},
        event=Step,
        state=Total,
        result=Total,
        process=process,
        timeout=ProcessingTimeGap("30 minutes"),
        on_error="reject",
    )
    driver = StatefulDriver(spec, processing_time=at("10:00"))
    driver.add("ann", Step(1))
    with pytest.raises(MemoryError):
        driver.run_batch()
