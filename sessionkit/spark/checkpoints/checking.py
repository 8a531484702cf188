"""Whether a query with a spec can go on from a checkpoint."""

import json
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.storage import identity_of
from sessionkit._spec import AnySpec
from sessionkit.errors import StateMismatchError, with_hint
from sessionkit.spark.checkpoints.groups import explained, foreign, stored_groups
from sessionkit.state import identity_differences, peek_identity

__all__ = ["check_checkpoint"]

HEAD_BYTES: Final = 65_536
PAYLOAD: Final = "payload"
IDENTITY: Final = "sessionkit_identity"


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


def _stored_identities(path: str, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Return the rules under which the groups were stored."""
    with explained(path):
        stored = stored_groups(path, spark)
        names = stored.select("state.*").columns
        if PAYLOAD in names:
            heads = stored.select(F.substring(f"state.{PAYLOAD}", 1, HEAD_BYTES)).collect()
            return [peek_identity(bytes(row[0])) for row in heads]
        if IDENTITY in names:
            # There is one for each key, and they are nearly always equal.
            rows = stored.select(f"state.{IDENTITY}").distinct().collect()
            return [json.loads(row[0]) for row in rows]
        raise foreign(path)
    return []
