"""Turn a DataFrame into result rows, for any kind of spec."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from time import time_ns
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from sessionkit._arguments import check_flag, explains
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.shell.storage import columns_of, logic_of
from sessionkit._engine.shell.worker import Worker, end_us
from sessionkit._engine.wire.gathering import HASH_COLUMN
from sessionkit._engine.wire.packing import (
    FIRST_COLUMN,
    WATERMARK_COLUMN,
    rows_of_groups,
)
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import A_STREAM, ANY_FRAME, check_frame, column
from sessionkit.spark._grouping import BUCKET, for_stream, with_buckets
from sessionkit.spark._pipelines import in_pipeline
from sessionkit.spark._plan import DEFAULT_BUCKETS
from sessionkit.spark._sail import check_no_observation, is_sail
from sessionkit.spark._seeds import Seed, check_unread, read_seed_rows
from sessionkit.spark._settings import (
    advice_for_batch,
    check_libraries,
    check_workers,
    is_connect,
    is_observation,
    say_once,
)
from sessionkit.spark._tasks import freeze_imports, message_first, rows_of_task, run_of_task
from sessionkit.spark.jobs.checks import (
    check_chained_columns,
    check_input,
    check_keys,
    check_not_chained,
)
from sessionkit.spark.jobs.frames import (
    COUNTS,
    as_shown,
    frame_columns,
    hashed,
    output_columns,
    packed,
    packed_erasures,
    sums,
    unpacked_rows,
)
from sessionkit.spark.jobs.modules import check_found
from sessionkit.spark.jobs.pickles import check_picklable
from sessionkit.spark.jobs.processes import in_processes
from sessionkit.spark.jobs.transform_with_state import (
    check_transform_with_state,
    transformed,
    uses_transform_with_state,
)
from sessionkit.spec.base import AnySpec, check_names_with_rejected
from sessionkit.spec.calls import check_kind, check_until
from sessionkit.spec.columns import COUNTS_COLUMN
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.spec.stateful import AnyStatefulSpec, StatefulSpec

BUCKETS_OF_A_BATCH: Final = 4
"""The factor of more buckets in a batch, which runs each bucket as a whole."""

TIMEOUTS: Final = {
    "event_time": GroupStateTimeout.EventTimeTimeout,
    "processing_time": GroupStateTimeout.ProcessingTimeTimeout,
    None: GroupStateTimeout.NoTimeout,
}


@attrs.frozen
class RunOptions:
    """The arguments that `sessionize` and `apply_with_state` share."""

    observation: Observation | None
    seed: Seed | None
    until: datetime | None
    clock: DataFrame | None
    erase: DataFrame | None
    with_rejected: bool


def run_spec(events: DataFrame, spec: AnySpec, options: RunOptions) -> DataFrame:
    driver = "SessionDriver" if isinstance(spec, SessionSpec) else "StatefulDriver"
    rows = 'the rows of a frame of pandas, frame.to_dict("records")'
    way = f"in a test without Spark, add_row of a {driver} takes {rows}"
    check_frame(events, "events", f"{ANY_FRAME}; {way}")
    for name, frame in (("clock", options.clock), ("erase", options.erase)):
        if frame is not None:
            check_frame(frame, name, A_STREAM)
    check_libraries(is_streaming=events.isStreaming)
    if not is_connect(events.sparkSession):  # on Connect, the Python of the workers is unknown
        context = events.sparkSession.sparkContext
        check_workers(context.master, context.pythonExec)
    check_input(events, spec)
    check_picklable(spec)
    if not is_connect(events.sparkSession):
        check_found(spec, events.sparkSession.sparkContext)
    _check_options(events, spec, options)
    if not events.isStreaming:
        worker = Worker(logic_of(spec), options.with_rejected)
        return as_shown(_batch(events, worker, options), worker)
    if spec.clock == "processing_time" and in_pipeline():
        why = "a run of the pipeline would never end: with a timeout or timers in processing time"
        hint = "take event time; a stream passed as `clock=` closes what waits for a later event"
        raise SpecError(f"{why}, Spark always has another batch to run", hint)
    if spec.output_event_time is not None:
        _check_chained(spec, options)
    if uses_transform_with_state(spec):
        check_transform_with_state(events.sparkSession, spec)
    seed = None if options.seed is None else options.seed.format
    has_default = spec.storage.bucket_count is None and not seed
    spec = with_buckets(spec, seed.buckets) if seed else for_stream(spec, events.sparkSession)
    worker = Worker(logic_of(spec), options.with_rejected, seed, options.erase is not None)
    found = _stream(events, worker, options, has_default=has_default)
    return as_shown(unpacked_rows(found, worker), worker)


def _check_options(events: DataFrame, spec: AnySpec, options: RunOptions) -> None:
    check_flag("with_rejected", options.with_rejected)
    _check_observation(events, options.observation)
    if not isinstance(options.seed, Seed | None):
        found = f"`seed` must be a Seed, found {options.seed!r}"
        raise SpecError(
            found, 'pass what migrate or bootstrap returned, or read_seed("/seeds/visits")'
        )
    if options.with_rejected:
        check_names_with_rejected(spec)
    if options.until is not None:
        check_until(spec, options.until)
        if events.isStreaming:
            found = "`until` is for a batch, and this is a stream"
            raise SpecError(found, "leave it out: a stream ends when you stop it")
    if options.seed is not None:
        if not events.isStreaming:
            found = "`seed` is for a stream, and this is a batch"
            raise SpecError(found, "read the events with readStream")
        if options.seed.progress is not None:
            check_unread(events, options.seed.marker)
    if options.clock is not None or options.erase is not None:
        _check_streams(events, spec, options)


def _check_observation(events: DataFrame, observation: object) -> None:
    if observation is not None and not is_observation(observation):
        found = f"`observation` must be an Observation of Spark, found {observation!r}"
        raise SpecError(found, "write observation=Observation(), and pass it to reconcile")
    if observation is not None and events.isStreaming:
        found = "`observation` is for a batch, and this is a stream"
        raise SpecError(found, "leave it out, and pass the query to reconcile")


def _check_chained(spec: AnySpec, options: RunOptions) -> None:
    """Check that a stream returns only final rows, all made from its own events."""
    for name in ("with_rejected", "seed", "erase"):
        if getattr(options, name):
            check_not_chained(spec, name)
    check_chained_columns(spec)


def _check_streams(events: DataFrame, spec: AnySpec, options: RunOptions) -> None:
    for name, frame in (("clock", options.clock), ("erase", options.erase)):
        if frame is not None and not (events.isStreaming and frame.isStreaming):
            found = f"`{name if events.isStreaming else 'events'}` is a batch"
            hint = "read both with readStream; of a batch, filter the events"
            raise SpecError(f"{found}, and only streams take `{name}`", hint)
    if options.erase is not None:
        check_keys(options.erase, spec)
    if options.clock is not None:
        if spec.watermark_delay is None:
            found = "`clock` moves a watermark, and the spec has none"
            raise SpecError(found, "leave it out, or add watermark_delay=...")
        columns = options.clock.schema
        if [field.dataType.simpleString() for field in columns.fields] != ["timestamp"]:
            found = f"`clock` must have one column, a timestamp, found {columns.simpleString()}"
            raise SchemaError(found, 'write clock=frame.select("at")')


def _stream(
    events: DataFrame, worker: Worker, options: RunOptions, *, has_default: bool
) -> DataFrame:
    spec, more_rows = worker.logic.spec, []
    if options.seed is not None:
        more_rows.append(read_seed_rows(options.seed, spec, events.sparkSession))
    if options.clock is not None:
        more_rows.append(options.clock.toDF(WATERMARK_COLUMN).dropna())
    if options.erase is not None:
        more_rows.append(packed_erasures(options.erase, spec))
    rows = packed(events, spec, spec.storage.buckets, more_rows)
    if has_default:
        # `start_query` reads the alias in the plan, and compares it with the checkpoint.
        rows = rows.alias(f"{DEFAULT_BUCKETS}{spec.storage.buckets}")
    if uses_transform_with_state(spec):
        return transformed(rows, worker)

    @message_first
    def run(
        group: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        freeze_imports("run")
        yield from worker(group, frames, state, run_of_task(), rows_of_task())

    return rows.groupBy(BUCKET).applyInPandasWithState(
        run, frame_columns(worker), columns_of(worker.logic), "append", TIMEOUTS[spec.clock]
    )


def _batch(events: DataFrame, worker: Worker, options: RunOptions) -> DataFrame:
    now_us, until_us = time_ns() // 1_000, end_us(options.until)
    # Sail shuffles columns as they are, in memory: packs would only cost.
    in_packs, partition = not is_sail(events.sparkSession), worker.packed_partition
    if not in_packs:
        step = in_processes(worker, events.sparkSession)
        partition = partial(worker.unpacked_partition, step=step)

    @message_first
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition(batches, now_us, until_us)

    spec, schema = worker.logic.spec, f"{output_columns(worker)}, {COUNTS}"
    before = _before(events, spec, options.until)
    if in_packs:
        rows = _by_bucket(before, spec, run, schema, combines=True)
    else:
        rows = hashed(before, spec).repartition(HASH_COLUMN).mapInArrow(run, schema)
    if options.observation is not None:
        check_no_observation(events.sparkSession)
        rows = rows.observe(options.observation, *sums())
    return rows.where(F.col(COUNTS_COLUMN).isNull())


def state_at_end(
    events: DataFrame,
    spec: AnySpec,
    until: datetime,
    rows_of: Callable[[GroupState], pa.Table],
    schema: str,
) -> DataFrame:
    """Return rows made from the state of each group at the end of a batch."""
    check_input(events, spec)
    check_picklable(spec)
    worker, now_us, until_us = Worker(logic_of(spec)), time_ns() // 1_000, end_us(until)

    @message_first
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for packs in rows_of_groups(batches):
            *_, (_, memory) = worker.until(worker.portions(packs), now_us, until_us)
            yield from rows_of(memory).to_batches()

    return _by_bucket(_before(events, spec, until), spec, run, schema)


def _before(events: DataFrame, spec: AnySpec, until: datetime | None) -> DataFrame:
    """Return the events before an instant, and the rows without a time, which are quarantined."""
    if until is None:
        return events
    time = column(spec.event_time or "")
    return events.where(time.isNull() | (time < F.lit(until)))


def _by_bucket(
    events: DataFrame,
    spec: AnySpec,
    run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
    *,
    combines: bool = False,
) -> DataFrame:
    """Run the whole buckets of a batch, whose packs come in the order of their times."""
    rows = packed(events, spec, spec.storage.buckets * BUCKETS_OF_A_BATCH, combines=combines)
    advice = advice_for_batch(rows.sparkSession)
    if advice is not None:
        say_once(advice)
    # Spark sorts on disk if necessary, so a hot bucket never is in memory as a whole.
    return (
        rows.repartition(BUCKET).sortWithinPartitions(BUCKET, FIRST_COLUMN).mapInArrow(run, schema)
    )


@explains
def sessionize(
    events: DataFrame,
    spec: AnySessionSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
    seed: Seed | None = None,
    until: datetime | None = None,
    clock: DataFrame | None = None,
    erase: DataFrame | None = None,
) -> DataFrame:
    """
    Return the sessions of a stream or a batch, as a DataFrame.

    A stream returns each session once the watermark reaches its end, in output mode `append`.
    sessionkit declares the watermark itself, so the frame must not have one. A batch returns all
    sessions, as if the watermark had passed the end of time.

    The columns are the key, `session_id`, `session_start`, `session_end` and `last_event_time`
    (event time), and the fields of the result class. `session_end` is the last event plus the gap.
    An event after it begins another session; one at exactly this time still joins, unless
    `gap_inclusive=False`. The length of a session is `last_event_time` less `session_start`.

    Before the result's fields come `closed_by` under `SessionRules`, and `revision`, `is_final` and
    `supersedes` if a session may give several rows; see `Results`. Columns are non-nullable, except
    for fields `... | None`, or if rejected rows come too. The query's progress has the counts of
    every micro-batch; read them with `batch_counts`.

    Example:
        from sessionkit.spark import sessionize

        # views: a DataFrame with the columns user, ts (a timestamp) and page
        # visits: the spec in the example of SessionSpec.of
        found = sessionize(views, visits)
        times = ["session_start", "session_end", "last_event_time"]
        assert found.columns == ["user", "session_id", *times, "pages"]
        assert sorted(row.pages for row in found.collect()) == [1, 1, 3]

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields of
            the event class and the columns in `Inputs(passthrough=...)`; other columns never reach
            Python.
        spec: The definition of a session.
        with_rejected: Whether to return rejected rows too. Then the first column, `kind`, is
            `session` for a session; for other rows `late`, `duplicate`, `outside`, `quarantined`,
            `failed`, `failed_output` or `erased`, see `Counts`. The last columns are `reason`,
            `traceback`, `event_time`, `event_id` (the event's identity, the same in every run),
            `event` (its fields, in a struct) and the columns in `Inputs(passthrough=...)`. Under
            `with_events=True`, a row may also be of kind `event`: an event of a closed session,
            with the columns of the session and `number`, its position in the session, from 1.
            `Routes` gives each kind a sink of its own.
        observation: For a batch: an `Observation` of Spark that receives the counts once an action
            has run; pass it to `reconcile`.
        seed: For a stream: its initial state, from `migrate` or `bootstrap`. Pass it at every start
            of the query; the first start needs a new checkpoint.
        until: For a batch: take the events before this event time, with a time zone, and return
            the sessions that end before it: an event at `until` may continue one that ends then.
        clock: For a stream: another stream, with one timestamp column, whose times move the
            watermark as events would, and do nothing else. Pass it at every start.
        erase: For a stream: another stream, with the key columns, of keys to erase, such as
            `read_erasures` returns. The micro-batch that reads a key first drops all that is stored
            for it. Pass it at every start.

    Raises:
        SchemaError: The columns of the events, `clock` or `erase` don't fit the spec; or one of
            these isn't a DataFrame of Spark.
        NotPicklableError: A function uses something that can't be sent to the executors, or that
            only this script or notebook has, such as a function under `functools.cache`.
        SpecError: A batch is given a seed, a clock or `erase`, or a stream `until`; `until` has no
            time zone, or the spec no event time, or `with_events=True` without rejected rows; the
            seed is from `migrate`, and a source of the stream hasn't gone through `seed.unread`; a
            declarative pipeline, whose runs end, is given a spec that waits for processing time.
        UnsupportedError: On Sail, the events are a stream, or there is an `observation`.
    """
    check_kind(spec, SessionSpec, "apply_with_state")
    if spec.results.with_events and not with_rejected:
        found = "`with_events=True` asks for events too, which are rows of another kind"
        raise SpecError(found, "pass with_rejected=True, or leave `with_events` out")
    options = RunOptions(observation, seed, until, clock, erase, with_rejected)
    return run_spec(events, spec, options)


@explains
def apply_with_state(
    events: DataFrame,
    spec: AnyStatefulSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
    seed: Seed | None = None,
    until: datetime | None = None,
    clock: DataFrame | None = None,
    erase: DataFrame | None = None,
) -> DataFrame:
    """
    Apply the functions of a `StatefulSpec` to a stream or a batch, and return their result rows.

    On a stream, the functions run in every micro-batch, for the keys that have events or due
    timers. The output mode is `append`. sessionkit declares the watermark itself, so the frame must
    not have one. On a batch, they run once for each key with all of its events, then for the
    event-time timers. Processing-time timers never fire on a batch.

    The columns are the key and the fields of the result class. For counts, see `batch_counts`.

    Under the `availableNow` trigger, a query with processing-time timers never ends. `start_query`
    refuses that; `writeStream` doesn't.

    Example:
        from sessionkit.spark import apply_with_state

        # views: a DataFrame with the columns user, ts (a timestamp) and page, with 5 rows
        # readers: the spec in the example of StatefulSpec
        found = apply_with_state(views, readers)
        assert {row.user: row.pages for row in found.collect()} == {"ann": 4, "bob": 1}

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields of
            the event class and the columns in `Inputs(passthrough=...)`; other columns never reach
            Python.
        spec: The definition of the state and its functions.
        with_rejected: Whether to return rejected rows too, with the columns that `sessionize`
            describes. In the first column, `kind`, a result row has `result`.
        observation: For a batch: an `Observation` of Spark that receives the counts once an action
            has run; pass it to `reconcile`.
        seed: For a stream: its initial state, from `migrate` or `bootstrap`. Pass it at every start
            of the query; the first start needs a new checkpoint.
        until: For a batch: an event time, with a time zone. The batch takes only the events before
            it, and fires only the event-time timers that are due before it.
        clock: For a stream: another stream, with one timestamp column, whose times move the
            watermark as events would, and do nothing else. Pass it at every start.
        erase: For a stream: another stream, with the key columns, of keys to erase, such as
            `read_erasures` returns. The micro-batch that reads a key first drops all that is stored
            for it. Pass it at every start.

    Raises:
        SchemaError: The columns of the events, `clock` or `erase` don't fit the spec; one of these
            isn't a DataFrame of Spark; or a stream of events or of keys to erase has a watermark of
            its own.
        NotPicklableError: A function uses something that can't be sent to the executors, or that
            exists only in this script or notebook, such as a function under `functools.cache`.
        SpecError: A batch is given a seed, a clock or `erase`, or a stream `until` or an
            observation; `until` has no time zone, or the spec no event time; there is a clock, but
            no `watermark_delay`; the seed is from `migrate`, and a source of the stream hasn't gone
            through `seed.unread`; or a declarative pipeline, whose runs end, is given a spec that
            waits for processing time.
        UnsupportedError: On Sail, the events are a stream, or there is an `observation`.
    """
    check_kind(spec, StatefulSpec, "sessionize")
    options = RunOptions(observation, seed, until, clock, erase, with_rejected)
    return run_spec(events, spec, options)
