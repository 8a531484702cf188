"""Check that a query can continue from a checkpoint, and that the stored state is sound."""

from collections.abc import Iterator
from functools import partial, reduce
from operator import and_
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from sessionkit._arguments import check_flag, explains, quoted
from sessionkit._arrays import split, whole
from sessionkit._engine.boundaries import watermark_in_force
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.rows.objects import decode_states
from sessionkit._engine.rows.tables import has_state
from sessionkit._engine.sessions.features.key_history import Remembering
from sessionkit._engine.shell.payload import BATCH_AT, BATCH_BYTES, QUERY_AT, QUERY_BYTES, Origin
from sessionkit.spark._grouping import for_stream
from sessionkit.spark._logs import (
    Location,
    Logs,
    active_session,
    check_logs,
    damaged_state,
    query_id_of,
)
from sessionkit.spark._paths import path_of
from sessionkit.spark.checkpoints.reading import mapped_state
from sessionkit.spark.checkpoints.state_reader import (
    changed_groups,
    check_one_operator,
    check_operators,
    check_stored_rules,
    stored_changes,
    stored_groups,
    stored_pages,
    with_clear_errors,
)
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_kind
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import SessionSpec

RECENT: Final = 10
"""The number of last micro-batches whose changes are checked."""


@explains
def check_checkpoint(
    path: Location, spec: AnySpec, *, deep: bool = False, spark: SparkSession | None = None
) -> None:
    """
    Check that a query with this spec can continue from a checkpoint: return None, or raise.

    Spark's logs must be complete and agree too. A checkpoint without a finished micro-batch, or
    without stored state, fits every spec; a path without a checkpoint is refused. Needs Spark 4.0
    or later; with 3.5, the first micro-batch makes the same check.

    Args:
        path: The checkpoint location.
        spec: The spec of the query that is to continue.
        deep: Whether the executors read every partition, every checksum and every state too. That
            also finds a state class, or a function of `upgrade`, that can't take a stored state.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: A rule of the spec has changed, such as the gap, or a class has changed so that
            the stored state doesn't fit. The message names each change.
        StateCorruptedError: The state is damaged; the message names the file, where Spark does.
        UserFunctionError: A function of `upgrade` failed; only with `deep`.
        SessionkitError: There is no checkpoint, or no session of Spark is active.
        UnsupportedError: This Spark has no state reader, as before 4.0.
    """
    path = path_of(path, "path")
    check_kind(spec)
    check_flag("deep", deep)
    session = active_session(spark)
    logs = check_logs(path, session)
    if logs.commits:
        check_operators(path, session)
    spec = for_stream(spec, session)
    if deep:
        check_deep(logs, spec, session)
    else:
        check_stored_rules(path, spec, session)


def check_deep(logs: Logs, spec: AnySpec, spark: SparkSession) -> None:
    """Check the stored rules of a checkpoint, and all of its stored state."""
    check_one_operator(spec, "a deep check")
    if not logs.commits:
        check_stored_rules(logs.path, spec, spark)
        return
    found: str | None = f"Spark finds no finished micro-batch in {logs.path}"
    with with_clear_errors(logs.path, spark):
        found = next(_damage(logs, spec, spark), None)
    if found is not None:
        raise damaged_state(found)


def _damage(logs: Logs, spec: AnySpec, spark: SparkSession) -> Iterator[str]:
    """Yield the damage of the stored state, after a check of the rules."""
    path, last = logs.path, logs.finished
    partitions = range(logs.partitions(last))
    # Check these first: one of the partitions has the schema of the state.
    versions = stored_changes(path, spark)
    for place in partitions:
        if str(place) not in versions:
            where = f"partition {place} of {len(partitions)}, {path}/state/0/{place}"
            yield f"{where} is missing or empty"  # Spark's reader skips it
    now = Origin.of(str(query_id_of(spark, path)), last, logs.watermark_ms(last))
    # This checks the rules too, before anything is decoded.
    mapped_state(path, spec, partial(_checked, spec), "rows bigint", spark, now=now).count()
    yield from _misplaced(spec, logs, spark)
    if spec.storage.layout == "pages":
        pages = stored_pages(path, spark).join(stored_groups(path, spark), "key", "left_anti")
        for key, start in pages.select("key", "start").limit(1).collect():
            yield f"page {start} of bucket {key[0]} in {path} has no bucket"
    complete = reduce(and_, (versions[str(place)] for place in partitions))
    # Micro-batch N leads to version N + 1.
    first = last
    while first in complete and last - first < RECENT:
        first -= 1
    if first < last or last + 1 in complete:
        changes = changed_groups(path, max(first, 0), spark)
        yield from _foreign(path, changes)
        yield from _lost(path, changes, spark)


