"""How many events are late under a delay is what the engine says of the same micro-batches."""

import gzip
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples.trips.events import read_flights
from sessionkit import (
    Counts,
    Lateness,
    NoTimeout,
    SessionRules,
    SessionSpec,
    SpecError,
    StatefulSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.__main__ import main
from sessionkit.addons.delay import LateEvents, late_events
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.refusals import refusal, says

NOON, MINUTE = datetime(2026, 3, 8, 12, tzinfo=UTC), timedelta(minutes=1)
GAP = 10 * MINUTE
DELAYS = (0 * MINUTE, 3 * MINUTE, 20 * MINUTE)
LOG: Final = Path(__file__).parents[3] / "shared" / "data" / "apache_logs" / "apache_logs.gz"


@attrs.frozen
class Click:
    is_real: bool = True


def spec_of(**options: Any) -> SessionSpec[Any, Any, Any]:
    gap = {} if "timeout" in options else {"gap": GAP}
    return SessionSpec.aggregate(
        Click,
        {"clicks": agg.count()},
        keys={"user": str},
        event_time="ts",
        **{"watermark_delay": "0s", **gap, **options},
    )


def stateful(**options: Any) -> StatefulSpec[Any, Any, Any]:
    return StatefulSpec(
        process=lambda key, events, state, times: None,
        keys={"user": str},
        event=Click,
        state=Click,
        result=Click,
        timeout=NoTimeout(),
        **{"event_time": "ts", "watermark_delay": "0s", **options},
    )


def _ten_minutes(click: Click) -> timedelta:
    return GAP if click.is_real else MINUTE


FAMILIES: Final[dict[str, Callable[..., Any]]] = {
    "gap": spec_of,
    "exclusive": partial(spec_of, timeout=SessionRules(GAP, gap_inclusive=False)),
    "by session": partial(spec_of, lateness=Lateness(judged_by="session")),
    "allowed": partial(spec_of, lateness=Lateness(allowed="5m")),
    "max_duration": partial(
        spec_of, timeout=SessionRules(GAP, max_duration="20m"), order="event_time"
    ),
    "max_events": partial(spec_of, timeout=SessionRules(GAP, max_events=3), order="event_time"),
    "midnight": partial(spec_of, timeout=SessionRules("2h", midnight="America/New_York")),
    "extends": partial(spec_of, timeout=SessionRules(GAP, extends=pc.field("is_real"))),
    "a gap of its own": partial(spec_of, timeout=SessionRules(_ten_minutes, max_gap=GAP)),
    "idle": partial(spec_of, timeout=SessionRules(GAP, close_idle_after="5m")),
    "keys": stateful,
    "keys in order": partial(stateful, order="event_time"),
}
"""Specs of each rule by which an event is late."""


def history() -> list[tuple[str, datetime, datetime]]:
    """Return events as they arrived: most soon, some an hour after their time, one from 2099."""
    choice = Random(4)
    events = []
    for number in range(400):
        came = NOON + choice.uniform(0, 240) * MINUTE
        late = choice.choice([0, 0, 0, 0, 1, 5, 20, 70]) * choice.random() * MINUTE
        events.append((f"user{number % 9}", came - late, came))
    events.append(("user1", datetime(2099, 1, 1, tzinfo=UTC), NOON + 100 * MINUTE))
    return sorted(events, key=lambda event: event[2])


Arrival: TypeAlias = tuple[str, datetime, datetime]


def sparse(seed: int) -> list[Arrival]:
    """Return events that come around midnight in New York, with silences of some minutes."""
    choice, begins = Random(seed), datetime(2026, 3, 8, 4, 20, tzinfo=UTC)
    minutes = choice.sample(range(80), 25)
    came = sorted(begins + (minute + choice.random()) * MINUTE for minute in minutes * 3)
    behind = [0, 0, 1, 7, 30, 90]
    return [
        (f"user{choice.randrange(5)}", at - choice.choice(behind) * choice.random() * MINUTE, at)
        for at in came
    ]


def counted_on_the_driver(spec: Any, events: list[Arrival]) -> Counts:
    """Return what becomes of events where a micro-batch comes each minute."""
    begins = min(came for _, _, came in events).replace(second=0, microsecond=0)
    ends = max(came for _, _, came in events)
    of_kind: Any = StatefulDriver if isinstance(spec, StatefulSpec) else SessionDriver
    driver = of_kind(spec, processing_time=begins)
    for minute in range((ends - begins) // MINUTE + 1):
        driver.advance_processing_time(MINUTE)
        for user, at, came in events:
            if minute * MINUTE <= came - begins < (minute + 1) * MINUTE:
                driver.add(user, at, Click(is_real=at.microsecond % 2 == 0))
        driver.run_batch()
    counts: Counts = driver.counts
    return counts


@cache
def counted_of(family: str, seed: int) -> dict[timedelta, Counts]:
    """Return what becomes of sparse events under each delay."""
    specs = {
        delay: FAMILIES[family](watermark_delay=delay, storage=Storage(bucket_count=1))
        for delay in DELAYS
    }
    return {delay: counted_on_the_driver(spec, sparse(seed)) for delay, spec in specs.items()}


def late_on_the_driver(spec: SessionSpec[Any, Any, Any]) -> int:
    return counted_on_the_driver(spec, history()).late


def late_by_the_order() -> int:
    """Return how many are late without a delay where event time is the clock; not that of 2099."""
    times = [at for _, at, _ in history() if at < NOON + timedelta(days=1)]
    latest = dict[int, datetime]()  # by the minute in which they come
    late = 0
    for at, now in zip(times, accumulate(times, max), strict=True):
        minute = (now - NOON) // MINUTE
        late += any(before < minute and at + GAP <= latest[before] for before in latest)
        latest[minute] = now
    return late


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> LateEvents:
    frame = spark.createDataFrame(history(), "user string, ts timestamp, came timestamp")
    return late_events(frame, spec_of(), arrived="came", delays=DELAYS)


def test_late_events_are_those_of_the_engine(measured: LateEvents) -> None:
    """Each event, under each delay; one that is quarantined moves no watermark."""
    expected = {delay: late_on_the_driver(spec_of(watermark_delay=delay)) for delay in DELAYS}
    assert expected == measured.late
    assert 0 < expected[20 * MINUTE] < expected[3 * MINUTE] < expected[0 * MINUTE]
    assert 400 == measured.events


def test_allowed_lateness_is_a_part_of_the_delay(measured: LateEvents) -> None:
    """Three minutes allowed after a delay of zero are as a delay of three minutes."""
    allowed = spec_of(lateness=Lateness(allowed=3 * MINUTE))
    assert late_on_the_driver(allowed) == measured.late[3 * MINUTE]


def test_the_smallest_delay_with_few_late_events_is_recommended(measured: LateEvents) -> None:
    """The smallest under which few enough are late; where there is none, the error says so."""
    share = measured.late[3 * MINUTE] / measured.events
    assert 3 * MINUTE == measured.smallest(share)
    assert timedelta(0) == measured.smallest(1.0)
    assert measured.behind[0.5] <= measured.behind[0.99] <= measured.behind[1]
    with pytest.raises(SpecError, match="longer delays") as refused:
        measured.smallest(0)
    assert str(measured.behind[1]) in str(refused.value)


def test_the_advice_says_what_the_delay_before_would_save() -> None:
    """Results come so much earlier, and more events are late; the shortest has none before it."""
    found = LateEvents(1_000, dict(zip(DELAYS, (50, 12, 1), strict=True)), {1: 60 * MINUTE}, GAP)

    expected = "With a delay of 0:20:00, 0.100% of the events would be late; with 0:03:00, 1.200%,"
    assert f"{expected} and results would come 0:17:00 earlier." == found.advice()
    assert "With a delay of 0:00:00, 5.000% of the events would be late." == found.advice(0.05)


def test_the_table_says_what_a_delay_costs(measured: LateEvents) -> None:
    """A row comes once the gap and the delay have passed."""
    line = next(one for one in str(measured).splitlines() if " 0:03:00 " in one)
    assert f"{measured.late[3 * MINUTE]}" in line
    assert "0:13:00 after its last event" in line


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_query_never_measures_too_few_late_events(family: str, seed: int) -> None:
    """Under whichever rule events are late, and whatever delay the query has."""
    counted = counted_of(family, seed)
    late = {delay: counts.late for delay, counts in counted.items()}
    for counts in counted.values():
        found = late_events(counts, FAMILIES[family](), delays=DELAYS).late
        assert {} == {one: (found[one], late[one]) for one in DELAYS if found[one] < late[one]}
    assert 0 < late[0 * MINUTE]


@pytest.mark.parametrize("family", FAMILIES)
def test_history_never_shows_too_few_late_events(spark: SparkSession, family: str) -> None:
    """Under whichever rule they're late; where it's by their times alone, it shows as many."""
    frame = spark.createDataFrame(sparse(1), "user string, ts timestamp, came timestamp")
    found = late_events(frame, FAMILIES[family](), arrived="came", delays=DELAYS).late
    late = {delay: counts.late for delay, counts in counted_of(family, 1).items()}

    assert {} == {one: (found[one], late[one]) for one in DELAYS if found[one] < late[one]}
    by_times = {
        "gap",
        "exclusive",
        "max_duration",
        "max_events",
        "midnight",
        "keys",
        "keys in order",
    }
    assert family not in by_times or late == found


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], "of 0 rows"),
        ([("ann", NOON, None)] * 3, "of 3 rows there are 3 with `ts`, 0 with `came`"),
        ([("ann", None, NOON), ("ann", NOON, None)], "of 2 rows there are 1 with `ts`, 1 with"),
    ],
)
def test_history_that_says_nothing_is_refused(
    spark: SparkSession, rows: list[Any], found: str
) -> None:
    """Such as arrivals that are all null: none of them is late under any delay."""
    frame = spark.createDataFrame(rows, "user string, ts timestamp, came timestamp")

    assert says(refusal(late_events, frame, spec_of(), arrived="came"), found, "`came`")


