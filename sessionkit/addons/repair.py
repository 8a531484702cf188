"""Sessions of a table that were wrong, computed anew from history and put in their place."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionkit import SessionSpec, SpecError
from sessionkit._for_addons import (
    Difference,
    FinishedBatch,
    RepairableSink,
    Span,
    explains,
    finished,
    quoted,
)
from sessionkit.spark import sessionize, state_frame
from sessionkit.spark.sinks import RowsToWrite

__all__ = ["Between", "events_of", "repair", "replay_rejected"]

Between: TypeAlias = tuple[datetime | None, datetime | None]
"""When sessions begin: from the first instant on, before the second; None for no limit."""
IS_FINAL, OPEN_ID = "_is_final", "_open_id"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
OF_REVISIONS: Final = ("revision", "is_final", "supersedes")
KINDS: Final = ("all", "session")
"""How a query calls the rows of its sessions: alone, and in `Routes`."""


@explains
def repair(
    sink: RepairableSink,
    spec: SessionSpec[Any, Any, Any],
    history: DataFrame,
    *,
    checkpoint: str | os.PathLike[str],
    between: Between = (None, None),
    shape: Callable[[DataFrame], DataFrame] | None = None,
    dry_run: bool = False,
) -> Difference:
    """
    Compute the sessions of a span of time anew, and bring them into the table of a query.

    Sessions have the same ids on a batch. So those that haven't changed stay as they are, changed
    ones get the next revision, if the table has revisions, new ones are added, and those that
    history doesn't have are deleted, all in one transaction. What isn't final is left: a session
    that the query may still write, or that history may not have whole, and whatever overlaps it. To
    run it again changes nothing more.

    Needs the state reader of Spark 4.0. A query that writes to `Postgres` may run meanwhile; one
    that writes to `Delta` or `Iceberg` must stand still.

    Args:
        sink: The table, as the query has it: `Postgres`, `Delta` or `Iceberg`, by `session_id`.
        spec: What the query runs, with its functions put right. Its rules must be the same.
        history: A batch with each event that is to count: from before the span by the longest
            session and a gap, up to the last event of the sessions that begin in it.
        checkpoint: The checkpoint location of the query.
        between: In which span of event time the sessions begin: inclusive, exclusive. None for the
            start says that `history` begins where the query did.
        shape: What the query does with the result of `sessionize` before it writes it. Columns
            that it adds don't count as a change.
        dry_run: Whether to return the difference, and change nothing.

    Returns:
        How the sessions differed from those of the table, as counts and as a frame.

    Raises:
        SpecError: The table isn't that of the query, or has several rows for a session; history
            begins too late; the query runs, and the sink can't take both; an instant has no time
            zone; or the spec has `memory`, which depends on all earlier sessions of a key.
        StateError: The spec has other rules than the query.
        SessionkitError: There is no query, or this Spark has no state reader.
        SinkError: Another repair came in between; nothing has changed.
    """
    checkpoint = os.fspath(checkpoint)
    _check(sink, spec, between)
    spark = history.sparkSession
    at = finished(checkpoint, spark)
    sessions = sessionize(history, spec).persist()
    try:
        rows = sessions if shape is None else shape(sessions)
        _check_table(sink, rows, at)
        first, last = _reach(sessions)
        # For so long after its end, a session may still give a row.
        revisable = filter(None, (spec.lateness.allowed, spec.lateness.reopen_within))
        settled = at.watermark - max(revisable, default=timedelta(0))
        final_to = F.timestamp_micros(F.lit((min(settled, last) - EPOCH) // MICROSECOND))
        held = state_frame(checkpoint, spec, batch=at.number, spark=spark)
        ids = held.select(F.col("id").alias(OPEN_ID))
        flagged = rows.join(ids, F.col("session_id") == F.col(OPEN_ID), "left")
        is_final = (F.col("session_end") <= final_to) & F.col(OPEN_ID).isNull()
        compared = [name for name in sessions.columns if name in rows.columns]
        span = Span(
            rows=flagged.withColumn(IS_FINAL, is_final).drop(OPEN_ID),
            is_final=IS_FINAL,
            keys=tuple(spec.keys),
            compared=tuple(name for name in compared if name not in OF_REVISIONS),
            start=_start(spec, between[0], first),
            end=between[1] or settled,
            settled=settled,
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

    Args:
        sink: As for `repair`.
        spec: As for `repair`.
        history: The events that the query has processed, without the rejected ones.
        rejected: Rows of the rejected table, such as `spark.table("rejected").where(...)`: late
            ones, and those over which a function failed. Others aren't taken.
        arguments: Those of `repair`.

    Returns:
        As `repair` does.
    """
    columns = spec.input_schema.names
    added = events_of(rejected.where(F.col("kind").isin("late", "failed")), spec)
    events = history.select(*columns).unionByName(added)
    return repair(sink, spec, events, **arguments)


def events_of(rows: DataFrame, spec: SessionSpec[Any, Any, Any]) -> DataFrame:
    """Return the events of rows that have one, such as rejected rows, as the spec reads them."""
    fields = rows.select("event.*").columns if "event" in rows.columns else []
    own = {name: F.col("event").getField(name) for name in fields}
    own[spec.event_time] = F.col("event_time")
    names = spec.input_schema.names
    return rows.select(*(own.get(name, F.col(quoted(name))).alias(name) for name in names))


def _check(sink: object, spec: SessionSpec[Any, Any, Any], between: Between) -> None:
    if not isinstance(sink, RepairableSink):
        found = f"`repair` puts sessions into a table in one transaction, found the sink {sink!r}"
        raise SpecError(found, "pass a Postgres, Delta or Iceberg")
    if spec.memory is not None:
        found = "the spec has `memory`: a session depends on those before it, and the query goes on"
        found += " from what it remembers"
        raise SpecError(found, "write a new table from all of history, with `bootstrap`")
    for instant in between:
        if instant is not None and instant.tzinfo is None:
            found = f"`between` must have instants with a time zone, found {instant}"
            raise SpecError(found, "write datetime(2026, 3, 8, tzinfo=UTC)")


def _check_table(sink: RepairableSink, rows: DataFrame, at: FinishedBatch) -> None:
    """Check that the table fits, and has all that the query has finished."""
    for kind in KINDS:
        writer = sink.writer(RowsToWrite(rows.schema, name=kind), rows.sparkSession)
        ledger = writer.ledger(rows, at.query_id)
        if ledger is not None and ledger.has_from(at.number):
            return
    found = f"{sink.label} doesn't say that it has micro-batch {at.number} of {at.query_id}"
    raise SpecError(found, "pass the table to which the query of the checkpoint writes")


def _reach(sessions: DataFrame) -> tuple[datetime, datetime]:
    """Return the first and the last event time of sessions."""
    times = F.min("session_start"), F.max("last_event_time")
    micros = sessions.agg(*map(F.unix_micros, times)).collect()[0]
    if micros[0] is None:
        found = "`history` has no session, so all of the span would be deleted"
        raise SpecError(found, "pass the events of the span, and those around it")
    first, last = (EPOCH + one * MICROSECOND for one in micros)
    return first, last


def _start(spec: SessionSpec[Any, Any, Any], start: datetime | None, first: datetime) -> datetime:
    """Return when the span begins; no session that begins in it may lack earlier events."""
    if start is None:
        return first
    if first + spec.timeout.longest > start:
        found = f"`history` begins with an event of {first}, less than a gap before {start}, so the"
        found += " first sessions of the span may lack events"
        hint = "pass events from before, or between=(None, ...) if the query began then"
        raise SpecError(found, hint)
    return start
