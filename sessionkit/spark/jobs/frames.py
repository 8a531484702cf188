"""Pack the user's rows for the shuffle, and unpack the rows that Python returns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._arguments import quoted
from sessionkit._arrays import INSTANT
from sessionkit._engine.counts import COUNTED
from sessionkit._engine.sessions.combining import Combiner
from sessionkit._engine.shell.erasing import ERASED_COLUMN, ErasurePacker
from sessionkit._engine.shell.worker import BINS_AT, Worker
from sessionkit._engine.wire.gathering import HASH_COLUMN
from sessionkit._engine.wire.inbound import (
    FUTURE_COLUMN,
    TIME_COLUMN,
    UNREADABLE_COLUMN,
)
from sessionkit._engine.wire.outbound import ROWS_COLUMN
from sessionkit._engine.wire.packing import (
    EVENTS_COLUMN,
    FIRST_COLUMN,
    REJECTED_COLUMN,
    SESSIONS_COLUMN,
    WATERMARK_COLUMN,
    Packer,
    joined_packs,
)
from sessionkit.spark._columns import (
    OF_REJECTED,
    ROW_KIND,
    column,
    is_future,
    some_value,
    to_wire,
)
from sessionkit.spark._grouping import BUCKET, bucket_number, hash_of_keys, label_of
from sessionkit.spark._tasks import freeze_imports, is_first_batch, message_first
from sessionkit.spark.progress import (
    BINS,
    BUCKETS,
    MOST_BUCKETS,
    NOT_REPORTED,
    NUMBERS,
    OBSERVATION,
)
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import COUNTS_COLUMN, KIND, REJECTED_COLUMNS, shown
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import SessionSpec
from sessionkit.state._collections import Field, OptionalType, arrow_schema

COUNTS: Final = f"{COUNTS_COLUMN} array<bigint>"
PACKED_ROWS: Final = f"{COUNTS}, {ROWS_COLUMN} binary"


def packed(
    events: DataFrame,
    spec: AnySpec,
    bucket_count: int,
    others: Sequence[DataFrame] = (),
    *,
    combines: bool = False,
) -> DataFrame:
    """
    Pack the columns that the spec reads: a row for each bucket and map task.

    The `others` are packed already, or only move the watermark. Where it `combines`, map tasks may
    combine the events of aggregates.
    """
    is_batch = not events.isStreaming
    moves_watermark = not is_batch and spec.delay_ms is not None
    combine = None
    if combines and isinstance(spec, SessionSpec) and isinstance(spec.logic, Aggregates):
        combine = Combiner(spec, bucket_count)
    packer = Packer(spec, (BUCKET,), moves_watermark, in_time=is_batch, combine=combine)

    @message_first
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports("pack")
        return packer(batches, is_first=is_batch or is_first_batch())

    bucket = bucket_number(spec, bucket_count).alias(BUCKET)
    chosen = events.select(bucket, *_columns_read(spec, events))
    watermark = [f"{WATERMARK_COLUMN} timestamp_ltz"] if moves_watermark else []
    first = [f"{FIRST_COLUMN} bigint"] if is_batch else []
    sessions = [] if combine is None else [f"{SESSIONS_COLUMN} binary"]
    packs = [f"{EVENTS_COLUMN} binary", f"{REJECTED_COLUMN} binary", *sessions]
    rows = chosen.mapInArrow(pack, ", ".join([f"{BUCKET} int", *watermark, *first, *packs]))
    for other in others:
        rows = rows.unionByName(other, allowMissingColumns=True)
    if moves_watermark:
        rows = rows.withWatermark(WATERMARK_COLUMN, f"{spec.delay_ms} milliseconds")
        # Drop the marker rows: Spark doesn't push this filter below the watermark.
        rows = rows.where(F.col(WATERMARK_COLUMN).isNull())
    return rows.withColumn(BUCKET, label_of(F.col(BUCKET), bucket_count))


def hashed(events: DataFrame, spec: AnySpec) -> DataFrame:
    """Return the columns that the spec reads as they are, and the hash of each row's key."""
    hash_of_key = hash_of_keys(spec).alias(HASH_COLUMN)
    return events.select(hash_of_key, *_columns_read(spec, events))


def _columns_read(spec: AnySpec, events: DataFrame) -> Iterator[Column]:
    if UNREADABLE_COLUMN in events.columns:
        yield column(UNREADABLE_COLUMN)
    if spec.event_time is not None:
        yield column(spec.event_time).alias(TIME_COLUMN)
        skew = spec.inputs.max_future_skew
        if skew is not None:
            time, is_batch = column(spec.event_time), not events.isStreaming
            yield is_future(time, skew, is_batch=is_batch).alias(FUTURE_COLUMN)
    yield from map(to_wire, spec.wire_columns)


def frame_columns(worker: Worker) -> str:
    """Return the columns that a worker returns to Spark, as DDL."""
    if not worker.as_rows:
        return PACKED_ROWS
    spec = worker.logic.spec
    # Spark would shift a timestamp of pandas by the time zone of the session.
    kinds = {f.name: "bigint" if _in_micros(f, spec) else f.type.sql for f in worker.fields}
    return ", ".join((COUNTS, *(f"{quoted(name)} {kind}" for name, kind in kinds.items())))


