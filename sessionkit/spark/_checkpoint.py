"""The rules under which a checkpoint was written, against the spec, before the query starts."""

import json
from typing import Any, Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._tables import identity
from sessionkit.errors import SessionkitError, StateMismatchError, with_hint
from sessionkit.session import SessionSpec
from sessionkit.state import identity_differences, peek_identity

__all__ = ["check_checkpoint"]

AnySpec: TypeAlias = SessionSpec[Any, Any, Any]

HEAD_BYTES: Final = 65_536
PAYLOAD: Final = "value.groupState.payload"
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_STATE: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
FIRST_WITH_READER: Final = "4."


def check_checkpoint(path: str, spec: AnySpec, *, spark: SparkSession | None = None) -> None:
    """
    Check that a query over this spec can go on from a checkpoint.

    Reads the state of the stopped query with Spark's own reader (Spark 4.0 and later). A
    checkpoint without a finished micro-batch, or without open sessions, fits every spec.

    Args:
        path: The checkpoint location.
        spec: The spec with which the query is to go on.
        spark: The session to read with; by default the active one.

    Raises:
        StateMismatchError: State version, bucket count, gap, delay or another rule has changed;
            each change is named.
        StateCorruptedError: The state was not written by sessionkit, or is damaged.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    if session.version < FIRST_WITH_READER:
        found = f"Spark {session.version} cannot read state; its readers begin with 4.0"
        raise SessionkitError(with_hint(found, "leave the check to the first micro-batch"))
    wanted = json.loads(identity(spec))
    for head in _heads(session, path):
        differences = identity_differences(peek_identity(head), wanted)
        if differences:
            lines = "\n  ".join(differences)
            found = f"the checkpoint {path} was written under other rules:\n  {lines}"
            hint = "take the change back, or start with a new checkpoint"
            raise StateMismatchError(with_hint(found, hint))


def _heads(session: SparkSession, path: str) -> list[bytes]:
    """Return the first bytes of every stored bucket; none where no micro-batch is finished."""
    try:
        stored = session.read.format("statestore").load(path)
        if "payload" not in stored.schema.simpleString():
            raise _foreign(path)
        heads = stored.select(F.substring(PAYLOAD, 1, HEAD_BYTES).alias("head")).collect()
    except PySparkException as error:
        condition = str(error)
        if NOTHING_YET in condition:
            return []
        if NO_STATE in condition:
            raise _foreign(path) from error
        raise
    return [bytes(row["head"]) for row in heads]


def _foreign(path: str) -> StateMismatchError:
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))
