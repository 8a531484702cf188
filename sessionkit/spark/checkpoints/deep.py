"""Everything that a checkpoint stores, checked where the executors read it."""

import re
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.logic import Memory
from sessionkit._engine.payload import RESTORE, Origin
from sessionkit._engine.rows.marks import has_state
from sessionkit._engine.rows.objects import decode_states
from sessionkit._engine.rows.table import parted
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark.checkpoints.changes import check_changes
from sessionkit.spark.checkpoints.damage import damage_named
from sessionkit.spark.checkpoints.groups import stored_groups, stored_pages
from sessionkit.spark.checkpoints.log import LastBatch, Logs, last_batch_of, query_id_of
from sessionkit.spark.checkpoints.memories import mapped_memories
from sessionkit.spark.checkpoints.rules import check_rules
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import AnySpec
from sessionkit.timeouts import watermark_in_force

__all__ = ["check_deep"]

CHANGES: Final = re.compile(r"(\d+)(?:_[^.]*)?\.(?:delta|changelog)$")
"""A file of the state store with what one micro-batch has changed: the version it leads to."""


def check_deep(logs: Logs, spec: AnySpec, spark: SparkSession) -> None:
    """
    Check the rules under which a checkpoint was stored, and all that is stored in it.

    Raises:
        StateError: It was stored under other rules, or something is damaged, misplaced, or older
            than the checkpoint.
        UserFunctionError: A function of `upgrade` failed.
        SessionkitError: This Spark has no state reader.
    """
    path, last = logs.path, last_batch_of(logs)
    if last is None:
        check_rules(path, spec, spark)
        return
    # Before all else: the schema of the state lies in a partition.
    versions = _checked_versions(path, last, spark)
    now = Origin.of(str(query_id_of(spark, path)), last.number, last.watermark_ms)
    with damage_named(path):
        # This checks the rules too, before anything is decoded.
        rows_of = partial(_checked, spec)
        mapped_memories(path, spec, rows_of, "rows bigint", now=now, spark=spark).count()
        _check_places(stored_groups(path, spark), spec, path, last)
        if spec.layout == "pages":
            _check_owners(path, spark)
        check_changes(path, last.number, versions, spark)


def _checked_versions(path: str, last: LastBatch, spark: SparkSession) -> list[frozenset[int]]:
    """
    Check that each partition has a folder: Spark's reader takes those that there are.

    Returns:
        For each partition, the versions of its state of which the changes are there.
    """
    with damage_named(path):
        files = spark.read.format("binaryFile").load(f"{path}/state/0/*/*").select("path")
        rows = files.collect()
    found: dict[str, set[int]] = {}
    for (file,) in rows:
        *_, place, name = file.split("/")
        version = CHANGES.match(name)
        found.setdefault(place, set()).update([int(version[1])] if version else [])
    missing = [place for place in range(last.partitions) if str(place) not in found]
    if missing:
        where = f"partition {missing[0]} of {last.partitions}, {path}/state/0/{missing[0]}"
        raise _corrupted(where, "is missing or empty")
    return [frozenset(found[str(place)]) for place in range(last.partitions)]


def _checked(spec: AnySpec, memory: Memory) -> pa.Table:
    """Read the states of a group, which has passed its own checks; return how many there are."""
    if not (isinstance(spec, SessionSpec) and spec.aggregates is not None):
        decode_states(spec.state, parted(memory.kept, has_state(memory.kept))[0])
    return pa.table({"rows": pa.array([memory.kept.num_rows], pa.int64())})


def _check_places(groups: DataFrame, spec: AnySpec, path: str, last: LastBatch) -> None:
    """
    Check that each group is where it belongs, and as old as it may be.

    What is due at a watermark is done in the first micro-batch that has it.
    """
    key = [F.col(f"key.{quoted(name)}") for name in groups.select("key.*").columns]
    own = F.pmod(F.hash(*key), F.lit(last.partitions))
    wrong = {"belongs to another partition": own != F.col("partition_id")}
    written = F.col("state.written_ms")
    wrong["was written after the last micro-batch"] = written > last.started_ms
    if spec.clock == "event_time":
        due = F.col("state.event_due_us") <= watermark_in_force(last.watermark_ms)
        wrong["is older than the last micro-batch, in which it was due"] = due
    for found, condition in wrong.items():
        rows = groups.where(condition).select("key", "partition_id").limit(1).collect()
        for key, place in rows:
            where = f"the row of {tuple(key)} in {path}/state/0/{place}"
            raise _corrupted(where, found)


def _check_owners(path: str, spark: SparkSession) -> None:
    """Check that each page belongs to a bucket."""
    pages = stored_pages(path, spark)
    strange = pages.join(stored_groups(path, spark), "key", "left_anti")
    for key, page in strange.select("key", "user_map_key").limit(1).collect():
        where = f"page {page[0]} of bucket {key[0]} in {path}"
        raise _corrupted(where, "has no bucket")


def _corrupted(what: str, found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the stored state is damaged: {what} {found}", RESTORE))
