"""Sessions that get their start behind the watermark: their ids, and what is stored for these."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, Inputs, Lateness, Results, SessionRules, SessionSpec, Storage
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import stored_rows
from tests.support.session_specs import Reading, collecting

SHORT, LONG = timedelta(minutes=5), timedelta(hours=2)
OTHER = "clock"


def own_gap(event: Reading) -> timedelta:
    """Return the gap that an event asks for."""
    return event.gap


def dynamic(**options: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec in which each event has its own gap."""
    return collecting(EventTimeGap(own_gap, max_gap=LONG), **options)


def closed_once(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    """Return a query that has closed a session of 10:00, at a watermark of 11:00."""
    driver = SessionDriver(spec, processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.add(OTHER, at("11:00"), Reading(0, SHORT))
    driver.run_until_idle()
    return driver


def ids_of_ann(driver: SessionDriver[Any, Any, Any]) -> list[str]:
    """Let everything close, and return the ids of ann's rows."""
    driver.run_until_idle()
    driver.add(OTHER, at("2026-01-02 09:00"), Reading(9, SHORT))
    driver.run_until_idle()
    return [row.id for row in driver.take_rows() if row.key == ("ann",)]


def again(driver: SessionDriver[Any, Any, Any], *times: str) -> list[str]:
    """Let events with a long gap come, a micro-batch for each, and return the ids of all rows."""
    for time in times:
        driver.add("ann", at(time), Reading(2, LONG))
        driver.run_batch()
    return ids_of_ann(driver)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lateness": Lateness(judged_by="session")},
        {"lateness": Lateness(allowed="1 minute")},
        {"inputs": Inputs(drop_duplicates_for="0 seconds")},
        {"results": Results(emit="on_update")},
    ],
    ids=str,
)
def test_a_session_that_begins_where_a_closed_one_did_has_another_id(
    options: Any, layout: Any
) -> None:
    """Under a gap from the event, the second one may begin behind the watermark."""
    ids = again(closed_once(dynamic(storage=Storage(layout=layout), **options)), "10:00")

    assert 2 == len({*ids})


def test_a_start_that_moves_back_behind_the_watermark_gets_another_id() -> None:
    """It may be that of a session that's gone: the row under the old id is superseded."""
    driver = closed_once(dynamic(results=Results(emit="on_update")))
    (first,) = (row.id for row in driver.take_rows() if row.is_final and row.key == ("ann",))

    driver.add("ann", at("11:30"), Reading(2, LONG))
    driver.run_batch()
    driver.add("ann", at("10:00"), Reading(3, LONG))
    driver.run_batch()

    (back, moved) = (row for row in driver.take_rows() if row.key == ("ann",))
    assert (moved.id,) == back.supersedes
    assert first not in {moved.id, back.id}


def test_a_mark_stays_with_the_start() -> None:
    """Later events, a restart, another layout and other rules leave the id as it is."""
    driver = closed_once(dynamic())
    driver.add("ann", at("10:00"), Reading(2, LONG))
    driver.run_batch()
    (opened,) = (one for one in driver.open_sessions() if one.key == ("ann",))

    driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.add("ann", at("10:30"), Reading(3, LONG))
    driver.run_batch()
    driver = driver.migrate(
        dynamic(storage=Storage(layout="pages", bucket_count=1), results=Results(emit="on_update"))
    )
    driver.add("ann", at("10:20"), Reading(4, LONG))
    driver.run_batch()

    assert {opened.id} == {*ids_of_ann(driver)}


def test_ids_behind_the_watermark_depend_on_nothing_but_key_and_start_under_a_fixed_gap() -> None:
    """An event as old as the start of a closed session is late, so none needs a mark."""
    spec = collecting(EventTimeGap(LONG))
    whole, late = SessionDriver(spec), SessionDriver(spec)
    whole.add("ann", at("10:00"), Reading(1, LONG))
    late.add(OTHER, at("11:00"), Reading(0, LONG))
    late.run_until_idle()
    late.add("ann", at("10:00"), Reading(1, LONG))

    assert ids_of_ann(whole) == ids_of_ann(late)


def test_a_longer_gap_after_carry_over_gives_another_id() -> None:
    """What was closed by the shorter gap is gone; an event of its start isn't late any more."""
    driver = closed_once(collecting(EventTimeGap(SHORT)))
    (first,) = (row.id for row in driver.take_rows() if row.key == ("ann",))

    moved = driver.migrate(collecting(EventTimeGap(LONG)))

    (second,) = again(moved, "10:00")
    assert first != second


