"""A query that goes on elsewhere: another zone, clock, language, number of cores."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

from tests.support.clocks import faked_by
from tests.support.faults.lives import RULES, SPECS
from tests.support.faults.processes import PATIENCE_S, ROOT
from tests.support.figures import FIGURES, Record
from tests.support.naive_rules import Click, naive_cuts
from tests.support.naive_sessions import Event, naive_sessions
from tests.support.streams import write_files

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]

GAP: Final = timedelta(minutes=10)
KEYS: Final = ("ann", "bob")


class Life(NamedTuple):
    """A machine: the zone of its sessions, its own, its clock, its cores and its language."""

    zone: str
    machine: str
    ahead_s: int = 0
    cores: int = 2
    language: str = "en"
    files: int = 1


DAYS: Final = (
    # All before 1970 come without a watermark.
    """1900-01-01 04:40, 1969-12-31 04:56, 1969-12-31 05:02, 1969-12-31 23:51,
    1969-12-31 23:59:59.999999, 1970-01-01 00:00, 1970-01-01 00:00:00.000001""",
    # Apia left out a day; in New York, one ends at 05:00.
    """2011-12-29 23:55, 2011-12-30 04:58, 2011-12-30 05:00, 2011-12-30 09:55, 2011-12-30 10:02,
    2011-12-31 10:00""",
    # New York has no hour from two to three.
    """2026-03-08 04:55, 2026-03-08 05:02, 2026-03-08 06:55, 2026-03-08 06:59:59.999999,
    2026-03-08 07:00, 2026-03-08 07:10, 2026-03-09 03:55, 2026-03-09 04:01""",
    # Lord Howe gains half an hour; London and New York have an hour twice.
    """2026-04-04 14:55, 2026-04-04 15:04, 2026-10-25 00:55, 2026-10-25 01:05, 2026-11-01 03:55,
    2026-11-01 04:05, 2026-11-01 05:30, 2026-11-01 05:59, 2026-11-01 06:00, 2026-11-01 06:30,
    2026-11-01 06:39, 2026-11-02 04:55, 2026-11-02 05:03""",
    "9999-12-30 04:55, 9999-12-30 05:03, 9999-12-31 04:50, 9999-12-31 04:59",
    # The first closes what is before; the session of the second would end in the year 10000.
    "9999-12-31 23:49:59.999999, 9999-12-31 23:50",
)
"""The times of the events of each key, in UTC, for one file after the other."""
LIVES: Final = (
    Life("UTC", "UTC", files=2),
    Life("America/New_York", "Asia/Kathmandu", -3600, cores=1, language="tr"),
    Life("Australia/Lord_Howe", "Pacific/Apia", 30 * 86_400, cores=4, language="ar"),
    Life("Asia/Kathmandu", "America/New_York", -365 * 86_400, files=2),
)


def events() -> list[list[dict[str, Any]]]:
    """Return the events of each file."""
    numbers = count()
    return [
        [
            {"key": key, "at": datetime.fromisoformat(f"{time}Z"), "value": next(numbers)}
            for time in times.split(", ")
            for key in KEYS
        ]
        for times in (" ".join(day.split()) for day in DAYS)
    ]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    fields = {"key": pa.string(), "at": pa.timestamp("us", "UTC"), "value": pa.int64()}
    return pa.Table.from_pylist(rows, pa.schema(fields))


def expected(name: str) -> list[tuple[Any, ...]]:
    """Return the sessions that have ended, by the naive models."""
    rows = [row for file in events()[:-1] for row in file]
    if name == "gap":
        of_gap = naive_sessions(Event(row["key"], row["at"], row["value"], GAP) for row in rows)
        return [(one.key, one.start, one.end, [*one.values]) for one in of_gap]
    cuts = naive_cuts([Click(row["key"], row["at"], row["value"], GAP) for row in rows], RULES)
    return [(one.key, one.start, one.end, one.values) for one in cuts]


def written(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that a query has written."""
    for path in folder.glob("*.json"):
        yield from map(json.loads, path.read_text().splitlines())


def session(row: dict[str, Any]) -> tuple[Any, ...]:
    start, end = (datetime.fromisoformat(row[f"session_{side}"]) for side in ("start", "end"))
    return row["key"], start, end, row["values"]


def test_rows_are_the_same_on_any_machine(tmp_path: Path, record_property: Record) -> None:
    """Zones, daylight saving, clocks that go back, years from 1900 to 9999: no row differs."""
    clock = tmp_path / "clock"
    faked_by(clock)  # or this is skipped
    tables = [table(rows[::-1]) for rows in events()]
    for life in LIVES:
        done = len([*tmp_path.glob("in/*")])
        write_files(tmp_path / "in", tables[done : done + life.files], first=done)
        clock.write_text(f"{life.ahead_s:+}")
        command = [sys.executable, "-m", "tests.support.faults.lives", str(tmp_path), str(clock)]
        with (tmp_path / "log").open("a") as log:
            ended = subprocess.run(
                [*command, life.zone, str(life.cores), life.language],
                cwd=ROOT,
                env={**os.environ, "TZ": life.machine},
                stdout=log,
                stderr=log,
                timeout=3 * PATIENCE_S,
                check=False,
            )
        assert not ended.returncode, (tmp_path / "log").read_text()[-3000:]

    for name in SPECS:
        folder = tmp_path / name
        offsets = sorted(
            (path for path in folder.glob("checkpoint/offsets/[0-9]*")),
            key=lambda path: int(path.name),
        )
        clocks = [
            json.loads(path.read_text().splitlines()[1])["batchTimestampMs"] for path in offsets
        ]
        back = sum(after < before for before, after in pairwise(clocks))
        rows_by_kind: dict[str, list[dict[str, Any]]] = {"session": [], "quarantined": []}
        for row in written(folder / "out"):
            rows_by_kind[row["kind"]].append(row)
        found = sorted(map(session, rows_by_kind["session"]))
        text = f"{len(found)} sessions; {back} of {len(clocks)} micro-batches had an earlier clock"
        record_property(FIGURES, f"other machines, {name}: {text}")
        assert back
        assert sorted(expected(name)) == found
        assert len(KEYS) == len(rows_by_kind["quarantined"])
