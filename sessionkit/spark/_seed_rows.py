"""The rows of a seed: what groups remember, packed by the groups of the new query."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import accumulate
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.table import whole
from sessionkit._engine.shell.seed import HELD_COLUMN, KEPT_COLUMN, SeedFormat
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.wire.packing import WATERMARK_COLUMN, joined_packs, packed_by_group
from sessionkit._instants import BEGINNING_US, span_us
from sessionkit.spark._columns import quoted
from sessionkit.spark._grouping import BUCKET, bucket_of_forms, key_forms
from sessionkit.spec.shared import AnySpec
from sessionkit.state._types import key_form

ROWS: Final = "rows"
"""Below the folder of a seed."""
ROWS_OF_A_CHUNK: Final = 2**15
ROWS_AT_ONCE: Final = 2**17


def chunks_schema(spec: AnySpec) -> str:
    """Return the columns of `chunks_of`, as Spark's SQL has them."""
    forms = [f"k{place}: {key_form(f.type).sql}" for place, f in enumerate(spec.key_fields)]
    return f"keys array<struct<{', '.join(forms)}>>, kept binary, held binary"


def chunks_of(spec: AnySpec, memory: Memory) -> pa.Table:
    """Return the state of a group as a few rows, each with many keys and their state as bytes."""
    parts = [
        (name, batch)
        for name, table in (("kept", memory.kept), ("held", memory.buffered))
        for batch in table.combine_chunks().to_batches(max_chunksize=ROWS_OF_A_CHUNK)
        if batch.num_rows
    ]
    columns = {
        name: pa.array(
            [part.serialize().to_pybytes() if name == own else None for own, part in parts],
            pa.binary(),
        )
        for name in ("kept", "held")
    }
    tables = [logic_of(spec).schema.empty_table(), *(pa.table(part) for _, part in parts)]
    keys = [_key_structs(spec, table) for table in tables]
    ends = pa.array(accumulate(map(len, keys)), pa.int32())
    return pa.table({"keys": pa.ListArray.from_arrays(ends, pa.concat_arrays(keys)), **columns})


def _key_structs(spec: AnySpec, rows: pa.Table) -> pa.StructArray:
    forms = key_forms(spec, rows)
    return pa.StructArray.from_arrays(forms, [f"k{place}" for place in range(len(forms))])


def packed_seed_rows(chunks: DataFrame, spec: AnySpec, form: SeedFormat) -> DataFrame:
    """Return the rows of a seed."""
    rows = _in_groups(chunks, spec, form)
    if spec.delay_ms is None or form.watermark_us == BEGINNING_US:
        return rows
    # One more row starts Spark's watermark at that of the seed.
    at_us = form.watermark_us + span_us(spec.watermark_delay or timedelta(0))
    instant = F.timestamp_micros(F.lit(at_us)).alias(WATERMARK_COLUMN)
    row = rows.sparkSession.range(1).select(instant)
    return rows.unionByName(row, allowMissingColumns=True)


def read_seed_rows(path: str, spec: AnySpec, spark: SparkSession) -> DataFrame:
    """Return the stream of the rows of a seed; the first micro-batch has all of them."""
    watermark = "" if spec.delay_ms is None else f", {WATERMARK_COLUMN} timestamp"
    return spark.readStream.schema(_schema(spec) + watermark).parquet(f"{path}/{ROWS}")


def _group_columns(spec: AnySpec) -> dict[str, str]:
    """Return the columns by which Spark groups, with their types."""
    if spec.storage.layout == "per_key":
        return {field.name: key_form(field.type).sql for field in spec.key_fields}
    return {BUCKET: "int"}


def _schema(spec: AnySpec) -> str:
    columns = {**_group_columns(spec), KEPT_COLUMN: "binary", HELD_COLUMN: "binary"}
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def _in_groups(chunks: DataFrame, spec: AnySpec, form: SeedFormat) -> DataFrame:
    """Return the rows of each group, packed."""
    names, schemas = [*_group_columns(spec)], (form.kept, form.held)

    def group(key: Column) -> Column:
        forms = [key.getField(f"k{place}") for place in range(len(spec.keys))]
        bucket = bucket_of_forms(spec, forms, spec.storage.buckets)
        columns = forms if spec.storage.layout == "per_key" else [bucket]
        return F.struct(*(c.alias(f"g{place}") for place, c in enumerate(columns)))

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _packed(batches, names, schemas)

    grouped = chunks.select(F.transform("keys", group).alias("groups"), "kept", "held")
    return grouped.mapInArrow(pack, _schema(spec))


def _packed(
    batches: Iterable[pa.RecordBatch], names: list[str], schemas: tuple[pa.Schema, pa.Schema]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        groups = batch.column(0)
        for place, own in enumerate((KEPT_COLUMN, HELD_COLUMN)):
            found = batch.column(place + 1)
            for portion in _portions(groups.filter(found.is_valid()), found.drop_null()):
                yield _batch(*portion, names, own, schemas[place])


def _portions(groups: pa.Array, packs: pa.Array) -> Iterator[tuple[pa.Array, list[bytes]]]:
    """Join chunks, up to as many rows as memory should hold at once."""
    lengths = [len(one) for one in groups]
    start = total = 0
    for place, length in enumerate(lengths):
        if total and total + length > ROWS_AT_ONCE:
            yield groups.slice(start, place - start), packs.slice(start, place - start).to_pylist()
            start, total = place, 0
        total += length
    if total:
        yield groups.slice(start), packs.slice(start).to_pylist()


def _batch(
    groups: pa.Array, packs: list[bytes], names: list[str], own: str, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the rows of some chunks, packed by group."""
    by_group = pa.Table.from_arrays(groups.flatten().flatten(), names=names)
    of_packs, found = packed_by_group(by_group, joined_packs(schema, packs))
    columns = {name: whole(of_packs[name]) for name in names}
    nothing = pa.nulls(len(found), pa.binary())
    columns |= {KEPT_COLUMN: nothing, HELD_COLUMN: nothing, own: found}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
