"""`SessionDriver`: what happens when in a micro-batch, clocks, restarts, and what is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import attrs
import pandas as pd
import pytest

from examples.visits import View, VisitRow, visits
from sessionkit import Counts, Inputs, Lateness, Results, SessionRules, SessionSpec
from sessionkit.errors import DriverError
from sessionkit.testing import SessionDriver, SessionRow, at, seconds
from sessionkit.testing.drivers.results import BatchResult

Driver = SessionDriver[Any, Any, Any]
MILLISECOND = timedelta(milliseconds=1)
PAGE = View(url="/", seconds=1.0)


@attrs.frozen
class Unreadable:
    """Looks like a page view, but its seconds are text."""

    url: str
    seconds: str


carrying = attrs.evolve(visits, inputs=Inputs(passthrough={"offset": int}))


def driver_of(spec: SessionSpec[Any, Any, Any] = visits, **options: Any) -> Driver:
    """Return a driver that has run one event of ann at 10:00; gap 30, delay 10 minutes."""
    driver = SessionDriver(spec, **options)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    return driver


def all_of(driver: Driver) -> tuple[Any, ...]:
    """Return everything that a refused step must leave alone."""
    return driver.snapshot(), driver.counts, driver.watermark, driver.open_sessions()


# -- the watermark -----------------------------------------------------------------------------


def test_the_watermark_of_a_batch_is_that_of_its_start() -> None:
    """An event moves that of the next batch, to its time less the delay, in whole milliseconds."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    assert None is driver.run_batch().watermark
    driver.add("ann", at("10:05:00.000999"), PAGE)
    assert at("09:50") == driver.run_batch().watermark
    assert at("09:55") == driver.watermark


def test_a_watermark_that_would_go_back_stays_where_it_is() -> None:
    """As in Spark; the micro-batches after it are the same, and the driver warns."""
    driver = driver_of()
    before = all_of(driver)
    text = r"can't go from 09:50 back to 09:49:59.999\n\nHint:"
    with pytest.warns(UserWarning, match=text) as said:
        driver.advance_watermark_to(at("09:49:59.999"))
    assert before == all_of(driver)
    assert [__file__] == [warning.filename for warning in said]


def test_a_watermark_before_the_first_micro_batch_that_makes_events_late_is_said() -> None:
    """On Spark the first micro-batch has none: the test shows what can't be."""
    driver = SessionDriver(visits)
    driver.advance_watermark_to(at("11:00"))
    driver.add("ann", at("10:00"), PAGE)
    driver.add("ann", at("10:50"), PAGE)
    text = r"late in the first micro-batch: 1 of 2 events.*\n\nHint:"
    with pytest.warns(UserWarning, match=text):
        driver.run_batch()
    driver.add("ann", at("10:00"), PAGE)
    assert 1 == driver.run_batch().counts.late


def test_results_before_any_micro_batch_are_said_to_be_none() -> None:
    """Where events wait; of a driver without events, and after a micro-batch, nothing is said."""
    driver = SessionDriver(visits)
    assert [] == driver.take_results()
    driver.add("ann", at("10:00"), PAGE)
    with pytest.warns(UserWarning, match=r"no micro-batch has run yet\n\nHint: call run_batch"):
        assert [] == driver.take_results()
    driver.run_batch()
    driver.add("ann", at("10:00"), PAGE)
    assert [] == driver.take_results()


@pytest.mark.parametrize(
    ("instant", "said"),
    [
        (at("10:00:00.0005"), "whole milliseconds"),
        (datetime(1970, 1, 1, tzinfo=UTC), "after 1970-01-01"),
        (at("10:00").replace(tzinfo=None), "time zone"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))), "from 1970 to 9999"),
    ],
)
def test_a_watermark_that_cannot_be_is_refused(instant: datetime, said: str) -> None:
    """A refused watermark changes nothing."""
    driver = driver_of()
    before = all_of(driver)
    with pytest.raises(DriverError, match=said):
        driver.advance_watermark_to(instant)
    assert before == all_of(driver)


# -- batches without data ----------------------------------------------------------------------


