"""Timers of Spark's `transformWithState` next to those of a `StatefulSpec`, as the pages say."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, KeyState, KeyTimes, NoTimeout, StatefulSpec
from sessionkit.testing import StatefulDriver, at
from tests.support.spark_settings import changed

EVENT: Final = at("10:00")
WATERMARK: Final = at("10:01")
TIMERS: Final = {
    "before": WATERMARK - timedelta(milliseconds=1),
    "exactly": WATERMARK,
    "after": WATERMARK + timedelta(milliseconds=1),
    "cleared": WATERMARK - timedelta(milliseconds=1),
}
"""By key: when a timer is set for. The state of one is cleared after that."""
PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "from-transform-with-state.md"
ROCKS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def by_spark(events: DataFrame) -> DataFrame:
    """Return the keys whose timers fire, and whether each has a state."""
    from pyspark.sql.streaming.stateful_processor import (  # noqa: PLC0415 - from Spark 4.0 on
        StatefulProcessor,
    )

    class Timers(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.state = handle.getValueState("state", "n bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
            for row in rows:
                self.state.update((1,))
                if row.fires_ms is not None:
                    self.handle.registerTimer(row.fires_ms)
                if key[0] == "cleared":
                    self.state.clear()
            return iter([])

        def handleExpiredTimer(  # noqa: N802 - Spark's name
            self,
            key: Any,
            timerValues: Any,  # noqa: N803 - Spark's name
            expiredTimerInfo: Any,  # noqa: N803 - Spark's name
        ) -> Iterator[Row]:
            yield Row(key=key[0], has_state=self.state.exists())

        def close(self) -> None:
            """Do nothing: the class asks for it."""

    watermarked = events.withWatermark("ts", "0 seconds").groupBy("key")
    return watermarked.transformWithState(
        Timers(), "key string, has_state boolean", "append", "EventTime"
    )


@pytest.mark.since_spark("4.1", "Python has `transformWithState` of rows since Spark 4.1")
def test_a_timer_of_transform_with_state_fires_at_its_instant(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And stays where its state is cleared."""
    columns = "key string, ts timestamp, fires_ms bigint"
    rows = [(key, EVENT, round(fires.timestamp() * 1000)) for key, fires in TIMERS.items()]
    made = spark.createDataFrame([*rows, ("clock", WATERMARK, None)], columns)
    made.coalesce(1).write.parquet(f"{tmp_path}/events")
    with changed(spark, {"spark.sql.streaming.stateStore.providerClass": ROCKS}):
        writer = by_spark(spark.readStream.schema(columns).parquet(f"{tmp_path}/events"))
        query = (
            writer.writeStream.format("parquet")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .option("path", f"{tmp_path}/fired")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    fired = spark.read.schema("key string, has_state boolean").parquet(f"{tmp_path}/fired")

    assert [("before", True), ("cleared", False), ("exactly", True)] == [
        (row.key, row.has_state) for row in fired.orderBy(F.col("key")).collect()
    ]


@attrs.frozen
class Command:
    sets: str
    clears: bool = False


@attrs.frozen
class Fired:
    timer: str


def process(key: Any, events: list[Command], state: KeyState[Fired], times: KeyTimes) -> None:
    for event in events:
        state.set(Fired("state"))
        earlier = WATERMARK - timedelta(microseconds=1)
        times.set_event_timer(event.sets, TIMERS.get(key.key, earlier))
        if event.clears:
            state.remove()


def on_timer(key: Any, name: str, state: KeyState[Fired], times: KeyTimes) -> Fired:
    return Fired(name)


def with_timers(process: Callable[..., None]) -> StatefulSpec[Command, Fired, Fired]:
    return StatefulSpec(
        keys={"key": str},
        event_time="ts",
        process=process,
        on_timer=on_timer,
        timeout=NoTimeout(),
        watermark_delay="0 minutes",
    )


def table_of_the_page() -> list[list[str]]:
    """Return the rows of the table with the clock at three instants, without their first cell."""
    table = PAGE.read_text(encoding="utf-8").partition("| the watermark is at |")[2]
    return [line.strip("| ").split(" | ")[1:] for line in table.splitlines()[2:5]]


def test_timers_of_spark_fire_as_the_page_says() -> None:
    """What fires at 10:01 is pinned on Spark by the test above: a timer at or before it."""
    assert ["waits", "fires", "fires"] == [row[0] for row in table_of_the_page()]


@pytest.mark.parametrize("millisecond", [-1, 0, 1])
def test_timers_of_a_spec_fire_as_the_page_says(millisecond: int) -> None:
    """With the clock a millisecond before the instant, at it, and a millisecond after it."""

    def due(key: Any, events: list[Command], state: KeyState[Fired], times: KeyTimes) -> None:
        state.set(Fired("state"))
        if key.key != "policy":
            times.set_event_timer("due", at(events[0].sets))

    spec = with_timers(due)
    by_policy = attrs.evolve(spec, timeout=EventTimeGap(WATERMARK - EVENT))
    found = list[str]()
    for key, instant, of in [
        ("timer", "10:01", spec),
        ("earlier", "10:00:59.999999", spec),
        ("policy", "", by_policy),
    ]:
        driver = StatefulDriver(of)
        driver.add(key, EVENT, Command(instant))
        driver.run_batch()
        driver.advance_watermark_to(WATERMARK + timedelta(milliseconds=millisecond))
        driver.run_batch()
        found.append("fires" if driver.take_rows() else "waits")

    assert table_of_the_page()[millisecond + 1][1:] == found


def test_a_timer_of_a_spec_fires_once_the_clock_is_past_it() -> None:
    """A name has one timer, and `remove` forgets it."""
    spec = with_timers(process)
    driver = StatefulDriver(spec)
    for key in (*TIMERS, "earlier"):
        driver.add(key, EVENT, Command("due", clears=key == "cleared"))
    for name in ("one", "other", "one"):
        driver.add("before", EVENT + timedelta(seconds=1), Command(name))
    driver.run_batch()
    driver.advance_watermark_to(WATERMARK)
    driver.run_batch()

    expected = [("before", name) for name in ("due", "one", "other")] + [("earlier", "due")]
    assert expected == sorted((row.key.key, row.result.timer) for row in driver.take_rows())
