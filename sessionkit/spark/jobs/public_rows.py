"""The rows that Python returns, as users see them, and the counts beside them."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from sessionkit._engine.counts import COUNTED
from sessionkit._engine.logic import BucketStats
from sessionkit._engine.wire.columns import ROWS_COLUMN
from sessionkit._engine.wire.outbound import Unpacker, output_fields
from sessionkit._engine.worker import Worker
from sessionkit.spark._columns import OF_REJECTED, quoted
from sessionkit.spark.jobs.progress import OBSERVATION
from sessionkit.spark.jobs.spared import spare_imports
from sessionkit.spark.jobs.standings import BUCKETS, MOST_BUCKETS, UNTOLD
from sessionkit.spec.columns import COUNTS_COLUMN, NUMBER_COLUMN
from sessionkit.spec.shared import AnySpec

__all__ = ["OUTPUT_SCHEMA", "counted_rows", "counted_schema", "unpacked_rows"]

STANDING: Final = attrs.fields(BucketStats)
COUNTS: Final = f"{COUNTS_COLUMN} array<bigint>"
OUTPUT_SCHEMA: Final = f"{COUNTS}, {ROWS_COLUMN} binary"
"""What a group of a stream hands to Spark."""


def unpacked_rows(rows: DataFrame, worker: Worker) -> DataFrame:
    """Return what the groups of a stream handed to Spark as rows; the progress has the counts."""
    unpacker = Unpacker.of(worker.logic.spec, with_rejected=worker.with_rejected)

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports("unpack")
        return unpacker(batches)

    counted = rows.observe(OBSERVATION, *_sums(), *_standings(worker.logic.spec))
    found = counted.select(ROWS_COLUMN).mapInArrow(unpack, ", ".join(_columns(worker)))
    for name in (NUMBER_COLUMN, *worker.logic.spec.passthrough) if worker.with_rejected else ():
        if name in found.columns:
            found = found.withMetadata(name, {OF_REJECTED: True})
    return found


def counted_schema(worker: Worker) -> str:
    """Return what the partitions of a batch hand to Spark: rows, and rows of counts."""
    return ", ".join([*_columns(worker), COUNTS])


def counted_rows(rows: DataFrame, observation: Observation | None) -> DataFrame:
    """Return what the partitions of a batch handed to Spark without the rows of counts."""
    if observation is not None:
        rows = rows.observe(observation, *_sums())
    return rows.where(F.col(COUNTS_COLUMN).isNull()).drop(COUNTS_COLUMN)


def _columns(worker: Worker) -> list[str]:
    fields = output_fields(worker.logic.spec, with_rejected=worker.with_rejected)
    return [f"{quoted(field.name)} {field.type.sql}" for field in fields]


def _standings(spec: AnySpec) -> list[Column]:
    """
    Return what buckets said of themselves, as one text: `64|bucket:kept:buffered:..,bucket:..`.

    Spark writes each value of a list into its log on a line of its own, so this isn't a list. A
    label becomes the number of its bucket by Spark's hash.
    """
    if spec.layout == "per_key":
        return []
    counts, first = F.col(COUNTS_COLUMN), len(COUNTED)
    label, *numbers = (counts.getItem(first + place) for place in range(1 + len(STANDING)))
    texts = [F.coalesce(number.cast("string"), F.lit("")) for number in numbers]
    said = F.concat_ws(":", F.hash(label.cast("int")), *texts)
    if spec.bucket_count > MOST_BUCKETS:
        return [F.max(F.lit(UNTOLD)).alias(BUCKETS)]
    texts_of_all = F.array_join(F.collect_list(F.when(counts.isNotNull(), said)), ",")
    return [F.concat(F.lit(f"{spec.bucket_count}|"), texts_of_all).alias(BUCKETS)]


def _sums() -> list[Column]:
    counts = F.col(COUNTS_COLUMN)
    return [
        F.coalesce(F.sum(counts.getItem(place)), F.lit(0).cast("bigint")).alias(name)
        for place, name in enumerate(COUNTED)
    ]
