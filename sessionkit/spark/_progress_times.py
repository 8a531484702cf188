"""The instants in the progress of a query: its watermark in force, and the latest event time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sessionkit._instants import EPOCH, instant_of
from sessionkit.spark.jobs.progress import entry, said_by_buckets
from sessionkit.spark.jobs.standings import UNTOLD, read_standings

__all__ = ["event_times_in", "instant_in", "newest_event_in", "spark_watermark_in", "watermark_in"]

LAST_INSTANT: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)
"""In whole seconds, so that it stays in its year as a float."""


def watermark_in(progress: Any) -> datetime | None:
    """
    Return the watermark in force in a micro-batch; None while there is none.

    It's that of Spark. Under `close_idle_after` a bucket may be ahead of it; then it's that of the
    bucket that is furthest ahead, of those that were called.
    """
    said = said_by_buckets(progress)
    standings = {} if said in {None, UNTOLD} else read_standings(str(said))[1]
    furthest = [one.watermark_us for one in standings.values() if one.watermark_us is not None]
    found = [spark_watermark_in(progress), *map(instant_of, furthest)]
    return max(filter(None, found), default=None)


def spark_watermark_in(progress: Any) -> datetime | None:
    """Return the watermark as Spark reports it; None while that is 1970."""
    text = event_times_in(progress).get("watermark")
    instant = EPOCH if text is None else instant_in(text)
    return instant if instant > EPOCH else None


def newest_event_in(entries: Sequence[Any]) -> datetime | None:
    """Return the newest event time. A batch with only nulls shows 1970, which doesn't count."""
    texts = [times["max"] for times in map(event_times_in, entries) if "max" in times]
    return max((instant for instant in map(instant_in, texts) if instant > EPOCH), default=None)


def event_times_in(progress: Any) -> Mapping[str, str]:
    """Return the event times of a micro-batch, as text; none without a watermark."""
    # Without a watermark it is empty, or missing on Spark 3.5.
    times: Mapping[str, str] = entry(progress, "eventTime") or {}
    return times


def instant_in(text: str) -> datetime:
    """Return an instant that Spark wrote; the last one of the calendar for those beyond it."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # the year has more than four digits
        return LAST_INSTANT
