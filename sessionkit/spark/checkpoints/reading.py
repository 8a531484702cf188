"""Read the state of a checkpoint's groups, decoded on the driver or on the executors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import time
from functools import partial
from typing import Any, Final, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit._arguments import explains, quoted
from sessionkit._engine.keys.program import StoredKey, stored_key_rows, stored_keys_of
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.sessions.view import OpenSession, open_session_rows, open_sessions_of
from sessionkit._engine.shell.payload import NOBODY, Origin
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit._shown import Listed
from sessionkit._typing import Record
from sessionkit.errors import SessionkitError, StateValueError
from sessionkit.spark._grouping import BUCKET, label_of_key
from sessionkit.spark._logs import Location, active_session, logs_of
from sessionkit.spark._paths import path_of
from sessionkit.spark._tasks import message_first
from sessionkit.spark.checkpoints.state_reader import (
    check_stored_rules,
    stored_groups,
    stored_pages,
    with_clear_errors,
)
from sessionkit.spark.jobs.pickles import check_picklable
from sessionkit.spec.base import AnySpec, S
from sessionkit.spec.calls import check_kind
from sessionkit.spec.logic import Aggregates
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.state._codec import codec_of

Group: TypeAlias = Mapping[str, Any]
"""A group as the values of its columns `key`, `state` and, with pages, `pages`."""
OWN_COLUMNS: Final = (
    "session_id string, session_start timestamp_ltz, session_end timestamp_ltz, "
    "last_event_time timestamp_ltz, closes timestamp_ltz, closed_by string, events bigint"
)
TIMERS: Final = "timers map<string, struct<clock: string, at: timestamp_ltz>>"


def mapped_state(
    path: str,
    spec: AnySpec,
    rows_of: Callable[[GroupState], pa.Table],
    schema: str,
    spark: SparkSession,
    *,
    key: Any = None,
    now: Origin = NOBODY,
    batch: int | None = None,
) -> DataFrame:
    """
    Return rows made from the state of each group, or of one key, on the executors.

    `batch` is the micro-batch after which the state is read, by default the last finished one.
    `now` is the query and its last finished micro-batch; by default, rows of any query are read.
    """
    check_picklable(spec)
    groups, read = _opened(path, spec, key, spark, now=now, batch=batch)
    if groups is None:
        return spark.createDataFrame([], schema)

    @message_first
    def mapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in groups_in(batches):
            yield from rows_of(read(group)).combine_chunks().to_batches()

    return groups.mapInArrow(mapped, schema)


def groups_in(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield rows one by one, since the state of a group may be large."""
    for rows in batches:
        for place in range(rows.num_rows):
            yield from rows.slice(place, 1).to_pylist()


def _opened(
    path: str,
    spec: AnySpec,
    key: Any,
    spark: SparkSession,
    *,
    now: Origin = NOBODY,
    batch: int | None = None,
) -> tuple[DataFrame | None, Callable[[Group], GroupState]]:
    """Return the groups, None if no batch has finished, and the function that decodes a group."""
    spec = check_stored_rules(path, spec, spark)
    if batch is not None or spec.storage.layout == "pages":
        # A query that runs may finish another micro-batch before the pages are read.
        batch = finished_batch(path, batch, spark)
    key_table, logic = None if key is None else key_row(spec, key), logic_of(spec)

    def read(group: Group) -> GroupState:
        group_key, row = tuple(group["key"].values()), tuple(group["state"].values())
        if spec.storage.layout == "pages":
            pages = {page["start"]: bytes(page["payload"]) for page in group["pages"] or ()}
            row = (*row, pages)
        memory = stored_memory(logic, group_key, row, now)
        return memory if key_table is None else with_key(memory, key_table)

    with with_clear_errors(path, spark):
        groups = of_key(stored_groups(path, spark, batch), spec, key_table)
        if spec.storage.layout == "pages":
            pages = of_key(stored_pages(path, spark, batch), spec, key_table)
            listed = F.collect_list(F.struct("start", "payload")).alias("pages")
            groups = groups.join(pages.groupBy("key").agg(listed), "key", "left")
        return groups, read
    return None, read


def finished_batch(path: str, batch: int | None, spark: SparkSession) -> int | None:
    """Return a finished micro-batch with state, by default the last; None if none has finished."""
    finished = logs_of(path, spark).commits
    if batch is None:
        return max(finished, default=None)
    if batch not in finished:
        known = f"it has {min(finished)} to {max(finished)}" if finished else "none has finished"
        found = f"the checkpoint {path} doesn't have the end of micro-batch {batch}: {known}"
        hint = "Spark keeps as many as spark.sql.streaming.minBatchesToRetain says"
        raise SessionkitError(found, hint)
    return batch


def of_key(groups: DataFrame, spec: AnySpec, key: pa.Table | None) -> DataFrame:
    """Return the group of a key, which has other keys too; all groups for None."""
    if key is None:
        return groups
    return groups.where(F.col(f"key.{BUCKET}") == label_of_key(spec, key))


def key_row(spec: AnySpec, key: Any) -> pa.Table:
    """Return a key, which is a value or a tuple of values, as a table of one row."""
    values = tuple(key) if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.key_fields):
        found = f"a key has the columns {', '.join(spec.keys)}; found {key!r}"
        raise SessionkitError(found, "pass a value for each of them, as a tuple")
    try:
        columns = [
            pa.array([field.type.dump(field.type.coerce(value, field.name))], field.type.arrow)
            for field, value in zip(spec.key_fields, values, strict=True)
        ]
    except StateValueError as error:
        raise SessionkitError(str(error)) from error
    return pa.Table.from_arrays(columns, schema=pa.schema(spec.key_schema))