def test_a_spec_without_time_is_refused(spark: SparkSession) -> None:
    """No event of it is late."""
    spec: Any = StatefulSpec(
        process=lambda key, events, state, times: None,
        keys={"user": str},
        event=Click,
        state=Click,
        result=Click,
        timeout=NoTimeout(),
    )
    with pytest.raises(SpecError, match="no event time"):
        late_events(spark.range(1), spec, arrived="id")


# ---------------------------------------------------------------------- of a query that runs


@cache
def flights() -> list[list[datetime]]:
    """Return scheduled departures of two days, those that took off in one hour together."""
    table, hours = read_flights().slice(0, 1_500).drop_null(), dict[int, list[datetime]]()
    for row in table.select(["scheduled", "departure"]).to_pylist():
        hours.setdefault(row["departure"].timestamp() // 3600, []).append(row["scheduled"])
    return [hours[hour] for hour in sorted(hours)]


@cache
def requests() -> list[list[datetime]]:
    """Return the first times in the log of a server, a hundred lines at once."""
    if not LOG.exists():
        pytest.skip("the data of third parties is kept outside of the project")
    with gzip.open(LOG, "rt", encoding="utf-8") as lines:
        texts = [found[1] for line in lines if (found := re.search(r"\[(.+?)\]", line))]
    times = [datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z") for text in texts]
    return [times[start : start + 100] for start in range(0, 2_000, 100)]


def counts_of(delay: timedelta, batches: list[list[datetime]], gap: timedelta = GAP) -> Counts:
    spec = spec_of(watermark_delay=delay, gap=gap, storage=Storage(bucket_count=1))
    driver = SessionDriver(spec)
    for batch in batches:
        for number, at in enumerate(batch):
            driver.add(f"user{number % 9}", at, Click())
        driver.run_batch()
    return driver.counts


@pytest.mark.parametrize(
    ("read", "gap", "delays"),
    [
        (flights, GAP, (3 * MINUTE, 60 * MINUTE)),
        (requests, timedelta(seconds=1), (timedelta(seconds=2), timedelta(seconds=30))),
    ],
)
def test_what_a_query_measures_says_what_would_be_late(
    read: Callable[[], list[list[datetime]]], gap: timedelta, delays: tuple[timedelta, ...]
) -> None:
    """No less than under each delay, and no more than under one that a bin's width shortens."""
    batches = read()
    counts = counts_of(5 * MINUTE, batches, gap)
    found = late_events(counts, spec_of(gap=gap), delays=delays)

    for delay, late in found.late.items():
        least, most = (
            counts_of(one, batches, gap).late for one in (delay, 0.9 * (delay + gap) - gap)
        )
        assert least <= late <= most
    assert 0 < found.late[delays[1]] < found.late[delays[0]]
    assert counts.behind.count == found.events
    assert found.behind[0.5] <= found.behind[0.99] <= found.behind[1]
    assert counts.behind.percentiles is not None
    assert counts.behind.percentiles.maximum - gap == found.behind[1]


def test_counts_in_which_nothing_was_measured_are_refused() -> None:
    """Such as those of the first micro-batch."""
    with pytest.raises(SpecError, match="no event whose delay was measured"):
        late_events(counts_of(MINUTE, [[NOON]]), spec_of())


def test_the_command_prints_the_table_and_the_advice(
    spark: SparkSession,
    measured: LateEvents,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the times of arrival; without them by the order of rows, with event time as the clock."""
    del spark  # the command uses the session that there is
    _, at, came = zip(*history(), strict=True)
    kind = pa.timestamp("us", "UTC")
    rows = pa.table({"ts": pa.array(at, kind), "came": pa.array(came, kind)})
    pq.write_table(rows, tmp_path / "events.parquet")
    given = ["delay", str(tmp_path / "events.parquet"), "--event-time", "ts", "--gap", "10 minutes"]
    given += ["--share", "0.5", "--delays", "0s", "3m", "20m"]

    assert 0 == main([*given, "--arrived", "came"])
    assert f"{measured}\n\n{measured.advice(0.5)}\n" == capsys.readouterr().out
    pq.write_table(rows.filter(pa.compute.less(rows["ts"], NOON + timedelta(days=1))), given[1])
    assert 0 == main(given)
    assert f"{late_by_the_order()}   " in capsys.readouterr().out
