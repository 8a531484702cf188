"""
What a micro-batch has changed, found in what is stored before and after it.

The reference is everything that is stored: with the changes, that before becomes that after.
"""

import math
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import (
    Functions,
    KeyState,
    KeyTimes,
    Lateness,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit._engine.keys.program import stored_key_rows
from sessionkit._engine.sessions.view import open_session_rows
from sessionkit._engine.shell.storage import Stored, changed_memory, changed_rows, logic_of
from sessionkit.testing import SessionDriver, StatefulDriver
from sessionkit.testing.drivers.query import Snapshot, memories_of, stored_rows

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SHARED: dict[str, Any] = {"keys": {"key": int}, "event_time": "at", "watermark_delay": 3 * SECOND}


@attrs.frozen
class Note:
    size: int


@attrs.define
class Notes:
    """A few of these fill a page; no one of them equals itself, as NaN doesn't."""

    texts: list[str] = attrs.field(factory=list)
    ratio: float = math.nan


def update(state: Notes, event: Note) -> Notes:
    return Notes([*state.texts, "x" * event.size])


def merge(left: Notes, right: Notes) -> Notes:
    return Notes(left.texts + right.texts)


def process(key: Any, events: list[Note], state: KeyState[Notes], times: KeyTimes) -> None:
    state.set(Notes([*state.get(Notes([])).texts, *("x" * event.size for event in events)]))
    times.set_event_timer("late", times.event_times[-1] + SECOND)


def on_timer(key: Any, name: str, state: KeyState[Notes], times: KeyTimes) -> None:
    """Do nothing."""


def sessions(**options: Any) -> SessionDriver[Any, Any, Any]:
    logic: Any = Functions(update=update, merge=merge)
    words = {"timeout": SessionRules("4 seconds"), **SHARED, **options}
    return SessionDriver(SessionSpec(logic=logic, **words))


def keys(**options: Any) -> StatefulDriver[Any, Any, Any]:
    words = {"timeout": "9 seconds", "result": Notes, **SHARED, **options}
    return StatefulDriver(StatefulSpec(process=process, on_timer=on_timer, **words))


MAKERS: list[Any] = [
    partial(make, **layout, **options)
    for make in (sessions, keys)
    for options in ({}, {"order": "event_time"})
    for layout in (
        {"storage": Storage(layout="buckets", bucket_count=2)},
        {"storage": Storage(layout="pages", bucket_count=1)},
    )
] + [
    partial(sessions, storage=Storage(layout="pages"), lateness=Lateness(reopen_within="9 seconds"))
]
SIZES = st.sampled_from([0, 10, 2_000, 5_000])
EVENTS = st.lists(st.tuples(st.integers(0, 7), st.integers(-4, 8), SIZES), max_size=6)


@given(st.sampled_from(MAKERS), st.lists(EVENTS, min_size=2, max_size=4))
def test_changes_lead_from_before_to_after(make: Any, cut: Any) -> None:
    """Whatever is stored and wherever it moves, and nothing that stays as it was is among them."""
    driver, at = make(), NOON
    for batch in [*cut, []]:
        before = driver.snapshot()
        for key, step, size in batch:
            at = max(at + step * SECOND, NOON)
            driver.add(key, at, Note(size))
        driver.run_batch()
        after = driver.snapshot()

        was, now = (everything(driver.spec, one) for one in (before, after))
        found = dict(was)
        for name, change, row in changes(driver.spec, before, after):
            assert (name in was, name in now) == {
                "new": (False, True),
                "changed": (True, True),
                "gone": (True, False),
            }[change]
            assert repr(found.pop(name, None)) != repr(row) or change == "gone"
            found |= {} if change == "gone" else {name: row}
        assert repr(sorted(now.items())) == repr(sorted(found.items()))


def rows_of(spec: Any) -> Any:
    return partial(stored_key_rows if isinstance(spec, StatefulSpec) else open_session_rows, spec)


def name_of(spec: Any) -> str:
    return "key" if isinstance(spec, StatefulSpec) else "session_id"


def everything(spec: Any, left: Snapshot) -> dict[str, Any]:
    """Return all rows by the names that they are found by."""
    tables = [rows_of(spec)(memory) for memory in memories_of(spec, left)]
    rows = [row for table in tables for row in table.to_pylist()]
    return {str(row[name_of(spec)]): row for row in rows}


def changes(spec: Any, before: Snapshot, after: Snapshot) -> list[tuple[str, str, Any]]:
    """Return what the storage of groups says, as Spark's changes would: which pages are written."""
    tables, was, now = list[pa.Table](), dict(stored_rows(before)), dict(stored_rows(after))
    for group in was.keys() | now.keys():
        old, new = (stored(spec, rows.get(group)) for rows in (was, now))
        written = {*old.pages.items()} ^ {*new.pages.items()}
        starts = {start for start, _ in written}
        own = [
            attrs.evolve(one, pages={k: v for k, v in one.pages.items() if k in starts})
            for one in (old, new)
        ]
        one, other = changed_memory(logic_of(spec), group, own[0], own[1], starts)
        tables.append(changed_rows(rows_of(spec)(one), rows_of(spec)(other), name_of(spec)))
    rows = [row for table in tables for row in table.to_pylist()]
    return [(str(row[name_of(spec)]), row.pop("change"), row) for row in rows]


def stored(spec: Any, row: Any) -> Stored:
    if row is None or spec.storage.layout != "pages":
        return Stored(row)
    return Stored(row[:-1], row[-1])
