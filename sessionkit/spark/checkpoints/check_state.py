"""Whether a query with a spec can go on from a checkpoint, and whether what it stores is sound."""

import re
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.objects import decode_states
from sessionkit._engine.rows.table import has_state, parted
from sessionkit._engine.shell.payload import (
    BATCH_AT,
    BATCH_BYTES,
    QUERY_AT,
    QUERY_BYTES,
    RESTORE,
    Origin,
)
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark._grouping import for_stream
from sessionkit.spark._logs import LastBatch, Logs, active_session, last_batch_of, query_id_of
from sessionkit.spark.checkpoints.check_logs import check_logs
from sessionkit.spark.checkpoints.reading import mapped_state
from sessionkit.spark.checkpoints.state_reader import (
    changed_groups,
    check_rules,
    naming_damage,
    reads_state,
    stored_groups,
    stored_operators,
    stored_pages,
)
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import AnySpec

RECENT: Final = 10
"""How many of the last micro-batches are looked at."""
FIRST_BOUND: Final = 2
"""The first format that says which micro-batch wrote a row."""
CHANGES: Final = re.compile(r"(\d+)(?:_[^.]*)?\.(?:delta|changelog)$")
"""A file of the state store with what one micro-batch has changed: the version it leads to."""


def check_checkpoint(
    path: str, spec: AnySpec, *, deep: bool = False, spark: SparkSession | None = None
) -> None:
    """
    Check that a query with this spec can continue from a checkpoint.

    Spark's logs are checked too: whether one of them misses something, or contradicts another. A
    checkpoint without a finished micro-batch, or without stored state, fits every spec. Needs Spark
    4.0 or later; with 3.5, the first micro-batch makes the same check.

    Args:
        path: The checkpoint location.
        spec: The spec of the query that is to continue.
        deep: Whether to read every partition, every checksum and every state too. The executors do,
            and nothing is collected on the driver. A state class, or a function of `upgrade`, that
            can't take a stored state is found so as well.
        spark: The session to read with; by default the active one.

    Raises:
        StateMismatchError: A rule has changed, or a class in a way that nothing covers. The message
            names each change.
        StateCorruptedError: The state is damaged; the message names the file, where Spark does.
        UserFunctionError: A function of `upgrade` failed; only with `deep`.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    session = active_session(spark)
    logs = check_logs(path, session)
    if logs.commits and reads_state(session):
        stored_operators(path, session)
    if deep:
        check_deep(logs, for_stream(spec, session), session)
    else:
        check_rules(path, for_stream(spec, session), session)


def check_deep(logs: Logs, spec: AnySpec, spark: SparkSession) -> None:
    """Check the rules under which a checkpoint was stored, and all that is stored in it."""
    path, last = logs.path, last_batch_of(logs)
    if last is None:
        check_rules(path, spec, spark)
        return
    # Before all else: the schema of the state lies in a partition.
    versions = _checked_versions(path, last, spark)
    now = Origin.of(str(query_id_of(spark, path)), last.number, last.watermark_ms)
    with naming_damage(path):
        # This checks the rules too, before anything is decoded.
        rows_of = partial(_checked, spec)
        mapped_state(path, spec, rows_of, "rows bigint", now=now, spark=spark).count()
        _check_places(stored_groups(path, spark), spec, path, last)
        if spec.storage.layout == "pages":
            _check_owners(path, spark)
        check_changes(path, last.number, versions, spark)


def _checked_versions(path: str, last: LastBatch, spark: SparkSession) -> list[frozenset[int]]:
    """Check that each partition has a folder, since Spark's reader skips missing ones."""
    with naming_damage(path):
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
    if not (isinstance(spec, SessionSpec) and isinstance(spec.logic, Aggregates)):
        decode_states(spec.state, parted(memory.kept, has_state(memory.kept))[0])
    return pa.table({"rows": pa.array([memory.kept.num_rows], pa.int64())})


def _check_places(groups: DataFrame, spec: AnySpec, path: str, last: LastBatch) -> None:
    """
    Check that each group is in its partition, and isn't older or newer than it may be.

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


def check_changes(
    path: str, last: int, versions: Sequence[frozenset[int]], spark: SparkSession
) -> None:
    """Check that each file of changes is of its micro-batch, and that the state has its changes."""
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
        raise _corrupted(file, said)
    _check_state(path, changes, spark)


def _check_state(path: str, changes: DataFrame, spark: SparkSession) -> None:
    """Check that each row equals its last change."""
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
        raise _corrupted(where, f"{found} that micro-batch {batch} has left")


def _digest(row: str) -> Column:
    return F.md5(F.to_json(F.struct(f"{row}.written_ms", f"{row}.payload")))


def _first(rows: DataFrame, *more: str | Column) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows.select("key", "partition_id", *more).limit(1).collect()]


def _corrupted(what: str, found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the stored state is damaged: {what} {found}", RESTORE))
