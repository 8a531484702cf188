"""Repair a table of sessions: recompute them from history, and replace the wrong ones."""

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionkit import SessionSpec, SpecError
from sessionkit._for_addons import (
    Difference,
    FinishedBatch,
    RepairableSink,
    Span,
    check_path,
    explains,
    finished,
    instant_of,
    micros_of,
    quoted,
    span_us,
)
from sessionkit.spark import sessionize, state_frame
from sessionkit.spark.sinks import RowsToWrite

__all__ = ["repair", "replay_rejected"]

Between: TypeAlias = tuple[datetime | None, datetime | None]
"""The span of session starts: first instant inclusive, second exclusive; None for no limit."""
IS_FINAL, OPEN_ID = "_is_final", "_open_id"
END: Final = datetime.max.replace(tzinfo=UTC)
DAY_US: Final = span_us(timedelta(days=1))
OF_REVISIONS: Final = ("revision", "is_final", "supersedes")
KINDS: Final = ("all", "session")
"""The kind of a query's session rows: without `Routes`, and in `Routes`."""


@explains
def repair(
    sink: RepairableSink,
    spec: SessionSpec[Any, Any, Any],
    history: DataFrame,
    *,
    checkpoint: str | os.PathLike[str],
    between: Between = (None, None),
    shape: Callable[[DataFrame], DataFrame] | None = None,
    delete_unseen: bool = False,
    dry_run: bool = False,
) -> Difference:
    """
    Recompute the sessions of a span of event time, and replace them in the table of a query.

    `repair` runs `history` as a batch, which gives a session the same id as the stream does, and
    compares the result with the table by this id:

    * `unchanged`: The table has the same session. Its row stays.
    * `changed`: The table has other values. They're replaced, under the next revision if the table
      has revisions.
    * `added`: The table lacks the session. It gets a row.
    * `deleted`: `history` doesn't give the stored session, or gives it another start and so another
      id. Its row is deleted.
    * `left`: `repair` can't judge the session. Its row stays, or it gets none.

    A session is `left` for any of these reasons; `delete_unseen` turns the second and third off:

    * The query may still write it, or it ends after the last event of `history`.
    * `history` has no session of its key, or no event of any key on the day, in UTC, when it starts
      or ends.
    * It may have earlier events, on a day in UTC without any event in `history`.
    * It overlaps a session of its key, stored or new, that is left.

    All changes are one transaction, and a second run changes nothing.

    Needs the state reader of Spark 4.0. A query that writes to `Postgres` may run meanwhile; a
    query that writes to `Delta` or `Iceberg` must be stopped.

    Args:
        sink: The sink of the query: `Postgres`, `Delta` or `Iceberg`, by `session_id`.
        spec: The spec of the query, with corrected functions. Its rules must be the same.
        history: A batch of all events that count. Begin it before the span by the longest session
            and a gap; by less than a gap is an error. End it once all sessions that start in the
            span are over: a session whose `session_end` is after the last event is left.
        checkpoint: The checkpoint location of the query.
        between: The span of event time in which the sessions start, as two instants with a time
            zone, the first inclusive, the second exclusive. None means no limit. Pass None as the
            first instant only if `history` begins where the query did.
        shape: A function from the result of `sessionize` to the DataFrame that the query writes, if
            the query changes it. Columns that the function adds are written, but not compared.
        delete_unseen: Whether to delete even stored sessions whose key, or whose day in UTC, is
            missing in `history`; see `Difference.unseen`. By default, they're left.
        dry_run: Whether to return the difference without changing the table.

    Returns:
        A `Difference`. `counts` has the numbers of sessions that are `unchanged`, `changed`,
        `added`, `deleted` and `left` as they are; `unseen` the numbers of `days` and `keys` without
        an event in history; `sessions` is a DataFrame of the changed, added and deleted ones.

    Raises:
        SpecError: The query doesn't write to the table, or the table has several rows per session;
            history is a stream, or begins too late; the query runs, and the sink is `Delta` or
            `Iceberg`; the span is empty, or an instant has no time zone; or the spec has `memory`,
            which depends on all earlier sessions of a key.
        StateError: The rules of the spec differ from the query's.
        SessionkitError: The checkpoint has no query.
        SinkError: Another repair committed first; this one changed nothing.
        UnsupportedError: This Spark has no state reader.
    """
    check_path(checkpoint, "`checkpoint`")
    checkpoint = os.fspath(checkpoint)
    _check(sink, spec, history, between)
    spark = history.sparkSession
    at = finished(checkpoint, spark)
    sessions = sessionize(history, spec).persist()
    try:
        rows = sessions if shape is None else shape(sessions)
        _check_table(sink, rows, at)
        first, last = _reach(sessions)
        # A session may give a row until this long after its end.
        revisable = filter(None, (spec.lateness.allowed, spec.lateness.reopen_within))
        settled = min(last, at.watermark - max(revisable, default=timedelta(0)))
        final_to = F.timestamp_micros(F.lit(micros_of(settled)))
        held = state_frame(checkpoint, spec, batch=at.number, spark=spark)
        ids = held.select(F.col("session_id").alias(OPEN_ID))
        flagged = rows.join(ids, F.col("session_id") == F.col(OPEN_ID), "left")
        is_final = (F.col("session_end") <= final_to) & F.col(OPEN_ID).isNull()
        days = _days(sessions, settled)
        if not delete_unseen:
            is_final &= _has_beginning(spec, first, days)
        compared = [name for name in sessions.columns if name in rows.columns]
        span = Span(
            rows=flagged.withColumn(IS_FINAL, is_final).drop(OPEN_ID),
            is_final=IS_FINAL,
            keys=tuple(spec.keys),
            compared=tuple(name for name in compared if name not in OF_REVISIONS),
            start=_start(spec, between, first),
            end=between[1] or END,
            settled=settled,
            days=days,
            delete_unseen=delete_unseen,
            finished=at,
        )
        return sink.exchange(span, dry_run=dry_run)
    finally:
        sessions.unpersist()


