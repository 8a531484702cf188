"""The rows that Python returns, as users see them, and the counts beside them."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from sessionkit._engine.counts import COUNTED
from sessionkit._engine.wire.columns import COUNTS_COLUMN, ROWS_COLUMN
from sessionkit._engine.wire.outbound import Unpacker, output_fields
from sessionkit._spec import AnySpec
from sessionkit.spark._columns import public_type, quoted
from sessionkit.spark.jobs.progress import OBSERVATION

__all__ = ["OUTPUT_SCHEMA", "public_rows"]

OUTPUT_SCHEMA: Final = f"{COUNTS_COLUMN} array<bigint>, {ROWS_COLUMN} binary"


def public_rows(
    rows: DataFrame, spec: AnySpec, observation: Observation | None, *, with_rejected: bool
) -> DataFrame:
    """
    Return the rows as users see them, with the counts observed.

    Args:
        rows: What groups handed to Spark.
        spec: The spec.
        observation: Receives the counts of a batch; those of a stream are in its progress.
        with_rejected: Whether the rows include rejected ones.
    """
    if rows.isStreaming:
        rows = rows.observe(OBSERVATION, *_sums())
    elif observation is not None:
        rows = rows.observe(observation, *_sums())
    unpacker = Unpacker.of(spec, with_rejected=with_rejected)

    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return unpacker(batches)

    fields = output_fields(spec, with_rejected=with_rejected)
    schema = ", ".join(f"{quoted(field.name)} {public_type(field.type)}" for field in fields)
    return rows.select(ROWS_COLUMN).mapInArrow(unpack, schema)


def _sums() -> list[Column]:
    counts = F.col(COUNTS_COLUMN)
    return [
        F.coalesce(F.sum(counts.getItem(place)), F.lit(0).cast("bigint")).alias(name)
        for place, name in enumerate(COUNTED)
    ]
