"""Sessions and their events from one run, under `with_events=True`."""

from typing import Any

import attrs
import pytest

from sessionkit import Inputs, Results, SessionRules, SessionSpec, SpecError, Storage
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, SessionEvent, at
from tests.support.session_specs import fed


@attrs.frozen
class Step:
    """An event: its number; functions fail over a negative one."""

    number: int
    tags: list[str] = attrs.field(factory=list)


@attrs.define
class Path:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Step) -> None:
        """Add a number, so that the order of arrival doesn't show."""
        if event.number < 0:
            raise ValueError
        self.numbers = sorted([*self.numbers, event.number])

    def merge(self, other: "Path") -> None:
        self.numbers = sorted([*self.numbers, *other.numbers])


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "keys": {"key": str},
        "event_time": "ts",
        "timeout": "10 minutes",
        "watermark_delay": "1 hour",
        "results": Results(with_events=True),
        **changes,
    }


def spec_of(way: str = "functions", **changes: Any) -> SessionSpec[Any, Any, Any]:
    if way == "aggregates":
        return SessionSpec.aggregate(
            Step, {"numbers": agg.collect("number")}, **settings(**changes)
        )
    return SessionSpec.of(Path, **settings(**changes))


def closed(driver: SessionDriver[Any, Any, Any]) -> list[SessionEvent]:
    """Let all sessions close, and return their events."""
    driver.advance_watermark_to(at("20:00"))
    driver.run_until_idle()
    return driver.take_events()


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@pytest.mark.parametrize("way", ["functions", "aggregates"])
def test_each_event_comes_once_with_the_session_that_it_is_in(way: str, layout: Any) -> None:
    """In time order, over micro-batches, a restart, and sessions that became one."""
    spec = spec_of(way, storage=Storage(layout=layout), inputs=Inputs(passthrough={"offset": int}))
    driver = SessionDriver(spec)
    for time, number in (("10:00", 1), ("10:18", 3), ("11:00", 9)):
        driver.add("a", at(time), Step(number, ["x"]), offset=number)
    driver.run_batch()
    driver = SessionDriver.restore(spec, driver.snapshot())
    driver.add("a", at("10:09"), Step(2, ["x"]), offset=2)
    driver.run_batch()
    assert [] == driver.take_events()

    events = closed(driver)

    first, last = driver.take_rows()
    shown = [(one.session_id, one.number, one.event["number"]) for one in events]
    assert [
        (first.session_id, 1, 1),
        (first.session_id, 2, 2),
        (first.session_id, 3, 3),
        (last.session_id, 1, 9),
    ] == shown
    assert [sorted(row.result.numbers) for row in (first, last)] == [[1, 2, 3], [9]]
    assert [("10:09", ["x"], 2, "a")] == [
        (
            one.event_time.strftime("%H:%M"),
            one.event["tags"],
            one.passthrough["offset"],
            one.key.key,
        )
        for one in events[1:2]
    ]
    assert (first.session_start, first.session_end) == (
        events[0].session_start,
        events[0].session_end,
    )
    assert 4 == len({one.event_id for one in events})
    assert [] == driver.take_rejections()
    assert (4, 4, 2) == (driver.counts.events, driver.counts.processed, driver.counts.rows)


def test_an_event_that_fails_is_not_among_them() -> None:
    """Under `on_error="reject"`, also where its session falls apart without it."""
    driver = SessionDriver(
        spec_of(on_error="reject", inputs=Inputs(drop_duplicates_for="0 seconds"))
    )
    fed(driver, ("10:00", Step(1)), ("10:09", Step(-2)), ("10:18", Step(3)))
    fed(driver, ("10:20", Step(4)), ("10:21", Step(-5)), ("10:20", Step(4)))

    shown = [(one.number, one.event["number"]) for one in closed(driver)]
    assert [(1, 1), (1, 3), (2, 4)] == shown
    kinds = [one.kind for one in driver.take_rejections()]
    assert ["duplicate", "failed", "failed"] == sorted(kinds)
    assert driver.counts.is_balanced


def test_a_rule_cuts_them_as_it_cuts_sessions() -> None:
    """Each has the session that its row says."""
    rules = SessionRules(gap="10 minutes", max_events=2)
    driver = SessionDriver(spec_of(timeout=rules, order="event_time"))
    fed(driver, *((f"10:0{number}", Step(number)) for number in range(5)))

    events = closed(driver)

    numbers = {one.session_id: one.result.numbers for one in driver.take_rows()}
    found: dict[str, list[int]] = {}
    for one in events:
        found.setdefault(one.session_id, []).append(one.event["number"])
    assert numbers == found == {name: found[name] for name in numbers}
    assert [[0, 1], [2, 3], [4]] == list(found.values())


def test_a_batch_before_the_stream_hands_out_its_events() -> None:
    """And the stream those of the sessions that were open."""
    history = [{"key": "a", "ts": at(time), "number": 1, "tags": []} for time in ("10:00", "12:00")]
    driver = SessionDriver.backfill(spec_of(), history, until=at("12:01"))

    assert [at("10:00")] == [one.event_time for one in driver.take_events()]
    fed(driver, ("12:05", Step(2)))
    assert [(at("12:00"), 1), (at("12:05"), 2)] == [
        (one.event_time, one.number) for one in closed(driver)
    ]


def test_another_event_class_is_refused_over_a_checkpoint() -> None:
    """The stored events are of the old one."""

    @attrs.frozen
    class Wider(Step):
        page: str | None = None

    driver = fed(SessionDriver(spec_of("aggregates")), ("10:00", Step(1)))
    wider = SessionSpec.aggregate(Wider, {"numbers": agg.collect("number")}, **settings())
    restored = SessionDriver.restore(wider, driver.snapshot())
    restored.add("a", at("10:01"), Wider(2))

    with pytest.raises(StateError, match="held"):
        restored.run_batch()


def test_a_field_of_the_result_with_a_taken_name_is_refused() -> None:
    """`number` is the library's own here."""
    with pytest.raises(SpecError, match="two columns named `number`"):
        SessionSpec.aggregate(Step, {"number": agg.count()}, **settings())