def test_a_session_that_the_old_gap_closes_after_carry_over_keeps_its_id_to_itself() -> None:
    """An open session keeps its end: it may close before one of the new gap would have."""
    driver = SessionDriver(collecting(EventTimeGap(SHORT)))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.run_until_idle()
    driver = driver.migrate(collecting(EventTimeGap(LONG)))
    driver.add(OTHER, at("11:00"), Reading(0, SHORT))
    driver.run_until_idle()

    assert 2 == len({*again(driver, "10:00")})


def test_what_a_silent_source_has_closed_keeps_its_id_to_itself_after_carry_over() -> None:
    """The floor stays behind, and Spark's watermark may be before what it has closed."""
    rules = SessionRules(SHORT, close_idle_after="1 hour")
    driver = SessionDriver(collecting(rules), processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.run_batch()
    for _ in range(3):
        driver.advance_processing_time(timedelta(minutes=50))
        driver.run_batch()
    (first,) = (row.id for row in driver.take_rows())

    moved = driver.migrate(collecting(SessionRules(LONG)))

    (second,) = again(moved, "10:00")
    assert first != second


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_marks_are_stored_only_where_a_session_has_one(layout: Any) -> None:
    """Without one, not a byte is there for them; with one, a few for this one alone."""
    spec = dynamic(storage=Storage(bucket_count=1, layout=layout))
    ahead, behind = SessionDriver(spec), SessionDriver(spec)
    for driver in (ahead, behind):
        driver.add(OTHER, at("11:00"), Reading(0, SHORT))
        for number in range(1_000):
            driver.add(f"user {number}", at("11:00"), Reading(number, SHORT))
        driver.run_until_idle()
        time = "10:59" if driver is behind else "11:04"
        driver.add("ann", at(time), Reading(2, LONG))
        driver.run_batch()

    def size(driver: SessionDriver[Any, Any, Any]) -> int:
        ((_, row),) = stored_rows(driver.snapshot())
        pages = row[-1].values() if layout == "pages" else ()
        return sum(map(len, pages)) + len(row[-2 if layout == "pages" else -1])

    def marks(driver: SessionDriver[Any, Any, Any]) -> list[int]:
        ((group, row),) = stored_rows(driver.snapshot())
        found: list[int] = stored_memory(logic_of(spec), group, row).kept["behind"].to_pylist()
        return found

    assert {0} == {*marks(ahead)}
    assert 1 == sum(mark > 0 for mark in marks(behind))
    assert 0 < size(behind) - size(ahead) < 1_000


def test_state_from_before_there_were_marks_has_none() -> None:
    """What was stored without them is read as sessions that got their starts ahead."""
    spec = collecting(EventTimeGap(SHORT))
    logic = logic_of(spec)
    driver = SessionDriver(spec)
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.run_batch()
    ((group, row), *_) = stored_rows(driver.snapshot())
    memory = stored_memory(logic, group, row)

    assert [0] == memory.kept["behind"].to_pylist()


def test_a_failing_event_does_not_take_the_mark_with_it() -> None:
    """What is left of a session that is folded again keeps the mark of its start."""
    spec = dynamic()
    logic = attrs.evolve(spec.functions, update=fussy)
    driver = closed_once(attrs.evolve(spec, on_error="reject", logic=logic))
    driver.add("ann", at("10:00"), Reading(2, LONG))
    driver.run_batch()
    (opened,) = (one for one in driver.open_sessions() if one.key == ("ann",))

    driver.add("ann", at("10:10"), Reading(-1, LONG))
    driver.add("ann", at("10:20"), Reading(3, LONG))
    driver.run_batch()

    assert opened.id == ids_of_ann(driver)[-1]


def fussy(state: Any, event: Reading) -> Any:
    """Add a number, but not a negative one."""
    state.values.append(event.value)
    if event.value < 0:
        message = "negative"
        raise ValueError(message)
    return state


def test_events_from_before_there_were_ids_stay_where_a_session_is_folded_again() -> None:
    """Under `with_events`, `drop_duplicates_for` may come later: then some events have no id."""
    spec = dynamic(results=Results(with_events=True))
    logic = attrs.evolve(spec.functions, update=fussy)
    before = attrs.evolve(spec, on_error="reject", logic=logic)
    driver = SessionDriver(before, processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, LONG))
    driver.run_batch()
    driver = driver.migrate(
        attrs.evolve(before, inputs=Inputs(drop_duplicates_for=timedelta(hours=1)))
    )

    for value in (2, -1, 2):
        driver.add("ann", at("10:10"), Reading(value, LONG))
    driver.run_batch()

    assert (1, 1) == (driver.counts.failed, driver.counts.duplicate)
    ids_of_ann(driver)
    assert [1, 2] == [one.event["value"] for one in driver.take_events() if one.key == ("ann",)]