def key_of_texts(spec: AnySpec, texts: Sequence[str]) -> tuple[Any, ...]:
    """Return a key from a text for each key column, such as from a command line."""
    values: list[Any] = [*texts]
    for place, (field, text) in enumerate(zip(spec.key_fields, texts, strict=False)):
        try:
            if spec.keys[field.name] is time:  # which is stored as a number
                values[place] = time.fromisoformat(text)
            else:
                values[place] = field.type.load(pa.scalar(text).cast(field.type.arrow).as_py())
        except ValueError as error:
            found = f"`{field.name}` can't be {text!r}: {error}"
            hint = "write numbers plainly, and times as 2026-03-08T12:00:00Z"
            raise SessionkitError(found, hint) from error
    return tuple(values)


def with_key(memory: GroupState, key: pa.Table) -> GroupState:
    """Return the state of one key of a group."""
    parts = [memory.kept, memory.buffered]
    for name in key.column_names:
        parts = [rows.filter(pc.equal(rows[name], key[name][0])) for rows in parts]
    return GroupState(*parts)


@overload
def read_state(
    path: Location,
    spec: SessionSpec[Any, S, Any],
    *,
    key: Any = None,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> list[OpenSession[S]]: ...


@overload
def read_state(
    path: Location,
    spec: StatefulSpec[Any, S, Any],
    *,
    key: Any = None,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> list[StoredKey[S]]: ...


@explains
def read_state(
    path: Location,
    spec: AnySpec,
    *,
    key: Any = None,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> list[Any]:
    """
    Return the state of a query: its open sessions, or the keys that have state.

    The state is as of the end of the last finished micro-batch, as the test driver shows it:
    `OpenSession` objects for a `SessionSpec`, `StoredKey` objects for a `StatefulSpec`. All are
    collected on the driver; `state_frame` decodes them on the executors. Under
    `order="event_time"`, sessions include the buffered events. Needs Spark 4.0 or later.

    Example:
        from sessionkit.spark import Files, read_state, sessionize, start_query

        # stream: a stream with the columns user, ts and page
        # visits: the spec in the example of SessionSpec.of
        query = start_query(
            sessionize(stream, visits),
            sink=Files("parquet", "/data/visits"),
            trigger="availableNow",
            checkpoint="/checkpoints/visits",
        )
        query.awaitTermination()
        for visit in read_state("/checkpoints/visits", visits):
            print(visit.key.user, visit.session_start, visit.events, visit.state)

    Args:
        path: The checkpoint location of the query, which may be running.
        spec: The spec of the query.
        key: Return only the state of this key: the value of the key column, or a tuple of values if
            there are several columns. Without state, the list is empty.
        batch: The number of the micro-batch after which to read; by default the last one.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state was written under other rules than the spec's.
        StateCorruptedError: The state or the checkpoint is damaged.
        UnsupportedError: This Spark has no state reader, as before 4.0.
        SessionkitError: There is no checkpoint, or it doesn't have the micro-batch any more; no
            session of Spark is active, or the key doesn't fit the spec.
    """
    check_kind(spec, argument="spec")
    path, session = path_of(path, "path"), active_session(spark)
    rows: list[Group] = []
    groups, read = _opened(path, spec, key, session, batch=batch)
    if groups is not None:
        with with_clear_errors(path, session):
            rows = [row.asDict(recursive=True) for row in groups.collect()]
    shown: Any = open_sessions_of if isinstance(spec, SessionSpec) else stored_keys_of
    return Listed(stored for row in rows for stored in shown(spec, read(row)))


@explains
def state_frame(
    path: Location,
    spec: AnySpec,
    *,
    key: Any = None,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """
    Return what `read_state` returns, as a DataFrame, decoded on the executors when an action runs.

    The columns are the attributes of `OpenSession` for a `SessionSpec`, and of `StoredKey` for a
    `StatefulSpec`, in their order. `key` and `state` are structs with the key columns and the
    fields of the state class. With aggregates, the state is the row that the session would return
    now. A state without fields has no column; for a key with only timers, it is null. `timers` maps
    the name of a timer to its `clock` and instant `at`. A damaged state raises in the action.

    Arguments and errors are as for `read_state`.
    """
    check_kind(spec, argument="spec")
    path, session = path_of(path, "path"), active_session(spark)
    return mapped_state(path, spec, rows_of(spec), view_schema(spec), session, key=key, batch=batch)


def rows_of(spec: AnySpec) -> Callable[[GroupState], pa.Table]:
    """Return the function that turns the state of a group into the rows of `state_frame`."""
    of_kind: Any = open_session_rows if isinstance(spec, SessionSpec) else stored_key_rows
    return partial(of_kind, spec)


def view_schema(spec: AnySpec) -> str:
    """Return the schema of `state_frame`, as Spark's SQL."""
    if not isinstance(spec, SessionSpec):
        return ", ".join([*_structs(spec, spec.state), TIMERS, "last_event_time timestamp_ltz"])
    state = spec.result if isinstance(spec.logic, Aggregates) else spec.state
    keys, *states = _structs(spec, state)
    return ", ".join([keys, OWN_COLUMNS, *states])


def _structs(spec: AnySpec, state: type[Record]) -> list[str]:
    """Return the columns `key` and `state`; a state without fields has no column."""
    return [
        f"{name} struct<{', '.join(f'{quoted(field.name)}: {field.type.sql}' for field in fields)}>"
        for name, fields in (("key", spec.key_fields), ("state", codec_of(state).type.fields))
        if fields
    ]
