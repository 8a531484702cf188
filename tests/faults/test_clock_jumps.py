"""The clock of a driver jumps an hour forth and back."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs
from tests.support.clocked import Trigger
from tests.support.scenarios import Life, command, commanded, instant, on_spark

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]

AHEAD_S = 3600


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

    found = on_spark(Life(spec, [life]), spark, tmp_path)

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
