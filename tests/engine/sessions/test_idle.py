"""Sources that fall silent: sessions close by the processing time, and stay closed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from sessionkit import Inputs, Lateness, SessionRules, SessionSpec, SpecError, Storage
from sessionkit.testing import SessionDriver

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
BOTH_LAYOUTS = pytest.mark.parametrize("layout", ["buckets", "pages"])


@attrs.frozen
class View:
    page: str


@attrs.define
class Visit:
    pages: list[str] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        self.pages.append(event.page)

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages


def spec_of(**options: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec that closes sessions five minutes after the last event of all."""
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "timeout": SessionRules("30 minutes", close_idle_after="5 minutes"),
        "watermark_delay": "10 minutes",
        "storage": Storage(bucket_count=1),
        **options,
    }
    return SessionSpec.of(Visit, **settings)


SPEC = spec_of()


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def wait(driver: SessionDriver[Any, Any, Any], minutes: int) -> list[tuple[str, str | None, int]]:
    """Run a micro-batch each minute; return who closed, why, and after how many minutes."""
    found: list[tuple[str, str | None, int]] = []
    for minute in range(1, minutes + 1):
        driver.advance_processing_time(timedelta(minutes=1))
        rows = driver.run_batch().rows
        found += [(row.key.user, row.closed_by, minute) for row in rows]
    return found


def started(spec: SessionSpec[Any, Any, Any], now: datetime = NOON) -> SessionDriver[Any, Any, Any]:
    """Return a driver whose processing time is noon, when its first events came."""
    driver = SessionDriver(spec, processing_time=now)
    driver.add("ann", after(-1), View("/"))
    driver.add("bob", after(0), View("/"))
    driver.run_batch()
    return driver


@BOTH_LAYOUTS
def test_sessions_close_when_an_event_of_now_would_end_them(layout: Any) -> None:
    """Each closes a gap and the watermark delay after its last event, and not sooner."""
    driver = started(spec_of(storage=Storage(layout=layout)))
    assert wait(driver, 60) == [("ann", "idle", 39), ("bob", "idle", 40)]
    assert not driver.open_sessions()


@pytest.mark.parametrize(("buckets", "late"), [(1, 1), (64, 0)])
def test_an_old_event_of_another_key_is_late_in_the_bucket_of_a_session_that_closed(
    buckets: int, late: int
) -> None:
    """The watermark in force is that of the bucket, and a bucket with nothing stored has none."""
    driver = started(spec_of(storage=Storage(bucket_count=buckets)))
    wait(driver, 60)
    driver.add("cid", after(0), View("/"))

    assert late == driver.run_batch().counts.late


@BOTH_LAYOUTS
def test_what_comes_later_for_them_is_late(layout: Any) -> None:
    """The floor is stored, so a restart changes nothing; newer events begin a new session."""
    spec = spec_of(storage=Storage(layout=layout))
    driver = started(spec)
    wait(driver, 45)
    driver = SessionDriver.restore(spec, driver.snapshot())
    driver.add("bob", after(-1), View("/too late"))
    driver.add("bob", after(44), View("/new"))
    driver.run_batch()
    assert [one.event["page"] for one in driver.take_rejections("late")] == ["/too late"]
    assert [one.state.pages for one in driver.open_sessions()] == [["/new"]]


def test_nothing_is_left_once_the_watermark_has_passed_the_floor() -> None:
    """The floor of an empty bucket is forgotten when it's of no more use."""
    driver = started(spec_of())
    wait(driver, 45)
    assert len(driver.snapshot().groups) == 1
    driver.add("eve", after(200), View("/"))
    driver.run_batch()
    driver.advance_watermark_to(after(300))
    driver.run_until_idle()
    assert not driver.snapshot().groups


def test_events_that_move_the_watermark_start_the_count_again() -> None:
    """As long as any event does, sessions close by the watermark alone."""
    driver = started(spec_of())
    closed = []
    for minutes in range(3, 60, 3):
        driver.add("eve", after(minutes), View("/"))
        closed += wait(driver, 3)
    assert [(user, reason) for user, reason, _ in closed] == [("ann", "gap"), ("bob", "gap")]


def test_a_pause_of_the_query_does_not_count() -> None:
    """After a restart the source has its time again: what waited in it isn't late."""
    spec = spec_of()
    driver = started(spec)
    driver = SessionDriver.restore(spec, driver.snapshot())
    driver.advance_processing_time(timedelta(hours=3))
    driver.add("ann", after(20), View("/from the backlog"))
    driver.run_batch()
    assert not driver.take_rows()
    assert not driver.take_rejections()
    assert driver.open_sessions()[0].state.pages == ["/", "/from the backlog"]
    assert {user for user, *_ in wait(driver, 6)} == {"ann", "bob"}


def test_a_clock_that_goes_back_starts_the_count_again() -> None:
    """Sessions close as soon as with a clock that was right all the time, and not an hour later."""
    spec = spec_of()
    driver = started(spec)
    driver.advance_processing_time("1 hour")
    driver.run_batch()
    left = driver.snapshot()
    right = attrs.evolve(left.clocks, processing=after(1))
    driver = SessionDriver.restore(spec, attrs.evolve(left, clocks=right))
    driver.add("bob", after(0), View("/again"))
    driver.run_batch()
    assert wait(driver, 60) == [("ann", "idle", 38), ("bob", "idle", 39)]


