"""Read the checkpoint of a stopped query with Spark's own state reader."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.keys.view import StoredKey, stored_keys_of
from sessionkit._engine.outcome import Memory
from sessionkit._engine.sessions.view import OpenSession, open_sessions_of
from sessionkit._engine.storage import identity_of, stored_memory
from sessionkit._spec import AnySpec, S
from sessionkit.errors import SessionkitError, StateMismatchError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.spark.jobs.pages import BUCKET_STATE, PAGES_STATE
from sessionkit.state import identity_differences, peek_identity
from sessionkit.stateful import StatefulSpec

__all__ = ["check_checkpoint", "open_sessions", "stored_keys"]


HEAD_BYTES: Final = 65_536
PAYLOAD: Final = "payload"
IDENTITY: Final = "sessionkit_identity"
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NOT_OURS: Final = ("STDS_FAILED_TO_READ_STATE_SCHEMA", "STDS_INVALID_OPTION_VALUE")
NAME_NEEDED: Final = "STDS_REQUIRED_OPTION_UNSPECIFIED"
"""Spark asks for the name of a state only where a group has several: with pages."""
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
    rows = _rows(path, spark)
    pages = _pages(path, spark) if spec.layout == "pages" and rows else {}
    for group, row in rows:
        found = tuple(row)
        if spec.layout == "pages":
            # The last column is Spark's timer.
            found = (*found[:-1], pages.get(tuple(group), {}))
        yield stored_memory(spec, tuple(group), found)


def _stored_identities(path: str, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Return the rules under which the groups were stored."""
    with _explained(path):
        stored = _groups(path, spark)
        names = stored.select("state.*").columns
        if PAYLOAD in names:
            heads = stored.select(F.substring(f"state.{PAYLOAD}", 1, HEAD_BYTES)).collect()
            return [peek_identity(bytes(row[0])) for row in heads]
        if IDENTITY in names:
            # There is one for each key, and they are nearly always equal.
            rows = stored.select(f"state.{IDENTITY}").distinct().collect()
            return [json.loads(row[0]) for row in rows]
        raise _foreign(path)
    return []


def _rows(path: str, spark: SparkSession | None) -> list[Row]:
    """Return the groups and their rows; nothing if no batch has finished."""
    with _explained(path):
        return _groups(path, spark).select("key", "state").collect()
    return []


def _pages(path: str, spark: SparkSession | None) -> dict[tuple[Any, ...], dict[int, bytes]]:
    """Return the pages of each group, by their numbers."""
    found: dict[tuple[Any, ...], dict[int, bytes]] = {}
    stored = _reader(spark).option("stateVarName", PAGES_STATE).load(path)
    for group, (start,), (payload,) in stored.select(
        "key", "user_map_key", "user_map_value"
    ).collect():
        found.setdefault(tuple(group), {})[start] = bytes(payload)
    return found


def _groups(path: str, spark: SparkSession | None) -> DataFrame:
    """Return the groups in the column `key`, and what is stored of each in `state`."""
    try:
        stored = _reader(spark).load(path)
        values = stored.select("value.*").columns
    except PySparkException as error:
        if NAME_NEEDED not in str(error):
            raise
        named = _reader(spark).option("stateVarName", BUCKET_STATE).load(path)
        return named.select("key", F.col("value").alias("state"))
    if "groupState" not in values:
        raise _foreign(path)
    return stored.select("key", F.col("value.groupState").alias("state"))


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Treat a checkpoint without a finished micro-batch as empty; refuse state of others."""
    try:
        yield
    except PySparkException as error:
        if any(sign in str(error) for sign in NOT_OURS):
            raise _foreign(path) from error
        if NOTHING_YET not in str(error):
            raise


def _reader(spark: SparkSession | None) -> DataFrameReader:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    if int(session.version.partition(".")[0]) < FIRST_WITH_READER:
        found = f"Spark {session.version} can't read state; only 4.0 and later can"
        raise SessionkitError(with_hint(found, "leave the check to the first micro-batch"))
    return session.read.format("statestore")


def _foreign(path: str) -> StateMismatchError:
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))
