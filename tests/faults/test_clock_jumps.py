"""The clock of a driver or of its workers jumps an hour forth and back."""

import os
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs
from tests.support import scenarios
from tests.support.clocked import Trigger
from tests.support.clocks import faked_by
from tests.support.faults.campaign import Segment
from tests.support.faults.job import Job, Life
from tests.support.faults.processes import start_driver, start_jvm, wait_for
from tests.support.faults.timeline import Timeline
from tests.support.figures import FIGURES, Record
from tests.support.scenarios import command, commanded, instant

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]

AHEAD_S, QUIET_S, BATCHES = 3600, 15, 3


@pytest.mark.parametrize("whose", ["driver", "worker"])
def test_event_times_alone_decide_though_a_clock_jumps(
    whose: str, tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """
    Every event is found once, though the JVM and its workers, or they alone, see the clock jump.

    When the JVM's goes back, Spark's trigger waits for the old time; a new start doesn't.
    """
    clock = tmp_path / "clock"
    clock.write_text("+0")
    variables = faked_by(clock)
    if whose == "worker":
        own = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        jvm = start_jvm(tmp_path, spark_settings | own)
    else:
        with patch.dict(os.environ, variables):
            jvm = start_jvm(tmp_path, spark_settings)
    try:
        job = Job("sessions", "buckets", "HDFS", tmp_path / "job")
        segment, life = Segment(job, Timeline("clock")), Life(job, jvm.address, until="1 second")
        driver = start_driver(life)

        def run_some() -> None:
            segment.feed(jvm)
            done = len(segment.done())
            wait_for("micro-batches", lambda: len(segment.done()) >= done + BATCHES)
            (worker, *_) = jvm.workers()
            assert "libfaketime" in Path(f"/proc/{worker}/maps").read_text()

        run_some()
        clock.write_text(f"+{AHEAD_S}")
        run_some()
        clock.write_text("+0")
        if whose == "driver":
            time.sleep(3)  # what has begun may end
            segment.feed(jvm)
            before = segment.done()
            time.sleep(QUIET_S)
            assert before == segment.done()
            assert driver.look()
            driver.kill()
            driver = start_driver(life)
        run_some()
        driver.kill()
        segment.end(jvm)
        last = start_driver(Life(job, jvm.address, "availableNow"))
        assert 0 == last.wait(), last.failure
    finally:
        jvm.kill()

    audit, ran = segment.audit(), len(segment.done())
    record_property(FIGURES, f"the clock of a {whose} jumps: {ran} micro-batches, {audit}")
    assert audit.is_sound


def test_timers_and_skew_go_by_the_clock_of_the_micro_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """
    Each timer fires once, when the clock shows its instant; no state is lost.

    An event half an hour ahead of the true time is quarantined, but not while the clock is ahead.
    """
    spec = commanded(
        watermark_delay=None,
        inputs=Inputs(max_future_skew="10 minutes", passthrough={"offset": int}),
    )
    ahead = command("f", 1800, "note", "x")
    life = [
        Trigger(
            instant(0),
            [
                command("a", 0, "note", "x"),
                command("a", 1, "processing", "soon", 30),
                command("a", 2, "processing", "later", AHEAD_S + 20),
                ahead,
            ],
        ),
        Trigger(instant(AHEAD_S + 10)),
        Trigger(instant(AHEAD_S + 15), [ahead, command("b", 0, "processing", "ahead", 3700)]),
        Trigger(instant(20), [ahead, command("c", 0, "processing", "soon", 30)]),
        Trigger(instant(31)),
        Trigger(instant(AHEAD_S + 21)),
        Trigger(instant(3701)),
    ]

    found = scenarios.on_spark(scenarios.Life(spec, [life]), spark, tmp_path)

    timers = {
        number: [(key, by) for key, by, *_ in rows if by in {"soon", "later", "ahead"}]
        for number, rows in found.rows.items()
    }
    assert timers == {
        0: [],
        1: [("a", "soon")],
        2: [],
        3: [],
        4: [("c", "soon")],
        5: [("a", "later")],
        6: [("b", "ahead")],
    }
    assert [1, 0, 0, 1, 0, 0, 0] == [len(found.rejections[one]) for one in range(7)]
    assert [("a", ["x"], []), ("f", ["x"], [])] == found.stored
