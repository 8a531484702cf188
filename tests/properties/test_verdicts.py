"""
The verdict on each event, where any reasons for which one doesn't count meet, against a model.

The model is the table of the page, as a loop: `tests/support/naive_verdicts.py`. Streams have few
events, close together, under many options at once.
"""

from datetime import timedelta
from itertools import combinations
from typing import Any

import attrs
import pytest

from sessionkit import SessionRules
from sessionkit.testing.drivers.results import REJECTIONS
from tests.support.naive_rules import Click
from tests.support.random_verdicts import GAP, START, compared, run, stream_of

KINDS = sorted({*REJECTIONS} - {"failed_output", "erased"})


QUIET = pytest.mark.filterwarnings("ignore:no rows")


@QUIET
@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_sessions_and_verdicts_are_those_of_the_table(first: int) -> None:
    """In every micro-batch: which events count, why the others don't, and the rows."""
    pairs = run(range(first, first + 250))

    assert {*KINDS} == {kind for pair in pairs for kind in pair}


@QUIET
@pytest.mark.long
def test_each_pair_of_reasons_meets_on_one_key() -> None:
    """In ten thousand streams, none less often than in a hundred."""
    pairs = run(range(10_000))

    assert {*combinations(KINDS, 2)} == pairs.keys()
    assert min(pairs.values()) >= 100


@QUIET
def test_an_event_that_was_late_alone_counts_where_a_session_opens_before_it_after_all() -> None:
    """The session of the first event is late, so its repeat opens one, which takes the others."""

    def click(second: int, value: int, name: int, *, opens: bool) -> Click:
        return Click("a", START + timedelta(seconds=second), value, GAP, name=name, opens=opens)

    late = [
        click(0, 0, 0, opens=True),
        click(20, 1, 0, opens=True),
        click(25, 2, 1, opens=False),
        click(33, 3, 2, opens=False),
    ]
    stream = attrs.evolve(
        stream_of(0),
        cut=[[click(46, 4, 3, opens=True)], late],
        rules=SessionRules(GAP, opens_with="opens"),
        in_order=False,
        by_session=True,
        event_id="name",
        sequence=False,
        allowed=timedelta(0),
        by_functions=False,
        delay=GAP,
    )

    seen, by_model = compared(stream)

    assert by_model == seen
    assert [[1, 2, 3], [4]] == [values for _, _, values, _ in seen.sessions]
    assert {0: "late"} == seen.verdicts[1]


@QUIET
def test_a_late_event_that_its_class_refuses_makes_no_other_one_late() -> None:
    """Its id made an event a repeat that keeps the session of a third one open."""

    def click(second: int, value: int, name: int, **flags: Any) -> Click:
        at = START + timedelta(seconds=second)
        return Click("a", at, value, GAP, name=name, **flags)

    late = [
        click(0, 0, 2),
        click(5, 204, 0, opens=False, keeps=False, refused=True),
        click(10, 1, 0),
    ]
    stream = attrs.evolve(
        stream_of(0),
        cut=[[click(21, 200, 1)], late],
        rules=SessionRules(GAP, opens_with="opens", extends="keeps"),
        in_order=False,
        by_session=True,
        event_id="name",
        sequence=False,
        allowed=timedelta(0),
        by_functions=True,
        delay=timedelta(seconds=2),
    )

    seen, by_model = compared(stream)

    assert by_model == seen
    assert [{}, {204: "quarantined"}] == seen.verdicts[:2]


@QUIET
def test_a_stream_that_differs_is_found() -> None:
    """The model and the driver are compared, not a thing with itself."""
    seen, by_model = compared(stream_of(1))
    assert seen == by_model
    assert seen.verdicts is not by_model.verdicts
