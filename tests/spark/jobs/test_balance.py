"""Nothing is lost by default: every row of a stream is in a session, handed out or counted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, SessionSpec, StatefulSpec
from sessionkit.aggregates import count
from sessionkit.spark import batch_counts
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@attrs.frozen
class View:
    url: str


@attrs.define
class Seen:
    views: int


def count_views(key: Any, events: list[View], state: Any, times: Any) -> Seen:
    return Seen(len(events))


BOTH: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "at",
    "watermark_delay": "10 minutes",
}
SESSIONS = SessionSpec.aggregate(View, {"views": count()}, gap="30 minutes", **BOTH)
KEYS = StatefulSpec(process=count_views, state=Seen, timeout=EventTimeGap("30 minutes"), **BOTH)


def views(*rows: tuple[str | None, float]) -> pa.Table:
    """Return page views as a file's table: the user, and how many minutes after noon."""
    return pa.table(
        {
            "user": pa.array([user for user, _ in rows], pa.string()),
            "at": pa.array(
                [NOON + minutes * MINUTE for _, minutes in rows], pa.timestamp("us", "UTC")
            ),
            "url": pa.array(["/"] * len(rows), pa.string()),
        }
    )


YEAR = 365 * 24 * 60
FILES = [
    views(("ann", 0), ("bob", 1), (None, 2)),
    views(("ann", 120), ("bob", 121)),
    # By an hour, a week, a year and fifty years; and one that trails the watermark and still joins.
    views(("ann", 60), ("ann", -7 * 1440), ("bob", -YEAR), ("eve", -50 * YEAR), ("ann", 109)),
    views(("bob", 300), ("ann", 0)),
    views(("bob", 301)),
]


@pytest.mark.parametrize(("spec", "late"), [(SESSIONS, 5), (KEYS, 6)], ids=["sessions", "keys"])
def test_under_a_default_spec_every_late_row_is_handed_out_and_counted(
    spark: SparkSession, tmp_path: Path, spec: Any, late: int
) -> None:
    """The counts balance with what Spark has dropped by its own counter, which is nothing."""
    stream = FileStream(spark, spec, tmp_path, with_rejected=True)
    stream.put(*FILES)

    progress = stream.progress()

    counts = [batch_counts(one) for one in progress]
    assert sum(file.num_rows for file in FILES) == sum(one.events for one in counts)
    assert (late, 1) == (sum(one.late for one in counts), sum(one.quarantined for one in counts))
    assert all(one.is_balanced for one in counts)
    operators = [operator for one in progress for operator in one["stateOperators"]]
    assert operators
    assert 0 == sum(operator["numRowsDroppedByWatermark"] for operator in operators)
    shown = [row for row in stream.rows() if row.kind == "late"]
    assert late == len({row.event_id for row in shown}) == len(shown)
    assert {"/"} == {row.event.url for row in shown}
