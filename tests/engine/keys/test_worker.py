"""The callables that Spark calls for a `StatefulSpec`, with a group state and frames in hand."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
import pandas as pd
import pytest

from sessionkit import (
    Counts,
    EventTimeGap,
    KeyState,
    KeyTimes,
    NoTimeout,
    ProcessingTimeGap,
    StatefulSpec,
    TimeToLive,
)
from sessionkit._engine.shell.payload import FORMAT_VERSION
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit.spec import by_processing_time
from sessionkit.testing import FakeGroupState, at, minutes
from sessionkit.testing.drivers.results import Rejection, read_output
from sessionkit.testing.drivers.rows import Row, input_frame
from tests.support.packs import run_whole
from tests.support.stateful_specs import Added, Amount, Sum, add, report, summing

NOON = at("12:00")
NOON_MS = int(NOON.timestamp() * 1000)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MICRO, MILLI = timedelta(microseconds=1), timedelta(milliseconds=1)
Spec = StatefulSpec[Any, Any, Any]


def frame_of(spec: Spec, *times: datetime, key: str = "ann") -> pd.DataFrame:
    """Return a frame with an event at each of these times; without any, an empty frame."""
    rows = [{"key": key, "at": time, "number": 1} for time in times or [NOON]]
    frame = input_frame(spec, rows)
    return frame if times else frame.iloc[:0]


def fresh(spec: Spec, watermark_ms: int = 0, now_ms: int = 0) -> FakeGroupState:
    """Return the state of a group that has stored nothing."""
    timeouts: dict[Any, Any] = {
        "event_time": "EventTimeTimeout",
        "processing_time": "ProcessingTimeTimeout",
        None: "NoTimeout",
    }
    return FakeGroupState(
        timeout=timeouts[spec.clock],
        watermark_ms=None if spec.watermark_delay is None else watermark_ms,
        processing_time_ms=now_ms,
    )


def call(
    spec: Spec, state: FakeGroupState, *frames: pd.DataFrame, key: Any = (1,)
) -> tuple[list[Row], list[Rejection], Counts]:
    """Run one micro-batch of a group; return rows, rejections and counts."""
    worker = Worker(logic_of(spec), with_rejected=True)
    rows, rejections, counts, _ = read_output(spec, worker(key, frames, state))
    return [{**row.key._asdict(), **attrs.asdict(row.result)} for row in rows], rejections, counts


def called(spec: Spec, *times: datetime, watermark_ms: int = 0, now_ms: int = 0) -> FakeGroupState:
    """Return the state behind a first batch with events at these times."""
    state = fresh(spec, watermark_ms, now_ms)
    call(spec, state, frame_of(spec, *times))
    return state


def armed_at(instant: datetime, *, clock: str = "event", **changes: Any) -> Spec:
    """Make a spec whose `process` sets a timer, on either clock."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        if clock == "event":
            times.set_event_timer("due", instant)
        else:
            times.set_processing_timer("due", instant)

    processing = clock == "processing"
    return summing(process, by_processing_time(report) if processing else report, **changes)


STEPS = (-MILLI, -MICRO, timedelta(0), MICRO, MILLI)
ENDING = summing(add, report, timeout=EventTimeGap("30m"))


@pytest.mark.parametrize(
    ("steps_ms", "armed"),
    [
        ([-1, -1, 0, 0, 1], lambda step: (armed_at(NOON + step), at("11:00"))),
        ([-1, -1, 0, 0, 1], lambda step: (armed_at(NOON + step, clock="processing"), at("11:00"))),
        ([-2, -1, -1, 0, 0], lambda step: (ENDING, NOON + step - minutes(30))),
    ],
    ids=["event timer", "processing timer", "end"],
)
def test_spark_is_armed_so_that_it_calls_past_a_timer_and_at_an_end(
    steps_ms: Sequence[int], armed: Any
) -> None:
    """It calls when its timer is strictly before its clock."""
    found = [called(*armed(step), now_ms=NOON_MS - HOUR_MS).timeout_timestamp_ms for step in STEPS]

    assert [NOON_MS + step_ms for step_ms in steps_ms] == found


@pytest.mark.parametrize("timeout", [ProcessingTimeGap("1h"), TimeToLive("1h")])
def test_an_end_in_processing_time_arms_the_millisecond_before_it(timeout: Any) -> None:
    """The first batch at the end or behind it is called."""
    state = called(summing(add, report, timeout=timeout), at("11:00"), now_ms=NOON_MS - HOUR_MS)

    assert NOON_MS - 1 == state.timeout_timestamp_ms


