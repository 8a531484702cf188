"""Find sessions on Spark, on a stream or on a batch."""

from datetime import datetime

from pyspark.sql import DataFrame, Observation

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.checkpoints.seeds import Seed
from sessionkit.spark.jobs.run import Bounds, run_spec
from sessionkit.spec.session import AnySessionSpec, SessionSpec
from sessionkit.spec.shared import check_kind

__all__ = ["sessionize", "sessionize_all"]


def sessionize(
    events: DataFrame,
    spec: AnySessionSpec,
    *,
    with_rejected: bool = False,
    observation: Observation | None = None,
    seed: Seed | None = None,
    until: datetime | None = None,
    clock: DataFrame | None = None,
) -> DataFrame:
    """
    Return the sessions of a stream or a batch.

    A stream returns each session once the watermark reaches its end, in output mode `append`.
    sessionkit declares the watermark itself, so the frame must not have one. A batch returns all
    sessions, as if the watermark had passed the end of time.

    The columns are the key, `session_id`, `session_start` and `session_end` (event time; the end
    is exclusive), and the fields of the result class. Between them come `closed_by` under
    `SessionRules`, and `revision`, `is_final` and `supersedes` where a session may give several
    rows. The counts of every micro-batch are in the
    query's progress; read them with `batch_counts`.

    Args:
        events: The input. Its columns are matched by name to the key, the event time, the fields
            of the event class and `passthrough`; other columns never reach Python.
        spec: The definition of a session.
        with_rejected: Whether to return rejected rows too. Then the first column, `kind`, is
            `session`, `late`, `duplicate`, `quarantined`, `failed` or `failed_output`, and the last
            columns are `reason`, `event_time`, `event_id` (by what an event is known, the same in
            every run), `event` (its fields, in a struct) and the passthrough columns.
        observation: For a batch: receives the counts once an action has run.
        seed: For a stream: what it begins with, from `carry_over` or `hand_over`. Pass it at each
            start of the query, with a checkpoint that was new at the first one.
        until: For a batch: take the events before this event time, with a time zone, and return
            the sessions that are over by then.
        clock: For a stream: another stream, of one timestamp column, whose times move the watermark
            as events of these times would, and do nothing else. Pass it at each start too.

    Raises:
        SchemaError: The columns don't fit the spec, or `clock` isn't one timestamp column.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SpecError: A batch is given a seed or a clock, or a stream `until`; `until` has no time
            zone, or the spec no event time, or it says `per="both"`; the seed is from `carry_over`,
            and a source of the stream hasn't gone through `seed.unread`.
    """
    check_kind(spec, SessionSpec, "apply_with_state")
    if spec.per == "both" and not with_rejected:
        found = '`per="both"` asks for events beside the sessions, and `sessionize` has no kinds'
        raise SpecError(with_hint(found, "call sessionize_all, or leave `per` out"))
    bounds = Bounds(seed, until, clock)
    return run_spec(events, spec, observation, with_rejected=with_rejected, bounds=bounds)


def sessionize_all(
    events: DataFrame,
    spec: AnySessionSpec,
    *,
    observation: Observation | None = None,
    seed: Seed | None = None,
    until: datetime | None = None,
    clock: DataFrame | None = None,
) -> DataFrame:
    """
    Return every kind of row from one stateful pass: sessions, their events, and rejected rows.

    The first column, `kind`, is `session`, `late`, `duplicate`, `quarantined`, `failed` or
    `failed_output`, with the columns that `sessionize` gives with `with_rejected=True`. Where the
    spec says `per="both"`, it may also be `event`: an event of a session that is over, with the
    columns of the session, `number`, which of its events it is, from 1, and `event_time`,
    `event_id`, `event` and the passthrough columns.

    `Routes` gives each kind a sink of its own.

    Args:
        events: As for `sessionize`, like all that follows.
        spec: The definition of a session.
        observation: For a batch: receives the counts once an action has run.
        seed: For a stream: what it begins with.
        until: For a batch: where it ends.
        clock: For a stream: another one whose times move the watermark.

    Raises:
        SchemaError: The columns don't fit the spec, or `clock` isn't one timestamp column.
        NotPicklableError: A function uses something that can't be sent to the executors.
        SpecError: As for `sessionize`.
    """
    return sessionize(
        events,
        spec,
        with_rejected=True,
        observation=observation,
        seed=seed,
        until=until,
        clock=clock,
    )