def test_a_batch_without_data_runs_once_for_each_move_of_the_watermark() -> None:
    """After a batch with data one without follows, since the watermark moved; before it, none."""
    driver = SessionDriver(visits)
    assert BatchResult(None, None, [], [], Counts()) == driver.run_batch()
    driver.add("ann", at("10:00"), PAGE)
    assert [0, 1, None, None] == [driver.run_batch().batch_id for _ in range(4)]


def test_run_until_idle_closes_what_the_batch_has_made_due() -> None:
    """It runs the batch over the events, then the one without data that they made due."""
    driver = driver_of()
    driver.add("bob", at("12:00"), PAGE)
    first, second = driver.run_until_idle()
    assert (1, 1, 0) == (first.batch_id, first.counts.processed, first.counts.sessions)
    assert (2, 0, 1) == (second.batch_id, second.counts.processed, second.counts.sessions)


@pytest.mark.parametrize(("later", "closed"), [(timedelta(0), 0), (timedelta.resolution, 1)])
def test_a_session_that_ends_where_a_batch_does_is_left_to_the_stream(
    later: timedelta, closed: int
) -> None:
    """An event just then may still join it."""
    rows = [{"user_id": "ann", "ts": at("10:00"), "url": "/", "seconds": 1.0}]
    driver = SessionDriver.backfill(visits, rows, until=at("10:30") + later)
    assert closed == len(driver.take_rows())


# -- restart -----------------------------------------------------------------------------------


def restored(driver: Driver) -> Driver:
    """Return a driver that goes on with what another left."""
    return SessionDriver.restore(driver.spec, driver.snapshot())


def test_a_restart_fires_nothing_before_new_data() -> None:
    """A session that is due waits after a restart, until a batch with data has run."""
    driver = driver_of()
    driver.add("bob", at("12:00"), PAGE)
    driver.run_batch()
    driver = restored(driver)
    assert None is driver.run_batch().batch_id
    driver.add("bob", at("12:00"), PAGE)
    assert 1 == driver.run_batch().counts.sessions


def test_a_restart_keeps_everything() -> None:
    """Events that wait and the counts too; a snapshot serves several drivers."""
    driver = driver_of(processing_time=at("12:00"))
    driver.add("ann", at("10:10"), PAGE)
    before = all_of(driver)
    again, twin = restored(driver), restored(driver)
    assert before == all_of(again)
    assert Counts(events=1, processed=1) == again.counts
    assert 1 == again.run_batch().counts.processed
    assert [2] == [session.events for session in again.open_sessions()]
    assert before == all_of(driver) == all_of(twin)


# -- a sink that fails -------------------------------------------------------------------------


def test_a_sink_that_fails_changes_nothing() -> None:
    """Neither state, clocks, counts nor the output that can be taken show the failed batch."""
    driver = driver_of()
    driver.add("ann", at("10:10"), PAGE)
    driver.advance_watermark_to(at("11:00"))
    before, *counted = all_of(driver)
    for _ in range(3):
        driver.run_batch(sink_fails=True)
    after, *still_counted = all_of(driver)
    assert before == attrs.evolve(after, waiting=after.planned or (), planned=None)
    assert counted == still_counted
    assert ([], []) == (driver.take_rows(), driver.take_rejections())


def test_a_replay_reads_the_same_rows_under_the_same_clocks() -> None:
    """Rows that come in between wait for the batch after it, and no clock can move."""
    driver = driver_of()
    driver.add("ann", at("10:10"), PAGE)
    driver.add("ann", at("08:00"), PAGE)
    failed = driver.run_batch(sink_fails=True)
    assert (1, 1) == (failed.counts.processed, failed.counts.late)
    driver.add("bob", at("10:20"), PAGE)
    with pytest.raises(DriverError, match="has to run again first"):
        driver.advance_watermark_to(at("12:00"))

    restarted = SessionDriver.restore(driver.spec, driver.snapshot())

    assert failed == restarted.run_batch()
    assert 1 == restarted.run_batch().counts.events