def _checked(spec: AnySpec, memory: GroupState) -> pa.Table:
    """Decode the states of a group; return a row with their number."""
    if not (isinstance(spec, SessionSpec) and isinstance(spec.logic, Aggregates)):
        decode_states(spec.state, split(memory.kept, has_state(memory.kept))[0])
    if isinstance(spec, SessionSpec) and (remembering := Remembering.of(spec)) is not None:
        remembering.read(whole(memory.kept[remembering.field.name]))
    return pa.table({"rows": pa.array([memory.kept.num_rows], pa.int64())})


def _misplaced(spec: AnySpec, logs: Logs, spark: SparkSession) -> Iterator[str]:
    """
    Yield a group that is in the wrong partition, or is older or newer than it can be.

    The first micro-batch with a watermark handles all that is due at it.
    """
    path, last = logs.path, logs.finished
    groups = stored_groups(path, spark)
    key = [F.col(f"key.{quoted(name)}") for name in groups.select("key.*").columns]
    expected = F.pmod(F.hash(*key), F.lit(logs.partitions(last)))
    wrong = {"belongs to another partition": expected != F.col("partition_id")}
    written = F.col("state.written_ms")
    wrong["was written after the last micro-batch"] = written > logs.started_ms(last)
    if spec.clock == "event_time":
        due = F.col("state.event_due_us") <= watermark_in_force(logs.watermark_ms(last))
        wrong["is older than the last micro-batch, in which it was due"] = due
    for damage, condition in wrong.items():
        for key_of_row, place in _first(groups.where(condition)):
            yield f"the row of {tuple(key_of_row)} in {path}/state/0/{place} {damage}"


def _foreign(path: str, changes: DataFrame) -> Iterator[str]:
    """Yield a file of changes that another micro-batch wrote."""
    payload = F.col("state.payload")
    is_bound = payload.substr(QUERY_AT + 1, QUERY_BYTES) != F.lit(bytearray(QUERY_BYTES))
    written = F.conv(F.hex(payload.substr(BATCH_AT + 1, BATCH_BYTES)), 16, 10).cast("bigint")
    is_other = (F.col("change_type") == "update") & is_bound & (written != F.col("batch_id"))
    for key, place, batch, writer in _first(changes.where(is_other), "batch_id", written):
        yield (
            f"version {batch + 1} of {path}/state/0/{place} has changes of micro-batch {writer} "
            f"instead of {batch}, at the row of {tuple(key)}"
        )


def _lost(path: str, changes: DataFrame, spark: SparkSession) -> Iterator[str]:
    newest = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("batch_id")))
    latest = changes.withColumn("_newest", newest).where("_newest = 1")
    digest = F.md5(F.to_json(F.struct("state.written_ms", "state.payload")))
    left = F.when(F.col("change_type") == "update", digest)
    latest = latest.select("key", "partition_id", "batch_id", left.alias("left"))
    state = stored_groups(path, spark).select("key", digest.alias("found"))
    joined = latest.join(state, "key", "left")
    wrong = joined.where(~F.col("left").eqNullSafe(F.col("found")))
    for key, place, batch, is_gone in _first(wrong, "batch_id", F.col("found").isNull()):
        what = "is gone" if is_gone else "has changed since"
        where = f"{path}/state/0/{place}"
        yield f"the row of {tuple(key)} that micro-batch {batch} has left in {where} {what}"


def _first(rows: DataFrame, *more: str | Column) -> list[Row]:
    return rows.select("key", "partition_id", *more).limit(1).collect()
