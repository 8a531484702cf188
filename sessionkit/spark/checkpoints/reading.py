"""What the checkpoint of a stopped query remembers, as lists on the driver."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession

from sessionkit._engine.keys.view import StoredKey, stored_keys_of
from sessionkit._engine.outcome import Memory
from sessionkit._engine.sessions.view import OpenSession, open_sessions_of
from sessionkit._engine.storage import stored_memory
from sessionkit._spec import AnySpec, S
from sessionkit.session import SessionSpec
from sessionkit.spark.checkpoints.checking import check_checkpoint
from sessionkit.spark.checkpoints.groups import explained, stored_groups, stored_pages
from sessionkit.stateful import StatefulSpec

__all__ = ["open_sessions", "stored_keys"]


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


def _rows(path: str, spark: SparkSession | None) -> list[Row]:
    """Return the groups and their rows; nothing if no batch has finished."""
    with explained(path):
        return stored_groups(path, spark).select("key", "state").collect()
    return []


def _pages(path: str, spark: SparkSession | None) -> dict[tuple[Any, ...], dict[int, bytes]]:
    """Return the pages of each group, by their numbers."""
    found: dict[tuple[Any, ...], dict[int, bytes]] = {}
    for group, (start,), (payload,) in stored_pages(path, spark).collect():
        found.setdefault(tuple(group), {})[start] = bytes(payload)
    return found
