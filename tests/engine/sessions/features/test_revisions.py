"""Sessions that give several rows, micro-batch by micro-batch; see also `test_revisions`."""

from datetime import timedelta
from typing import Any

import pytest

from sessionkit import (
    EventTimeGap,
    Inputs,
    Lateness,
    Results,
    Session,
    SessionRules,
    SpecError,
    Storage,
    UserFunctionError,
)
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at, explain_session
from tests.support.session_specs import Listed, Open, Reading, collecting, ended, fed, in_order

GAP = EventTimeGap("10 seconds")
ON_UPDATE = Results(emit="on_update")
BOTH_LAYOUTS = pytest.mark.parametrize("layout", ["buckets", "pages"])


def after(seconds: int) -> str:
    return f"12:{seconds // 60:02}:{seconds % 60:02}"


def reading(value: int) -> Reading:
    return Reading(value, timedelta(seconds=10))


def feed(driver: SessionDriver[Any, Any, Any], *seconds: int) -> list[tuple[Any, ...]]:
    """Run a micro-batch of events, their times as values; return values, number and finality."""
    fed(driver, *((after(one), reading(one)) for one in seconds))
    return [(row.result.values, row.revision, row.is_final) for row in driver.take_rows()]


def move(driver: SessionDriver[Any, Any, Any], seconds: int) -> list[tuple[Any, ...]]:
    rows = ended(driver, after(seconds))
    return [(row.result.values, row.revision, row.is_final) for row in rows]


@BOTH_LAYOUTS
def test_a_closed_session_is_forgotten_in_the_end(layout: Any) -> None:
    """Until then it isn't open; then nothing is stored."""
    driver = SessionDriver(
        collecting(GAP, lateness=Lateness(allowed="1 minute"), storage=Storage(layout=layout))
    )
    assert not feed(driver, 10)
    assert [([10], 1, True)] == move(driver, 20)
    assert not driver.open_sessions()
    assert [([10, 10], 2, True)] == feed(driver, 10)
    assert not move(driver, 79)
    assert driver.snapshot().groups
    assert not move(driver, 80)
    assert not driver.snapshot().groups
    assert (2, 0) == (driver.counts.processed, driver.counts.late)


def test_an_event_beyond_the_allowed_lateness_is_late() -> None:
    """The reason says by how much."""
    driver = SessionDriver(collecting(GAP, lateness=Lateness(allowed="1 minute")))
    feed(driver, 10)
    move(driver, 80)
    feed(driver, 10)
    (late,) = driver.take_rejections("late")
    assert "less `Lateness(allowed=...)`" in late.reason


def not_every_row(session: Session, state: Open) -> Listed | None:
    return None if session.events == 3 else Listed(state.values, session.revision)


def test_finish_is_told_which_row_it_makes() -> None:
    """Its session has the number of the row, and whether it's final."""
    seen: list[tuple[int, bool]] = []

    def finish(session: Session, state: Open) -> Listed:
        seen.append((session.revision, session.is_final))
        return Listed(state.values, 0)

    driver = SessionDriver(collecting(GAP, results=ON_UPDATE, finish=finish))
    feed(driver, 10)
    feed(driver, 15)
    move(driver, 30)
    assert [(1, False), (2, False), (3, True)] == seen


def test_a_session_whose_early_row_is_out_must_give_a_final_one() -> None:
    """Without, a table would keep the old one for the new."""
    driver = SessionDriver(collecting(GAP, results=ON_UPDATE, finish=not_every_row))
    feed(driver, 10, 12)
    driver.add("a", at(after(14)), reading(14))
    with pytest.raises(UserFunctionError, match="returned no row for a session that has rows out"):
        driver.run_batch()


def test_where_no_row_is_a_failed_output_the_next_one_replaces_what_is_out() -> None:
    """The ids that are out are superseded by the first row that there is again."""
    spec = collecting(GAP, results=ON_UPDATE, on_error="reject", finish=not_every_row)
    driver = SessionDriver(spec)
    (first,) = fed(driver, (after(10), reading(1)), (after(12), reading(2))).take_rows()
    fed(driver, (after(8), reading(3)))
    assert not driver.take_rows()
    (failed,) = driver.take_rejections("failed_output")
    (last,) = fed(driver, (after(9), reading(4))).take_rows()
    assert (failed.session_id, 3, (first.session_id,)) == (
        last.session_id,
        last.revision,
        last.supersedes,
    )


