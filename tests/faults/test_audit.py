"""The harness itself: the model agrees with the engine, and no fault escapes the audit."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from sessionkit import SessionSpec
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.faults.ledger import Row
from tests.support.faults.specs import spec_of
from tests.support.faults.timeline import Audit, Timeline, audited

BATCHES = 12
TIMELINE = Timeline("audit")


@cache
def rows_of_engine(name: str) -> tuple[Row, ...]:
    """Return the rows of a job that nobody disturbs."""
    spec: Any = spec_of(name, "buckets")
    driver: Any = SessionDriver(spec) if isinstance(spec, SessionSpec) else StatefulDriver(spec)
    for batch in [*map(TIMELINE.batch, range(BATCHES)), TIMELINE.end(BATCHES)]:
        for key, at, number in batch:
            driver.add_row({"key": key, "at": at, "number": number})
        driver.run_batch()
    driver.run_until_idle()
    results = [
        Row("session", row.key[0], tuple(row.result.numbers), getattr(row, "session_id", None))
        for row in driver.take_rows()
    ]
    rejections = driver.take_rejections()
    return (*results, *(Row(one.kind, None, (one.event["number"],)) for one in rejections))


def audit(rows: list[Row]) -> Audit:
    return audited(TIMELINE.places(BATCHES), rows)


@pytest.mark.parametrize("name", ["sessions", "keys"])
def test_an_undisturbed_job_is_sound(name: str) -> None:
    """Both specs give the sessions of the model; late and quarantined events are among them."""
    rows = list(rows_of_engine(name))

    assert audit(rows).is_sound
    assert {"session", "late", "quarantined"} == {row.kind for row in rows}


def test_an_event_is_late_for_a_watermark_alone() -> None:
    """A query that was killed before it had one has each event in a session."""
    none = dict.fromkeys(range(BATCHES), datetime.fromtimestamp(0, UTC))
    kinds = {place[0] for place in TIMELINE.places(BATCHES, none).values()}

    assert ("late",) in TIMELINE.places(BATCHES).values()
    assert {"quarantined", *(f"k{number}" for number in range(TIMELINE.keys))} == kinds


def cut(rows: list[Row]) -> list[Row]:
    """Divide the first session of several numbers in two."""
    (kind, key, numbers, _), *others = sorted(rows, key=lambda row: -len(row.numbers))
    return [Row(kind, key, numbers[:1]), Row(kind, key, numbers[1:]), *others]


def with_one_id(rows: list[Row]) -> list[Row]:
    """Give the second session the id of the first."""
    first, second, *others = rows
    return [first, second._replace(id=first.id), *others]


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lambda rows: rows[1:], "lost"),
        (lambda rows: rows[:-1], "lost"),
        (lambda rows: [*rows, rows[0]], "doubled"),
        (lambda rows: [*rows, rows[-1]], "doubled"),
        (cut, "wrong"),
        (lambda rows: [Row("late", None, rows[0].numbers), *rows[1:]], "wrong"),
        (lambda rows: [*rows, Row("session", "k0", (123_456,))], "wrong"),
        (with_one_id, "shared"),
    ],
)
def test_a_row_that_is_missing_doubled_or_altered_is_found(
    fault: Callable[[list[Row]], list[Row]], found: str
) -> None:
    """A row that is missing, there twice, or another one is counted as just that."""
    seen = audit(fault(list(rows_of_engine("sessions"))))._asdict()

    assert [found] == [name for name in ("lost", "doubled", "wrong", "shared") if seen[name]]
