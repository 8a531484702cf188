"""What a stopped query left in its checkpoint, read with Spark's own state reader."""

import json
from typing import Any, Final, TypeAlias, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sessionkit._inspection import OpenSession, open_sessions_of
from sessionkit._tables import identity
from sessionkit.errors import SessionkitError, StateMismatchError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.state import identity_differences, peek_identity

__all__ = ["check_checkpoint", "open_sessions"]

S = TypeVar("S")
AnySpec: TypeAlias = SessionSpec[Any, Any, Any]

HEAD_BYTES: Final = 65_536
PAYLOAD: Final = "value.groupState.payload"
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_STATE: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
FIRST_WITH_READER: Final = 4


def check_checkpoint(path: str, spec: AnySpec, *, spark: SparkSession | None = None) -> None:
    """
    Check that a query over this spec can go on from a checkpoint.

    A checkpoint without a finished micro-batch, or without open sessions, fits every spec. Needs
    Spark 4.0 or later; on 3.5 the first micro-batch makes the same check.

    Args:
        path: The checkpoint location.
        spec: The spec with which the query is to go on.
        spark: The session to read with; by default the active one.

    Raises:
        StateMismatchError: State version, bucket count, gap, delay or another rule has changed;
            each change is named.
        StateCorruptedError: The state is damaged.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    wanted = json.loads(identity(spec))
    for head in _payloads(path, spark, F.substring(PAYLOAD, 1, HEAD_BYTES)):
        differences = identity_differences(peek_identity(head), wanted)
        if differences:
            lines = "\n  ".join(differences)
            found = f"the checkpoint {path} was written under other rules:\n  {lines}"
            hint = "take the change back, or start with a new checkpoint"
            raise StateMismatchError(with_hint(found, hint))


def open_sessions(
    path: str, spec: SessionSpec[Any, S, Any], *, spark: SparkSession | None = None
) -> list[OpenSession[S]]:
    """
    Return the sessions that were open when a query finished its last micro-batch.

    All of them are brought to the driver. Under `order="event_time"` the events that wait for
    their turn are folded in for this view. Needs Spark 4.0 or later.

    Args:
        path: The checkpoint location of the query; it should be stopped.
        spec: The spec of the query.
        spark: The session to read with; by default the active one.

    Raises:
        StateError: The state is damaged, or was written under other rules.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    payloads = _payloads(path, spark, F.col(PAYLOAD))
    return [session for payload in payloads for session in open_sessions_of(spec, payload)]


def _payloads(path: str, spark: SparkSession | None, payload: Column) -> list[bytes]:
    """Return this of every stored bucket; nothing where no micro-batch is finished."""
    session = _session(spark)
    try:
        stored = session.read.format("statestore").load(path)
        if "payload" not in stored.schema.simpleString():
            raise _foreign(path)
        rows = stored.select(payload.alias("payload")).collect()
    except PySparkException as error:
        if NOTHING_YET in str(error):
            return []
        if NO_STATE in str(error):
            raise _foreign(path) from error
        raise
    return [bytes(row["payload"]) for row in rows]


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    if int(session.version.partition(".")[0]) < FIRST_WITH_READER:
        found = f"Spark {session.version} cannot read state; its readers begin with 4.0"
        raise SessionkitError(with_hint(found, "leave the check to the first micro-batch"))
    return session


def _foreign(path: str) -> StateMismatchError:
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))
