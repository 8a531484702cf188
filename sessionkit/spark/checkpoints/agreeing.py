"""Whether the logs of a checkpoint agree: Spark takes each of them as it is."""

from pyspark.sql import SparkSession

from sessionkit._engine.payload import RESTORE
from sessionkit.errors import StateCorruptedError, with_hint
from sessionkit.spark.checkpoints.log import Logs, logs_of, query_id_of
from sessionkit.spark.checkpoints.sources import check_source_logs

__all__ = ["check_logs"]


def check_logs(path: str, spark: SparkSession) -> Logs:
    """
    Check that the logs of a checkpoint miss nothing that Spark needs, and don't contradict it.

    Spark plans a micro-batch once the one before has finished, at the watermark that this has left.

    Returns:
        The logs.

    Raises:
        StateCorruptedError: A file is missing, or two don't fit together; the message names it.
    """
    logs = logs_of(path, spark)
    if not (logs.offsets or logs.commits):
        return logs
    if query_id_of(spark, path) is None:
        found = f"{path}/metadata is missing, which has the id of its query"
        raise _damaged(found)
    last, finished = logs.planned, logs.finished
    if finished > last:
        found = f"{path}/offsets/{finished} is missing, though that micro-batch has finished"
        raise _damaged(found)
    if finished < last - 1:
        found = f"{path}/commits/{last - 1} is missing, though micro-batch {last} was planned after"
        raise _damaged(found)
    _check_watermarks(logs, last)
    check_source_logs(path, logs.plan(last).sources, spark)
    return logs


def _check_watermarks(logs: Logs, last: int) -> None:
    """Check the watermarks from which Spark would go on."""
    at_ms = logs.plan(last).about["batchWatermarkMs"]
    if last and last - 1 in logs.commits:
        left_ms = logs.next_watermark_ms(last - 1)
        if at_ms != left_ms:
            found = (
                f"{logs.path}/offsets/{last} has the watermark {at_ms} ms, but micro-batch "
                f"{last - 1} has left {left_ms} ms in commits/{last - 1}"
            )
            raise _damaged(found)
    if last in logs.commits and logs.next_watermark_ms(last) < at_ms:
        found = (
            f"{logs.path}/commits/{last} leaves the watermark {logs.next_watermark_ms(last)} ms, "
            f"but micro-batch {last} already had {at_ms} ms, and a watermark never falls"
        )
        raise _damaged(found)


def _damaged(found: str) -> StateCorruptedError:
    return StateCorruptedError(with_hint(f"the checkpoint is damaged: {found}", RESTORE))
