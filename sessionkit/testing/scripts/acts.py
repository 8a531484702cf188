"""The steps that act: they have the names of the drivers' methods."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from sessionkit.testing.drivers.results import BatchResult
from sessionkit.testing.scripts.literals import clock_text
from sessionkit.testing.scripts.stage import Stage
from sessionkit.testing.scripts.step import step
from sessionkit.testing.scripts.text_tables import events_table

__all__ = [
    "add",
    "add_row",
    "add_table",
    "advance_processing_time",
    "advance_watermark_to",
    "restart",
    "run_batch",
    "run_until_idle",
]


@step
def add(
    stage: Stage,
    key: Any,
    time_or_event: Any,
    event: Any = attrs.NOTHING,
    /,
    **passthrough: Any,
) -> None:
    """
    Add an event to the source; the next batch reads it. See `SessionDriver.add`.

    `add(key, event_time, event)`, or `add(key, event)` where the event has its time. The key is a
    tuple if there are several key columns.
    """
    rest = (time_or_event,) if event is attrs.NOTHING else (time_or_event, event)
    stage.driver.add(key, *rest, **passthrough)


@step
def add_row(stage: Stage, row: Mapping[str, Any], /) -> None:
    """Add a row to the source, by column name; a column that is missing is null."""
    stage.driver.add_row(row)


@step
def add_table(stage: Stage, text: str, /) -> None:
    """Add the rows of a table in text to the source, written as for `events_table`."""
    rows = events_table(stage.driver.spec, text)
    for row in rows:
        stage.driver.add_row(row)
    stage.note = f"rows={len(rows)}"


@step
def run_batch(stage: Stage, /, *, sink_fails: bool = False) -> None:
    """
    Run one micro-batch over the events that wait; if none wait, one without data.

    With `sink_fails` the sink fails after it: nothing came out, and the next batch runs the same
    events again.
    """
    result = stage.run_batch(sink_fails=sink_fails)
    stage.note = _batch_note(result) + (", but the sink failed" if sink_fails else "")


@step
def run_until_idle(stage: Stage, /) -> None:
    """
    Run batches as long as Spark would: one over the events that wait, then without data.

    With a clock in processing time it stops once no event waits and the watermark stands still.
    """
    results = [stage.run_batch(sink_fails=False)]
    while not stage.driver.is_idle:
        results.append(stage.run_batch(sink_fails=False))
    stage.note = "; ".join(map(_batch_note, results))


@step
def advance_watermark_to(stage: Stage, instant: datetime, /) -> None:
    """Move the watermark of the next batch; an earlier one is ignored, as Spark ignores it."""
    stage.driver.advance_watermark_to(instant)
    if (stays := stage.driver.watermark) != instant:
        stage.note = f"ignored: the watermark stays at {clock_text(stays)}" if stays else ""


@step
def advance_processing_time(stage: Stage, span: timedelta, /) -> None:
    """Move the processing time of the next batch; the script must have been given one."""
    stage.driver.advance_processing_time(span)


@step
def restart(stage: Stage, /) -> None:
    """
    Stop the query and start it again from what it left.

    As in Spark, nothing that is due happens until new data has come.
    """
    stage.restart()


def _batch_note(result: BatchResult[Any]) -> str:
    if result.batch_id is None:
        return "no batch: no event waits, and nothing is due"
    at_watermark = "" if result.watermark is None else f" at {clock_text(result.watermark)}"
    counts = attrs.asdict(result.counts, filter=lambda _, number: bool(number))
    told = ", ".join(f"{name}={number}" for name, number in counts.items())
    return f"batch {result.batch_id}{at_watermark}: {told or 'no event'}"
