"""The picture of a driver: its latest micro-batches."""

import html
import re
from datetime import timedelta
from typing import Any

import attrs
import pytest

from examples.devices.spec import Reading, sensors
from examples.visits import View, visits
from sessionkit import KeyState, KeyTimes, Results
from sessionkit.testing import SessionDriver, StatefulDriver, at, minutes
from sessionkit.testing.literals import literal
from sessionkit.testing.svg import cut
from sessionkit.testing.timeline import MOST_BARS, MOST_BATCHES, MOST_LANES
from tests.support.stateful_specs import Added, Amount, Sum, report, summing

PAGE = View(url="/", seconds=1.0)


def test_a_driver_is_short_as_text() -> None:
    """It has no addresses, so that a notebook shows the same each time."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    assert f"SessionDriver(watermark=09:50, counts={driver.counts})" == repr(driver)


def picture_of(driver: Any) -> str:
    """Return what `print` shows of a driver below its first line."""
    return str(driver).partition("\n")[2]


def bars_of(driver: Any) -> list[str]:
    return [line[74:] for line in picture_of(driver).splitlines() if " to " in line]


def test_events_that_no_batch_has_read_are_counted_and_drawn() -> None:
    """Before the first micro-batch, and after it; an erasure is no event."""
    driver = SessionDriver(visits)
    for time in ("10:00", "10:05", "10:10"):
        driver.add("ann", at(time), PAGE)
    assert "SessionDriver: 3 events wait" == str(driver).partition("\n")[0]
    assert "\n'ann'       .                             .                            .\n" in str(
        driver
    )
    driver.run_batch()
    driver.add("bob", at("10:30"), PAGE)
    driver.erase("ann")
    assert "SessionDriver: events=3, processed=3; 1 event waits" == str(driver).partition("\n")[0]


def test_an_event_that_waits_for_the_watermark_is_drawn_as_waiting() -> None:
    """A micro-batch has read it, and no session counts it yet."""
    driver = SessionDriver(attrs.evolve(visits, order="event_time"))
    for time in ("10:00", "10:20"):
        driver.add("ann", at(time), PAGE)
    driver.run_batch()
    assert ["'ann'", ".", "."] == picture_of(driver).splitlines()[2].split()
    driver.advance_watermark_to(at("10:10"))
    driver.run_batch()
    assert ["'ann'", "o", "."] == picture_of(driver).splitlines()[2].split()


def test_a_driver_without_events_has_no_picture() -> None:
    """Also one whose clock was moved has no lane."""
    driver = SessionDriver(visits)
    assert ("SessionDriver: no event", "") == (str(driver), picture_of(driver))
    driver.advance_watermark_to(at("10:00"))
    assert "\nwatermark   ^" in picture_of(driver)


def test_showing_a_driver_changes_nothing() -> None:
    """What was taken out of it stays in the picture, an event that waits too."""
    driver = SessionDriver(visits)
    for time in ("10:00", "11:25", "10:20"):
        driver.add("ann", at(time), PAGE)
        driver.run_batch()
    driver.add("bob", at("11:30"), PAGE)
    before, picture = driver.snapshot(), str(driver)
    assert 1 == len(driver.take_rows())
    assert (picture, before) == (str(driver), driver.snapshot())
    assert ["closed 10:00 to 10:30", "open 11:25 to 11:55"] == bars_of(driver)
    _, _, ann, _, _, bob, *_ = picture.splitlines()[1:]
    assert ("o x o", ".") == (" ".join(ann[12:].split()), bob[12:].strip())


def test_a_failed_sink_draws_its_batch_once() -> None:
    """Its events wait until the batch has run again."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch(sink_fails=True)
    assert "\n'ann'       .\n" in picture_of(driver)
    driver.run_batch()
    assert "\n'ann'       o\n" in picture_of(driver)


def test_an_early_row_closes_nothing() -> None:
    """Its session is drawn once, as open."""
    driver = SessionDriver(attrs.evolve(visits, results=Results(emit="every 1 events")))
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    assert [False] == [row.is_final for row in driver.take_rows()]
    assert ["open 10:00 to 10:30"] == bars_of(driver)


