"""The ids of sessions that begin where others were dropped, under `on_error="drop_session"`."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import stored_rows
from tests.support.options import evolved, grouped
from tests.support.session_specs import Listed, Open, Reading, collecting

GAP = timedelta(minutes=30)
LARGE = 2**62
OTHER = "clock"

Driver = SessionDriver[Any, Any, Any]


def fussy(state: Any, event: Reading) -> Any:
    """Add a number, but not a negative one."""
    state.values.append(event.value)
    if event.value < 0:
        message = "negative"
        raise ValueError(message)
    return state


def fussy_create(key: Any, event: Reading) -> Any:
    """Start with one number, but not with a negative one."""
    return fussy(Open([]), event)


def dropping(**options: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec that drops a session over a negative number."""
    rules = options.pop("timeout", EventTimeGap(GAP))
    options = {"on_error": "drop_session", "watermark_delay": GAP, **options}
    return evolved(collecting(rules), create=fussy_create, update=fussy, **options)


def add(driver: Driver, *events: tuple[str, int]) -> None:
    """Let events of ann come in one micro-batch."""
    for time, value in events:
        driver.add("ann", at(time), Reading(value, GAP))
    driver.run_batch()


def dropped_ids(driver: Driver) -> list[str]:
    """Return the ids of the sessions that were dropped since the last look."""
    rejections = driver.take_rejections()
    return [str(one.session_id) for one in rejections if one.kind == "failed_output"]


def closed_ids(driver: Driver) -> list[str]:
    """Let everything close, and return the ids of ann's rows."""
    driver.add(OTHER, at("2026-01-02 09:00"), Reading(9, GAP))
    driver.run_until_idle()
    return [row.id for row in driver.take_rows() if row.key == ("ann",)]


LAYOUTS = pytest.mark.parametrize("layout", ["buckets", "pages"])


@LAYOUTS
@pytest.mark.parametrize("options", [{}, {"drop_duplicates_for": timedelta(0)}], ids=str)
def test_a_session_that_begins_where_one_was_dropped_has_another_id(
    options: Any, layout: Any
) -> None:
    """The id of the dropped one is in its rejected row."""
    driver: Driver = SessionDriver(dropping(layout=layout, **options))
    add(driver, ("10:00", 1), ("10:10", -1))
    add(driver, ("10:00", 2))

    assert 2 == len({*dropped_ids(driver), *closed_ids(driver)})


def test_sessions_that_are_dropped_one_after_the_other_have_different_ids() -> None:
    """However often one fails, and whenever another is dropped that meets it."""
    driver: Driver = SessionDriver(dropping())
    add(driver, ("10:00", -1))
    add(driver, ("10:00", -2))
    add(driver, ("10:20", -3), ("10:20", -4))
    add(driver, ("10:00", -5))
    add(driver, ("10:20", 1))

    assert 5 == len({*dropped_ids(driver), *closed_ids(driver)})


def test_a_start_that_a_dropped_session_had_before_another_came_counts_too() -> None:
    """Rows may be out under it: those of a session from which the state was carried over."""
    driver: Driver = SessionDriver(dropping(on_error="raise", emit="on_update"))
    add(driver, ("10:20", 1))
    (out,) = (row.id for row in driver.take_rows())
    driver = driver.migrate(dropping())
    add(driver, ("10:00", -1))
    add(driver, ("10:20", 2))

    assert 3 == len({out, *dropped_ids(driver), *closed_ids(driver)})


def test_early_rows_of_a_dropped_session_keep_their_id_to_themselves() -> None:
    """A spec that gives early rows drops no session, but one to which its state is carried does."""
    driver: Driver = SessionDriver(dropping(on_error="raise", emit="on_update"))
    add(driver, ("10:00", 1))
    (out,) = (row.id for row in driver.take_rows())
    driver = driver.migrate(dropping())
    add(driver, ("10:10", -1))
    add(driver, ("10:00", 2))

    assert [out] == dropped_ids(driver)
    assert out not in closed_ids(driver)


@LAYOUTS
def test_a_trace_survives_a_restart_and_other_rules(layout: Any) -> None:
    """The spec may reject events by then, give early rows, or find duplicates."""
    driver: Driver = SessionDriver(dropping(layout=layout))
    add(driver, ("10:00", -1))
    dropped = dropped_ids(driver)
    driver = SessionDriver.restore(dropping(layout=layout, on_error="reject"), driver.snapshot())
    for options in (
        {"emit": "on_update"},
        {"drop_duplicates_for": timedelta(hours=1)},
        {"allowed": timedelta(hours=1)},
        {"timeout": SessionRules(GAP, midnight="UTC")},
        {"bucket_count": 1, "layout": "pages"},
    ):
        driver = driver.migrate(dropping(on_error="raise", **options))
        driver.run_batch()
    add(driver, ("10:00", 2))

    assert {*dropped}.isdisjoint(closed_ids(driver))


