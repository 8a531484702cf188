"""Whether a query with a spec can go on from a checkpoint."""

from pyspark.sql import SparkSession

from sessionkit.spark.checkpoints.agreeing import check_logs
from sessionkit.spark.checkpoints.deep import check_deep
from sessionkit.spark.checkpoints.groups import active_session, reads_state, stored_operators
from sessionkit.spark.checkpoints.rules import check_rules
from sessionkit.spec.shared import AnySpec

__all__ = ["check_checkpoint"]


def check_checkpoint(
    path: str, spec: AnySpec, *, deep: bool = False, spark: SparkSession | None = None
) -> None:
    """
    Check that a query with this spec can continue from a checkpoint.

    Spark's logs are checked too: whether one of them misses something, or contradicts another. A
    checkpoint without a finished micro-batch, or without stored state, fits every spec. Needs Spark
    4.0 or later; with 3.5, the first micro-batch makes the same check.

    Args:
        path: The checkpoint location.
        spec: The spec of the query that is to continue.
        deep: Whether to read every partition, every checksum and every state too. The executors do,
            and nothing is collected on the driver. A state class, or a function of `upgrade`, that
            can't take a stored state is found so as well.
        spark: The session to read with; by default the active one.

    Raises:
        StateMismatchError: A rule has changed, or a class in a way that nothing covers. The message
            names each change.
        StateCorruptedError: The state is damaged; the message names the file, where Spark does.
        UserFunctionError: A function of `upgrade` failed; only with `deep`.
        SessionkitError: This Spark has no state reader, or no session is active.
    """
    session = active_session(spark)
    logs = check_logs(path, session)
    if logs.commits and reads_state(session):
        stored_operators(path, session)
    if deep:
        check_deep(logs, spec, session)
    else:
        check_rules(path, spec, session)
