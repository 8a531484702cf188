"""Page views and their sessions, for tests that watch a query."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit import SessionSpec
from sessionkit.aggregates import collect, count

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)


@attrs.frozen
class View:
    url: str


SHARED: Final[dict[str, Any]] = {
    "keys": {"user": str},
    "event_time": "at",
    "watermark_delay": "10 minutes",
}
SESSIONS: Final = SessionSpec.aggregate(
    View, {"views": count(), "urls": collect("url", at_most=10)}, gap="30 minutes", **SHARED
)


def views(*rows: tuple[str | None, float], url: str = "/") -> pa.Table:
    """Return page views as a file's table: the user, and how many minutes after noon."""
    return pa.table(
        {
            "user": pa.array([user for user, _ in rows], pa.string()),
            "at": pa.array(
                [NOON + minutes * MINUTE for _, minutes in rows], pa.timestamp("us", "UTC")
            ),
            "url": pa.array([url] * len(rows), pa.string()),
        }
    )
