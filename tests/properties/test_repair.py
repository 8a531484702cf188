"""A wrong table of a stream, repaired while the stream goes on, is that of one clean batch."""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from sessionkit import Lateness, Results
from sessionkit.addons.tables import DAY_OF, DAY_ZERO, DIFFERENCES, day_numbers
from sessionkit.testing import SessionDriver
from tests.support.repairs import (
    MINUTE,
    NOON,
    Event,
    Reading,
    Right,
    Wrong,
    days_of,
    history_of,
    spec_of,
)

HISTORIES: Final = int(os.environ.get("HISTORIES", "4"))
TICK: Final = ("tick", NOON + 10_000 * MINUTE, 0)
"""An event that ends all sessions of others."""
SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "session_id": pa.string(),
        "session_start": pa.timestamp("us", "UTC"),
        "session_end": pa.timestamp("us", "UTC"),
        "revision": pa.int64(),
        "number": pa.list_(pa.int64()),
        "final": pa.bool_(),
    }
)
Table = dict[str, dict[str, Any]]
DATABASE: Final = duckdb.connect(config={"threads": 1})


def rows_of(driver: SessionDriver[Any, Any, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": row.key.key,
            "session_id": row.session_id,
            "session_start": row.session_start,
            "session_end": row.session_end,
            "revision": getattr(row, "revision", None) or 1,
            "number": row.result.values,
            "supersedes": getattr(row, "supersedes", None) or (),
        }
        for row in driver.take_rows()
    ]


def add(driver: SessionDriver[Any, Any, Any], events: Sequence[Event]) -> None:
    for key, at, value in events:
        driver.add(key, at, Reading(value))


def batch_of(events: Sequence[Event], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sessions of a batch."""
    once = {name: value for name, value in options.items() if name != "results"}
    driver = SessionDriver(spec_of(Right, **once))
    add(driver, events)
    driver.run_batch()
    driver.advance_watermark_to(NOON + 100_000 * MINUTE)
    driver.run_until_idle()
    return rows_of(driver)


def write(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write a micro-batch as the sinks do, which refuse a second session with an id."""
    superseded = {gone for row in rows for gone in row["supersedes"]}
    latest = {row["session_id"]: row for row in sorted(rows, key=lambda row: row["revision"])}
    for gone in superseded:
        table.pop(gone, None)
    for name in latest.keys() - superseded:
        there = table.get(name)
        assert there is None or there["revision"] < latest[name]["revision"]
        table[name] = latest[name]


def literal(instant: datetime) -> str:
    return f"TIMESTAMPTZ '{instant}'"


def repair(  # noqa: PLR0917
    table: Table,
    clean: Sequence[dict[str, Any]],
    start: datetime,
    end: datetime,
    settled: datetime,
    final: Sequence[bool],
    history: Sequence[Event],
) -> dict[str, int]:
    """Do to a table what the sinks do, by the SQL that they run."""
    names = SCHEMA.names
    old, new = (
        pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], SCHEMA)
        for rows in (
            list(table.values()),
            [{**row, "final": is_final} for row, is_final in zip(clean, final, strict=True)],
        )
    )
    DATABASE.register("old_rows", old)
    DATABASE.register("new_rows", new)
    statement = DIFFERENCES.format(
        old="old_rows",
        new="new_rows",
        keys="key",
        revision="revision",
        is_final="final",
        equal="old.number IS NOT DISTINCT FROM new.number AND old.session_end = new.session_end",
        start=literal(start),
        end=literal(end),
        settled=literal(settled),
        start_day=DAY_OF.format("session_start", literal(DAY_ZERO)),
        end_day=DAY_OF.format("session_end", literal(DAY_ZERO)),
        days=day_numbers(days_of(history)),
        delete_unseen="FALSE",
    )
    counts: dict[str, int] = {}
    by_id = {row["session_id"]: row for row in clean}
    for _, name, *_, revision, _, _, difference in DATABASE.execute(statement).fetchall():
        counts[difference] = counts.get(difference, 0) + 1
        if difference == "deleted":
            del table[name]
        elif difference in {"added", "changed"}:
            assert (name in table) == (difference == "changed")
            table[name] = {**by_id[name], "revision": (revision or 0) + 1}
    return counts


OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "by session": {"lateness": Lateness(judged_by="session")},
    "allowed": {"lateness": Lateness(allowed=30 * MINUTE)},
    "reopened": {"lateness": Lateness(reopen_within=30 * MINUTE)},
    "early": {"results": Results(emit="on_update")},
    "both": {"results": Results(emit="on_update"), "lateness": Lateness(allowed="30 minutes")},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_repaired_table_is_that_of_one_batch(name: str) -> None:
    """After repairs of any spans while the stream went on, whatever was late, and after a bug."""
    options, total = OPTIONS[name], dict[str, int]()
    for seed in range(HISTORIES):
        random = Random(seed)
        events, table = history_of(random, "ab", random.randint(20, 60)), Table()
        driver = SessionDriver(spec_of(Wrong, **options))
        revisable = timedelta(minutes=30) if name in {"allowed", "reopened", "both"} else 0 * MINUTE
        read = 0
        while read < len(events) + 1:
            portion = [*events, TICK][read : read + random.randint(2, 9)]
            read += len(portion)
            add(driver, portion)
            watermark = driver.watermark
            driver.run_batch()
            write(table, rows_of(driver))
            if watermark is None or random.random() < 0.6 or read > len(events):
                continue
            clean = batch_of(events[:read], options)
            last = max(at for _, at, _ in events[:read])
            settled = min(last, watermark - revisable)
            held = {one.session_id for one in driver.open_sessions()}
            final = [
                row["session_end"] <= settled and row["session_id"] not in held for row in clean
            ]
            start = NOON + random.choice([0, 0, 60, 120]) * MINUTE
            end = min(settled, start + random.choice([60, 600]) * MINUTE)
            before = {one: row for one, row in table.items() if row["session_start"] < start}
            repair(table, clean, start, end, settled, final, events[:read])
            assert before == {
                one: row for one, row in table.items() if row["session_start"] < start
            }
            again = repair(table, clean, start, end, settled, final, events[:read])
            assert {*again} <= {"unchanged", "left"}
        driver.run_until_idle()
        write(table, rows_of(driver))
        clean = batch_of([*events, TICK], options)
        for first, until in ((0, 100), (100, 137), (137, 5000)):
            counts = repair(
                table,
                clean,
                NOON + first * MINUTE,
                NOON + until * MINUTE,
                TICK[1],
                [row["session_end"] <= TICK[1] for row in clean],
                [*events, TICK],
            )
            for kind, count in counts.items():
                total[kind] = total.get(kind, 0) + count
        found, wanted = (
            sorted((row["session_id"], row["session_end"], row["number"]) for row in rows)
            for rows in (table.values(), clean)
        )
        assert [row for row in wanted if row[1] <= TICK[1]] == [
            row for row in found if row[1] <= TICK[1]
        ]
    assert {"unchanged", "changed", "added", "deleted"} <= {*total}
