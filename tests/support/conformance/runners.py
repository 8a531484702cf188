"""A case on the driver, and the same on a Spark stream."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import attrs
from pyspark.sql import SparkSession

from sessionkit._instants import instant_of
from sessionkit.errors import UnsupportedError
from sessionkit.testing import OpenSession, Rejection, SessionDriver, SessionRow
from tests.support.conformance.cases import (
    CLOCK,
    ORIGIN,
    SCHEMA,
    Batch,
    Case,
    Outcome,
    Restart,
    Row,
    Run,
    Watermark,
    Window,
)
from tests.support.conformance.dedup import dedup_case
from tests.support.conformance.keyed import KeyedRun, keyed_on_driver, keyed_on_spark
from tests.support.naive_revisions import Table
from tests.support.steps import Batches, batches_of


@attrs.frozen
class DedupRun:
    """A case about deduplication, and its answer: what is emitted, and what is late."""

    name: str
    case: Case

    @property
    def expected(self) -> tuple[list[Any], list[Any]]:
        return self.case["expected_emitted"], self.case["late"]


AnyRun: TypeAlias = Run | KeyedRun | DedupRun


def on_driver(run: Run | KeyedRun) -> Any:
    return keyed_on_driver(run) if isinstance(run, KeyedRun) else _sessions_on_driver(run)


def on_spark(run: AnyRun, spark: SparkSession, folder: Path) -> Any:
    if isinstance(run, KeyedRun):
        return keyed_on_spark(run, spark, folder)
    if isinstance(run, DedupRun):
        return dedup_case(run.case, spark, folder)
    return _sessions_on_spark(run, spark, folder)


def _sessions_on_driver(run: Run) -> Outcome:
    """Run a case without Spark; after each step until nothing more would happen."""
    driver = SessionDriver(run.spec)
    shown: list[_Shown] = []
    rejections: list[Rejection] = []
    for step in run.steps:
        match step:
            case Batch(rows):
                for row in rows:
                    driver.add_row(row)
            case Watermark(instant):
                driver.advance_watermark_to(instant)
            case Restart():
                driver = SessionDriver.restore(run.spec, driver.snapshot())
        driver.run_until_idle()
        shown += map(_shown, driver.take_rows())
        rejections += driver.take_rejections()
    return Outcome(
        closed=_closed(run, shown),
        still_open=_still_open(driver.open_sessions()),
        late=[
            (r.key[0], _ms(r.event_time), r.passthrough["shown"])
            for r in rejections
            if r.kind == "late"
        ],
        quarantined=[r.passthrough["shown"] for r in rejections if r.kind == "quarantined"],
        emissions=_emissions(run, shown),
    )


def _sessions_on_spark(run: Run, spark: SparkSession, folder: Path) -> Outcome:
    stream = batches_of(spark, run.spec, SCHEMA, folder)
    for batches in _stretches(run):
        stream.run(batches)
    # Without the events that only move the watermark.
    rows = [row for batch in stream.rows.values() for row in batch if row["key"] != CLOCK]
    shown = [_shown_on_spark(row) for row in rows if row["kind"] == "session"]
    return Outcome(
        closed=_closed(run, shown),
        still_open=_still_open_on_spark(run, stream),
        late=[
            (row["key"], _us(row["event_time"]), row["shown"])
            for row in rows
            if row["kind"] == "late"
        ],
        quarantined=[row["shown"] for row in rows if row["kind"] == "quarantined"],
        emissions=_emissions(run, shown),
    )


@attrs.frozen
class _Shown:
    """A row of a session, from the driver or from Spark."""

    session_id: str
    window: Window
    revision: int
    is_final: bool
    supersedes: Sequence[str]


def _shown(row: SessionRow[Any]) -> _Shown:
    window = _window(row.key[0], row.session_start, row.session_end, row.result.values)
    return _Shown(row.session_id, window, row.revision, row.is_final, row.supersedes)


def _shown_on_spark(row: Row) -> _Shown:
    return _Shown(
        row["session_id"],
        Window(row["key"], _us(row["session_start"]), _us(row["session_end"]), row["values"]),
        row.get("revision", 1),
        row.get("is_final", True),
        row.get("supersedes", ()),
    )


def _closed(run: Run, shown: list[_Shown]) -> list[Window]:
    """Return the sessions that are closed, each by its last row."""
    if not run.spec.revises:
        return [row.window for row in shown if row.is_final]
    table = Table()
    table.upsert(shown)
    return [row.window for row in table.rows.values() if row.is_final]


def _emissions(run: Run, shown: list[_Shown]) -> list[tuple[Window, bool]] | None:
    """Return all rows, and which are early; None where a case doesn't have them."""
    if run.expected.emissions is None:
        return None
    return [(row.window, not row.is_final) for row in shown]


def _still_open_on_spark(run: Run, stream: Batches) -> list[Window]:
    """Return the open sessions; what is expected where Spark can't read state, so it's not seen."""
    try:
        found = [session for session in stream.files.open() if session.key[0] != CLOCK]
    except UnsupportedError:
        return run.expected.still_open
    return _still_open(sorted(found, key=lambda session: (session.key[0], session.session_start)))


def _stretches(run: Run) -> list[list[list[Row]]]:
    """
    Return the rows of each micro-batch, from one restart to the next.

    The watermark is moved by an event of the batch before, to be in force in the next one.
    """
    stretches: list[list[list[Row]]] = [[]]
    for step in run.steps:
        batches = stretches[-1]
        match step:
            case Batch(rows):
                batches.append(list(rows))
            case Watermark(instant):
                if not batches:
                    batches.append([])
                batches[-1].append(_tick(instant + run.spec.watermark_delay))
            case Restart():
                stretches.append([])
    return stretches


def _tick(at: datetime) -> Row:
    return {"key": CLOCK, "at": at, "value": "", "gap_ms": 1, "shown": ""}


def _still_open(sessions: Iterable[OpenSession[Any]]) -> list[Window]:
    return [
        _window(s.key[0], s.session_start, s.session_end, s.state.values if s.events else [])
        for s in sessions
    ]


def _window(key: str, start: datetime, end: datetime, values: list[str]) -> Window:
    return Window(key, _ms(start), _ms(end), values)


def _ms(instant: datetime | None) -> int:
    """Return the time that a case means by an instant."""
    assert instant is not None
    milliseconds, rest = divmod(instant - ORIGIN, timedelta(milliseconds=1))
    assert not rest
    return milliseconds


def _us(instant_us: int) -> int:
    return _ms(instant_of(instant_us))
