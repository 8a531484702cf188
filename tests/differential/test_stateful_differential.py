"""The driver against Spark for any state per key: for any life of a query they say the same."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, Lateness, NoTimeout, ProcessingTimeGap, Storage, TimeToLive
from tests.support.clocked import Trigger
from tests.support.scenarios import (
    AnySpec,
    Life,
    command,
    commanded,
    instant,
    on_driver,
    on_spark,
    tick,
)

SHORT: Final = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LONG: Final = settings(SHORT, max_examples=30, derandomize=False, print_blob=True)

IN_EVENT_TIME: Final = [
    NoTimeout(),
    EventTimeGap("10 seconds"),
    TimeToLive("12 seconds", clock="event_time"),
    EventTimeGap("10 seconds") | TimeToLive("12 seconds", since="last_update", clock="event_time"),
]
IN_PROCESSING_TIME: Final = [
    ProcessingTimeGap("10 seconds"),
    TimeToLive("12 seconds", since="last_update") | EventTimeGap("10 seconds"),
]
ACTS: Final = ["note", "event", "delete", "remove", "look", "fail"]
NAMES: Final = ["one", "two", "again", "drop", "fail"]


def specs() -> SearchStrategy[AnySpec]:
    """Make specs under event time alone, and under both clocks."""
    options: dict[str, Any] = {
        "storage": st.builds(Storage, layout=st.sampled_from(["buckets", "pages"])),
        "on_error": st.just("reject"),
        "watermark_delay": st.sampled_from([timedelta(0), timedelta(seconds=2)]),
    }
    orders: list[dict[str, Any]] = [
        {},
        {"lateness": Lateness(late_events="process")},
        {"order": "event_time"},
    ]
    made = [partial(commanded, **order) for order in orders]
    in_event_time = st.builds(
        lambda make, **chosen: make(processing_timers=False, **chosen),
        st.sampled_from(made),
        timeout=st.sampled_from(IN_EVENT_TIME),
        **options,
    )
    on_both = st.builds(
        lambda make, **chosen: make(processing_timers=True, **chosen),
        st.sampled_from(made),
        timeout=st.sampled_from([*IN_EVENT_TIME, *IN_PROCESSING_TIME]),
        **options,
    )
    return in_event_time | on_both


@st.composite
def lives(draw: DrawFn, *, max_triggers: int) -> Life:
    """
    Make the life of a query: both clocks move on, and some triggers find nothing new.

    Processing times are some milliseconds apart: of two in neighbouring ones the driver lets Spark
    call in the first, which no micro-batch of Spark's is quick enough to be.
    """
    spec = draw(specs())
    acts = [*ACTS, "processing", "processing"] if spec.processing_timers else ACTS
    stretches: list[list[Trigger]] = [[]]
    now = latest = offset = 0
    for number in range(draw(st.integers(3, max_triggers))):
        now += draw(st.sampled_from([1, 5, 10]))
        latest += draw(st.sampled_from([0, 4, 9]))
        rows = [
            _row(draw, acts, now, latest, offset + place)
            for place in range(draw(st.sampled_from([0, 3, 6]) if number else st.just(6)))
        ]
        offset += len(rows)
        if rows:
            rows.append(tick(latest))
        if stretches[-1] and draw(st.sampled_from([False, False, True])):
            stretches.append([])
        stretches[-1].append(Trigger(instant(now), rows))
    return Life(spec, stretches)


def _row(draw: DrawFn, acts: list[str], now: int, latest: int, offset: int) -> dict[str, Any]:
    key = draw(st.sampled_from(["a", "b", "c", "a", "b", "c", None]))
    time = latest - draw(st.sampled_from([0, 1, 2, 3, 8, 20]))
    # About now: some in the past, some that the next micro-batches pass.
    at = now + draw(st.sampled_from([-10, 0, 1, 4, 5, 10]))
    act, name = draw(st.sampled_from(acts)), draw(st.sampled_from(NAMES))
    return command(key, time, act, name, at, offset=offset)


@SHORT
@given(life=lives(max_triggers=5))
def test_driver_says_what_spark_does(life: Life, spark: SparkSession) -> None:
    """Batches, rows, rejections, counts and what is stored are equal, on both clocks."""
    _check(life, spark)


@pytest.mark.long
@LONG
@given(life=lives(max_triggers=10))
def test_driver_says_what_spark_does_for_long(life: Life, spark: SparkSession) -> None:
    """The same, for many more and longer lives."""
    _check(life, spark)


def _check(life: Life, spark: SparkSession) -> None:
    with TemporaryDirectory() as folder:
        on_stream = on_spark(life, spark, Path(folder))
        assert on_stream == on_driver(life)
    assert all(counts.is_balanced for counts in on_stream.counts.values())
