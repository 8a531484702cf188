"""63,524 real page views with known sessions, cut at ten instants: a batch, then a stream."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionkit import SessionSpec, Storage
from sessionkit.aggregates import count
from sessionkit.testing import SessionDriver

DATA = Path(__file__).parents[3] / "shared" / "data" / "reconstructr"
GAP = timedelta(minutes=30)
INSTANT = pa.timestamp("us", tz="UTC")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not DATA.exists(), reason="the data of third parties is beside the project, not in it"
    ),
]


@attrs.define
class PageView:
    """A page view; only that it happened counts."""


VIEWS: SessionSpec[PageView, Any, Any] = SessionSpec.aggregate(
    PageView,
    {"n": count()},
    keys={"uuid": str},
    event_time="timestamp",
    gap=GAP,
    watermark_delay="1 hour",
    storage=Storage(bucket_count=1),
)


def read(name: str, *columns: str) -> list[dict[str, Any]]:
    """Return rows of the data, their instants in UTC."""
    table = pq.read_table(DATA / name)
    if columns:
        table = table.select(columns)
    kinds = [INSTANT if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    names = zip(table.schema.names, kinds, strict=True)
    rows: list[dict[str, Any]] = table.cast(pa.schema(list(names))).to_pylist()
    return rows


def hours(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = sorted(rows, key=lambda row: row["timestamp"])
    for start in range(0, len(rows), len(rows) // 9 + 1):
        yield rows[start : start + len(rows) // 9 + 1]


def test_a_cut_at_any_instant_gives_the_known_sessions() -> None:
    """At ten instants, five of them ends of sessions: all 22,224 sessions, row by row."""
    events = read("events.parquet", "uuid", "timestamp")
    known = sorted(
        (row["key"], row["start"], row["last"] + GAP, row["n"])
        for row in read("sessions_30min.parquet")
    )
    times = sorted(row["timestamp"] for row in events)
    cuts = [times[len(times) * place // 11] for place in range(1, 6)]
    cuts += [known[len(known) * place // 11][2] for place in range(6, 11)]

    for cut in cuts:
        driver = SessionDriver.backfill(VIEWS, events, until=cut)
        for part in hours([row for row in events if row["timestamp"] >= cut]):
            for row in part:
                driver.add_row(row)
            driver.run_batch()
        driver.run_batch()
        driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
        driver.run_until_idle()

        found = [(r.key.uuid, r.start, r.end, r.result.n) for r in driver.take_rows()]
        assert known == sorted(found)
        assert not driver.take_rejections()
