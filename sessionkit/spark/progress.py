"""
Read the progress of a query: counts and their balance, bucket stats, and instants.

A progress is an entry of `query.recentProgress`, or `event.progress` in a `StreamingQueryListener`:
a dict or an object, depending on Spark's release, and on Connect.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Observation
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._arguments import explained, explains
from sessionkit._engine.counts import COUNTED, DECLARED, Counts, DurationSketch
from sessionkit._engine.micro_batch import BucketStats
from sessionkit._instants import EPOCH, instant_of
from sessionkit.errors import BalanceError, SessionkitError, SpecError, UnsupportedError

BUCKETS: Final = "buckets"
"""The name of the stats of buckets among the observed metrics."""
BINS: Final = "behind_bins"
"""The name of the bins of `Counts.behind` among the observed metrics, as text: `120,0,3`."""
MOST_BUCKETS: Final = 1_024
"""The most buckets with reported stats: more would make each micro-batch's progress too large."""
NOT_REPORTED: Final = "-"
"""The text in place of the stats of too many buckets."""
NUMBERS: Final = tuple(field.name for field in attrs.fields(BucketStats))
OBSERVATION: Final = "sessionkit"
"""The prefix of the names of counts among the observed metrics; each frame has its own name."""
LAST_INSTANT: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)
"""The last instant, in whole seconds, so that it stays in its year as a float."""

DROPPED: Final = "numRowsDroppedByWatermark"
OURS: Final = frozenset({"applyInPandasWithState", "transformWithStateInPandasExec"})
"""Spark's names for the stateful operators in which a spec runs."""


@attrs.frozen
class KnownBuckets:
    """The last known stats of the buckets of a query; a bucket that isn't called doesn't change."""

    count: int | None = None
    known: Mapping[int, BucketStats] = attrs.field(factory=dict)
    from_beginning: bool = False
    """Whether no micro-batch was missed, so that buckets without stats are empty."""

    @property
    def is_whole(self) -> bool:
        return self.count is not None and (self.from_beginning or len(self.known) == self.count)

    def total(self, name: str) -> int | None:
        """Return a sum over all buckets; None if it isn't known."""
        numbers = [getattr(stats, name) for stats in self.known.values()]
        return sum(numbers) if self.is_whole and None not in numbers else None

    @property
    def oldest(self) -> datetime | None:
        """The start of the oldest open session; None if none is open, or it isn't known."""
        begun_us = [stats.oldest_us for stats in self.known.values() if stats.oldest_us is not None]
        return instant_of(min(begun_us)) if begun_us and self.is_whole else None

    def after(self, text: str | None, batch: int) -> "KnownBuckets":
        """Return the known stats after a micro-batch that reported this text, if any."""
        if text is None or text == NOT_REPORTED:
            return KnownBuckets()
        count, stats = read_bucket_stats(text)
        if batch == 0:
            return KnownBuckets(count, stats, from_beginning=True)
        return KnownBuckets(count, {**self.known, **stats}, self.from_beginning)


def read_bucket_stats(text: str) -> tuple[int, dict[int, BucketStats]]:
    """Return the number of a query's buckets, and the stats of the buckets that were called."""
    count, _, parts = text.partition("|")
    stats = {}
    for part in filter(None, parts.split(",")):
        bucket, *texts = part.split(":")
        numbers: list[Any] = [int(text) if text else None for text in texts]
        stats[int(bucket)] = BucketStats(**dict(zip(NUMBERS, numbers, strict=True)))
    return int(count), stats


def check_query(query: object) -> None:
    """Check that an argument is a streaming query."""
    if not hasattr(query, "recentProgress"):
        found = f"`query` must be a query of Spark, found {query!r}"
        raise SpecError(found, "pass what start_query returned")


