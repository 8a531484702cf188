"""Write the state of a stopped query or a batch as a seed for a new query."""

from datetime import datetime
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sessionkit._arguments import explains
from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._engine.micro_batch import GroupState, latest_end
from sessionkit._engine.shell.erasing import Erased
from sessionkit._engine.shell.seed import SeedFormat, check_migration, migrated
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import end_us
from sessionkit._instants import BEGINNING_US, micros_of, span_us
from sessionkit.errors import SessionkitError
from sessionkit.spark._columns import ANY_FRAME, check_frame
from sessionkit.spark._grouping import for_stream
from sessionkit.spark._logs import (
    Location,
    active_session,
    files_read,
    logs_of,
    progress_of,
)
from sessionkit.spark._paths import check_stream, path_of
from sessionkit.spark._sail import check_no_checkpoint
from sessionkit.spark._seeds import (
    Seed,
    chunks_of,
    chunks_schema,
    seed_among,
    write_seed,
)
from sessionkit.spark.checkpoints.erasing import unread_erasures
from sessionkit.spark.checkpoints.reading import mapped_state
from sessionkit.spark.jobs.checks import check_not_chained
from sessionkit.spark.jobs.run import state_at_end
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_kind, check_until

MILLISECOND_US: Final = 1_000


@explains
def migrate(
    checkpoint: Location,
    old: AnySpec,
    new: AnySpec,
    to: Location,
    *,
    spark: SparkSession | None = None,
) -> Seed:
    """
    Write the state of a stopped query as a seed for a query under other rules.

    A *seed* is a folder with the state that another query begins with. Stop the old query before
    you call `migrate`, and start the new one with a new checkpoint.

    The new spec may have another gap, watermark delay or order, and another `Storage`: the layout
    (`"buckets"` or `"pages"`) is how a bucket's state is stored, and the bucket count is the number
    of groups into which keys are hashed. The types of the keys may differ if no value is lost. The
    fields of the state class must be the same: `RenamedFrom` has no effect here.

    An open session keeps its end until its next event. From then on, the new gap counts.

    The seed leaves out each key that `erase_key` was called for, even if the old query hasn't
    erased it yet. Needs Spark 4.0 or later.

    Args:
        checkpoint: The checkpoint location of the old query.
        old: The spec of the old query.
        new: The spec of the new query.
        to: A folder for the seed, which must not have one yet.
        spark: The session to work with; by default the active one.

    Returns:
        The `Seed`. At every start of the new query, pass it as `seed=` to `sessionize` or
        `apply_with_state`, and call `seed.unread(stream)` on each source, which leaves out what the
        old query has read. For Kafka, you may also set `startingOffsets` to
        `seed.starting_offsets()`, so that Spark doesn't read those rows at all. If
        `seed.progress.planned` has a number, the old query was stopped within that micro-batch: let
        it finish the micro-batch, and call `migrate` again with another folder.

    Raises:
        SpecError: The path `to` has a backslash or one of `[]{}*?`, which Spark takes for a
            pattern, so that no stream can read the seed.
        StateError: The checkpoint was written under other rules than the old spec's, or the
            new spec differs in something that can't be migrated; the message names each difference.
        StateValueError: A stored key doesn't fit its new type.
        SessionkitError: There is no checkpoint or no finished micro-batch in it, the folder has a
            seed already, or no session of Spark is active.
        UnsupportedError: This Spark has no state reader, as before 4.0.
    """
    checkpoint = path_of(checkpoint, "checkpoint")
    to = path_of(to, "to")
    check_stream(to)
    check_kind(old, argument="old")
    check_kind(new, argument="new")
    check_migration(old, new)
    session = active_session(spark)
    new = for_stream(new, session)
    progress = progress_of(checkpoint, session)
    if progress.batch is None:
        raise _nothing_finished(checkpoint, old, session)
    # No query reads these requests any more: the new one has a checkpoint of its own.
    erased = unread_erasures(checkpoint, old, progress.files, session)

    def rows_of(memory: GroupState) -> pa.Table:
        left = Erased.of(erased, memory).left if erased.num_rows else memory
        return chunks_of(new, migrated(old, new, left))

    chunks = mapped_state(checkpoint, old, rows_of, chunks_schema(new), session)
    watermark_us = BEGINNING_US
    if old.delay_ms is not None:
        watermark_us = watermark_in_force(progress.watermark_ms)
    until_us, idle_us, ends_us = None, BEGINNING_US, latest_end(old, watermark_us)
    if old.close_idle_after is not None and old.watermark_delay is not None:
        # The watermark of a group may be this far ahead of Spark's.
        started_ms = logs_of(checkpoint, session).started_ms(progress.batch)
        idle_us = started_ms * MILLISECOND_US - span_us(old.watermark_delay)
    before = seed_among(progress.files, session)
    if before is not None:
        until_us, idle_us = before.format.until_us, max(idle_us, before.format.idle_us)
        ends_us = max(ends_us, before.format.ends_us)
    form = SeedFormat.of(logic_of(new), watermark_us, until_us, idle_us, ends_us)
    return write_seed(chunks, new, Seed(to, form, progress))


