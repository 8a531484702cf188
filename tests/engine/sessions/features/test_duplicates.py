"""Events that were processed already, under `drop_duplicates_for`; see the properties for most."""

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import attrs
import pytest

from sessionkit import Inputs, Lateness, SessionRules, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit._engine.shell.storage import logic_of
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at
from tests.support.session_specs import bytes_of, ended, fed, opened

GAP = timedelta(minutes=10)


@attrs.frozen
class Message:
    """An event: its name at its source, and a number; functions fail over a negative one."""

    name: str
    number: int = 0


@attrs.frozen
class Small:
    """An event whose class refuses large numbers."""

    name: str
    number: int = attrs.field(validator=attrs.validators.lt(100))


@attrs.define
class Path:
    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: Any) -> None:
        if event.number < 0:
            raise ValueError
        self.numbers.append(event.number)

    def merge(self, other: "Path") -> None:
        self.numbers += other.numbers


def kept(span: Any) -> Inputs:
    return Inputs(event_id="name", drop_duplicates_for=span)


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "keys": {"key": str},
        "event_time": "ts",
        "timeout": GAP,
        "watermark_delay": timedelta(0),
        "inputs": kept("0 seconds"),
        **changes,
    }


def driver_of(**changes: Any) -> SessionDriver[Any, Any, Any]:
    """Return a driver of a spec that drops duplicates."""
    return SessionDriver(spec_of(**changes))


def spec_of(**changes: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Path, **settings(**{"event": Message, **changes}))


def kinds(driver: SessionDriver[Any, Any, Any]) -> list[tuple[str, Any]]:
    return [(one.kind, one.event_time) for one in driver.take_rejections()]


def test_a_copy_is_handed_out_under_the_id_of_the_first() -> None:
    """It counts as `duplicate` alone, and the counts balance."""
    driver = fed(driver_of(), ("10:00", Message("m", 1)))
    fed(driver, ("10:05", Message("m", 2)))
    driver.add("a", None, Message("m", 4))
    fed(driver, ("10:06", Message("m", 3)))

    (refused,) = driver.take_rejections("quarantined")
    copies = driver.take_rejections("duplicate")
    assert {"an event with its event_id was processed already"} == {one.reason for one in copies}
    (known,) = {one.event_id for one in copies}
    assert known == refused.event_id
    assert [{"name": "m", "number": 2}, {"name": "m", "number": 3}] == [one.event for one in copies]
    counts = driver.counts
    assert (4, 1, 2, 1) == (counts.events, counts.processed, counts.duplicate, counts.quarantined)
    assert counts.is_balanced


def test_an_event_that_its_class_refuses_is_not_remembered() -> None:
    """Its copy counts, in the same micro-batch and in a later one."""
    for cut in (1, 2):
        driver = driver_of(event=Small)
        driver.add_row({"key": "a", "ts": at("10:00"), "name": "m", "number": 100})
        if cut == 2:
            driver.run_batch()
        fed(driver, ("10:01", Small("m", 6)))
        assert [[6]] == opened(driver)
        assert [("quarantined", at("10:00"))] == kinds(driver)


def test_an_event_that_fails_is_not_remembered() -> None:
    """Under `on_error="reject"` those that were folded beside it are."""
    driver = fed(
        driver_of(on_error="reject"), ("10:00", Message("m", 1)), ("10:01", Message("n", -1))
    )
    fed(driver, ("10:02", Message("m", 2)), ("10:03", Message("n", 3)), ("10:04", Message("o", -4)))
    fed(driver, ("10:05", Message("n", 5)), ("10:06", Message("o", 6)))

    assert [[1, 3, 6]] == opened(driver)
    assert [
        ("failed", at("10:01")),
        ("duplicate", at("10:02")),
        ("failed", at("10:04")),
        ("duplicate", at("10:05")),
    ] == sorted(kinds(driver), key=itemgetter(1))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="functions"),
        pytest.param({"order": "event_time"}, id="in order"),
        pytest.param(
            {"order": "event_time", "timeout": SessionRules(GAP, max_events=9)}, id="rules in order"
        ),
    ],
)
def test_a_copy_of_an_event_that_failed_is_tried_in_the_same_micro_batch(
    changes: dict[str, Any],
) -> None:
    """Until one is processed; those after it are duplicates."""
    driver = fed(
        driver_of(on_error="reject", watermark_delay=GAP, **changes),
        ("10:00", Message("m", 1)), ("10:01", Message("n", -1)), ("10:02", Message("n", -2)),
        ("10:03", Message("n", 3)), ("10:04", Message("n", 4)), ("10:05", Message("o", -5)),
    )  # fmt: skip

    assert [[1, 3]] == [row.result.numbers for row in ended(driver)]
    assert [
        ("duplicate", at("10:04")),
        ("failed", at("10:01")),
        ("failed", at("10:02")),
        ("failed", at("10:05")),
    ] == sorted(kinds(driver))
    assert driver.counts.is_balanced


def test_an_event_whose_sum_does_not_fit_takes_no_id() -> None:
    """With aggregates, too, a copy of an event that failed counts."""
    spec = SessionSpec.aggregate(
        Message, {"total": agg.sum("number")}, **settings(on_error="reject", watermark_delay=GAP)
    )
    driver = fed(SessionDriver(spec), ("10:00", Message("m", -(2**63))))
    fed(driver, ("10:01", Message("n", -1)), ("10:02", Message("n", 5)))

    assert [-(2**63) + 5] == [session.state.total for session in driver.open_sessions()]
    assert (2, 1, 0) == (driver.counts.processed, driver.counts.failed, driver.counts.duplicate)


