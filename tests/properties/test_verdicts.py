"""
The verdict on each event, where any reasons for which one doesn't count meet, against a model.

The model is the table of the page, as a loop: `tests/support/naive_verdicts.py`. Streams have few
events, close together, under many options at once.
"""

from itertools import combinations

import pytest

from tests.support.random_verdicts import compared, run, stream_of

KINDS = ["duplicate", "failed", "late", "outside", "quarantined"]


QUIET = pytest.mark.filterwarnings("ignore:no rows")


@QUIET
@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_sessions_and_verdicts_are_those_of_the_table(first: int) -> None:
    """In every micro-batch: which events count, why the others don't, and the rows."""
    assert run(range(first, first + 250)).total() > 0


@QUIET
@pytest.mark.long
def test_each_pair_of_reasons_meets_on_one_key() -> None:
    """In ten thousand streams, none less often than in a hundred."""
    pairs = run(range(10_000))

    assert {*combinations(KINDS, 2)} == pairs.keys()
    assert min(pairs.values()) >= 100


@QUIET
def test_a_stream_that_differs_is_found() -> None:
    """The model and the driver are compared, not a thing with itself."""
    seen, by_model = compared(stream_of(1))
    assert seen == by_model
    assert seen.verdicts is not by_model.verdicts
