"""Everything that a checkpoint stores, checked where the executors read it."""

from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.objects import decode_states
from sessionkit._spec import AnySpec
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.spark._columns import quoted
from sessionkit.spark.checkpoints.damage import damage_named
from sessionkit.spark.checkpoints.groups import active_session, stored_groups, stored_pages
from sessionkit.spark.checkpoints.log import LastBatch, last_batch_of
from sessionkit.spark.checkpoints.memories import mapped_memories
from sessionkit.spark.checkpoints.rules import check_rules
from sessionkit.state import RESTORE
from sessionkit.timeouts import watermark_in_force

__all__ = ["check_deep"]


def check_deep(path: str, spec: AnySpec, spark: SparkSession | None) -> None:
    """
    Check the rules under which a checkpoint was stored, and all that is stored in it.

    Raises:
        StateError: It was stored under other rules, or something is damaged, misplaced, or older
            than the checkpoint.
        UserFunctionError: A function of `upgrade` failed.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    session = active_session(spark)
    last = last_batch_of(path, session)
    if last is None:
        check_rules(path, spec, session)
        return
    # Before all else: the schema of the state lies in a partition.
    _check_partitions(path, last, session)
    with damage_named(path):
        # This checks the rules too, before anything is decoded.
        mapped_memories(path, spec, partial(_checked, spec), "rows bigint", spark=session).count()
        _check_places(stored_groups(path, session), spec, path, last)
        if spec.layout == "pages":
            _check_owners(path, session)


def _check_partitions(path: str, last: LastBatch, spark: SparkSession) -> None:
    """Check that each partition has a folder: Spark's reader takes those that there are."""
    with damage_named(path):
        files = spark.read.format("binaryFile").load(f"{path}/state/0/*/*").select("path")
        folder = F.regexp_extract("path", r"/state/0/(\d+)/[^/]+$", 1)
        found = {row[0] for row in files.select(folder).distinct().collect()}
    missing = [place for place in range(last.partitions) if str(place) not in found]
    if missing:
        where = f"partition {missing[0]} of {last.partitions}, {path}/state/0/{missing[0]}"
        raise _corrupted(where, "is missing or empty")


def _checked(spec: AnySpec, memory: Memory) -> pa.Table:
    """Read the states of a group, which has passed its own checks; return how many there are."""
    if not (isinstance(spec, SessionSpec) and spec.aggregates is not None):
        has_exists = "exists" in memory.kept.column_names
        rows = memory.kept.filter(memory.kept["exists"]) if has_exists else memory.kept
        decode_states(spec.state, rows)
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
