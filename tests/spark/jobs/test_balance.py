"""Nothing is lost by default: every row of a stream is in a session, handed out or counted."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, StatefulSpec
from sessionkit.spark import batch_counts
from tests.support.streams import FileStream
from tests.support.visits import SESSIONS, SHARED, View, views


@attrs.define
class Seen:
    views: int


def count_views(key: Any, events: list[View], state: Any, times: Any) -> Seen:
    return Seen(len(events))


KEYS = StatefulSpec(process=count_views, state=Seen, timeout=EventTimeGap("30 minutes"), **SHARED)
YEAR = 365 * 24 * 60
FILES = [
    views(("ann", 0), ("bob", 1), (None, 2)),
    views(("ann", 120), ("bob", 121)),
    # By an hour, a week, a year and fifty years; and one that trails the watermark and still joins.
    views(("ann", 60), ("ann", -7 * 1440), ("bob", -YEAR), ("eve", -50 * YEAR), ("ann", 109)),
    views(("bob", 300), ("ann", 0)),
    views(("bob", 301)),
]


@pytest.mark.parametrize(
    ("spec", "late"),
    [
        pytest.param(SESSIONS, 5, id="sessions"),
        pytest.param(KEYS, 6, id="keys", marks=pytest.mark.long),
    ],
)
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