# -- late --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [0, 1, 5])
@pytest.mark.parametrize(
    "time",
    [
        at("10:00"),
        datetime(2020, 2, 29, tzinfo=UTC),
        datetime(1969, 7, 20, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ],
)
def test_an_event_is_handed_out_as_late_however_late_it_is(time: datetime, batches: int) -> None:
    """By years, and however long ago the watermark passed it: nothing is dropped."""
    driver = driver_of()
    for batch in range(batches):
        driver.advance_watermark_to(at("11:00") + batch * MILLISECOND)
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.add("ann", time, PAGE)
    (rejection,) = driver.run_batch().rejections
    assert ("late", "ann", time) == (rejection.kind, rejection.key.user_id, rejection.event_time)
    assert Counts(events=2, processed=1, late=1, sessions=1, rows=1) == driver.counts
    assert driver.counts.is_balanced


# -- quarantine and the processing time --------------------------------------------------------


@attrs.frozen
class Piece:
    sku: str


@attrs.frozen
class Parcel:
    items: list[Piece]
    by_name: dict[str, Piece]


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("`event.items[0]` must be a Piece", Parcel([cast("Piece", None)], {})),
        ("`event.items[1].sku` must be a str", Parcel([Piece("a"), Piece(cast("str", None))], {})),
        ("`event.by_name['a']` must be a Piece", Parcel([], {"a": cast("Piece", None)})),
    ],
)
def test_a_null_inside_of_a_field_is_quarantined_as_on_spark(reason: str, event: Parcel) -> None:
    """Whether it's added as an event or as a row."""
    spec = SessionSpec.per_event(
        Parcel, keys={"user": str}, event_time="ts", gap="30m", watermark_delay="10m"
    )
    driver = SessionDriver(spec)
    driver.add("ann", at("10:00"), event)
    driver.add_row({"user": "ann", "ts": at("10:00"), **attrs.asdict(event, recurse=False)})
    result = driver.run_batch()
    assert Counts(events=2, quarantined=2) == result.counts
    assert all(one.reason.startswith(reason) for one in result.rejections)


@pytest.mark.parametrize(("offset_ms", "quarantined"), [(-1, 0), (0, 0), (1, 1)])
def test_an_event_too_far_ahead_is_quarantined(offset_ms: int, quarantined: int) -> None:
    """More than `max_future_skew` ahead of the processing time, a day here, which moves by hand."""
    driver = SessionDriver(visits, processing_time=at("10:00"))
    for expected in (quarantined, 0):
        driver.add("ann", at("2026-01-02 10:00") + offset_ms * MILLISECOND, PAGE)
        assert expected == driver.run_batch().counts.quarantined
        driver.advance_processing_time("1 millisecond")


def test_a_micro_batch_that_jumps_as_a_whole_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to compare it with: it moves the watermark, and a warning says how far."""
    driver = SessionDriver(attrs.evolve(visits, inputs=Inputs(max_jump="7 days")))
    for day in ("01-01", "01-08", "02-01"):
        driver.add("ann", at(f"2026-{day} 10:00"), PAGE)
        driver.run_batch()
    assert 3 == driver.counts.processed
    (warning,) = caplog.messages
    assert "moves the watermark further than max_jump" in warning
    assert "2026-02-01" in warning


def test_a_run_without_any_event_warns_why_there_are_no_rows() -> None:
    """Unless a test has asked for the rejections, or an event was good."""
    driver = SessionDriver(visits)
    driver.add_row({"user_id": "ann", "ts": None, "url": "/", "seconds": 1.0})
    driver.run_batch()
    with pytest.warns(UserWarning, match="no rows: 1 quarantined, 1 because: its event time is nu"):
        assert [] == driver.take_rows()

    assert 1 == len(driver.take_rejections())
    assert [] == driver.take_rows()


def test_how_far_events_are_behind_is_measured_once_there_is_a_watermark() -> None:
    """Behind the latest event before their micro-batch, though they're late, and over restarts."""
    driver = SessionDriver.restore(visits, driver_of().snapshot())
    for minute in ("11:00", "09:50", "09:00"):
        driver.add("ann", at(minute), PAGE)
    behind = driver.run_batch().counts.behind

    assert 1 == behind.bins[0]
    assert [2, 1, 0] == [behind.at_least(timedelta(minutes=least)) for least in (9, 55, 67)]
    assert behind == driver.counts.behind
    silent = driver_of(attrs.evolve(visits, lateness=Lateness(measured=False)))
    silent.add("ann", at("09:50"), PAGE)
    assert 0 == silent.run_batch().counts.behind.count


