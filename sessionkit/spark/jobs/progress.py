"""What the progress of a query says: counts, the stats of its buckets, and instants."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from sessionkit._engine.counts import COUNTED, DECLARED, Counts
from sessionkit._engine.logic import BucketStats
from sessionkit._instants import EPOCH, instant_of
from sessionkit.errors import SessionkitError, with_hint

BUCKETS: Final = "buckets"
"""The name of the stats of buckets among the observed metrics."""
MOST_BUCKETS: Final = 1_024
"""Of more buckets, the text would make the progress of each micro-batch too large."""
NOT_REPORTED: Final = "-"
"""Stands for the stats of so many buckets."""
NUMBERS: Final = tuple(field.name for field in attrs.fields(BucketStats))
OBSERVATION: Final = "sessionkit"
"""The name of the counts among a query's observed metrics."""
LAST_INSTANT: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)
"""In whole seconds, so that it stays in its year as a float."""


@attrs.frozen
class KnownBuckets:
    """
    The last known stats of the buckets of a query.

    A bucket that isn't called in a micro-batch hasn't changed. So what it said last still holds,
    as long as no micro-batch was missed.

    Attributes:
        count: How many buckets there are; None while nothing is known.
        known: What each bucket said last.
        from_beginning: Whether no micro-batch was missed: the other buckets remember nothing.
    """

    count: int | None = None
    known: Mapping[int, BucketStats] = attrs.field(factory=dict)
    from_beginning: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether everything is known of every bucket."""
        return self.count is not None and (self.from_beginning or len(self.known) == self.count)

    def total(self, name: str) -> int | None:
        """Return a sum over all buckets; None where it isn't known."""
        found = [getattr(one, name) for one in self.known.values()]
        return sum(found) if self.is_whole and None not in found else None

    def after(self, text: str | None, batch: int) -> "KnownBuckets":
        """
        Return what is known after a micro-batch.

        Args:
            text: What its buckets said; None where Spark didn't report it.
            batch: Its number. The first one of a query is 0, before which no bucket remembered
                anything.
        """
        if text is None or text == NOT_REPORTED:
            return NOTHING_KNOWN
        count, said = read_bucket_stats(text)
        if batch == 0:
            return KnownBuckets(count, said, from_beginning=True)
        return KnownBuckets(count, {**self.known, **said}, self.from_beginning)


NOTHING_KNOWN: Final = KnownBuckets()


def read_bucket_stats(text: str) -> tuple[int, dict[int, BucketStats]]:
    """Return how many buckets a query has, and the stats of those that were called."""
    count, _, said = text.partition("|")
    return int(count), dict(_read(said))


def _read(said: str) -> Iterator[tuple[int, BucketStats]]:
    for one in filter(None, said.split(",")):
        bucket, *texts = one.split(":")
        numbers = [int(text) if text else None for text in texts]
        yield int(bucket), BucketStats(**dict(zip(NUMBERS, numbers, strict=True)))  # type: ignore[arg-type]


def batch_counts(progress: Any) -> Counts:
    """
    Read the counts of one micro-batch from the progress of its query.

    All counts are zero if no micro-batch ran: Spark also reports that a query is idle. Spark 3.5
    reports no metrics of micro-batches without data, in which sessions close; then `unknown` names
    the counts that nobody knows, and they are zero.

    Args:
        progress: An entry of `query.recentProgress`, `query.lastProgress`, or `event.progress` in a
            `StreamingQueryListener`. Their shapes differ between releases of Spark and on Spark
            Connect.

    Raises:
        SessionkitError: The progress is from a query that sessionkit didn't build.
    """
    if not has_run(progress):
        return Counts()
    values = _observed(progress)
    if values is not None:
        counted: dict[str, Any] = {name: int(values[name] or 0) for name in COUNTED}
        return Counts(**counted)
    if total(entry(progress, "sources") or [], "numInputRows"):
        found = f"the progress has no observed metrics named {OBSERVATION!r}"
        hint = "pass the progress of a query over the frame that sessionize returned"
        raise SessionkitError(with_hint(found, hint))
    return Counts(unknown=frozenset(count.name for count in DECLARED if not count.needs_input))


def is_counted(progress: Any) -> bool:
    """Return whether a progress has counts of sessionkit."""
    return _observed(progress) is not None


def bucket_stats_text(progress: Any) -> str | None:
    """Return the stats of buckets in one micro-batch as text; None where Spark reported none."""
    found = (_observed(progress) or {}).get(BUCKETS)
    return None if found is None else str(found)


def has_run(progress: Any) -> bool:
    """Return whether a progress is of a micro-batch; Spark also reports that a query is idle."""
    return progress is not None and "addBatch" in (entry(progress, "durationMs") or {})


def entry(progress: Any, name: str) -> Any:
    """Return an entry of a progress, which is a dict, or an object in a listener of Spark 3.5."""
    if isinstance(progress, Mapping):
        return progress.get(name)
    return getattr(progress, name, None)


def total(parts: Iterable[Any], name: str) -> int:
    """Return the sum of a number over parts of a progress, such as its stateful operators."""
    return sum(int(entry(part, name) or 0) for part in parts)


def _observed(progress: Any) -> Mapping[str, Any] | None:
    """Return the observed metrics by name; on Connect they come next to their schema."""
    observed = (entry(progress, "observedMetrics") or {}).get(OBSERVATION)
    if observed is None:
        return None
    found: Mapping[str, Any] = observed.asDict() if hasattr(observed, "asDict") else observed
    if "values" in found and "schema" in found:
        names = (*COUNTED, BUCKETS)[: len(found["values"])]
        return dict(zip(names, found["values"], strict=True))
    return found


def watermark_in(progress: Any) -> datetime | None:
    """
    Return the watermark in force in a micro-batch; None while there is none.

    It's that of Spark. Under `close_idle_after` a bucket may be ahead of it; then it's that of the
    bucket that is furthest ahead, of those that were called.
    """
    said = bucket_stats_text(progress)
    stats = {} if said in {None, NOT_REPORTED} else read_bucket_stats(str(said))[1]
    furthest = [one.watermark_us for one in stats.values() if one.watermark_us is not None]
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
