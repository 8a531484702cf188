"""The stream of keys to erase, packed for the shuffle next to the events."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionkit._engine.shell.erasing import ERASED_COLUMN, ErasurePacker
from sessionkit._engine.wire.packing import REJECTED_COLUMN
from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import A_STREAM, check_frame, to_wire
from sessionkit.spark._grouping import BUCKET, bucket_number
from sessionkit.spark.jobs.checks import check_keys
from sessionkit.spark.jobs.task import freeze_imports
from sessionkit.spec.base import AnySpec


def check_erasures(erase: DataFrame, spec: AnySpec, events: DataFrame) -> None:
    """Check that a frame gives keys of a spec to a stream."""
    check_frame(erase, "erase", A_STREAM)
    if not (events.isStreaming and erase.isStreaming):
        found = f"`{'erase' if events.isStreaming else 'events'}` is a batch"
        hint = "read both with readStream" if events.isStreaming else "filter the events instead"
        raise SpecError(with_hint(f"{found}, and only a stream can erase a key", hint))
    check_keys(erase, spec)


def packed_erasures(erase: DataFrame, spec: AnySpec) -> DataFrame:
    """
    Pack the keys of a stream; the buckets are those of the events.

    A packed row has no event time, so it neither moves Spark's watermark nor holds it back.
    """
    packer = ErasurePacker(spec, (BUCKET,))

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports("pack")
        return packer(batches)

    keys = [one for one in spec.wire_columns if one.role == "key"]
    columns = [to_wire(one.field.name, one.field.type).alias(one.name) for one in keys]
    bucket = bucket_number(spec, spec.storage.buckets).alias(BUCKET)
    schema = f"{BUCKET} int, {ERASED_COLUMN} binary, {REJECTED_COLUMN} binary"
    return erase.select(bucket, *columns).mapInArrow(pack, schema)