def test_a_driver_draws_sessions_in_text() -> None:
    """To scale, a lane a key; what closed, what was late, and where the watermark stands."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.add("bob", at("10:05"), PAGE)
    driver.run_batch()
    driver.advance_watermark_to(at("10:35"))
    driver.add("bob", at("10:01"), PAGE)
    driver.run_batch()
    assert SESSIONS == picture_of(driver)


SESSIONS = """\
2026-01-01  10:00   10:05    10:10   10:15    10:20   10:25    10:30   10:35
            |-------|--------|-------|--------|-------|--------|-------|
'ann'       o
            [==================================================)          closed 10:00 to 10:30
'bob'         x     o
                    [==================================================)  closed 10:05 to 10:35
watermark                                                              ^  10:35
o event (2..9, + several)  . waiting  x rejected  [==) closed  [--) open  ^ clock  < > outside"""


def alarm(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Added:
    """Set a timer an hour after ten; a 2 deletes it."""
    for event in events:
        if event.number == 2:
            times.delete_timer("alarm")
        else:
            times.set_event_timer("alarm", at("11:00"))
        state.set(Sum(state.get(Sum()).total + event.number))
    return Added("process", state.get().total)


def test_a_driver_draws_timers_in_text() -> None:
    """Those that are set: not one that was deleted, nor one that has fired."""
    driver = StatefulDriver(summing(alarm, report))
    driver.add("ann", at("10:00"), Amount(1))
    driver.add("bob", at("10:30"), Amount(5))
    driver.run_batch()
    driver.add("bob", at("10:35"), Amount(2))
    driver.run_batch()
    assert TIMERS == picture_of(driver)
    driver.advance_watermark_to(at("11:01"))
    driver.run_batch()
    assert "set for" not in picture_of(driver)


TIMERS = """\
2026-01-01  10:00     10:10     10:20     10:30    10:40     10:50     11:00
            |---------|---------|---------|--------|---------|---------|
'ann'       o
                                                                       T  alarm set for 11:00
'bob'                                     o   o
watermark                       ^    ^                                    10:25
o event (2..9, + several)  . waiting  x rejected  T timer set  ^ clock  < > outside"""


def test_the_processing_time_has_a_lane_where_it_is_the_clock() -> None:
    """Before and after a timer has fired."""
    driver = StatefulDriver(sensors(silence=minutes(5)), processing_time=at("10:00"))
    driver.add("cellar", at("09:59"), Reading(4.0))
    driver.run_batch()
    assert " silence set for 10:05\n" in picture_of(driver)
    driver.advance_processing_time(minutes(6))
    driver.run_batch()
    assert "\nprocessing " in picture_of(driver)


@pytest.mark.parametrize("key", ["<b>&\"'", "</pre><script>alert(1)</script>", "\x00\x1b"])
def test_a_notebook_shows_a_key_escaped(key: str) -> None:
    """Whatever the key is, nothing is loaded and nothing runs."""
    driver = SessionDriver(visits)
    driver.add(key, at("10:00"), PAGE)
    driver.run_batch()
    shown = driver._repr_html_()
    assert shown.startswith("<p>SessionDriver: events=1, processed=1</p><svg ")
    assert f">{html.escape(cut(literal(key)))}</text>" in shown
    assert {"svg", "title", "text", "path", "circle", "rect", "polygon", "g", "p"} >= {
        *re.findall(r"<(\w+)", shown)
    }


def test_the_picture_of_many_keys_has_an_end() -> None:
    """And so does what a driver remembers for it."""
    driver = SessionDriver(visits)
    for number in range(MOST_LANES + 3):
        driver.add(f"user {number:02}", at("10:00"), PAGE)
    driver.run_batch()
    assert picture_of(driver).endswith("\nand 3 more keys")
    assert f"'user {MOST_LANES - 1}'" in picture_of(driver)
    assert f"'user {MOST_LANES}'" not in picture_of(driver)
    for minute in range(2 * MOST_BATCHES):
        driver.add("ann", at("10:00") + timedelta(minutes=minute), PAGE)
        driver.run_batch()
    assert "'user 00'" not in picture_of(driver)


def test_of_many_sessions_the_latest_are_drawn() -> None:
    """And a line says how many were left out."""
    driver = SessionDriver(visits)
    for hour in range(MOST_BARS + 2):
        driver.add("ann", at("10:00") + timedelta(hours=hour), PAGE)
    driver.run_until_idle()
    assert MOST_BARS == len(bars_of(driver))
    assert "open 2026-01-03 03:00 to 2026-01-03 03:30" == bars_of(driver)[-1]
    assert picture_of(driver).endswith("\nand 2 earlier sessions or timers of these keys")