def test_a_failed_finish_is_tried_again_with_the_next_row() -> None:
    """The session stays, with all of its events."""

    def finish(session: Session, state: Open) -> Listed:
        if 13 in state.values and not session.is_final:
            raise ValueError
        return Listed(state.values, 0)

    driver = SessionDriver(collecting(GAP, results=ON_UPDATE, on_error="reject", finish=finish))
    assert not feed(driver, 13)
    assert 1 == len(driver.take_rejections("failed_output"))
    assert [([13], 2, True)] == move(driver, 23)


def poisoned(state: Open, event: Reading) -> Open:
    if event.value == 13:
        raise ValueError
    state.values.append(event.value)
    return state


@pytest.mark.parametrize("judged_by", ["event", "session"])
@pytest.mark.parametrize("options", [{"allowed": "1 minute"}, {"reopen_within": "1h"}])
def test_a_failed_event_leaves_revisions_as_they_were(judged_by: Any, options: Any) -> None:
    """A closed session that only it touched gives no further row."""
    spec = collecting(
        GAP,
        on_error="reject",
        update=poisoned,
        create=created,
        lateness=Lateness(judged_by=judged_by, **options),
    )
    driver = SessionDriver(spec)
    feed(driver, 10)
    assert [([10], 1, True)] == feed(driver, 25) + feed(driver, 26)
    assert not fed(driver, (after(18), reading(13))).take_rows()
    assert [13] == [one.event["value"] for one in driver.take_rejections()]
    assert 1 == len(driver.open_sessions())
    assert [([25, 26], 1, True)] == move(driver, 36)


def created(key: Any, event: Reading) -> Open:
    """Start with one value, or fail over it."""
    return poisoned(Open([]), event)


def test_a_rule_closes_a_session_and_says_so_at_the_end() -> None:
    """Rows of open sessions have no rule yet."""
    rules = SessionRules("10 seconds", max_events=3)
    driver = SessionDriver(in_order(rules, results=ON_UPDATE, watermark_delay=timedelta(seconds=5)))
    found = []
    for second in (10, 11, 12, 13, 14, 20, 60, 61):
        fed(driver, (after(second), reading(second)))
        found += [(row.result.values, row.closed_by) for row in driver.take_rows()]
    assert found == [([10, 11, 12], "max_events"), ([13, 14], None), ([13, 14, 20], "max_events")]


@BOTH_LAYOUTS
def test_an_event_of_the_day_before_joins_the_session_that_midnight_closed(layout: Any) -> None:
    """Late events are of the day in which they happened."""
    rules = SessionRules("10 seconds", midnight="UTC")
    spec = collecting(rules, lateness=Lateness(allowed="1 minute"), storage=Storage(layout=layout))
    driver = SessionDriver(spec)
    for seconds, value in ((-5, 1), (1, 2), (-3, 3), (2, 4), (-1, 5)):
        driver.add("a", at("23:59:59") + timedelta(seconds=1 + seconds), reading(value))
        driver.run_batch()
    rows = ended(driver, "2026-01-02 00:01")
    found = [(row.result.values, row.closed_by, row.revision) for row in rows]
    assert found == [
        ([1], "midnight", 1),
        ([1, 3], "midnight", 2),
        ([1, 3, 5], "midnight", 3),
        ([2, 4], "gap", 1),
    ]


def test_an_idle_source_closes_with_a_final_row() -> None:
    """And what it has closed waits for late events as any other does."""
    rules = SessionRules("10 seconds", close_idle_after="1 minute")
    spec = collecting(rules, results=ON_UPDATE, lateness=Lateness(allowed="1 hour"))
    driver = SessionDriver(spec, processing_time=at("12:00:10"))
    fed(driver, (after(10), reading(1)))
    assert [None] == [row.closed_by for row in driver.take_rows()]
    for _ in range(3):
        driver.advance_processing_time(timedelta(seconds=30))
        driver.run_batch()
    assert [("idle", True)] == [(row.closed_by, row.is_final) for row in driver.take_rows()]
    (late,) = fed(driver, (after(11), reading(2))).take_rows()
    assert ([1, 2], True) == (late.result.values, late.is_final)


def test_other_options_are_refused_over_a_checkpoint() -> None:
    """As with any rule under which state is stored."""
    driver = SessionDriver(collecting(GAP, results=ON_UPDATE))
    feed(driver, 10)
    other = SessionDriver.restore(
        collecting(GAP, results=Results(emit="every 2 events")), driver.snapshot()
    )
    other.add("a", at(after(11)), reading(1))
    with pytest.raises(StateError, match="`revisions`"):
        other.run_batch()


