"""What a bucket says of itself after a micro-batch, against what it has stored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pandas as pd
import pytest

from examples.visits import visits
from sessionkit import Inputs, Lateness, SessionRules, Storage
from sessionkit._engine.counts import COUNTED
from sessionkit._engine.micro_batch import BucketStats
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import BINS_AT, Worker
from sessionkit._instants import micros_of
from sessionkit.testing import FakeGroupState
from sessionkit.testing.drivers.query import PagedGroupState
from sessionkit.testing.drivers.rows import input_frame

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
MINUTE = timedelta(minutes=1)
MINUTE_MS = 60_000


def frame_of(spec: Any, *minutes: int) -> pd.DataFrame:
    """Return page views of as many users, so many minutes after noon."""
    rows = [
        {"user_id": f"u{minute}", "ts": NOON + minute * MINUTE, "url": "/", "seconds": 1.0}
        for minute in minutes
    ]
    return input_frame(spec, rows)


def fresh() -> FakeGroupState:
    return FakeGroupState(timeout="EventTimeTimeout", watermark_ms=0)


def said(spec: Any, state: FakeGroupState, *frames: pd.DataFrame) -> BucketStats:
    """Run one micro-batch of bucket 7; return what it says."""
    seen: Any = PagedGroupState.of(state) if spec.storage.layout == "pages" else state
    (frame,) = Worker(logic_of(spec))((7,), frames, seen)
    label, *numbers = frame["_counts"].iloc[-1][len(COUNTED) : BINS_AT]
    assert 7 == label
    return BucketStats(*numbers)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_bucket_says_what_it_has_stored(layout: Any) -> None:
    """Sessions, bytes and, in a bucket that is read as a whole, when the oldest session began."""
    spec = attrs.evolve(visits, storage=Storage(layout=layout))
    state = fresh()
    first = said(spec, state, frame_of(spec, 5, 3, 90))
    after = state.stored_after()
    later = state.next_call(watermark_ms=NOON_MS + 40 * MINUTE_MS)
    second = said(spec, later, frame_of(spec, 100))

    oldest = [micros_of(NOON + minute * MINUTE) for minute in (3, 90)]
    assert (3, 0, None) == (first.open, first.buffered, first.watermark_us)
    assert (2, 0, (NOON_MS + 40 * MINUTE_MS) * 1000) == (
        second.open,
        second.buffered,
        second.watermark_us,
    )
    if layout == "buckets":
        assert after is not None
        assert after.value is not None
        assert len(after.value[-1]) == first.stored_bytes
        assert oldest == [first.oldest_us, second.oldest_us]
    else:
        assert (None, None) == (first.oldest_us, second.oldest_us)
        assert 0 < second.stored_bytes


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_bucket_that_is_left_with_nothing_says_so(layout: Any) -> None:
    """Its last session has closed, so its row is gone."""
    spec = attrs.evolve(visits, storage=Storage(layout=layout))
    state = fresh()
    said(spec, state, frame_of(spec, 0))
    ended = state.next_call(watermark_ms=NOON_MS + 30 * MINUTE_MS, has_timed_out=True)

    assert BucketStats(watermark_us=(NOON_MS + 30 * MINUTE_MS) * 1000) == said(spec, ended)


@pytest.mark.parametrize(
    "option",
    [{"inputs": Inputs(drop_duplicates_for="1h")}, {"lateness": Lateness(allowed="1h")}],
    ids=str,
)
def test_a_session_that_has_closed_is_not_open_though_it_is_remembered(option: Any) -> None:
    """It stays for events that come again, or late; pages alone tell how many such there are."""
    spec = attrs.evolve(visits, **option)
    state = fresh()
    said(spec, state, frame_of(spec, 0, 90))
    ended = state.next_call(watermark_ms=NOON_MS + 40 * MINUTE_MS, has_timed_out=True)
    found = said(spec, ended)
    after: Any = ended.stored_after()
    paged = attrs.evolve(spec, storage=Storage(layout="pages"))

    assert (1, micros_of(NOON + 90 * MINUTE)) == (found.open, found.oldest_us)
    assert 2 == after.value[3]
    assert said(paged, fresh(), frame_of(paged, 0)).open is None


def test_events_that_wait_are_told_apart_from_sessions() -> None:
    """Under `order="event_time"`, they are in no session yet."""
    spec = attrs.evolve(visits, order="event_time")
    state = fresh()
    found = said(spec, state, frame_of(spec, 0, 1))

    assert (0, 2, None) == (found.open, found.buffered, found.oldest_us)
    assert 0 < found.stored_bytes


def test_a_bucket_of_an_idle_source_says_by_which_watermark_it_went_on() -> None:
    """After `close_idle_after`, that is the processing time, less the delay."""
    rules = SessionRules("30 minutes", close_idle_after="5 minutes")
    spec = attrs.evolve(visits, timeout=rules, watermark_delay=timedelta(minutes=10))
    state = FakeGroupState(
        timeout="ProcessingTimeTimeout", watermark_ms=1, processing_time_ms=NOON_MS
    )
    first = said(spec, state, frame_of(spec, 0))
    silent = state
    for minutes in (1, 3, 6):
        silent = silent.next_call(
            watermark_ms=NOON_MS - 10 * MINUTE_MS,
            processing_time_ms=NOON_MS + minutes * MINUTE_MS,
            has_timed_out=True,
        )
        last = said(spec, silent)

    assert 1000 == first.watermark_us
    assert (NOON_MS - 4 * MINUTE_MS) * 1000 == last.watermark_us
