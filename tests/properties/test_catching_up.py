"""A long delay holds the watermark, so however a backlog is read, none of it is late."""

import random
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any, TypeAlias

import attrs
import pytest

from sessionkit import Counts, SessionSpec, Storage
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver

STOPPED, OUTAGE = datetime(2026, 3, 8, 6, tzinfo=UTC), timedelta(hours=6)
GAP = timedelta(minutes=30)
EACH, STEPS = 1_000, 10
"""The events of each partition, and how many micro-batches read them."""

Event: TypeAlias = tuple[str, datetime]


@attrs.frozen
class Click:
    pass


clicks = SessionSpec.aggregate(
    Click,
    {"clicks": agg.count()},
    keys={"user": str},
    event_time="ts",
    gap=GAP,
    watermark_delay="10 minutes",
    storage=Storage(bucket_count=1),
)


def skewed(*powers: float) -> list[list[Event]]:
    """Return a partition for each power, in order of time: the higher, the earlier its peak is."""
    choice = random.Random(repr(powers))
    return [
        [
            (f"{partition}-{choice.randrange(60)}", STOPPED + OUTAGE * at)
            for at in sorted(choice.random() ** power for _ in range(EACH))
        ]
        for partition, power in enumerate(powers)
    ]


def portions(partitions: list[list[Event]]) -> list[list[Event]]:
    """Return what `maxOffsetsPerTrigger` reads at a time: as much of each, for they are as long."""
    bounds = pairwise(range(0, EACH + 1, EACH // STEPS))
    return [[*chain(*(one[start:end] for one in partitions))] for start, end in bounds]


def counts_and_rows(delay: timedelta, batches: list[list[Event]]) -> tuple[Counts, list[Any]]:
    """Stop a query, read a backlog under a delay, and go on; return the counts and all rows."""
    after = [[("after", STOPPED + OUTAGE + timedelta(hours=more))] for more in (0, 2)]
    driver = SessionDriver(clicks)
    rows = []
    for spec, parts in (
        (clicks, [[("before", STOPPED)]]),
        (attrs.evolve(clicks, watermark_delay=delay), batches),
        (clicks, after),
    ):
        driver = SessionDriver.restore(spec, driver.snapshot())
        for part in parts:
            for user, at in part:
                driver.add(user, at, Click())
            driver.run_batch()
        driver.run_until_idle()
        rows += driver.take_rows()
    return driver.counts, sorted(rows, key=repr)


def shapes() -> list[list[list[Event]]]:
    """Return one peak at the beginning of the stop, and four shapes at random."""
    choice = random.Random(7)
    others = [skewed(*(choice.uniform(0.2, 6) for _ in range(4))) for _ in range(4)]
    return [skewed(6, 1, 1, 1), *others]


@pytest.mark.parametrize("partitions", shapes(), ids=map(str, range(5)))
def test_a_long_delay_makes_nothing_of_a_backlog_late(partitions: list[list[Event]]) -> None:
    """Its sessions are as if it were read at once; under the usual delay, some of it is late."""
    batches, usual = portions(partitions), clicks.watermark_delay
    at_once = counts_and_rows(usual, [[*chain(*batches)]])

    assert at_once == counts_and_rows(OUTAGE + usual, batches)
    assert 0 == at_once[0].late < counts_and_rows(usual, batches)[0].late
