"""Read the checkpoint of a stopped query with Spark's own state reader."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.keys.view import StoredKey, stored_keys_of
from sessionkit._engine.outcome import Memory
from sessionkit._engine.sessions.view import OpenSession, open_sessions_of
from sessionkit._engine.storage import identity_of, stored_memory
from sessionkit._spec import AnySpec, S
from sessionkit.errors import SessionkitError, StateMismatchError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.state import identity_differences, peek_identity
from sessionkit.stateful import StatefulSpec

__all__ = ["check_checkpoint", "open_sessions", "stored_keys"]


HEAD_BYTES: Final = 65_536
STATE: Final = "value.groupState"
PAYLOAD: Final = "payload"
IDENTITY: Final = "sessionkit_identity"
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_STATE: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
FIRST_WITH_READER: Final = 4


def check_checkpoint(path: str, spec: AnySpec, *, spark: SparkSession | None = None) -> None:
    """
    Check that a query with this spec can continue from a checkpoint.

    A checkpoint without a finished micro-batch, or without stored state, fits every spec. Needs
    Spark 4.0 or later; with 3.5, the first micro-batch makes the same check.

    Args:
        path: The checkpoint location.
        spec: The spec of the query that is to continue.
        spark: The session to read with; by default the active one.

    Raises:
        StateMismatchError: State version, bucket count, gap, delay or another rule has changed.
            The message names each change.
        StateCorruptedError: The state is damaged.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    wanted = json.loads(identity_of(spec))
    for found in _stored_identities(path, spark):
        differences = identity_differences(found, wanted)
        if differences:
            lines = "\n  ".join(differences)
            text = f"the checkpoint {path} was written under other rules:\n  {lines}"
            hint = "undo the change, or start with a new checkpoint"
            raise StateMismatchError(with_hint(text, hint))


def open_sessions(
    path: str, spec: SessionSpec[Any, S, Any], *, spark: SparkSession | None = None
) -> list[OpenSession[S]]:
    """
    Return the sessions that were open when a query finished its last micro-batch.

    All of them are collected on the driver. Under `order="event_time"`, this view includes the
    buffered events. Needs Spark 4.0 or later.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state is damaged, or was written under other rules.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    return [
        session
        for memory in _stored(path, spec, spark)
        for session in open_sessions_of(spec, memory)
    ]


def stored_keys(
    path: str, spec: StatefulSpec[Any, S, Any], *, spark: SparkSession | None = None
) -> list[StoredKey[S]]:
    """
    Return the keys that had stored state when a query finished its last micro-batch.

    All of them are collected on the driver. Needs Spark 4.0 or later.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state is damaged, or was written under other rules.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    return [key for memory in _stored(path, spec, spark) for key in stored_keys_of(spec, memory)]


def _stored(path: str, spec: AnySpec, spark: SparkSession | None) -> Iterator[Memory]:
    """Yield the memory of each group, after checking that it was stored under the spec's rules."""
    check_checkpoint(path, spec, spark=spark)
    for group, row in _read(path, spark, F.col("key"), F.col(STATE)):
        yield stored_memory(spec, tuple(group), tuple(row))


def _stored_identities(path: str, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Return the rules under which the groups were stored."""
    names = _names(path, spark)
    if PAYLOAD in names:
        head = F.substring(f"{STATE}.{PAYLOAD}", 1, HEAD_BYTES)
        return [peek_identity(bytes(row[0])) for row in _read(path, spark, head)]
    if IDENTITY in names:
        # There is one for each key, and they are nearly always equal.
        with _explained(path):
            stored = _session(spark).read.format("statestore").load(path)
            rows = stored.select(f"{STATE}.{IDENTITY}").distinct().collect()
            return [json.loads(row[0]) for row in rows]
    if names:
        raise _foreign(path)
    return []


def _names(path: str, spark: SparkSession | None) -> list[str]:
    """Return the names of the columns of the stored state; none if nothing is stored yet."""
    with _explained(path):
        stored = _session(spark).read.format("statestore").load(path)
        if "groupState" not in stored.select("value.*").columns:
            raise _foreign(path)
        return stored.select(f"{STATE}.*").columns
    return []


def _read(path: str, spark: SparkSession | None, *columns: Column) -> list[Row]:
    """Return columns of the state of every stored group; nothing if no batch has finished."""
    with _explained(path):
        return _session(spark).read.format("statestore").load(path).select(*columns).collect()
    return []


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Treat a checkpoint without a finished micro-batch as empty; refuse state of others."""
    try:
        yield
    except PySparkException as error:
        if NO_STATE in str(error):
            raise _foreign(path) from error
        if NOTHING_YET not in str(error):
            raise


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    if int(session.version.partition(".")[0]) < FIRST_WITH_READER:
        found = f"Spark {session.version} can't read state; only 4.0 and later can"
        raise SessionkitError(with_hint(found, "leave the check to the first micro-batch"))
    return session


def _foreign(path: str) -> StateMismatchError:
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))