@explains
def batch_counts(progress: Any) -> Counts:
    """
    Read the counts of one micro-batch from the progress of its query.

    If no micro-batch ran, all counts are zero. That's the case for the report of an idle query, and
    for None, which `query.lastProgress` is before the first report. If the query runs several
    specs, their counts are added up.

    Spark 3.5 reports no metrics for a micro-batch without data, although sessions may close in it.
    The missing counts are then zero, and `unknown` names them.

    Args:
        progress: An entry of `query.recentProgress`, `query.lastProgress`, or `event.progress` in a
            `StreamingQueryListener`. You needn't convert it: its shape depends on the release of
            Spark and on Spark Connect, and this function reads each of them.

    Raises:
        SessionkitError: The micro-batch has input rows but no counts, so the progress is from a
            query that sessionkit didn't build.
        SpecError: `progress` isn't a progress, but a query or the observation of a batch.
    """
    if not has_run(progress):
        return Counts()
    observed = _observed(progress)
    if observed:
        return sum((_counts_in(values) for values in observed), Counts())
    if total(progress_value(progress, "sources") or [], "numInputRows"):
        found = f"the progress has no observed metrics named {OBSERVATION!r}"
        hint = "pass the progress of a query over the frame that sessionize returned"
        raise SessionkitError(found, hint)
    return Counts(unknown=frozenset(count.name for count in DECLARED if not count.needs_input))


def _counts_in(values: Mapping[str, Any]) -> Counts:
    counted: dict[str, Any] = {name: int(values[name] or 0) for name in COUNTED}
    bins = tuple(int(number) for number in (values.get(BINS) or "").split(",") if number)
    return Counts(**counted, behind=DurationSketch(bins))


def is_counted(progress: Any) -> bool:
    """Return whether a progress has counts of sessionkit."""
    return bool(_observed(progress))


def bucket_stats_text(progress: Any) -> str | None:
    """Return the stats of buckets in one micro-batch as text; None if Spark reported none."""
    texts = [values.get(BUCKETS) for values in _observed(progress)]
    if len(texts) > 1:
        return NOT_REPORTED  # the buckets of two specs are different ones
    return str(texts[0]) if texts and texts[0] is not None else None


def has_run(progress: Any) -> bool:
    """Return whether a progress is of a micro-batch, rather than of an idle query."""
    if not (progress is None or isinstance(progress, Mapping) or hasattr(progress, "durationMs")):
        found = f"a progress of a query is expected, found {type(progress).__name__}"
        hint = "pass query.lastProgress; the counts of a batch are reconcile(observation).counts"
        raise SpecError(found, hint)
    return progress is not None and "addBatch" in (progress_value(progress, "durationMs") or {})


def progress_value(progress: Any, name: str) -> Any:
    """Return an entry of a progress, which is a dict, or an object in a listener of Spark 3.5."""
    if isinstance(progress, Mapping):
        return progress.get(name)
    return getattr(progress, name, None)


def dropped_in(progress: Any) -> int:
    """Return how many rows Spark dropped as late in a micro-batch, in any stateful operator."""
    return total(progress_value(progress, "stateOperators") or [], DROPPED)


def total(parts: Iterable[Any], name: str) -> int:
    """Return the sum of a number over parts of a progress, such as its stateful operators."""
    return sum(int(progress_value(part, name) or 0) for part in parts)


def _observed(progress: Any) -> Sequence[Mapping[str, Any]]:
    """Return the observed metrics of each spec, ordered by name."""
    observed, of_specs = progress_value(progress, "observedMetrics") or {}, []
    for name in sorted(observed):
        metrics = observed[name]
        if name.startswith(OBSERVATION):
            metrics = metrics.asDict() if hasattr(metrics, "asDict") else metrics
            if "values" in metrics and "schema" in metrics:  # on Connect
                metrics = dict(zip((*COUNTED, BUCKETS, BINS), metrics["values"], strict=False))
            of_specs.append(metrics)
    return of_specs


def watermark_in(progress: Any) -> datetime | None:
    """
    Return the watermark in force in a micro-batch; None while Spark's is at 1970.

    Under `close_idle_after`, buckets may be ahead of Spark's watermark; then it's the furthest
    watermark among the buckets that were called.
    """
    text = bucket_stats_text(progress)
    stats = {} if text in {None, NOT_REPORTED} else read_bucket_stats(str(text))[1]
    furthest = [bucket.watermark_us for bucket in stats.values() if bucket.watermark_us is not None]
    text = event_times_in(progress).get("watermark")
    watermark = max([EPOCH if text is None else instant_in(text), *map(instant_of, furthest)])
    return watermark if watermark > EPOCH else None


