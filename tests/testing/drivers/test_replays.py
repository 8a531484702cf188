"""A real file replayed with one date that is nine months ahead."""

import gzip
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from sessionkit import Counts, Inputs, SessionSpec
from sessionkit.aggregates import count
from sessionkit.testing import SessionDriver

DATA = Path(__file__).parents[4] / "shared" / "data" / "apache_logs" / "apache_logs.gz"
LINES, BAD, BATCH = 974, 238, 60

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason="the data of third parties is not part of the project"
)


@attrs.frozen
class Request:
    """A request; only that it happened counts."""


REQUESTS = SessionSpec.aggregate(
    Request,
    {"requests": count()},
    keys={"address": str},
    event_time="at",
    gap="30 minutes",
    watermark_delay="2 hours",
)


def requests() -> list[tuple[str, datetime]]:
    """Return the address and the time of the first lines, one of them moved nine months ahead."""
    with gzip.open(DATA, "rt", encoding="utf-8") as log:
        lines = [next(log) for _ in range(LINES)]
    found = [re.match(r"(\S+) \S+ \S+ \[(.+?)\]", line) for line in lines]
    rows = [(one[1], datetime.strptime(one[2], "%d/%b/%Y:%H:%M:%S %z")) for one in found if one]
    rows[BAD] = (rows[BAD][0], rows[BAD][1] + timedelta(days=270))
    return rows


def counts_of(spec: SessionSpec[Any, Any, Any]) -> Counts:
    driver = SessionDriver(spec)
    rows = requests()
    for start in range(0, LINES, BATCH):
        for address, at in rows[start : start + BATCH]:
            driver.add(address, at, Request())
        driver.run_batch()
    return driver.counts


def test_without_a_limit_all_later_rows_are_late() -> None:
    """The watermark is nine months ahead, and the clock of today can't see it."""
    assert (240, 734) == (counts_of(REQUESTS).processed, counts_of(REQUESTS).late)


def test_max_jump_sets_aside_that_row_alone() -> None:
    """Every other row counts."""
    counts = counts_of(attrs.evolve(REQUESTS, inputs=Inputs(max_jump="2 days")))
    assert (LINES - 1, 0, 1) == (counts.processed, counts.late, counts.quarantined)
