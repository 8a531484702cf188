"""A source that falls silent, on Spark: sessions close as they do on the driver."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs, SessionRules, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support.clocked import ClockedStream, Trigger

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
SCHEMA: Final = pa.schema({"user": pa.string(), "ts": pa.timestamp("us", tz="UTC")})


@attrs.frozen
class View:
    """An event of which only the time counts."""


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def came(user: str, seconds: float) -> dict[str, Any]:
    return {"user": user, "ts": at(seconds)}


MONTH: Final = 30 * 24 * 3600
# Each a restart; a trigger comes every ten seconds, and a pause of a minute between two lives. In
# the fourth, the clock is a month ahead.
LIVES: Final = [
    [Trigger(at(1), [came("ann", 0), came("bob", 20)]), *(Trigger(at(s)) for s in (11, 21, 31))],
    [Trigger(at(91)), Trigger(at(101)), Trigger(at(111), [came("ann", 85)]), Trigger(at(121))],
    [Trigger(at(131), [came("bob", 1)]), *(Trigger(at(s)) for s in (141, 151))],
    [
        Trigger(at(MONTH + 161), [came("cid", 150)]),
        *(Trigger(at(MONTH + s)) for s in (171, 181, 191, 201)),
    ],
    [Trigger(at(s), [came("dan", s)]) for s in (211, 221, 231)],
]


@pytest.mark.nightly
@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_spark_closes_what_the_driver_does(
    layout: Literal["buckets", "pages"], spark: SparkSession, tmp_path: Path
) -> None:
    """Every micro-batch has the same rows, counts and rejected rows, over restarts and pauses."""
    spec: SessionSpec[Any, Any, Any] = SessionSpec.aggregate(
        View,
        {"views": agg.count()},
        keys={"user": str},
        event_time="ts",
        timeout=SessionRules("10 seconds", close_idle_after="20 seconds"),
        watermark_delay="5 seconds",
        inputs=Inputs(max_future_skew=None),
        storage=Storage(layout=layout, bucket_count=1),
    )
    stream = ClockedStream.of(spark, spec, SCHEMA, tmp_path)
    numbers = [stream.run(life) for life in LIVES]
    found = {
        number: sorted((row["kind"], row["user"], row["closed_by"]) for row in rows)
        for number, rows in stream.rows.items()
        if rows
    }

    driver, closed = SessionDriver(spec, processing_time=NOON), set()
    expected: dict[int, list[tuple[str, str, str | None]]] = {}
    for triggers, ran in zip(LIVES, numbers, strict=True):
        left, now = driver.snapshot(), triggers[0].at
        clocks = attrs.evolve(left.clocks, processing=now)
        driver = SessionDriver.restore(spec, attrs.evolve(left, clocks=clocks))
        for trigger, number in zip(triggers, ran, strict=True):
            for row in trigger.rows:
                driver.add_row(row)
            driver.advance_processing_time(trigger.at - now)
            now, result = trigger.at, driver.run_batch()
            assert (number is None) == (result.batch_id is None)
            rows: list[tuple[str, str, str | None]] = [
                *(("session", row.key.user, row.closed_by) for row in result.rows),
                *((one.kind, one.key.user, None) for one in result.rejections),
            ]
            closed |= {row.closed_by for row in result.rows}
            if number is not None and rows:
                expected[number] = sorted(rows)

    assert expected == found
    assert {"idle"} <= closed
    assert any(kind == "late" for rows in found.values() for kind, *_ in rows)
    ahead, right = ({row for at in ran for row in found.get(at or 0, ())} for ran in numbers[3:])
    assert ("session", "cid", "idle") in ahead
    assert "late" not in {kind for kind, *_ in right}
    assert all(counts.is_balanced for counts in stream.counts.values())
