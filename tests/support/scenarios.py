"""
The life of a query over a `StatefulSpec`, on the driver and on Spark: what can be seen is the same.

An event is a command: it says what `process` is to do with the state and the timers of its key. So
one spec can be brought into any situation by its rows alone.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from sessionkit import Counts, Inputs, KeyState, KeyTimes, NoTimeout, StatefulSpec, Storage
from sessionkit._instants import micros_of
from sessionkit.spark import read_state
from sessionkit.spec import by_processing_time
from sessionkit.testing import StatefulDriver, StoredKey
from sessionkit.testing.drivers.results import BatchResult
from tests.support.clocked import ClockedStream, Trigger

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]
AnyDriver: TypeAlias = StatefulDriver[Any, Any, Any]
Row: TypeAlias = dict[str, Any]

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "act": pa.string(),
        "name": pa.string(),
        "seconds": pa.float64(),
        "offset": pa.int64(),
    }
)


@attrs.frozen
class Command:
    """
    An event: what is to be done.

    Attributes:
        act: `note` sets the state. `event` and `processing` set a timer on that clock, `delete`
            deletes one. `remove` drops the state. `fail` raises after a change. `look` only looks.
        name: The timer's name.
        seconds: Its instant, in seconds after noon.
    """

    act: str
    name: str | None
    seconds: float | None


@attrs.define
class Log:
    """The state: what was noted, in order."""

    notes: list[str]


@attrs.frozen
class Call:
    """A result row: what a call saw."""

    by: str
    notes: list[str] | None
    timers: list[str]


def instant(seconds: float) -> datetime:
    """Return the instant that lies this many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def instant_us(seconds: float) -> int:
    """Return the same in microseconds since the epoch."""
    return micros_of(instant(seconds))


def command(
    key: str | None,
    seconds: float | None,
    act: str | None,
    name: str | None = None,
    at: float | None = None,
    *,
    offset: int = 0,
) -> Row:
    """Return an event as a row of the source; times in seconds after noon."""
    time = None if seconds is None else instant(seconds)
    return {"key": key, "at": time, "act": act, "name": name, "seconds": at, "offset": offset}


def tick(seconds: float) -> Row:
    """Return an event of a key that is nothing to the test, whose time moves the watermark."""
    return command("clock", seconds, "look")


def process(key: Any, events: list[Command], state: KeyState[Log], times: KeyTimes) -> Call:
    """Do what the events say, and tell what there is then."""
    for event in events:
        _obey(event, state, times)
    return _call("+".join(event.act for event in events), state, times)


def on_timer(key: Any, name: str, state: KeyState[Log], times: KeyTimes) -> Call:
    """Note that a timer has fired; some names do more."""
    seen = _call(name, state, times)
    if name.startswith("fail"):
        message = f"{name} has fired"
        raise ValueError(message)
    if name.startswith("again"):
        times.set_event_timer(f"last {name}", NOON)
    if name.startswith("drop"):
        state.remove()
    return seen


def _obey(event: Command, state: KeyState[Log], times: KeyTimes) -> None:
    name = event.name or ""
    at = instant(event.seconds or 0)
    match event.act:
        case "note" | "fail":
            state.set(Log([*state.get(Log([])).notes, name]))
        case "event":
            times.set_event_timer(name, at)
        case "processing":
            times.set_processing_timer(name, at)
        case "delete":
            times.delete_timer(name)
        case "remove":
            state.remove()
    if event.act == "fail":
        message = f"told to fail: {name}"
        raise ValueError(message)


def _call(by: str, state: KeyState[Log], times: KeyTimes) -> Call:
    held = state.get(None)
    return Call(by, None if held is None else held.notes, sorted(times.timers))


def commanded(*, processing_timers: bool = True, **options: Any) -> AnySpec:
    """Return the spec whose events are commands; both clocks, unless the options say otherwise."""
    settings: dict[str, Any] = {
        "timeout": NoTimeout(),
        "event_time": "at",
        "watermark_delay": timedelta(0),
        "storage": Storage(bucket_count=2),
        "inputs": Inputs(passthrough={"offset": int}),
        **options,
    }
    return StatefulSpec(
        keys={"key": str},
        event=Command,
        state=Log,
        result=Call,
        process=process,
        on_timer=by_processing_time(on_timer) if processing_timers else on_timer,
        **settings,
    )


