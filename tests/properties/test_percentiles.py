"""Percentiles of sessions against NumPy's of all values, and against the authors' own sketch."""

import math
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import attrs
import ddsketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at

MICROSECOND: Final = timedelta(microseconds=1)
values = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
near = st.floats(0.5, 5000.0) | st.integers(-50, 50).map(float)
shares = st.sampled_from([0, 0.05, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99, 1])
errors = st.sampled_from([0.0001, 0.01, 0.2, 1 / 3, 0.5])


@attrs.frozen
class Load:
    seconds: float
    number: int = 0
    lasted: timedelta | None = None


def spec_of(**aggregates: agg.Aggregate) -> SessionSpec[Load, Any, Any]:
    return SessionSpec.aggregate(
        Load, aggregates, keys={"user": str}, event_time="ts", gap="10m", watermark_delay="1 hour"
    )


def driven(
    spec: SessionSpec[Any, Any, Any], *batches: Sequence[Load]
) -> SessionDriver[Any, Any, Any]:
    """Return a driver that has run micro-batches, each from what the one before stored."""
    driver = SessionDriver(spec)
    for batch in batches:
        driver = SessionDriver.restore(spec, driver.snapshot())
        for load in batch:
            driver.add("ann", at("10:00"), load)
        driver.run_batch()
    return driver


def found_of(spec: SessionSpec[Any, Any, Any], *batches: Sequence[Load]) -> Any:
    (session,) = driven(spec, *batches).open_sessions()
    return session.state


@given(data=st.data())
def test_a_percentile_is_within_the_error_however_its_events_come(data: st.DataObject) -> None:
    """NumPy's, of all values at once; the same to the last bit in any order and cut."""
    seconds = data.draw(st.lists(values | near, min_size=1, max_size=30))
    moved = data.draw(st.permutations(seconds))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(moved)), max_size=3)))
    share, error = data.draw(shares), data.draw(errors)
    spec = spec_of(found=agg.percentile("seconds", share, relative_error=error))

    found = found_of(spec, [Load(each) for each in seconds]).found
    parts = [moved[start:stop] for start, stop in pairwise([0, *cuts, len(moved)])]
    again = found_of(spec, *([Load(each) for each in part] for part in parts)).found

    exact = float(np.quantile(seconds, share, method="inverted_cdf"))
    assert found == again
    assert abs(found - exact) <= error * abs(exact) * (1 + 1e-9)


# Their library raises at the largest floats. Few numbers are just between two bins of these errors.
@given(
    seconds=st.lists(values.filter(lambda x: abs(x) < 1e307) | near, min_size=1, max_size=30),
    error=st.sampled_from([0.0001, 0.01, 0.03]),
)
def test_bins_are_those_of_the_authors(seconds: list[float], error: float) -> None:
    """At every rank, the sketch of their library answers the same, but for rounding."""
    theirs = ddsketch.DDSketch(error)
    for each in seconds:
        theirs.add(each)
    number = len(seconds)
    asked = {
        f"of_{rank}": agg.percentile("seconds", (rank + 0.5) / number, relative_error=error)
        for rank in range(number)
    }

    found = attrs.astuple(found_of(spec_of(**asked), [Load(each) for each in seconds]))

    # Theirs counts ranks from 0 to `number - 1`.
    ranks = [min(1.0, (rank + 0.5) / max(number - 1, 1)) for rank in range(number)]
    expected = [theirs.get_quantile_value(rank) for rank in ranks]
    assert list(found) == pytest.approx(expected, rel=1e-9, abs=0)


def test_nan_and_the_largest_numbers_have_their_place_in_a_percentile() -> None:
    """NaN is the greatest; what has no relative error is exact; ints and timedeltas have one."""
    ends = [math.nan, math.inf, -math.inf, 0.0, 5e-324, 1.7976931348623157e308, 2.3e-308]
    wanted = [-math.inf, 0.0, 0.0, 2.3e-308, 1.7976931348623157e308, math.inf, math.nan]
    asked = {f"of_{n}": agg.percentile("seconds", (n + 0.5) / 7) for n in range(7)}

    found = attrs.astuple(found_of(spec_of(**asked), [Load(each) for each in ends]))

    assert list(found) == pytest.approx(wanted, rel=0.0101, nan_ok=True)
    assert (found[0], found[1], found[2], found[5]) == (-math.inf, 0.0, 0.0, math.inf)

    whole = {name: agg.percentile(name, 1) for name in ("number", "lasted")}
    for number in (2**63 - 1, -(2**63 - 1), 0, 1, -60):
        row = found_of(spec_of(**whole), [Load(0.0, number, number * MICROSECOND)])
        assert row.number == pytest.approx(number, rel=0.0101)
        assert row.lasted / MICROSECOND == pytest.approx(number, rel=0.0101, abs=0.5)


def test_a_checkpoint_keeps_bins_and_another_share_may_be_asked_for() -> None:
    """Other bins are refused; without values there is no percentile."""
    spec = spec_of(x=agg.percentile("seconds", 0.5), none=agg.percentile("lasted", 0.5))
    kept = driven(spec, [Load(float(n)) for n in range(1, 101)]).snapshot()

    changed = spec_of(x=agg.percentile("seconds", 0.07), none=agg.percentile("lasted", 0.5))
    (session,) = SessionDriver.restore(changed, kept).open_sessions()

    assert (pytest.approx(7, rel=0.0101), None) == attrs.astuple(session.state)
    for other in (
        agg.percentile("seconds", 0.5, relative_error=0.02),
        agg.percentile("seconds", 0.5, at_most=10),
    ):
        with pytest.raises(StateError, match="aggregate `x` is 'percentile"):
            SessionDriver.restore(spec_of(x=other), kept).open_sessions()


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.percentile("seconds", 95), "`share` must be a number from 0 to 1, found 95"),
        (lambda: agg.percentile("seconds", math.nan), "from 0 to 1, found nan"),
        (lambda: agg.percentile("seconds", -0.5), "from 0 to 1, found -0.5"),
        (
            lambda: agg.percentile("seconds", 0.5, relative_error=0),
            "`relative_error` must be a number from 0.0001 to 0.5, found 0",
        ),
        (lambda: agg.percentile("seconds", 0.5, at_most=0), "`at_most` must be a whole number"),
    ],
)
def test_a_percentile_that_cannot_be_is_refused(made: Any, found: str) -> None:
    """When it's made; tests/spec has fields of other types."""
    with pytest.raises(SpecError) as refused:
        made()

    assert found in str(refused.value)
