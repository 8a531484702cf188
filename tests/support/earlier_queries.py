"""
Queries that an earlier release begins and this one goes on with.

The earlier one runs this file as a program, so it has names that both have.
"""

import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, SparkSession

from sessionkit import (
    EventTimeGap,
    Inputs,
    KeyState,
    KeyTimes,
    Memory,
    NoTimeout,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.spark import Files, apply_with_state, sessionize, start_query

PACKAGE: Final = "org.apache.spark.sql.execution.streaming.state"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
STORED: Final = (("HDFSBacked", "buckets"), ("RocksDB", "buckets"), ("RocksDB", "pages"))
"""State stores, and the layouts that each may have."""
SCHEMA: Final = "user string, ts timestamp, url string, n int"
BEGIN: Final = datetime(2026, 3, 8, 6, tzinfo=UTC)
BATCHES: Final = 6
EARLIER: Final = 3
"""How many of the micro-batches the earlier release runs."""
LAST: Final = "the last"
SILENCE: Final = timedelta(minutes=10)


@attrs.frozen
class View:
    url: str
    n: int


@attrs.define
class Visit:
    numbers: list[int] = attrs.field(factory=list)
    last: datetime | None = None

    def update(self, view: View) -> None:
        self.numbers = sorted([*self.numbers, view.n])

    def merge(self, other: "Visit") -> None:
        self.numbers = sorted([*self.numbers, *other.numbers])


@attrs.frozen
class Numbers:
    numbers: list[int]


def gap_of(view: View) -> timedelta:
    return timedelta(minutes=10 + view.n % 3)


def remember(session: Session[Any, Numbers], state: Visit) -> Numbers:
    return Numbers([*(session.memory.numbers if session.memory else []), *state.numbers])


def follow(
    key: Any, views: list[View], state: KeyState[Visit], times: KeyTimes
) -> Iterator[Numbers]:
    """List the numbers up to each silence; a timer ends what no event does."""
    found = state.get(Visit())
    for view, at in zip(views, times.event_times, strict=True):
        if found.last is not None and at - found.last > SILENCE:
            yield Numbers(found.numbers)
            found = Visit()
        found = Visit([*found.numbers, view.n], at)
    state.set(found)
    assert found.last is not None
    times.set_event_timer("close", found.last + SILENCE)


def close(key: Any, name: str, state: KeyState[Visit], times: KeyTimes) -> Numbers:
    numbers = state.get().numbers
    state.remove()
    return Numbers(numbers)


def specs(layout: Any) -> dict[str, Any]:
    """Return a spec of each kind."""
    shared: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "watermark_delay": "10 minutes",
        "storage": Storage(layout=layout, bucket_count=4),
    }
    gap: dict[str, Any] = {"gap": SILENCE, **shared}
    memory = Memory(time_to_live="1 day", remember=remember)
    found = {"events": agg.count(), "last": agg.last("url"), "sum": agg.sum("n")}
    at_most = SessionRules(SILENCE, max_duration="1 hour")
    once = Inputs(event_id="n", drop_duplicates_for="2 hours")
    calls: dict[str, Any] = {"process": follow, "on_timer": close, "timeout": NoTimeout()}
    return {
        "functions": SessionSpec.of(Visit, **gap),
        "memory": SessionSpec.of(Visit, memory=memory, **gap),
        "aggregates": SessionSpec.aggregate(View, found, **gap),
        "early_rows": SessionSpec.aggregate(View, found, results=Results(emit="on_update"), **gap),
        "in_order": SessionSpec.aggregate(
            View, found, timeout=at_most, order="event_time", **shared
        ),
        "duplicates": SessionSpec.aggregate(View, found, inputs=once, **gap),
        "gaps_by_event": SessionSpec.aggregate(
            View, found, timeout=EventTimeGap(gap_of, max_gap="1 hour"), **shared
        ),
        "keys": StatefulSpec(
            event=View, state=Visit, result=Numbers, order="event_time", **calls, **shared
        ),
    }


def write_events(spark: SparkSession, folder: Path) -> None:
    """Write a file for each micro-batch; the last one closes all sessions but its own."""
    for number in range(BATCHES):
        chance, start = random.Random(number), BEGIN + timedelta(minutes=40 * number)
        rows = [
            (f"u{chance.randrange(12)}", start + timedelta(minutes=chance.uniform(-5, 40)), "/", n)
            for n in range(number * 100, number * 100 + 60)
        ]
        if number == BATCHES - 1:
            rows.append((LAST, start + timedelta(days=1), "/", -1))
        frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.json(str(folder / f"batch={number}"))


def output(events: DataFrame, spec: Any) -> DataFrame:
    run = apply_with_state if isinstance(spec, StatefulSpec) else sessionize
    return run(events, spec)


def run(events: DataFrame, here: Path, spec: Any) -> None:
    """Run a query over all events, from where it has ended."""
    start_query(
        output(events, spec),
        sink=Files("parquet", here / "rows"),
        trigger="availableNow",
        checkpoint=here / "checkpoint",
        spec=spec,
    ).awaitTermination()


def provider(store: str) -> dict[str, str]:
    """Return the setting that chooses a state store."""
    return {PROVIDER: f"{PACKAGE}.{store}StateStoreProvider"}


def events_in(spark: SparkSession, folder: Path, batches: str) -> DataFrame:
    """Return a stream of some micro-batches."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(f"{folder}/in/batch={batches}")


def main(folder: Path, store: str, layout: str) -> None:
    """Run each query over the first micro-batches."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.conf.set(*provider(store).popitem())
    for name, spec in specs(layout).items():
        run(events_in(spark, folder, f"[0-{EARLIER - 1}]"), folder / name, spec)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
