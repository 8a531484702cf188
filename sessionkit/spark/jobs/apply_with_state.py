"""State per key on Spark, on a stream or on a batch."""

from pyspark.sql import DataFrame, Observation

from sessionkit._spec import check_kind
from sessionkit.spark.jobs.run import run_spec
from sessionkit.stateful import AnyStatefulSpec, StatefulSpec

__all__ = ["apply_with_state"]


def apply_with_state(
    events: DataFrame,
    spec: AnyStatefulSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
) -> DataFrame:
    """
    Run the functions of a `StatefulSpec` over a stream or a batch.

    On a streaming frame they are called in every micro-batch, for the keys that have events and
    for those whose timers are due, in output mode `append`. sessionkit declares the watermark
    itself, so the frame must not have one. On a batch frame they are called once a key with all of
    its events, then for the event timers, as if the watermark had passed the end of time; the
    processing time stands still, so what waits for it never comes.

    The columns are those of the key and the fields of the result class. The counts of every
    micro-batch are in the query's progress; `batch_counts` reads them.

    A spec with a clock in processing time never ends under the `availableNow` trigger;
    `start_query` refuses that, `writeStream` does not.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition.
        with_rejected: Whether rejected rows come too. Then a first column `kind` tells `result`
            from `late`, `quarantined`, `failed` and `failed_output`, and behind the others come
            `reason`, `event_time` and the carried columns.
        observation: For a batch: where the counts are put once an action has run.

    Raises:
        SchemaError: The columns do not fit the spec.
        NotPicklableError: A function uses what cannot be sent to the executors.
    """
    check_kind(spec, StatefulSpec, "sessionize")
    return run_spec(events, spec, observation, with_rejected=with_rejected)
