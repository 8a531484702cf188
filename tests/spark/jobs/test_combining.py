"""A batch with a few hot keys: its map tasks combine events, and no row or count shows it."""

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit._engine.wire.packing import SESSIONS_COLUMN
from sessionkit.spark import reconcile, sessionize
from sessionkit.spark.jobs.frames import packed
from tests.support.batches import frame_of, told_by_driver, told_by_engine

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
EVENTS = 12_000
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("page", pa.string()),
        ("spent", pa.int64()),
    ]
)
LARGEST = 2**63 - 1


@attrs.frozen
class View:
    page: str | None
    spent: int


def spec_of(**aggregates: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(
        View,
        aggregates,
        keys={"user": str, "day": date},
        event_time="ts",
        gap="30 seconds",
        watermark_delay="1 hour",
    )


SPEC = spec_of(
    events=agg.count(),
    spent=agg.sum("spent"),
    entry=agg.first("page"),
    leaving=agg.last("page"),
    pages=agg.count_distinct("page"),
    took=agg.duration(),
    per_event=agg.sum("spent") / agg.count(),
)
VALUES = ["events", "spent", "entry", "leaving", "pages", "per_event"]


def rows_of(seed: int) -> list[dict[str, Any]]:
    """Return events of two hot keys, many at one instant, and of 500 others; some have no page."""
    random = Random(seed)
    return [
        {
            "user": random.choice([*"ab" * 2_000, *map(str, range(500))]),
            "day": date(2026, 3, 8),
            "ts": NOON + timedelta(seconds=10 * random.randint(0, 2_000)),
            "page": random.choice([None, "/", "/cart", "/thanks"]),
            "spent": random.randint(-9, 9),
        }
        for _ in range(EVENTS)
    ]


def in_tasks(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return frame_of(spark, pa.Table.from_pylist(rows, SCHEMA)).repartition(3)


def test_the_rows_are_those_of_the_driver(spark: SparkSession) -> None:
    """Sessions, ids, bounds and values, whichever task reads an event."""
    rows = rows_of(1)
    frame = in_tasks(spark, rows)
    packs = packed(frame, SPEC, 24, combines=True)
    assert packs.where(f"{SESSIONS_COLUMN} IS NOT NULL").count()

    assert told_by_driver(rows, SPEC, VALUES) == told_by_engine(frame, SPEC, VALUES)


def test_every_event_of_a_partial_session_is_counted(spark: SparkSession) -> None:
    """Those of partial sessions too."""
    observation = Observation()

    sessionize(in_tasks(spark, rows_of(2)), SPEC, observation=observation).collect()

    counts = reconcile(observation).counts
    assert EVENTS == counts.events == counts.processed


@pytest.mark.parametrize("spent", [[LARGEST, 1, -LARGEST], [-LARGEST, -LARGEST, LARGEST, LARGEST]])
def test_a_sum_may_be_too_large_on_the_way(spark: SparkSession, spent: list[int]) -> None:
    """The sum of all events of a session fits, and that of those of a task doesn't."""
    spec = spec_of(total=agg.sum("spent"))
    rows = [
        {**row, "user": "a", "ts": NOON, "spent": spent[place % len(spent)]}
        for place, row in enumerate(rows_of(3))
    ]

    found = sessionize(in_tasks(spark, rows), spec).collect()

    assert [EVENTS // len(spent) * sum(spent)] == [row.total for row in found]