def test_a_trace_stays_as_long_as_closed_sessions_do() -> None:
    """Under `allowed_lateness`, a session may begin that much behind the watermark."""
    driver: Driver = SessionDriver(dropping())
    add(driver, ("10:00", -1))
    dropped = dropped_ids(driver)
    driver = driver.migrate(dropping(on_error="raise", allowed="2 hours"))
    driver.add(OTHER, at("11:30"), Reading(0, GAP))
    driver.run_until_idle()
    add(driver, ("10:00", 2))

    assert 2 == len({*dropped, *closed_ids(driver)})


def test_a_session_behind_the_watermark_has_another_id_than_one_dropped_there() -> None:
    """At one watermark, both have the same mark, but for the trace."""
    gap = EventTimeGap(lambda event: event.gap, max_gap=2 * GAP)
    driver: Driver = SessionDriver(dropping(timeout=gap))
    driver.add(OTHER, at("10:40"), Reading(0, GAP))
    driver.run_until_idle()
    add(driver, ("10:00", -1))
    add(driver, ("10:00", 1))

    assert 2 == len({*dropped_ids(driver), *closed_ids(driver)})


@attrs.frozen
class Totals:
    total: int


def test_a_sum_that_does_not_fit_leaves_a_trace_too() -> None:
    """With aggregates, that's what drops a session."""
    aggregates = {"total": agg.sum("value")}
    shared: Any = {"keys": {"key": str}, "event_time": "at", "watermark_delay": GAP}
    shared |= {"timeout": EventTimeGap(GAP), "on_error": "drop_session", "result": Totals}
    driver: Driver = SessionDriver(SessionSpec.aggregate(Reading, aggregates, **grouped(**shared)))
    add(driver, ("10:00", LARGE), ("10:05", LARGE))
    add(driver, ("10:00", LARGE), ("10:05", LARGE))
    add(driver, ("10:00", 1))

    assert 3 == len({*dropped_ids(driver), *closed_ids(driver)})


def test_a_micro_batch_that_runs_again_leaves_the_same_trace() -> None:
    """So the session after it has the same id in both runs."""
    ids = []
    for fails in (False, True):
        driver: Driver = SessionDriver(dropping())
        for event in (("10:00", -1), ("10:00", 2)):
            driver.add("ann", at(event[0]), Reading(event[1], GAP))
            if fails:
                driver.run_batch(sink_fails=True)
            driver.run_batch()
        ids.append((dropped_ids(driver), closed_ids(driver)))

    assert ids[0] == ids[1]


def test_a_failing_key_leaves_one_trace_for_as_long_as_its_session_would_last() -> None:
    """What meets becomes one; and it goes when no session can begin there any more."""
    spec = dropping(bucket_count=1)
    driver: Driver = SessionDriver(spec)
    for minute in range(0, 60, 7):
        add(driver, (f"10:{minute:02}", -1))

    def stored() -> int:
        rows = [
            stored_memory(logic_of(spec), *found).kept for found in stored_rows(driver.snapshot())
        ]
        return sum(kept.num_rows for kept in rows)

    assert 1 == stored()
    closed_ids(driver)
    driver.add(OTHER, at("2026-01-03 09:00"), Reading(9, GAP))
    driver.run_until_idle()
    assert 1 == stored()  # the clock


def test_a_session_that_meets_no_dropped_one_keeps_its_id() -> None:
    """A trace ends where an event would have begun another session."""
    whole: Driver = SessionDriver(dropping())
    driver: Driver = SessionDriver(dropping())
    add(driver, ("10:00", -1))
    for one in (whole, driver):
        add(one, ("10:30:00.000001", 1))

    assert closed_ids(whole) == closed_ids(driver)


@LAYOUTS
def test_a_trace_is_no_open_session(layout: Any) -> None:
    """Nobody sees it: not the list of open sessions, and not the count."""
    driver: Driver = SessionDriver(dropping(layout=layout, bucket_count=1))
    add(driver, ("10:00", -1))
    add(driver, ("12:00", 1))

    assert [at("12:00")] == [one.start for one in driver.open_sessions()]
    ((_, row),) = stored_rows(driver.snapshot())
    kept = row[4] if layout == "pages" else row[3]
    assert 1 == kept


@attrs.define
class Wider:
    """The values so far, and another field."""

    values: list[int] = attrs.field(factory=list)
    more: int = 0


def widened(old: Open) -> Wider:
    return Wider(old.values, 1)


@LAYOUTS
def test_a_trace_survives_another_class_of_the_state(layout: Any) -> None:
    """It has no state to upgrade."""
    spec = dropping(layout=layout)
    driver: Driver = SessionDriver(spec)
    add(driver, ("10:00", -1))
    add(driver, ("12:00", 1))
    dropped = dropped_ids(driver)
    new: Any = evolved(
        spec,
        state=Wider,
        create=lambda key, event: Wider([event.value]),
        merge=lambda left, right: Wider(left.values + right.values),
        finish=lambda session, state: Listed(state.values, state.more),
        version=spec.storage.version + 1,
        upgrade={spec.storage.version: widened},
    )
    driver = SessionDriver.restore(new, driver.snapshot())
    add(driver, ("10:00", 2))

    assert {*dropped}.isdisjoint(closed_ids(driver))
