"""The program of a stateful spec: what is due by it."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from sessionkit import EventTimeGap, ProcessingTimeGap
from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.logic import NEVER_US, BatchClocks
from sessionkit._instants import micros_of
from sessionkit.testing import at
from tests.support.stateful_specs import summing

HOUR, HOUR_US = timedelta(hours=1), 3_600_000_000
NOON_US, NOW_US = micros_of(at("12:00")), micros_of(at("12:05"))


def events_of(logic: KeyLogic) -> pa.Table:
    return pa.table([["ann"], [at("12:00")], [1]], schema=logic.empty_state.buffered.schema)


@pytest.mark.parametrize(
    ("timeout", "event_us", "processing_us"),
    [
        (EventTimeGap(HOUR), NOON_US + HOUR_US, NEVER_US),
        (ProcessingTimeGap(HOUR), NEVER_US, NOW_US + HOUR_US),
        (EventTimeGap(2 * HOUR) | ProcessingTimeGap(HOUR), NOON_US + 2 * HOUR_US, NOW_US + HOUR_US),
    ],
)
def test_a_key_is_due_at_the_first_end_of_its_policy_on_each_clock(
    timeout: Any, event_us: int, processing_us: int
) -> None:
    """On a clock of which the policy says nothing, it never is."""
    logic = KeyLogic(summing(timeout=timeout))

    kept = logic.step(logic.empty_state, events_of(logic), BatchClocks(0, NOW_US)).memory.kept

    due = {clock: at_us.tolist() for clock, at_us in logic.due(kept).items()}
    assert {"event_time": [event_us], "processing_time": [processing_us]} == due