def _nothing_finished(checkpoint: str, spec: AnySpec, spark: SparkSession) -> SessionkitError:
    logs = logs_of(checkpoint, spark)
    seed = seed_among(files_read(logs, logs.planned, spark), spark)
    found = f"the query of the checkpoint {checkpoint} has finished no micro-batch"
    if seed is None:
        return SessionkitError(found, "start the new query without a seed")
    if unread_erasures(checkpoint, spec, (), spark).num_rows:
        hint = "start it once more until it has finished one, then call migrate again"
        return SessionkitError(f"{found}, and hasn't erased the keys of erase_key", hint)
    found = f"{found}, and all it remembers is in the seed {seed.path} with which it began"
    way = "bootstrap" if seed.progress is None else "migrate"
    hint = f"start the new query with that seed; for other rules, call {way} again, from what "
    return SessionkitError(found, f"{hint}that seed was written from")


@explains
def bootstrap(history: DataFrame, spec: AnySpec, until: datetime, to: Location) -> Seed:
    """
    Process the history before `until` as a batch, and write its final state as a seed for a stream.

    A *seed* is a folder with the state that another query begins with.

    `sessionize(history, spec, until=until)` returns the sessions that end before `until`, and a
    stream with this seed returns the others. Together, they return the same rows as one batch
    over all events. The same holds for `apply_with_state` under `order="event_time"`. Under
    `order="arrival"`, it holds if `process` gives the same rows and the same state whether it gets
    all events in one call or in several. In the stream, an event from before `until` is late.

    Args:
        history: The batch; its rows at `until` and after are left out.
        spec: The spec of the batch and of the stream.
        until: The event time at which the stream goes on, with a time zone.
        to: A folder for the seed, which must not have one yet.

    Returns:
        The `Seed`. Pass it as `seed=` to `sessionize` or `apply_with_state` at every start of the
        stream.

    Raises:
        SpecError: The spec has no event time, or says `carries_watermark=True`; `until` has no time
            zone; or the path `to` has a backslash or one of `[]{}*?`, which Spark takes for a
            pattern, so that no stream can read the seed.
        SchemaError: The columns don't fit the spec.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SessionkitError: The folder has a seed already.
    """
    to = path_of(to, "to")
    check_stream(to)
    way = 'without Spark, the backfill of a driver takes frame.to_dict("records") of pandas'
    check_frame(history, "history", f"{ANY_FRAME}; {way}")
    check_no_checkpoint(history.sparkSession)
    check_kind(spec)
    check_until(spec, until)
    check_not_chained(spec, "seed")
    spec = for_stream(spec, history.sparkSession)
    chunks = state_at_end(history, spec, until, partial(chunks_of, spec), chunks_schema(spec))
    form = SeedFormat.of(logic_of(spec), end_us(until), micros_of(until))
    return write_seed(chunks, spec, Seed(to, form))