def test_processing_time_never_goes_back() -> None:
    """It may stand still; a step back is refused and changes nothing."""
    driver = driver_of(processing_time=at("12:00"))
    driver.advance_processing_time(timedelta(0))
    before = all_of(driver)
    with pytest.raises(DriverError, match="cannot go back"):
        driver.advance_processing_time(-seconds(1))
    assert before == all_of(driver)


# -- what cannot be added ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (lambda d: d.add(("ann", 1), at("10:00"), PAGE), "the key must have one value for each of"),
        (lambda d: d.add((), at("10:00"), PAGE), "the key must have one value for each of"),
        (lambda d: d.add(7, at("10:00"), PAGE), "`user_id` must be a str"),
        (lambda d: d.add("ann", at("10:00").replace(tzinfo=None), PAGE), "time zone"),
        (lambda d: d.add("ann", "10:00", PAGE), "`ts` must be a datetime"),
        (lambda d: d.add("ann", at("10:00"), PAGE, offset=1), "reads no column `offset`"),
        (
            lambda d: d.add("ann", at("10:00"), Unreadable("/", "1")),
            "must be a View, found Unreadable",
        ),
        (lambda d: d.add_row({"user": "ann"}), "reads no column `user`"),
    ],
)
def test_what_cannot_be_a_row_is_refused(add: Callable[[Driver], None], said: str) -> None:
    """A wrong key, time, column or type is a `DriverError` with a hint, and changes nothing."""
    driver = driver_of()
    before = all_of(driver)
    with pytest.raises(DriverError, match=said) as refused:
        add(driver)
    assert "\n\nHint: " in str(refused.value)
    assert before == all_of(driver)


def test_the_rows_of_a_frame_feed_the_driver() -> None:
    """As on Spark, a column that the spec doesn't read is ignored, and a missing time is a null."""
    frame = pd.DataFrame(
        {
            "user_id": ["ann", "bob"],
            "ts": pd.to_datetime(["2026-01-01 10:00Z", "NaT"]),
            "url": ["/", "/"],
            "seconds": [1.0, 2.0],
            "browser": ["lynx", "lynx"],
        }
    )
    driver = SessionDriver(visits)
    rows: list[Any] = frame.to_dict("records")
    for row in rows:
        driver.add_row(row)
    driver.run_batch()

    assert ["ann"] == [session.key.user_id for session in driver.open_sessions()]
    assert ["its event time is null"] == [one.reason for one in driver.take_rejections()]
    assert all("browser" not in row for row in driver.snapshot().unread)


def test_an_event_is_read_when_it_is_added() -> None:
    """What the test does to the object or the row afterwards does not reach the batch."""
    driver = SessionDriver(visits)
    event = View("/", 1.0)
    row = {"user_id": "bob", "ts": at("10:00"), "url": "/", "seconds": 1.0}
    driver.add("ann", at("10:00"), event)
    driver.add_row(row)
    event.seconds = row["seconds"] = 99.0
    driver.run_batch()
    assert [1.0, 1.0] == [session.state.reading for session in driver.open_sessions()]


# -- functions that fail -----------------------------------------------------------------------


# -- output ------------------------------------------------------------------------------------


def test_output_is_handed_out_once_in_order_of_key_and_start() -> None:
    """`take_rows` gathers the batches since the last call, and leaves nothing."""
    driver = SessionDriver(visits)
    for key, minute in [("bob", "10:00"), ("ann", "11:00"), ("ann", "10:00"), ("eve", "13:00")]:
        driver.add(key, at(minute), PAGE)
    driver.run_until_idle()
    taken = [(session.key.user_id, session.session_start) for session in driver.take_rows()]
    assert [("ann", at("10:00")), ("ann", at("11:00")), ("bob", at("10:00"))] == taken
    assert [] == driver.take_rows()