@explains
def replay_rejected(
    sink: RepairableSink,
    spec: SessionSpec[Any, Any, Any],
    history: DataFrame,
    rejected: DataFrame,
    **arguments: Any,
) -> Difference:
    """
    Repair a table with events that the query has rejected.

    This calls `repair` with `history` and the late and failed events of `rejected`; it returns and
    raises the same.

    Args:
        sink: As for `repair`.
        spec: As for `repair`.
        history: The events that the query has processed, without the rejected ones.
        rejected: Rows of the rejected table, such as `spark.table("rejected").where(...)`. Rows of
            other kinds than `late` and `failed` are ignored.
        arguments: Further arguments of `repair`.

    Returns:
        As `repair`.
    """
    _check(sink, spec, history, arguments.get("between"))
    _check_batch(rejected, "rejected")
    if {"kind", "event"}.difference(rejected.columns):
        found = f"`rejected` has no rejected rows: it has {', '.join(rejected.columns)}"
        raise SpecError(found, "pass rows of `sessionize(..., with_rejected=True)`")
    columns = spec.input_schema.names
    added = events_of(rejected.where(F.col("kind").isin("late", "failed")), spec)
    events = history.select(*columns).unionByName(added)
    return repair(sink, spec, events, **arguments)


def events_of(rows: DataFrame, spec: SessionSpec[Any, Any, Any]) -> DataFrame:
    """Return the events in rejected rows, in the columns that the spec reads."""
    fields = rows.select("event.*").columns if "event" in rows.columns else []
    columns = {name: F.col("event").getField(name) for name in fields}
    columns[spec.event_time] = F.col("event_time")
    names = spec.input_schema.names
    return rows.select(*(columns.get(name, F.col(quoted(name))).alias(name) for name in names))


def _check(
    sink: object, spec: SessionSpec[Any, Any, Any] | object, history: object, between: object
) -> None:
    if not isinstance(sink, RepairableSink):
        found = f"`repair` puts sessions into a table in one transaction, found the sink {sink!r}"
        raise SpecError(found, "pass a Postgres, Delta or Iceberg")
    if not isinstance(spec, SessionSpec):
        found = f"`spec` must be a SessionSpec, found {type(spec).__name__}"
        raise SpecError(found, "pass the one that the query runs")
    if spec.memory is not None:
        found = "the spec has `memory`: each session depends on the ones before it"
        raise SpecError(found, "write a new table from all of history, with `bootstrap`")
    _check_batch(history, "history")
    _check_between(between)