def test_the_earliest_of_all_is_armed() -> None:
    """Timers and ends of every key of a bucket share the one timer that Spark has for it."""
    spec = summing(add, report, timeout=EventTimeGap("30m") | TimeToLive("2h", clock="event_time"))
    state = fresh(spec)

    call(
        spec,
        state,
        frame_of(spec, at("11:40"), key="ann"),
        frame_of(spec, at("11:30"), key="bob"),
        frame_of(spec, at("11:50"), key="cid"),
    )

    assert NOON_MS - 1 == state.timeout_timestamp_ms


def test_a_processing_timer_at_the_time_of_its_batch_is_armed_for_the_next_one() -> None:
    """Spark takes no delay below a millisecond."""
    state = called(armed_at(NOON, clock="processing"), at("11:00"), now_ms=NOON_MS)

    assert NOON_MS + 1 == state.timeout_timestamp_ms


def test_an_event_timer_under_a_processing_clock_looks_again_in_the_next_batch() -> None:
    """No timer of Spark's waits for the watermark then, so the group is woken at every trigger."""

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        times.set_event_timer("due", at("15:00"))
        times.set_processing_timer("far", at("20:00"))

    spec = summing(process, by_processing_time(report))

    assert NOON_MS + 1 == called(spec, at("11:00"), now_ms=NOON_MS).timeout_timestamp_ms


@pytest.mark.parametrize(
    "spec",
    [
        summing(),
        summing(watermark_delay=None),
        summing(timeout=NoTimeout(), on_timer=by_processing_time(report)),
    ],
    ids=["event", "none", "processing"],
)
def test_nothing_is_armed_where_nothing_waits(spec: Spec) -> None:
    """A state without timers and policy rests until data come."""
    state = called(spec, at("11:00"))

    assert state.is_updated
    assert None is state.timeout_timestamp_ms


def test_the_row_of_a_bucket_says_what_it_holds() -> None:
    """Beside the bytes stand numbers that a person may read: keys, and what is due next."""
    spec = summing(add, report, timeout=EventTimeGap("30m"))
    state = fresh(spec)
    call(spec, state, frame_of(spec, at("11:30")), frame_of(spec, at("11:40"), key="bob"))

    stored = state.stored_after()
    assert stored is not None
    assert stored.value is not None
    assert (FORMAT_VERSION, 64, 0, 2, 0, NOON_MS * 1000, None) == stored.value[:-1]
    assert stored.value[-1].startswith(b"SKB1")


def whole(spec: Spec, *times: datetime) -> tuple[list[str], list[Rejection], Counts]:
    """Run events as a batch; return who reported, rejections and counts."""
    frame = run_whole(spec, frame_of(spec, *times), NOON_MS * 1000)
    rows, rejections, counts, _ = read_output(spec, [frame])
    return [row.result.what for row in rows], rejections, counts


def test_a_batch_hands_over_all_events_of_a_key_at_once() -> None:
    """No event is late, there is no watermark, and the processing time is that of the run."""
    seen: list[Any] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Added:
        seen.append((len(events), times.watermark, times.processing_time))
        return Added("process", len(events))

    found = whole(summing(process), at("2020-01-01 00:00"), NOON, at("11:00"))

    assert (["process"], [], Counts(events=3, processed=3, rows=1)) == found
    assert [(3, None, NOON)] == seen


def test_in_the_end_of_a_batch_event_time_is_over() -> None:
    """Timers on the watermark fire by their instants, then policies in event time end keys."""
    seen: list[Any] = []

    def process(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> None:
        add(key, events, state, times)
        times.set_event_timer("second", at("12:10"))
        times.set_event_timer("first", at("12:05"))
        times.set_event_timer("never", at("13:05"))

    def on_timer(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Any:
        seen.append(times.watermark)
        return report(key, name, state, times)

    found, _, counts = whole(summing(process, on_timer, timeout=EventTimeGap("1h")), NOON)

    assert ["first", "second", "event_time_gap"] == found
    assert [datetime.max.replace(tzinfo=NOON.tzinfo)] * 3 == seen
    assert Counts(events=1, processed=1, timers=3, rows=3) == counts