@pytest.mark.parametrize(
    ("before", "now", "rows"),
    [
        ({}, {"results": ON_UPDATE}, [([100], 1, False)]),
        ({}, {"results": Results(emit="every 2 events")}, []),
        ({"results": ON_UPDATE}, {"results": Results(emit="every 5 seconds")}, []),
        ({"results": ON_UPDATE}, {}, []),
        ({"lateness": Lateness(allowed="1h")}, {"results": ON_UPDATE}, [([100], 1, False)]),
        ({"lateness": Lateness(allowed="1h")}, {"lateness": Lateness(allowed="2h")}, []),
    ],
)
@BOTH_LAYOUTS
def test_state_is_carried_over_to_other_options(
    layout: Any, before: dict[str, Any], now: dict[str, Any], rows: list[Any]
) -> None:
    """Open sessions give rows as they're due; closed ones stay where there's lateness."""
    driver = SessionDriver(collecting(GAP, storage=Storage(layout=layout), **before))
    feed(driver, 10, 100)
    feed(driver)
    carried = driver.migrate(collecting(GAP, storage=Storage(layout=layout), **now))
    carried.add("b", at(after(101)), reading(1))
    carried.run_batch()
    found = [
        (r.result.values, r.revision, r.is_final) for r in carried.take_rows() if r.key[0] == "a"
    ]
    assert rows == found
    assert 2 == len(carried.open_sessions())
    carried.add("a", at(after(10)), reading(1))
    carried.run_batch()
    assert ("lateness" in now) == (not carried.take_rejections("late"))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("every 1 day", "every 5 seconds"),
        ("every 1 day of processing time", "every 5 seconds"),
        ("every 1 day", "every 5 seconds of processing time"),
    ],
)
def test_the_next_row_comes_by_the_options_of_now(before: str, now: str) -> None:
    """When it would have come by another clock, or another duration, says nothing."""
    gap = EventTimeGap("1 minute")
    noon = at("12:00")
    driver = SessionDriver(
        collecting(gap, results=Results(emit=before)), processing_time=noon.replace(year=2030)
    )
    assert feed(driver, 10) == []
    carried = driver.migrate(collecting(gap, results=Results(emit=now)))
    assert feed(carried, 20) == []
    carried.advance_processing_time(timedelta(seconds=5))
    assert feed(carried, 21) == [([10, 20, 21], 1, False)]


def test_a_batch_hands_over_what_its_stream_shows() -> None:
    """The sessions that a backfill leaves open give their first rows in the first micro-batch."""
    spec = collecting(GAP, results=ON_UPDATE, watermark_delay=timedelta(seconds=5))
    history = [{"key": "a", "at": at(after(10)), "value": 1, "gap": timedelta(0)}]
    driver = SessionDriver.backfill(spec, history, until=at(after(15)))
    assert not driver.take_rows()
    driver.add("b", at(after(16)), reading(1))
    driver.run_batch()
    assert [("a", 1, False), ("b", 1, False)] == [
        (row.key[0], row.revision, row.is_final) for row in driver.take_rows()
    ]


@BOTH_LAYOUTS
def test_an_event_that_comes_again_gives_no_row(layout: Any) -> None:
    """Its id is known while its session is there, and for so long after that as the spec says."""
    spec = collecting(
        GAP,
        results=ON_UPDATE,
        lateness=Lateness(allowed="1 minute"),
        inputs=Inputs(drop_duplicates_for="2 minutes"),
        storage=Storage(layout=layout),
    )
    driver = SessionDriver(spec)
    assert 1 == len(feed(driver, 10))
    assert not feed(driver, 10)
    move(driver, 50)
    assert not feed(driver, 10)
    assert 2 == len(driver.take_rejections("duplicate"))
    move(driver, 100)
    assert not driver.open_sessions()
    assert driver.snapshot().groups
    move(driver, 140)
    assert not driver.snapshot().groups


def test_explain_session_shows_a_session_with_early_rows_once() -> None:
    """Rows that come before its close change nothing; what comes after it isn't explained."""
    events = [(at(after(second)), reading(second)) for second in (10, 15, 60)]
    spec = collecting(GAP, results=Results(emit="every 5 seconds of processing time"))
    first, second = explain_session(spec, "a", events).sessions
    assert (2, False, 1, True) == (
        len(first.events), first.is_open, len(second.events), second.is_open
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"lateness=Lateness\(\)"):
        explain_session(collecting(GAP, lateness=Lateness(allowed="1 hour")), "a", events)
