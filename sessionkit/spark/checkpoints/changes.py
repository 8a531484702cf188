"""
The state of a checkpoint against what its last micro-batches have changed.

Spark keeps both: for each micro-batch a file of its changes, and now and then a snapshot. A row
that is gone leaves nothing, and an older one is sound by itself; the changes say what there was.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionkit._engine.payload import BATCH_AT, BATCH_BYTES, QUERY_AT, QUERY_BYTES, RESTORE
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark.checkpoints.groups import changed_groups, stored_groups

__all__ = ["check_changes"]

RECENT: Final = 10
"""How many of the last micro-batches are looked at."""
FIRST_BOUND: Final = 2
"""The first format that says which micro-batch wrote a row."""


def check_changes(
    path: str, last: int, versions: Sequence[frozenset[int]], spark: SparkSession
) -> None:
    """
    Check that the changes are those of their micro-batches, and that the state has them.

    Args:
        path: The checkpoint location.
        last: The number of its last finished micro-batch.
        versions: For each partition, the versions of its state whose changes are there. Where there
            are none, as in RocksDB without a changelog, nothing is checked.
        spark: The session to read with.

    Raises:
        StateCorruptedError: A file has the changes of another micro-batch, or a row is older than
            its last change, or is gone.
    """
    there = reduce(frozenset.intersection, versions)
    # Micro-batch N leads to version N + 1.
    first = last
    while first in there and last - first < RECENT:
        first -= 1
    if first == last and last + 1 not in there:
        return
    changes = changed_groups(path, max(first, 0), spark)
    payload = F.col("state.payload")
    is_bound = (F.col("state.format") >= FIRST_BOUND) & (
        payload.substr(QUERY_AT + 1, QUERY_BYTES) != F.lit(bytearray(QUERY_BYTES))
    )
    written = F.conv(F.hex(payload.substr(BATCH_AT + 1, BATCH_BYTES)), 16, 10).cast("bigint")
    is_other = (F.col("change_type") == "update") & is_bound & (written != F.col("batch_id"))
    for key, place, batch, found in _first(changes.where(is_other), "batch_id", written):
        file = f"version {batch + 1} of {path}/state/0/{place}"
        said = f"has changes of micro-batch {found} instead of {batch}, at the row of {tuple(key)}"
        text = f"{file} {said}"
        raise _corrupted(text)
    _check_state(path, changes, spark)


def _check_state(path: str, changes: DataFrame, spark: SparkSession) -> None:
    """Check that each row is as its last change has left it."""
    newest = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("batch_id")))
    latest = changes.withColumn("_newest", newest).where("_newest = 1")
    left = F.when(F.col("change_type") == "update", _digest("state"))
    latest = latest.select("key", "partition_id", "batch_id", left.alias("left"))
    state = stored_groups(path, spark).select("key", _digest("state").alias("found"))
    joined = latest.join(state, "key", "left")
    wrong = joined.where(~F.col("left").eqNullSafe(F.col("found")))
    gone = F.col("found").isNull()
    for key, place, batch, is_gone in _first(wrong, "batch_id", gone):
        where = f"the row of {tuple(key)} in {path}/state/0/{place}"
        found = "is gone" if is_gone else "isn't the one"
        text = f"{where} {found} that micro-batch {batch} has left"
        raise _corrupted(text)


def _digest(row: str) -> Column:
    return F.md5(F.to_json(F.struct(f"{row}.written_ms", f"{row}.payload")))


def _first(rows: DataFrame, *more: str | Column) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows.select("key", "partition_id", *more).limit(1).collect()]


def _corrupted(found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the stored state is damaged: {found}", RESTORE))