def unpacked_rows(rows: DataFrame, worker: Worker) -> DataFrame:
    """Return the output rows of a stream's groups; the counts go to the query's progress."""
    # Spark refuses a plan with two observations of one name.
    name, spec = f"{OBSERVATION}-{uuid4().hex[:8]}", worker.logic.spec
    rows = rows.observe(name, *sums(), *_stats(spec))
    output = rows.where(F.col(COUNTS_COLUMN).isNull())
    if worker.as_rows:
        return output.select(*(_as_users_see_it(field, spec) for field in worker.fields))
    schema = arrow_schema(worker.fields)

    @message_first
    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports("unpack")
        for batch in batches:
            packs = batch.column(0).drop_null().to_pylist()
            yield from joined_packs(schema, packs).to_batches()

    return output.select(ROWS_COLUMN).mapInArrow(unpack, output_columns(worker))


def _in_micros(field: Field, spec: AnySpec) -> bool:
    """Return whether an instant crosses as microseconds: any but `output_event_time` does."""
    return bool(field.type.arrow == INSTANT) and field.name != spec.output_event_time


def _as_users_see_it(field: Field, spec: AnySpec) -> Column:
    value = column(field.name)
    return F.timestamp_micros(value).alias(field.name) if _in_micros(field, spec) else value


def as_shown(rows: DataFrame, worker: Worker) -> DataFrame:
    """
    Return rows under the column names that users see, with columns that are never null marked so.

    With rows of several kinds, only `kind` is never null. A sink knows the columns of rejected rows
    by their names; metadata overrides a name that would mislead it.
    """
    spec = worker.logic.spec
    fields = worker.fields
    required = {
        field.name
        for field in (fields[:1] if worker.with_rejected else fields)
        # A column that a function has made would have no watermark.
        if not isinstance(field.type, OptionalType) and field.name != spec.output_event_time
    }
    columns = []
    for field in fields:
        value = column(field.name)
        if field.name in required:
            # Spark takes every column from Python for nullable, and a filter doesn't change that.
            value = F.coalesce(value, some_value(field.type.arrow)).alias(field.name)
        name = shown(field.name)
        of_rejected = name != field.name
        has_rejected_name = name in {"kind", *REJECTED_COLUMNS}
        metadata: dict[str, Any] = {}
        if of_rejected != has_rejected_name:
            metadata = {OF_REJECTED: of_rejected}
        elif field.name == KIND:
            metadata = {ROW_KIND: spec.row_kind}
        columns.append(value.alias(name, metadata=metadata) if of_rejected or metadata else value)
    return rows.select(*columns)


def output_columns(worker: Worker) -> str:
    """Return the columns of the result, as DDL."""
    return ", ".join(f"{quoted(field.name)} {field.type.sql}" for field in worker.fields)


def _stats(spec: AnySpec) -> list[Column]:
    """
    Return the bucket stats as one text, `64|bucket:kept:buffered:..,bucket:..`, and the bins.

    They aren't a list, since Spark logs each item of a list on a line of its own. Spark's hash
    turns a label into the number of its bucket.
    """
    counts, first = F.col(COUNTS_COLUMN), len(COUNTED)
    label, *numbers = (counts.getItem(first + place) for place in range(1 + len(NUMBERS)))
    texts = [F.coalesce(number.cast("string"), F.lit("")) for number in numbers]
    text = F.concat_ws(":", F.hash(label.cast("int")), *texts)
    texts_of_all = F.array_join(F.collect_list(F.when(counts.isNotNull(), text)), ",")
    buckets = F.concat(F.lit(f"{spec.storage.buckets}|"), texts_of_all)
    if spec.storage.buckets > MOST_BUCKETS:
        buckets = F.max(F.lit(NOT_REPORTED))
    if spec.delay_ms is None or not spec.lateness.measured:
        return [buckets.alias(BUCKETS)]
    bins = F.collect_list(F.slice(counts, F.lit(BINS_AT + 1), F.size(counts)))
    none = F.array().cast("array<bigint>")
    # Merge here, so that the bins of 64 buckets are as short as the bins of one bucket.
    merged = F.aggregate(bins, none, lambda some, more: F.zip_with(some, more, _added))
    return [buckets.alias(BUCKETS), F.array_join(merged, ",").alias(BINS)]


def _added(left: Column, right: Column) -> Column:
    return F.coalesce(left, F.lit(0)) + F.coalesce(right, F.lit(0))


def sums() -> list[Column]:
    """Return the sum of each count, over the rows of `COUNTS_COLUMN`."""
    counts = F.col(COUNTS_COLUMN)
    return [
        F.coalesce(F.sum(counts.getItem(place)), F.lit(0).cast("bigint")).alias(name)
        for place, name in enumerate(COUNTED)
    ]


def packed_erasures(erase: DataFrame, spec: AnySpec) -> DataFrame:
    """
    Pack a stream of keys to erase, in the buckets of the events.

    A packed row has no event time, so it neither moves Spark's watermark nor holds it back.
    """
    packer = ErasurePacker(spec, (BUCKET,))

    @message_first
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports("pack")
        return packer(batches)

    columns = [to_wire(wire) for wire in spec.wire_columns if wire.role == "key"]
    bucket = bucket_number(spec, spec.storage.buckets).alias(BUCKET)
    schema = f"{BUCKET} int, {ERASED_COLUMN} binary, {REJECTED_COLUMN} binary"
    return erase.select(bucket, *columns).mapInArrow(pack, schema)
