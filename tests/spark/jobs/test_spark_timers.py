"""Timers of Spark's `transformWithState` next to those of a `StatefulSpec`, as the pages say."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import KeyState, KeyTimes, NoTimeout, StatefulSpec
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


def test_a_timer_of_a_spec_fires_once_the_clock_is_past_it() -> None:
    """A name has one timer, and `remove` forgets it."""
    spec = StatefulSpec(
        keys={"key": str},
        event_time="ts",
        process=process,
        on_timer=on_timer,
        timeout=NoTimeout(),
        watermark_delay="0 minutes",
    )
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