def test_what_is_late_by_its_session_leaves_its_id_to_a_copy() -> None:
    """Under `judged_by="session"` a copy joins nothing, and so it's found before what is late."""
    driver = fed(driver_of(lateness=Lateness(judged_by="session")), ("10:30", Message("n", 1)))
    fed(driver, ("10:10", Message("m", 2)), ("10:29", Message("m", 3)), ("10:00", Message("n", 4)))

    assert [[1, 3]] == opened(driver)
    assert {("late", at("10:10")), ("duplicate", at("10:00"))} == set(kinds(driver))


@pytest.mark.parametrize(
    ("names", "offsets", "counted"),
    [({}, (1, 2), (1, 1)), ({"event_id": "offset"}, (1, 2, 1), (2, 1))],
)
def test_a_column_that_is_passed_through_is_of_the_id_only_where_it_is_named(
    names: Any, offsets: Any, counted: Any
) -> None:
    """Without names, the whole event is its id: its key, its time and its fields."""
    inputs = Inputs(drop_duplicates_for="0 seconds", passthrough={"offset": int}, **names)
    driver = driver_of(inputs=inputs)
    for offset in offsets:
        driver.add("a", at("10:00"), Message("m", 1), offset=offset)
    driver.run_batch()

    assert counted == (driver.counts.processed, driver.counts.duplicate)


def test_a_spec_without_duplicates_stores_no_ids() -> None:
    """Neither a column nor an entry in the rules of a checkpoint."""
    without = spec_of(inputs=kept(None))
    logic, dropping = logic_of(without), logic_of(spec_of())

    assert {"ids", "exists"} == {*dropping.program.schema.names} - {*logic.program.schema.names}
    assert b"event_id" not in logic.program.identity


def test_another_id_is_refused_over_a_checkpoint() -> None:
    """Stored ids would mean something else."""
    driver = fed(driver_of(), ("10:00", Message("m")))
    other = spec_of(inputs=Inputs(event_id=("name", "number"), drop_duplicates_for="0 seconds"))
    restored = SessionDriver.restore(other, driver.snapshot())
    restored.add("a", at("10:01"), Message("n"))

    with pytest.raises(StateError, match="event_id"):
        restored.run_batch()
    with pytest.raises(StateError, match="`event_id` was"):
        driver.migrate(other)


def test_ids_are_carried_over() -> None:
    """Those of open sessions, and those that are remembered, under another span or none."""
    driver = fed(driver_of(inputs=kept("1 hour")), ("10:00", Message("m", 1)))
    fed(driver, ("10:15", Message("n", 2)))
    driver.run_until_idle()
    copies = [("10:16", Message("m", 3)), ("10:17", Message("n", 4))]

    known, _, off = (
        fed(driver.migrate(spec_of(**changes)), *copies)
        for changes in (
            {"inputs": kept("2 hours"), "timeout": GAP / 2},
            {"inputs": kept("0 seconds"), "timeout": SessionRules(gap=GAP)},
            {"inputs": kept(None)},
        )
    )

    assert (2, [[2]]) == (known.counts.duplicate, opened(known))
    assert (0, [[2, 3, 4]]) == (off.counts.duplicate, opened(off))


def test_ids_of_sessions_that_wait_for_late_events_are_carried_over() -> None:
    """Where the new spec doesn't wait for them, it still knows what they have processed."""
    options = {"inputs": kept("1 hour")}
    driver = fed(
        driver_of(lateness=Lateness(allowed="20 minutes"), **options), ("10:00", Message("m"))
    )
    fed(driver, ("10:15", Message("n")))
    driver.run_until_idle()
    carried = fed(driver.migrate(spec_of(**options)), ("10:16", Message("m")))

    assert (1, [[0]]) == (carried.counts.duplicate, opened(carried))


def test_sessions_from_before_know_no_ids() -> None:
    """A query that begins to drop duplicates remembers those of its own events."""
    driver = fed(driver_of(inputs=kept(None)), ("10:00", Message("m", 1)))
    spec = spec_of(inputs=Inputs(event_id=("name",), drop_duplicates_for="0 seconds"))
    later = fed(driver.migrate(spec), ("10:01", Message("m", 2)))
    fed(later, ("10:02", Message("m", 3)))

    assert [[1, 2]] == opened(later)


def test_a_stream_after_a_batch_knows_its_ids() -> None:
    """Those of the sessions that were open, or had closed not long before."""
    spec = spec_of(inputs=kept("1 hour"))
    history = [
        {"key": "a", "ts": at(time), "name": name, "number": 1}
        for time, name in (("10:00", "m"), ("10:00", "m"), ("10:20", "n"))
    ]
    driver = SessionDriver.backfill(spec, history, until=at("10:21"))
    fed(driver, ("10:22", Message("m", 2)), ("10:23", Message("n", 3)))

    assert (2, 3) == (driver.counts.processed, driver.counts.duplicate)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_an_event_id_takes_sixteen_bytes_of_state(layout: Any) -> None:
    """Sixteen: a session of a thousand events has as many more than one without ids."""
    sizes = []
    for changes in ({}, {"inputs": kept(None)}):
        spec = SessionSpec.aggregate(
            Message, {"events": agg.count()}, **settings(storage=Storage(layout=layout), **changes)
        )
        driver = SessionDriver(spec)
        for number in range(1000):
            driver.add("a", datetime(2026, 3, 8, tzinfo=UTC), Message(str(number)))
        driver.run_batch()
        sizes.append(bytes_of(driver))

    with_ids, without = sizes
    assert 16_000 <= with_ids - without < 16_000 + 1_000
