"""Durations in the bins of a sketch, against NumPy's percentiles and counts of the same."""

from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionkit._arrays import INSTANT
from sessionkit._engine.counts import SHARES, DurationSketch, Percentiles

MICROSECOND: Final = timedelta(microseconds=1)
MILLISECOND_US: Final = 1_000
LATEST_US: Final = 1_772_971_200_000_000
LONGEST_US: Final = 2**58
"""More than there are from the year 1 to 9999."""
durations = st.lists(st.integers(-5, 5) | st.integers(-LONGEST_US, LONGEST_US), min_size=1)


def sketch_of(durations_us: list[int]) -> DurationSketch:
    times_us = [LATEST_US - duration for duration in durations_us]
    return DurationSketch.of_times(pa.array(times_us, INSTANT), LATEST_US)


@given(durations)
def test_percentiles_are_within_five_percent(durations_us: list[int]) -> None:
    """Or within a millisecond, which is as much as a watermark tells; what is negative is zero."""
    found = sketch_of(durations_us).percentiles
    assert isinstance(found, Percentiles)
    percentiles = (found.p50, found.p99, found.p999, found.maximum)
    for share, percentile in zip(SHARES, percentiles, strict=True):
        (true,) = np.quantile(durations_us, [share], method="inverted_cdf")
        true_us = max(int(true), 0)
        assert max(0.0501 * true_us, MILLISECOND_US) >= abs(percentile / MICROSECOND - true_us)


@given(durations, st.data())
def test_sessions_of_at_least_a_length_are_counted_to_the_error_of_a_bin(
    durations_us: list[int], data: st.DataObject
) -> None:
    """None is missed, and none counts that is shorter by more than two errors."""
    limit_us = data.draw(st.sampled_from(durations_us) | st.integers(1, LONGEST_US))
    limit_us = max(limit_us, 0)
    # What is shorter than a millisecond is in one bin.
    shortest = 0.904 * limit_us if limit_us > MILLISECOND_US else 0
    fewest, most = (sum(one >= least for one in durations_us) for least in (limit_us, shortest))

    assert fewest <= sketch_of(durations_us).at_least(limit_us * MICROSECOND) <= most


@given(durations, durations)
def test_sketches_of_parts_add_up_to_that_of_all(some: list[int], more: list[int]) -> None:
    """However many are in each."""
    assert sketch_of(some + more) == sketch_of(some) + sketch_of(more)
    assert len(some) == sketch_of(some).count


def test_a_sketch_of_nothing_has_no_percentiles() -> None:
    """As in a micro-batch without events, or before there is a watermark."""
    assert (0, None) == (DurationSketch().count, DurationSketch().percentiles)
    assert 0 == DurationSketch().at_least(timedelta(0))