def clock_at(
    spec: SessionSpec[Any, Any, Any], driver: SessionDriver[Any, Any, Any], now: datetime
) -> SessionDriver[Any, Any, Any]:
    """Start the query again, with a clock that shows another time."""
    left = driver.snapshot()
    clocks = attrs.evolve(left.clocks, processing=now)
    return SessionDriver.restore(spec, attrs.evolve(left, clocks=clocks))


def awake(driver: SessionDriver[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    """Add an event that moves no watermark: Spark runs nothing after a start until one comes."""
    driver.add("bob", after(0), View("/again"))
    driver.run_batch()
    return driver


def late_of(driver: SessionDriver[Any, Any, Any], minutes: range) -> list[datetime]:
    """Let an event come each minute, of a key of its own each time; return which were late."""
    for minute in minutes:
        driver.add(f"user {minute}", after(minute), View("/"))
        driver.advance_processing_time("1 minute")
        driver.run_batch()
    return [one.event_time for one in driver.take_rejections("late") if one.event_time]


A_MONTH = timedelta(days=30)


def ahead_in_between(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    return awake(clock_at(spec, started(spec), after(1) + A_MONTH))


def ahead_at_first(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    return started(spec, NOON + A_MONTH)


def ahead_over_a_restart(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    driver = ahead_in_between(spec)
    wait(driver, 3)
    return awake(SessionDriver.restore(spec, driver.snapshot()))


@pytest.mark.parametrize("ahead", [ahead_in_between, ahead_at_first, ahead_over_a_restart])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"storage": Storage(layout="pages", bucket_count=1)},
        {"lateness": Lateness(allowed="1 hour")},
        {"lateness": Lateness(judged_by="session")},
        {"inputs": Inputs(event_id=("user",), drop_duplicates_for="7 days")},
        {"order": "event_time"},
    ],
    ids=str,
)
def test_a_clock_that_was_ahead_makes_no_later_event_late(
    ahead: Callable[[SessionSpec[Any, Any, Any]], SessionDriver[Any, Any, Any]],
    options: dict[str, Any],
) -> None:
    """What was open closes too early; the watermark in force goes no further than its end."""
    spec = spec_of(**options)
    driver = ahead(spec)
    assert {"ann", "bob"} == {user for user, *_ in wait(driver, 10)}
    driver = clock_at(spec, driver, after(20))

    # In the order of time, nothing can come before the end of what has closed.
    first = 31 if spec.order == "event_time" else 20
    assert [] == late_of(driver, range(first, first + 120))
    assert driver.counts.is_balanced


def test_a_clock_that_was_behind_closes_nothing_until_it_is_right() -> None:
    """Then the count begins anew, as after a pause."""
    driver = awake(clock_at(SPEC, started(SPEC), after(1) - A_MONTH))
    with pytest.warns(UserWarning, match="`close_idle_after` can't close a session"):
        assert [] == wait(driver, 60)
    driver = awake(clock_at(SPEC, driver, after(61)))
    assert {("ann", "idle"), ("bob", "idle")} == {closed[:2] for closed in wait(driver, 6)}


def test_a_shorter_delay_keeps_no_session_of_a_silent_source_open() -> None:
    """How far the watermark may go is stored with it, from when its last event came."""
    driver = started(SPEC)
    wait(driver, 3)
    shorter = attrs.evolve(SPEC, watermark_delay="1 second")
    driver = awake(SessionDriver.restore(shorter, driver.snapshot()))
    assert {("ann", "idle"), ("bob", "idle")} == {closed[:2] for closed in wait(driver, 60)}


@BOTH_LAYOUTS
def test_a_session_of_a_seed_with_a_longer_gap_closes_too(layout: Any) -> None:
    """It keeps its end, which is later than any of the new spec's."""
    spec = spec_of(storage=Storage(layout=layout, bucket_count=1))
    longer = SessionRules("2 hours", close_idle_after="5 minutes")
    driver = started(attrs.evolve(spec, timeout=longer)).migrate(spec)
    driver.add("cid", after(0), View("/"))
    driver.run_batch()
    closed = [(user, reason) for user, reason, _ in wait(driver, 140)]
    assert [("cid", "idle"), ("ann", "idle"), ("bob", "idle")] == closed


@BOTH_LAYOUTS
def test_a_session_with_allowed_lateness_stays_for_it(layout: Any) -> None:
    """It closes when its gap is over, and may go on until the allowed lateness is over too."""
    spec = attrs.evolve(
        SPEC, lateness=Lateness(allowed="1 hour"), storage=Storage(layout=layout, bucket_count=1)
    )
    driver = started(spec)
    assert [("ann", "idle", 39), ("bob", "idle", 40)] == wait(driver, 60)
    driver.add("bob", after(1), View("/again"))
    assert [2] == [len(row.result.pages) for row in driver.run_batch().rows]
    wait(driver, 60)
    driver.add("bob", after(1), View("/too late"))
    assert 1 == driver.run_batch().counts.late


def test_held_events_get_their_turn() -> None:
    """Under `order="event_time"` they're folded before their session closes."""
    driver = started(spec_of(order="event_time"))
    assert wait(driver, 60) == [("ann", "idle", 39), ("bob", "idle", 40)]
    assert [row.result.pages for row in driver.take_rows()] == [["/"], ["/"]]
    assert driver.counts.is_balanced


def test_a_span_that_is_not_positive_is_refused() -> None:
    """It's read as every duration."""
    with pytest.raises(SpecError, match="`close_idle_after` must be longer than zero"):
        SessionRules("30 minutes", close_idle_after="0s")
