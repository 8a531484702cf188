"""Whether a query with a spec can go on from a checkpoint."""

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.storage import logic_of
from sessionkit._engine.stored import compared
from sessionkit._spec import AnySpec
from sessionkit.spark.checkpoints.groups import explained, foreign, stored_groups
from sessionkit.state import peek_identity

__all__ = ["check_checkpoint"]

HEAD_BYTES: Final = 65_536
PAYLOAD: Final = "payload"


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
    logic = logic_of(spec)
    for found in _stored_identities(path, spark):
        compared(logic, found).check(f"the checkpoint {path}")


def _stored_identities(path: str, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Return the rules under which the groups were stored."""
    with explained(path):
        stored = stored_groups(path, spark)
        names = stored.select("state.*").columns
        if PAYLOAD in names:
            heads = stored.select(F.substring(f"state.{PAYLOAD}", 1, HEAD_BYTES)).collect()
            return [peek_identity(bytes(row[0])) for row in heads]
        raise foreign(path)
    return []