def test_rows_that_replace_others_come_by_micro_batch_first() -> None:
    """A table that takes each row in place of the earlier ones ends with the latest."""
    driver = SessionDriver(attrs.evolve(visits, results=Results(emit="on_update")))
    for key, minute in [("bob", "10:05"), ("ann", "10:20"), ("bob", "10:00")]:
        driver.add(key, at(minute), PAGE)
        driver.run_batch()
    driver.add("ann", at("10:10"), PAGE)
    driver.add("bob", at("10:06"), PAGE)
    driver.run_batch()

    rows = driver.take_rows()

    expected = [("bob", 1), ("ann", 1), ("bob", 2), ("ann", 2), ("bob", 3)]
    assert expected == [(row.key.user_id, row.revision) for row in rows]
    assert [at("10:05"), at("10:00"), at("10:00")] == [
        row.session_start for row in rows if row.key.user_id == "bob"
    ]


def test_a_frame_has_the_columns_that_spark_would_give() -> None:
    """Key, session columns, result; also where there is no row."""
    driver = driver_of()
    times = ["session_start", "session_end", "last_event_time"]
    names = ["user_id", "session_id", *times, "pages", "reading"]
    assert names == list(driver.take_frame().columns)
    driver.advance_watermark_to(at("11:00"))
    (session,) = driver.run_batch().rows
    assert VisitRow(1, 1.0) == session.result
    row = ["ann", session.session_id, at("10:00"), at("10:30"), at("10:00"), 1, 1.0]
    pd.testing.assert_frame_equal(pd.DataFrame([row], columns=names), driver.take_frame())
    assert [] == driver.take_results()


def test_rejections_can_be_taken_by_kind() -> None:
    """One kind is taken, the others stay."""
    driver = driver_of()
    driver.advance_watermark_to(at("11:00"))
    driver.add("ann", at("10:00"), PAGE)
    driver.add("bob", None, PAGE)
    driver.run_batch()
    assert ["late"] == [rejection.kind for rejection in driver.take_rejections("late")]
    assert [] == driver.take_rejections("late")
    assert ["quarantined"] == [rejection.kind for rejection in driver.take_rejections()]


def test_carried_columns_show_in_rejections_only() -> None:
    """They travel with the event, a null where there was none, and never reach the functions."""
    driver = SessionDriver(carrying)
    driver.add("ann", None, PAGE, offset=41)
    driver.add("bob", None, PAGE)
    driver.run_batch()
    shown = {r.key.user_id: r.passthrough for r in driver.take_rejections()}
    assert {"ann": {"offset": 41}, "bob": {"offset": None}} == shown


def test_an_open_session_says_when_it_would_close_and_why() -> None:
    """At its end by the gap, or before that by a rule: just when the watermark gets there."""
    (by_gap,) = driver_of().open_sessions()
    rules = SessionRules("30 minutes", max_events=1)
    driver = driver_of(attrs.evolve(visits, timeout=rules, order="event_time"))
    (by_rule,) = driver.open_sessions()
    assert (at("10:30"), at("10:30"), "gap") == (
        by_gap.session_end,
        by_gap.closes,
        by_gap.closed_by,
    )
    assert (at("10:30"), at("10:00")) == (by_rule.session_end, by_rule.closes)
    assert "max_events" == by_rule.closed_by
    driver.advance_watermark_to(by_rule.closes - MILLISECOND)
    assert [] == driver.run_batch().rows
    driver.advance_watermark_to(by_rule.closes)
    assert ["max_events"] == [row.closed_by for row in driver.run_batch().rows]


def test_a_row_shows_only_what_its_spec_uses() -> None:
    """Neither rules nor revisions are used, or they are."""
    noon = at("12:00")
    plain: SessionRow[Any] = SessionRow(
        key=1, session_id="a", session_start=noon, session_end=noon, result=None
    )
    times = f"session_start={noon!r}, session_end={noon!r}"
    assert f"SessionRow(key=1, session_id='a', {times}, result=None)" == repr(plain)
    later = attrs.evolve(plain, closed_by="max_events", revision=2, supersedes=("b",))
    assert repr(later).endswith("closed_by='max_events', revision=2, supersedes=('b',))")
