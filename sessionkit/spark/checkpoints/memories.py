"""What each group of a checkpoint remembers, decoded on the driver or on the executors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.logic import Memory
from sessionkit._engine.payload import NOBODY, Origin
from sessionkit._engine.storage import logic_of, stored_memory
from sessionkit.spark._columns import quoted
from sessionkit.spark.checkpoints.grouping import group_has_key, key_row, only_key
from sessionkit.spark.checkpoints.groups import (
    active_session,
    explained,
    stored_groups,
    stored_pages,
)
from sessionkit.spark.checkpoints.rules import check_rules
from sessionkit.spark.jobs.pickling import check_picklable
from sessionkit.spec.shared import AnySpec

__all__ = ["collected_memories", "mapped_memories"]

Group: TypeAlias = Mapping[str, Any]
"""A group as the values of its columns `key`, `state` and, with pages, `pages`."""


def mapped_memories(
    path: str,
    spec: AnySpec,
    rows_of: Callable[[Memory], pa.Table],
    schema: str,
    *,
    key: Any = None,
    now: Origin = NOBODY,
    spark: SparkSession | None = None,
) -> DataFrame:
    """
    Return rows made of what each group remembers; the executors make them.

    Args:
        path: The checkpoint location.
        spec: The spec of the query.
        rows_of: Makes the rows of a group.
        schema: The columns of the rows, as Spark's SQL has them.
        key: The only key to read; by default all are.
        now: The query, and its last finished micro-batch; by default any query's rows are read.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state was written under other rules.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    check_picklable(spec)
    found = _groups(path, spec, key, spark)
    if found is None:
        return active_session(spark).createDataFrame([], schema)
    read = _reader(spec, key, now)

    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in range(batch.num_rows):
                (group,) = batch.slice(place, 1).to_pylist()
                yield from rows_of(read(group)).combine_chunks().to_batches()

    return found.mapInArrow(mapped, schema)


def collected_memories(
    path: str, spec: AnySpec, *, key: Any = None, spark: SparkSession | None = None
) -> Iterator[Memory]:
    """Yield what each group remembers; see `mapped_memories`."""
    found = _groups(path, spec, key, spark)
    rows: Sequence[Any] = []
    if found is not None:
        with explained(path, spark):
            rows = found.collect()
    return map(_reader(spec, key), (row.asDict(recursive=True) for row in rows))


def _reader(spec: AnySpec, key: Any, now: Origin = NOBODY) -> Callable[[Group], Memory]:
    """Return the function that decodes a group."""
    wanted, logic = None if key is None else key_row(spec, key), logic_of(spec)

    def read(group: Group) -> Memory:
        named, row = tuple(group["key"].values()), tuple(group["state"].values())
        if spec.layout == "pages":
            pages = {page["start"]: bytes(page["payload"]) for page in group["pages"] or ()}
            # The last column is Spark's timer.
            row = (*row[:-1], pages)
        memory = stored_memory(logic, named, row, now)
        return memory if wanted is None else only_key(memory, wanted)

    return read


def _groups(path: str, spec: AnySpec, key: Any, spark: SparkSession | None) -> DataFrame | None:
    """Return the groups, or those of a key; None if no batch has finished."""
    check_rules(path, spec, spark)
    with explained(path, spark):
        groups = _of_key(stored_groups(path, spark), spec, key)
        if spec.layout != "pages":
            return groups
        pages = _of_key(stored_pages(path, spark), spec, key)
        page = F.struct(
            F.col("user_map_key.start").alias("start"),
            F.col("user_map_value.payload").alias("payload"),
        )
        listed = pages.groupBy("key").agg(F.collect_list(page).alias("pages"))
        return groups.join(listed, "key", "left")
    return None


def _of_key(groups: DataFrame, spec: AnySpec, key: Any) -> DataFrame:
    if key is None:
        return groups
    names: list[str] = groups.select("key.*").columns
    columns = [F.col(f"key.{quoted(name)}") for name in names]
    return groups.where(group_has_key(spec, columns, key_row(spec, key)))