@attrs.frozen
class Life:
    """A spec, and the life of its query."""

    spec: AnySpec
    stretches: Sequence[Sequence[Trigger]]


@attrs.define
class Report:
    """All that can be seen of it."""

    batches: list[int | None] = attrs.field(factory=list)
    rows: dict[int, list[tuple[Any, ...]]] = attrs.field(factory=dict)
    rejections: dict[int, list[tuple[Any, ...]]] = attrs.field(factory=dict)
    counts: dict[int, Counts] = attrs.field(factory=dict)
    look: Callable[[], list[tuple[Any, ...]]] = attrs.field(default=list, eq=lambda look: look())
    state_rows: dict[int, int] = attrs.field(factory=dict, eq=False)

    @property
    def stored(self) -> list[tuple[Any, ...]]:
        """What is stored of each key in the end."""
        return self.look()


def live_on_driver(life: Life) -> tuple[AnyDriver, list[BatchResult[Any]]]:
    """Live it without Spark; return the driver as it stands in the end, and its micro-batches."""
    now = life.stretches[0][0].at
    driver: AnyDriver = StatefulDriver(life.spec, processing_time=now)
    results = []
    for number, stretch in enumerate(life.stretches):
        if number:
            driver = StatefulDriver.restore(life.spec, driver.snapshot())
        for trigger in stretch:
            driver.advance_processing_time(trigger.at - now)
            now = trigger.at
            for row in trigger.rows:
                driver.add_row(row)
            results.append(driver.run_batch())
    return driver, results


def on_driver(life: Life) -> Report:
    report = Report()
    driver, results = live_on_driver(life)
    for result in results:
        _report(report, result)
    report.look = lambda: _stored(driver.stored_keys())
    return report


def _report(report: Report, result: BatchResult[Any]) -> None:
    report.batches.append(result.batch_id)
    if result.batch_id is None:
        return
    rows = [(row.key.key, *attrs.astuple(row.result)) for row in result.rows]
    report.rows[result.batch_id] = _by_key(rows)
    report.rejections[result.batch_id] = sorted(
        (
            (
                rejection.kind,
                rejection.reason.splitlines()[0],
                rejection.key.key,
                None if rejection.event_time is None else micros_of(rejection.event_time),
                rejection.passthrough.get("offset"),
            )
            for rejection in result.rejections
        ),
        key=repr,
    )
    report.counts[result.batch_id] = result.counts


def on_spark(life: Life, spark: SparkSession, folder: Path) -> Report:
    report = Report()
    stream = ClockedStream.of(spark, life.spec, SCHEMA, folder)
    for stretch in life.stretches:
        report.batches += stream.run(stretch)
    for batch, rows in stream.rows.items():
        results = [row for row in rows if row["kind"] == "result"]
        names = ["key", *(field.name for field in attrs.fields(Call))]
        report.rows[batch] = _by_key(tuple(row[name] for name in names) for row in results)
        report.rejections[batch] = sorted(
            (
                (
                    row["kind"],
                    row["reason"].splitlines()[0],
                    row["key"],
                    row["event_time"],
                    row["offset"],
                )
                for row in rows
                if row["kind"] != "result"
            ),
            key=repr,
        )
    report.counts, report.state_rows = stream.counts, stream.state_rows
    checkpoint = stream.files.checkpoint
    report.look = lambda: _stored(read_state(checkpoint, life.spec, spark=spark))
    return report


def _by_key(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Put keys in order, and leave the rows of each in theirs."""
    return sorted(rows, key=lambda row: row[0])


def _stored(keys: Iterable[StoredKey[Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            key.key.key,
            None if key.state is None else key.state.notes,
            sorted((name, timer.clock, micros_of(timer.at)) for name, timer in key.timers.items()),
        )
        for key in keys
    )
