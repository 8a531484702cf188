"""Read the changes of micro-batches, from Spark's change feed and the state before them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._arguments import explains
from sessionkit._engine.shell.storage import Stored, changed_memory, changed_rows, logic_of
from sessionkit.errors import SessionkitError, SpecError, UnsupportedError
from sessionkit.spark._logs import Location, Logs, active_session, logs_of
from sessionkit.spark._paths import path_of
from sessionkit.spark.checkpoints.reading import (
    finished_batch,
    groups_in,
    key_row,
    of_key,
    rows_of,
    view_schema,
    with_key,
)
from sessionkit.spark.checkpoints.state_reader import (
    changed_groups,
    changed_pages,
    check_one_operator,
    check_stored_rules,
    stored_changes,
    stored_groups,
    stored_pages,
    with_clear_errors,
)
from sessionkit.spark.jobs.pickles import check_picklable
from sessionkit.spec.base import AnySpec
from sessionkit.spec.calls import check_kind
from sessionkit.spec.session import SessionSpec

BEFORE_ALL: Final = -1
"""The micro-batch after which nothing is stored yet."""
CHANGELOGS: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
COLUMNS: Final = "batch bigint, change string"


@explains
def state_changes(
    path: Location,
    spec: AnySpec,
    *,
    since: int,
    until: int | None = None,
    key: Any = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """
    Return the open sessions, or stored keys, that each micro-batch has changed.

    The columns are `batch`, the number of the micro-batch; `change`; and the columns of
    `state_frame`. Sessions are compared by id, and a timer that is set to another instant is a
    change. The change is `"new"`, `"changed"`, or `"gone"`, with the row from before: the session
    has closed, has become part of another one, has got an earlier start and so another id, or its
    key was erased. A session that one micro-batch opens and closes is left out. Needs Spark 4.0 or
    later and, with RocksDB, its changelogs.

    Args:
        path: The checkpoint location of the query, which may be running.
        spec: The spec of the query.
        since: The number of the micro-batch after which the changes begin; -1 for all.
        until: The last micro-batch whose changes are returned; by default the last finished one.
        key: Return only the changes of this key, as in `read_state`.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state was written under other rules.
        StateCorruptedError: The state or the checkpoint is damaged.
        UnsupportedError: This Spark has no state reader, or the checkpoint lacks the changes of a
            micro-batch.
        SessionkitError: There is no checkpoint, or it doesn't have one of the two micro-batches; no
            session is active, or the key doesn't fit the spec.
    """
    check_kind(spec, argument="spec")
    to_rows, name = rows_of(spec), "session_id" if isinstance(spec, SessionSpec) else "key"
    check_picklable(spec)
    check_one_operator(spec, "state_changes")
    path = path_of(path, "path")
    for argument, number in (("since", since), ("until", until)):
        if number is not None and type(number) is not int:
            found = f"`{argument}` must be the number of a micro-batch, found {number!r}"
            raise SpecError(found, f"write {argument}=12")
    session, schema = active_session(spark), f"{COLUMNS}, {view_schema(spec)}"
    last = _last(path, since, until, session)
    spec = check_stored_rules(path, spec, session)
    key_table, logic = None if key is None else key_row(spec, key), logic_of(spec)

    def changed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        group, before = None, Stored()
        for row in in_batch_order(groups_in(batches)):
            group_key = tuple(row["key"].values())
            if group_key != group:
                group, before = group_key, Stored()
            after, written = _after(before, row, spec)
            if row["batch"] > since:
                memories = changed_memory(logic, group_key, before, after, written)
                was, now = (
                    to_rows(memory if key_table is None else with_key(memory, key_table))
                    for memory in memories
                )
                changes = changed_rows(was, now, name)
                number = pa.repeat(pa.scalar(row["batch"]), changes.num_rows)
                yield from changes.add_column(0, "batch", number).combine_chunks().to_batches()
            before = after

    logs = logs_of(path, session)
    spans = logs.spans(since, last)
    if spans:
        check_feed(logs, spans, session)
        with with_clear_errors(path, session):
            rows = of_key(_written(path, spec, since, spans, session), spec, key_table)
            ordered = rows.repartition("key").sortWithinPartitions("key", "batch")
            return ordered.mapInArrow(changed, schema)
    return session.createDataFrame([], schema)


def in_batch_order(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """
    Yield rows, which are sorted by key and micro-batch.

    Raises:
        SessionkitError: A row is out of order: it would be compared with the wrong state.
    """
    last: tuple[int, ...] = ()
    for row in rows:
        place = (*row["key"].values(), row["batch"])
        if place <= last:
            found = "the engine has dropped the sort by bucket and micro-batch: "
            found += f"micro-batch {row['batch']} of a bucket comes out of order"
            hint = "turn off what replaces operators of Spark, such as an accelerator, to read them"
            raise SessionkitError(found, hint)
        last = place
        yield row


def _after(before: Stored, row: Mapping[str, Any], spec: AnySpec) -> tuple[Stored, set[int]]:
    """Return the state after a row of `_written`, and the pages that the micro-batch wrote."""
    state = row["state"] and tuple(row["state"].values())
    if spec.storage.layout != "pages":
        return Stored(state), set()
    written = {page["start"]: page["payload"] for page in row["pages"] or ()}
    pages = {start: page for start, page in {**before.pages, **written}.items() if page}
    return Stored(state, pages), {*written}


def _last(path: str, since: int, until: int | None, spark: SparkSession) -> int:
    """Check that both micro-batches are there, and return the later one."""
    last = finished_batch(path, until, spark)
    if since != BEFORE_ALL:
        finished_batch(path, since, spark)
    last = BEFORE_ALL if last is None else last
    if last < since:
        found = f"`since` is micro-batch {since}, and `until` is {last}, which came before"
        raise SessionkitError(found, "write the earlier one as `since`")
    return last


def check_feed(logs: Logs, spans: Sequence[tuple[int, int]], spark: SparkSession) -> None:
    """Check that each partition has the changes of each micro-batch; N leads to version N + 1."""
    path, end = logs.path, spans[-1][-1]
    stored = stored_changes(path, spark)
    for number in chain.from_iterable(range(last, first - 1, -1) for first, last in spans[::-1]):
        # Without an offset entry the number of partitions is unknown: folders of earlier ones stay.
        places = range(logs.partitions(number)) if number in logs.offsets else [0]
        for place in map(str, places):
            if number + 1 in stored.get(place, ()):
                continue
            found = f"the checkpoint {path} doesn't say what micro-batch {number} has changed: "
            found += f"state/0/{place} has no {number + 1}.delta or {number + 1}.changelog"
            hint = f"pass since={number}: it has the changes of those after"
            if number == end:
                hint = f"set {CHANGELOGS} to true where the query starts; RocksDB has them then"
            raise UnsupportedError(found, hint)


def _written(
    path: str, spec: AnySpec, since: int, spans: Sequence[tuple[int, int]], spark: SparkSession
) -> DataFrame:
    """
    Return the groups that each micro-batch wrote, and the same groups as they were after `since`.

    The columns are `key`, `batch` and `state`; under `layout="pages"` also `pages`: the pages that
    the micro-batch wrote, or for `since`, the pages that were written later.
    """
    # In a span, Spark reads as many partitions as its last micro-batch has.
    changes = (changed_groups(path, first, spark, last) for first, last in spans)
    groups = reduce(DataFrame.unionByName, changes).withColumnRenamed("batch_id", "batch")
    rows = groups.select("key", "batch", "state")
    number = F.lit(since).cast("bigint").alias("batch")
    if since != BEFORE_ALL:
        old = stored_groups(path, spark, since).join(groups.select("key"), "key", "left_semi")
        rows = rows.union(old.select("key", number, "state"))
    if spec.storage.layout != "pages":
        return rows
    page_feeds = (changed_pages(path, first, spark, last) for first, last in spans)
    pages = reduce(DataFrame.unionByName, page_feeds).withColumnRenamed("batch_id", "batch")
    listed = pages.select("key", "batch", "start", "payload")
    if since != BEFORE_ALL:
        old_pages = stored_pages(path, spark, since)
        old_pages = old_pages.join(pages.select("key", "start"), ["key", "start"], "left_semi")
        listed = listed.union(old_pages.select("key", number, "start", "payload"))
    by_batch = listed.groupBy("key", "batch").agg(
        F.collect_list(F.struct("start", "payload")).alias("pages")
    )
    return rows.join(by_batch, ["key", "batch"], "left")
