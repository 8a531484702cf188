"""State per key in time order, on a real Spark stream with a restart: what the driver says."""

from typing import Any

from pyspark.sql import SparkSession

from sessionkit import EventTimeGap
from tests.support.clocked import Trigger
from tests.support.scenarios import Life, command, commanded, instant, on_driver, on_spark, tick

STRETCHES = [
    [
        Trigger(
            instant(0),
            [
                command("a", 9, "note", "third"),
                command("a", 1, "event", "one", 5),
                command("a", 4, "note", "second"),
                command("b", 2, "note", "first"),
                command("c", 11, "note", "waits"),
            ],
        ),
        Trigger(instant(10), [command("b", 12, "note", "a gap later"), tick(13)]),
    ],
    [
        Trigger(instant(20), [command("a", 3, "note", "late"), tick(60)]),
        Trigger(instant(30)),
    ],
]


def test_events_take_their_turns_across_a_restart(spark: SparkSession, tmp_path: Any) -> None:
    """Rows, rejections, counts and stored keys are those of the driver; each event came in turn."""
    spec = commanded(
        timeout=EventTimeGap("10 seconds"),
        order="event_time",
        watermark_delay="2 seconds",
        processing_timers=False,
    )
    life = Life(spec, STRETCHES)

    told, done = on_driver(life), on_spark(life, spark, tmp_path)

    assert told == done
    rows = [row for batch in sorted(done.rows) for row in done.rows[batch]]
    calls = {key: [row[1] for row in rows if row[0] == key] for key in "abc"}
    assert ["event", "note", "one", "note", "event_time_gap"] == calls["a"]
    assert ["note", "note", "event_time_gap"] == calls["b"]
    assert 1 == sum(counts.late for counts in done.counts.values())
