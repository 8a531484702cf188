"""What the checkpoint of a stopped query remembers: as lists, and as DataFrames."""

from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sessionkit._engine.keys.view import StoredKey, stored_key_rows, stored_keys_of
from sessionkit._engine.sessions.view import OpenSession, open_session_rows, open_sessions_of
from sessionkit.spark._columns import quoted
from sessionkit.spark.checkpoints.memories import collected_memories, mapped_memories
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import S, check_kind
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.state import Field, codec_of

__all__ = ["open_sessions", "open_sessions_frame", "stored_keys", "stored_keys_frame"]


def open_sessions(
    path: str, spec: SessionSpec[Any, S, Any], *, key: Any = None, spark: SparkSession | None = None
) -> list[OpenSession[S]]:
    """
    Return the sessions that were open when a query finished its last micro-batch.

    All of them are collected on the driver; `open_sessions_frame` leaves them on the executors.
    Under `order="event_time"`, this view includes the buffered events. Needs Spark 4.0 or later.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        key: Return only the sessions of this key: the value of the key column, or a tuple of values
            if there are several columns. Only its bucket is decoded.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state is damaged, or was written under other rules.
        SessionkitError: This Spark has no state reader, no session is active, or the key doesn't
            fit the spec.
    """
    check_kind(spec, SessionSpec, "stored_keys")
    memories = collected_memories(path, spec, key=key, spark=spark)
    return [session for memory in memories for session in open_sessions_of(spec, memory)]


def open_sessions_frame(
    path: str,
    spec: SessionSpec[Any, Any, Any],
    *,
    key: Any = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """
    Return the sessions that were open when a query finished its last micro-batch, distributed.

    The columns are those of `OpenSession`: `key` and `state` are structs with the key columns and
    the fields of the state class; with aggregates the state is the row that the session would be
    now. A state without fields has no column. The executors decode the state when an action runs,
    so a damaged state raises only then.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        key: Return only the sessions of this key, as in `open_sessions`.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state was written under other rules.
        SessionkitError: This Spark has no state reader, no session is active, or the key doesn't
            fit the spec.
    """
    check_kind(spec, SessionSpec, "stored_keys_frame")
    state = spec.state if spec.aggregates is None else spec.result
    own = (
        "id string, start timestamp, end timestamp, closes timestamp, closed_by string, "
        "events bigint"
    )
    schema = _schema(_struct("key", spec.key_fields), own, _state_struct(state))
    rows_of = partial(open_session_rows, spec)
    return mapped_memories(path, spec, rows_of, schema, key=key, spark=spark)


def stored_keys(
    path: str,
    spec: StatefulSpec[Any, S, Any],
    *,
    key: Any = None,
    spark: SparkSession | None = None,
) -> list[StoredKey[S]]:
    """
    Return the keys that had stored state when a query finished its last micro-batch.

    All of them are collected on the driver; `stored_keys_frame` leaves them on the executors.
    Needs Spark 4.0 or later.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        key: Return only this key: the value of the key column, or a tuple of values if there are
            several columns. Only its bucket is decoded.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state is damaged, or was written under other rules.
        SessionkitError: This Spark has no state reader, no session is active, or the key doesn't
            fit the spec.
    """
    check_kind(spec, StatefulSpec, "open_sessions")
    memories = collected_memories(path, spec, key=key, spark=spark)
    return [stored for memory in memories for stored in stored_keys_of(spec, memory)]


def stored_keys_frame(
    path: str,
    spec: StatefulSpec[Any, Any, Any],
    *,
    key: Any = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """
    Return the keys that had stored state when a query finished its last micro-batch, distributed.

    The columns are those of `StoredKey`: `key` and `state` are structs with the key columns and
    the fields of the state class, `timers` maps the name of a timer to its `clock` and instant
    `at`. The state is null where a key has only timers; a state without fields has no column.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        key: Return only this key, as in `stored_keys`.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state was written under other rules.
        SessionkitError: This Spark has no state reader, no session is active, or the key doesn't
            fit the spec.
    """
    check_kind(spec, StatefulSpec, "open_sessions_frame")
    timers = "timers map<string, struct<clock: string, at: timestamp>>"
    schema = _schema(_struct("key", spec.key_fields), _state_struct(spec.state), timers)
    rows_of = partial(stored_key_rows, spec)
    return mapped_memories(path, spec, rows_of, schema, key=key, spark=spark)


def _schema(*columns: str) -> str:
    return ", ".join(filter(None, columns))


def _state_struct(state: type[Any]) -> str:
    return _struct("state", codec_of(state).type.fields)


def _struct(name: str, fields: tuple[Field, ...]) -> str:
    if not fields:
        return ""
    parts = [f"{quoted(field.name)}: {field.type.sql}" for field in fields]
    return f"{name} struct<{', '.join(parts)}>"
