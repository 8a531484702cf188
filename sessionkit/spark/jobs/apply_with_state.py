"""Keep state per key on Spark, on a stream or on a batch."""

from datetime import datetime

from pyspark.sql import DataFrame, Observation

from sessionkit.spark.checkpoints.seeds import Seed
from sessionkit.spark.jobs.run import Bounds, run_spec
from sessionkit.spec.shared import check_kind
from sessionkit.spec.stateful import AnyStatefulSpec, StatefulSpec

__all__ = ["apply_with_state"]


def apply_with_state(
    events: DataFrame,
    spec: AnyStatefulSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
    seed: Seed | None = None,
    until: datetime | None = None,
    clock: DataFrame | None = None,
) -> DataFrame:
    """
    Run the functions of a `StatefulSpec` over a stream or a batch.

    On a stream, they run in every micro-batch, for the keys that have events and those with due
    timers, in output mode `append`. sessionkit declares the watermark itself, so the frame must
    not have one. On a batch, they run once for each key with all of its events, then for the
    event-time timers, as if the watermark had passed the end of time. Processing time stands
    still, so processing-time timers never go off.

    The columns are the key and the fields of the result class. The counts of every micro-batch
    are in the query's progress; read them with `batch_counts`.

    Under the `availableNow` trigger, a spec with processing-time timers never ends. `start_query`
    refuses that; `writeStream` doesn't.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition.
        with_rejected: Whether to return rejected rows too. Then the first column, `kind`, is
            `result`, `late`, `quarantined`, `failed` or `failed_output`, and the last columns are
            `reason`, `event_time`, `event_id` (by what an event is known, the same in every run),
            `event` (its fields, in a struct) and the passthrough columns.
        observation: For a batch: receives the counts once an action has run.
        seed: For a stream: what it begins with, from `carry_over` or `hand_over`. Pass it at each
            start of the query, with a checkpoint that was new at the first one.
        until: For a batch: take the events before this event time, with a time zone, and return
            what the functions return by then.
        clock: For a stream: another stream, of one timestamp column, whose times move the watermark
            as events of these times would, and do nothing else. Pass it at each start too.

    Raises:
        SchemaError: The columns don't fit the spec, or `clock` isn't one timestamp column.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SpecError: A batch is given a seed or a clock, or a stream `until`; `until` has no time
            zone, or the spec no event time; the seed is from `carry_over`, and a source of the
            stream hasn't gone through `seed.unread`.
    """
    check_kind(spec, StatefulSpec, "sessionize")
    bounds = Bounds(seed, until, clock)
    return run_spec(events, spec, observation, with_rejected=with_rejected, bounds=bounds)
