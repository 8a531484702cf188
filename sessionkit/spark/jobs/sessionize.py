"""Sessions on Spark, on a stream or on a batch."""

from pyspark.sql import DataFrame, Observation

from sessionkit._spec import check_kind
from sessionkit.session import AnySessionSpec, SessionSpec
from sessionkit.spark.jobs.run import run_spec

__all__ = ["sessionize"]


def sessionize(
    events: DataFrame,
    spec: AnySessionSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
) -> DataFrame:
    """
    Return the sessions of a stream or a batch.

    A streaming frame gives sessions as the watermark passes their ends, in output mode `append`;
    sessionkit declares the watermark itself, so the frame must not have one. A batch frame gives
    all sessions, as if the watermark had passed the end of time.

    The columns are those of the key, `session_id`, `session_start`, `session_end` (event time,
    the end exclusive), and the fields of the result class. The counts of every micro-batch are in
    the query's progress; `batch_counts` reads them.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition of a session.
        with_rejected: Whether rejected rows come too. Then a first column `kind` tells `session`
            from `late`, `quarantined`, `failed` and `failed_output`, and behind the others come
            `reason`, `event_time` and the carried columns.
        observation: For a batch: where the counts are put once an action has run.

    Raises:
        SchemaError: The columns do not fit the spec.
        NotPicklableError: A function uses what cannot be sent to the executors.
    """
    check_kind(spec, SessionSpec, "apply_with_state")
    return run_spec(events, spec, observation, with_rejected=with_rejected)
