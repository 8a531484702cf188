"""The cases about timeouts and processing time: as specs for any state per key, and their runs."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionkit import (
    Inputs,
    KeyState,
    KeyTimes,
    NoTimeout,
    ProcessingTimeGap,
    StatefulSpec,
    Storage,
)
from sessionkit.spec import by_processing_time
from tests.support.clocked import ClockedStream, Trigger
from tests.support.conformance.cases import CASES, LONG_DELAY, ORIGIN, Case, Row, instant
from tests.support.scenarios import Life, live_on_driver

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]
Results: TypeAlias = Sequence[Mapping[str, Any]]

SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "value": pa.string(),
        "number": pa.int64(),
    }
)
TIMEOUT: Final = "timeout"
NEVER: Final = ORIGIN + 2 * LONG_DELAY


@attrs.frozen
class KeyedRun:
    """A case, and its answer."""

    name: str
    dialect: str
    life: Life
    read: Callable[[Results], Any]
    expected: Any


@attrs.frozen
class Event:
    """The event of every case; its place in the trigger says in which order they came."""

    value: str
    number: int


@attrs.define
class Heard:
    """What a key has said, and when it did first and last, in milliseconds."""

    values: list[str]
    first_ms: int
    last_ms: int


@attrs.frozen
class Called:
    """What a call saw."""

    values: list[str]
    by: str
    count: int
    start_ms: int
    end_ms: int
    order: int


def keyed_on_driver(run: KeyedRun) -> Any:
    _, results = live_on_driver(run.life)
    rows = [row for result in results for row in result.rows]
    return run.read([{"key": row.key.key, **attrs.asdict(row.result)} for row in rows])


def keyed_on_spark(run: KeyedRun, spark: SparkSession, folder: Path) -> Any:
    """Run a case on a Spark stream, whose processing time is moved by hand."""
    stream = ClockedStream.of(spark, run.life.spec, SCHEMA, folder)
    for stretch in run.life.stretches:
        stream.run(stretch)
    rows = [row for batch in sorted(stream.rows) for row in stream.rows[batch]]
    return run.read([row for row in rows if row["kind"] == "result"])


# -- the functions -----------------------------------------------------------------------------


def _ms(instant: datetime) -> int:
    return (instant - ORIGIN) // timedelta(milliseconds=1)


def _hear(events: Iterable[Event], state: KeyState[Heard], times: KeyTimes) -> Heard:
    """Add the values to those that there are."""
    now_ms = _ms(times.processing_time)
    held = state.get(Heard([], now_ms, now_ms))
    heard = Heard([*held.values, *(event.value for event in events)], held.first_ms, now_ms)
    state.set(heard)
    return heard


def _called(by: str, values: list[str], heard: Heard, gap_ms: int) -> Called:
    end_ms = heard.last_ms + gap_ms
    # What Spark orders is the calls, and not the rows that they return.
    order = time.monotonic_ns()
    return Called(values, by, len(heard.values), heard.first_ms, end_ms, order)


def _spec(timeout: Any, process: Any, on_timer: Any, **options: Any) -> AnySpec:
    return StatefulSpec(
        keys={"key": str},
        event=Event,
        state=Heard,
        result=Called,
        process=process,
        on_timer=on_timer,
        timeout=timeout,
        storage=Storage(bucket_count=1),
        inputs=Inputs(max_future_skew=None),
        **options,
    )


# -- Spark's timeout in processing time: a named timer that every call sets anew ---------------


def _with_duration(gap_ms: int) -> AnySpec:
    gap = timedelta(milliseconds=gap_ms)

    def process(key: Any, events: list[Event], state: KeyState[Heard], times: KeyTimes) -> Called:
        times.set_processing_timer(TIMEOUT, times.processing_time + gap)
        return _called("data", [event.value for event in events], _hear(events, state, times), 0)

    def on_timer(key: Any, name: str, state: KeyState[Heard], times: KeyTimes) -> Called:
        heard = state.get()
        state.remove()
        return _called("timed_out", [], heard, 0)

    return _spec(NoTimeout(), process, by_processing_time(on_timer))


def _calls(rows: Results) -> list[list[Any]]:
    in_order = sorted(rows, key=lambda row: row["order"])
    return [_call(row) for row in in_order]


def _call(row: Mapping[str, Any]) -> list[Any]:
    counted = [row["count"]] if row["by"] == "data" else []
    return [row["key"], row["values"], row["by"], *counted]


def _timeout_in_processing_time(case: Case) -> KeyedRun:
    life = Life(_with_duration(case["gap_ms"]), _stretches(case))
    return KeyedRun(case["name"], "spark", life, _calls, case["calls"])


# -- sessions by processing time ---------------------------------------------------------------


def _sessions(gap_ms: int) -> AnySpec:
    def process(key: Any, events: list[Event], state: KeyState[Heard], times: KeyTimes) -> None:
        _hear(events, state, times)

    def on_timer(key: Any, name: str, state: KeyState[Heard], times: KeyTimes) -> Called:
        heard = state.get()
        return _called(name, heard.values, heard, gap_ms)

    return _spec(ProcessingTimeGap(timedelta(milliseconds=gap_ms)), process, on_timer)


def _windows(rows: Results) -> list[dict[str, Any]]:
    return [
        {
            "key": row["key"],
            "start_ms": row["start_ms"],
            "end_ms": row["end_ms"],
            "values": [int(value) for value in row["values"]],
        }
        for row in sorted(rows, key=lambda row: row["order"])
    ]


def _sessions_in_processing_time(case: Case) -> KeyedRun:
    life = Life(_sessions(case["gap_ms"]), _stretches(case))
    return KeyedRun(case["name"], "flink", life, _windows, case["expected"])


# -- timers about the watermark ----------------------------------------------------------------


def _edges(case: Case) -> KeyedRun:
    """Set a timer for each edge, a key each, then move the watermark; its name says what fires."""
    ((step, threshold),) = case["steps"][0].items()
    assert step == "watermark"
    edges = {name.split("_")[1]: text.startswith("fires") for name, text in case["edges"].items()}
    spec = _spec(
        NoTimeout(), _set_event_timer, _show_key, event_time="at", watermark_delay=LONG_DELAY
    )
    rows = [{**_row(key, key, number), "at": ORIGIN} for number, key in enumerate(edges)]
    # The timer of this one lies where no case moves the watermark.
    moves = {**_row("clock", _ms(NEVER), len(rows)), "at": instant(threshold) + LONG_DELAY}
    life = Life(spec, [[Trigger(ORIGIN, [*rows, moves]), Trigger(ORIGIN), Trigger(ORIGIN)]])
    fired = sorted(key for key, fires in edges.items() if fires)
    return KeyedRun(case["name"], "spark", life, _keys, fired)


def _set_event_timer(
    key: Any, events: list[Event], state: KeyState[Heard], times: KeyTimes
) -> None:
    (event,) = events
    _hear(events, state, times)
    times.set_event_timer(TIMEOUT, instant(int(event.value)))


def _show_key(key: Any, name: str, state: KeyState[Heard], times: KeyTimes) -> Called:
    return _called(name, [], state.get(), 0)


def _keys(rows: Results) -> list[str]:
    return sorted(row["key"] for row in rows)


# -- the steps of a case -----------------------------------------------------------------------


def _row(key: str, value: Any, number: int) -> Row:
    return {"key": key, "value": str(value), "number": number}


def _stretches(case: Case) -> list[list[Trigger]]:
    """Return the triggers; what is added after a move of the clock is handled at that time."""
    stretches: list[list[Trigger]] = [[]]
    for step in case["steps"]:
        if "restart" in step:
            stretches.append([])
        elif "processing_time" in step:
            stretches[-1].append(Trigger(instant(step["processing_time"])))
        else:
            trigger = stretches[-1].pop()
            rows = [_row(key, value, n) for n, (key, _, value) in enumerate(step["add"])]
            stretches[-1].append(Trigger(trigger.at, rows))
    return stretches


def _keyed_runs() -> Iterator[KeyedRun]:
    for case in CASES:
        if case["kind"] == "processing_time":
            yield _sessions_in_processing_time(case)
        elif case["kind"] == "timeout":
            yield _timeout_in_processing_time(case) if "calls" in case else _edges(case)


KEYED_RUNS: Final = list(_keyed_runs())
