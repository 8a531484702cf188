"""Aggregates of sequences against an analyst's queries, run by DuckDB on all events."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support.in_sql import FUNNEL, PATH, TOP, in_sql

pytest.importorskip("duckdb")

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP: Final = timedelta(minutes=10)
STEPS: Final = {name: pc.field("kind") == name for name in ("view", "cart", "buy")}


@attrs.frozen
class Act:
    kind: str


def events(seed: int) -> list[tuple[str, datetime, Act]]:
    """Return events of which many are at one instant, and in no order."""
    random = Random(seed)
    return [
        (
            f"k{random.randrange(60)}",
            NOON + timedelta(minutes=random.randrange(600)),
            Act(random.choice(["view", "view", "cart", "buy", "other"])),
        )
        for _ in range(3_000)
    ]


def by_session(rows: Sequence[tuple[str, datetime, Act]], **aggregates: agg.Aggregate) -> list[Any]:
    """Return the rows of all sessions, by key and start, from micro-batches of 500 events."""
    spec = SessionSpec.aggregate(
        Act, aggregates, keys={"key": str}, event_time="ts", gap=GAP, watermark_delay="1 day"
    )
    driver = SessionDriver(spec)
    for start in range(0, len(rows), 500):
        for key, ts, act in rows[start : start + 500]:
            driver.add(key, ts, act)
        driver.run_batch()
    found = sorted(driver.open_sessions(), key=lambda one: (one.key.key, one.start))
    return [attrs.astuple(one.state, recurse=False) for one in found]


def by_query(rows: Sequence[tuple[str, datetime, Act]], query: str, **given: Any) -> list[Any]:
    return in_sql(query, [(key, ts, act.kind) for key, ts, act in rows], gap=GAP, **given)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("within", [None, 8])
def test_funnels_equal_a_query(seed: int, within: int | None) -> None:
    """The time of a step may be that of the one before."""
    rows, span = events(seed), timedelta(minutes=within) if within else None

    found = by_session(rows, far=agg.funnel(STEPS, within=span))

    steps = {"within": span or timedelta(days=1), "steps": [*STEPS]}
    assert by_query(rows, FUNNEL, **steps) == found
    assert {(reached,) for reached in range(4)} == set(found)


@pytest.mark.parametrize("seed", range(3))
def test_paths_and_their_steps_equal_a_query(seed: int) -> None:
    """A late event finds its place in either."""
    rows = events(seed)

    found = by_session(rows, path=agg.path("kind"), steps=agg.steps("kind", "view", "cart"))
    assert by_query(rows, PATH, steps=["view", "cart"]) == found


@pytest.mark.parametrize("seed", range(3))
def test_the_most_frequent_values_equal_a_query(seed: int) -> None:
    """Of equally frequent ones, the lesser is first."""
    rows = events(seed)

    assert by_query(rows, TOP) == by_session(rows, top=agg.top("kind", 2))