def newest_event_in(entries: Sequence[Any]) -> datetime | None:
    """Return the newest event time. A batch with only nulls shows 1970, which doesn't count."""
    texts = [times["max"] for times in map(event_times_in, entries) if "max" in times]
    return max((instant for instant in map(instant_in, texts) if instant > EPOCH), default=None)


def event_times_in(progress: Any) -> Mapping[str, str]:
    """Return the event times of a micro-batch as text; empty without a watermark."""
    times: Mapping[str, str] = progress_value(progress, "eventTime") or {}
    return times


def instant_in(text: str) -> datetime:
    """Return an instant that Spark wrote; the last instant of the calendar for later ones."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # the year has more than four digits
        return LAST_INSTANT


@explained()
@attrs.frozen
class Reconciliation:
    """
    The summed counts of consecutive micro-batches that balance.

    Each micro-batch in it balances, and so do the sums: `counts.events` is the sum of
    `counts.ends`, `buffered` included, the events that still wait. It's a value: `add` returns
    another one, and you may keep it over a restart.

    Attributes:
        first: The number of the first micro-batch.
        batches: The number of added micro-batches.
        counts: The sums of their counts. `counts.unknown` names the counts that aren't exact, since
            Spark 3.5 reports none for a micro-batch without data.
        dropped: Rows that Spark itself dropped as late, in another stateful operator of the query,
            such as a `dropDuplicates` before the spec.
        query_id: The id of the query, which it keeps over restarts; None where nothing was added.
        partitions: The number of state partitions, from which it tells whether Spark counted a
            micro-batch twice; None if nothing was added. Spark 3.5 doesn't report it, so pass the
            `spark.sql.shuffle.partitions` of the first start there.
    """

    first: int = 0
    batches: int = 0
    counts: Counts = attrs.field(factory=Counts)
    dropped: int = 0
    query_id: str | None = None
    partitions: int | None = None

    def add(self, progress: Any) -> "Reconciliation":
        """
        Return the sums with the next micro-batch.

        If that one has been added already, the sums stay as they are.

        Args:
            progress: As for `batch_counts`.

        Raises:
            BalanceError: The micro-batch doesn't balance, was counted more than once or in part,
                isn't the next one, or belongs to another query.
            SessionkitError: The progress is from a query that sessionkit didn't build.
        """
        if not has_run(progress):
            return self
        number, following = int(progress_value(progress, "batchId")), self.first + self.batches
        query_id = str(progress_value(progress, "id"))
        if self.query_id not in {None, query_id}:
            found = f"micro-batch {number} is one of the query {query_id}"
            hint = "keep a Reconciliation for each query; a new checkpoint makes another query"
            raise BalanceError(f"{found}, and those before of {self.query_id}", hint)
        if number < following:
            return self
        if number > following:
            found = f"micro-batch {following} isn't in the progress, which goes on with {number}"
            hint = "call reconcile more often and pass what it returned (Spark keeps as many as "
            hint += "spark.sql.streaming.numRecentProgressUpdates says), or begin with "
            raise BalanceError(found, f"{hint}Reconciliation(first={number})")
        where, operators = f"micro-batch {number}", progress_value(progress, "stateOperators") or []
        ours = [part for part in operators if progress_value(part, "operatorName") in OURS]
        partitions = _partitions_read_once(where, ours, self.partitions)
        counts = batch_counts(progress)
        _check_balance(where, counts, total(ours, DROPPED))
        return attrs.evolve(
            self,
            batches=self.batches + 1,
            counts=self.counts + counts,
            dropped=self.dropped + dropped_in(progress),
            query_id=query_id,
            partitions=partitions,
        )


@explains
def reconcile(
    counted: StreamingQuery | Observation, so_far: Reconciliation | None = None
) -> Reconciliation:
    """
    Add up the counts of a query, or of a batch, and check that no event is missing.

    Spark keeps the progress of the last 100 micro-batches of a run, or of the number in
    `spark.sql.streaming.numRecentProgressUpdates`. For the whole life of a query, call it again in
    time, and pass its last result; or call `Reconciliation.add` in a `StreamingQueryListener`.

    Example:
        from sessionkit.spark import Files, reconcile, sessionize, start_query

        # stream: a stream with the columns user, ts and page
        # visits: the spec in the example of SessionSpec.of
        query = start_query(
            sessionize(stream, visits),
            sink=Files("parquet", "/data/visits"),
            trigger="availableNow",
            checkpoint="/checkpoints/visits",
        )
        query.awaitTermination()
        found = reconcile(query)
        assert found.counts.events == 5

    Args:
        counted: A query over the frame that `sessionize` or `apply_with_state` returned, running or
            stopped. Or the `observation` of a batch; this waits until an action has run.
        so_far: The sums so far. Only later micro-batches are added, and the first of them must be
            in the progress: for `Reconciliation()`, micro-batch 0. If none has run since, the same
            sums are returned. Left out, the sums begin with the first micro-batch in the progress.
            A batch counts as one micro-batch.

    Raises:
        BalanceError: A micro-batch doesn't balance, was counted more than once or in part, isn't in
            the progress, or is one of another query. The message names the first.
        SessionkitError: `counted` is a query that sessionkit didn't build.
        SpecError: `counted` is neither a query nor an observation.
        UnsupportedError: `counted` is an observation on Connect of Spark 3.5, which can't read it.
    """
    if isinstance(counted, Mapping | list):
        found = "`reconcile` takes a query, or the observation of a batch, found a progress"
        raise SpecError(found, "pass the query; Reconciliation.add takes a progress")
    if not isinstance(so_far, Reconciliation | None):
        found = f"`so_far` must be what an earlier `reconcile` returned, found {so_far!r}"
        raise SpecError(found, "leave it out to begin with the first micro-batch in the progress")
    progress = getattr(counted, "recentProgress", None)
    # To ask an observation for its value is to wait for it.
    if progress is None and (isinstance(counted, type) or "get" not in dir(counted)):
        found = f"`reconcile` takes a query, or the observation of a batch, found {counted!r}"
        raise SpecError(found, "pass what start_query returned, or observation=Observation()")
    if so_far is None:
        ran = (int(progress_value(entry, "batchId")) for entry in progress or () if has_run(entry))
        so_far = Reconciliation(first=next(ran, 0))
    if progress is None:
        counts = _observed_counts(counted)
        _check_balance("the batch", counts, 0)
        return attrs.evolve(so_far, batches=so_far.batches + 1, counts=so_far.counts + counts)
    for entry in progress:
        so_far = so_far.add(entry)
    return so_far


def _observed_counts(observation: Any) -> Counts:
    try:
        metrics = observation.get
    except PySparkNotImplementedError as error:
        problem = "on Connect, Spark 3.5 can't read an `Observation`"
        hint = "count the rows of `with_rejected=True`, or run the batch without Connect"
        raise UnsupportedError(problem, hint) from error
    return _counts_in(metrics)


def _partitions_read_once(
    where: str, operators: Iterable[Any], partitions: int | None
) -> int | None:
    """
    Return the number of state partitions, after a check that one task read each of them.

    A frame that isn't persisted runs again for each action in `foreachBatch`. Spark 4.3 then shows
    the counts of the last run, maybe over some partitions only; other releases add up all runs.
    Either way the counts balance.
    """
    for operator in operators:
        partitions = partitions or int(progress_value(operator, "numShufflePartitions"))
        tasks = int(progress_value(operator, "numStateStoreInstances"))
        found = f"{tasks} tasks read its {partitions} partitions of state"
        if tasks > partitions:
            hint = "in foreachBatch, persist the frame before the first action that runs over it"
            raise BalanceError(f"{where} ran more than once: {found}", hint)
        if tasks < partitions:
            hint = "in foreachBatch, let an action run over all rows of the frame"
            raise BalanceError(f"{where} ran in part: {found}", hint)
    return partitions


def _check_balance(where: str, counts: Counts, dropped: int) -> None:
    if counts.is_balanced and not dropped:
        return
    parts = ", ".join(f"{name} {number}" for name, number in counts.ends.items())
    found = f"{where} doesn't balance: events {counts.events}, but {parts}"
    found = f"{found}; Spark dropped {dropped} packed rows" if dropped else found
    raise BalanceError(found, "report it to sessionkit, with the progress of the query")