def _check_batch(frame: object, name: str) -> None:
    is_stream = getattr(frame, "isStreaming", None)
    if is_stream is not False:
        shown = repr(frame) if is_stream is None else "a stream"
        found = f"`{name}` must be a DataFrame of a batch, found {shown}"
        raise SpecError(found, "read it with spark.read, or spark.table")


def _check_between(between: object) -> None:
    match between:
        case (None | datetime() as start, None | datetime() as end):
            pass
        case _:
            found = f"`between` must be two instants, or None for no limit, found {between!r}"
            raise SpecError(found, "write between=(datetime(2026, 3, 8, tzinfo=UTC), None)")
    for instant in (start, end):
        if instant is not None and instant.tzinfo is None:
            found = f"`between` must have instants with a time zone, found {instant}"
            raise SpecError(found, "write datetime(2026, 3, 8, tzinfo=UTC)")
    if start is not None and end is not None and start >= end:
        found = f"`between` ends at {end}, and begins no earlier, at {start}: no session is in it"
        raise SpecError(found, "pass the earlier instant first")


def _check_table(sink: RepairableSink, rows: DataFrame, at: FinishedBatch) -> None:
    """Check that the table fits the rows, and has the last finished micro-batch of the query."""
    for kind in KINDS:
        writer = sink.writer(RowsToWrite(rows.schema, name=kind), rows.sparkSession)
        ledger = writer.ledger(rows, at.query_id)
        if ledger is not None and ledger.has_from(at.number):
            return
    found = f"{sink.label} doesn't say that it has micro-batch {at.number} of {at.query_id}"
    raise SpecError(found, "pass the table to which the query of the checkpoint writes")


def _reach(sessions: DataFrame) -> tuple[datetime, datetime]:
    """Return the first and the last event time of the sessions."""
    times = F.min("session_start"), F.max("last_event_time")
    micros = sessions.agg(*map(F.unix_micros, times)).collect()[0]
    if micros[0] is None:
        found = "`history` has no session, so all of the span would be deleted"
        raise SpecError(found, "pass the events of the span, and those around it")
    return instant_of(micros[0]), instant_of(micros[1])


def _days(sessions: DataFrame, settled: datetime) -> tuple[date, ...]:
    """Return the days in UTC from the first to the last event of each session, up to an instant."""
    begins, ends = (
        F.floor(F.unix_micros(name) / F.lit(DAY_US)).cast("bigint")
        for name in ("session_start", "last_event_time")
    )
    last = micros_of(settled) // DAY_US
    covered = F.explode(F.sequence(begins, F.least(ends, F.lit(last)))).alias("day")
    numbers = sessions.where(begins <= last).select(covered).distinct().collect()
    return tuple(sorted(instant_of(number * DAY_US).date() for (number,) in numbers))


def _has_beginning(
    spec: SessionSpec[Any, Any, Any], first: datetime, days: tuple[date, ...]
) -> Any:
    """Return a condition: no earlier event of a session may lie on a day that history lacks."""
    before = F.unix_micros("session_start") - F.lit(span_us(spec.timeout.longest))
    numbers = [(day - date(1970, 1, 1)).days for day in days]
    is_first = before < F.lit(micros_of(first))
    return is_first | F.floor(before / F.lit(DAY_US)).isin(numbers)


def _start(spec: SessionSpec[Any, Any, Any], between: Between, first: datetime) -> datetime:
    """Return the start of the span, and check that history covers the sessions that start in it."""
    start, end = between
    if start is None:
        if end is not None and end <= first:
            found = f"`between` ends at {end}, before the first event of `history`, {first}"
            raise SpecError(found, "pass the events of the span, and those around it")
        return first
    if first + spec.timeout.longest > start:
        found = f"`history` begins at {first}, less than a gap before {start}: it may lack events"
        hint = "pass events from before, or between=(None, ...) if the query began then"
        raise SpecError(found, hint)
    return start
