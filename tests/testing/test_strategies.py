"""What `sessionkit.testing.strategies` makes: it fits, and it goes where the borders are."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isnan
from typing import Annotated, TypeVar

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from sessionkit import SessionSpec, SpecError
from sessionkit.state import DecimalType
from sessionkit.state._codec import codec_of
from sessionkit.testing import SessionDriver
from sessionkit.testing.generators import Arrival, cuts
from sessionkit.testing.strategies import objects_of, timelines
from tests.support.every_type import Everything

T = TypeVar("T")
GAP = timedelta(seconds=10)
DELAY = timedelta(seconds=5)
NEAR = timedelta(milliseconds=2)


@attrs.frozen
class Reading:
    """An event; `at` and `sensor` are columns of the spec too."""

    at: datetime
    sensor: str
    value: float = attrs.field(validator=attrs.validators.le(0.0))


@attrs.define
class Sum:
    total: float = 0.0

    def update(self, event: Reading) -> None:
        self.total += event.value

    def merge(self, other: "Sum") -> None:
        self.total += other.total


SPEC = SessionSpec.of(
    Sum, keys={"site": int, "sensor": str}, event_time="at", gap=GAP, watermark_delay=DELAY
)


def _some(strategy: SearchStrategy[T], number: int) -> list[T]:
    """Return what a strategy makes, the same in every run."""
    made: list[T] = []

    @settings(max_examples=number, derandomize=True, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(one: T) -> None:
        made.append(one)

    collect()
    return made


@pytest.fixture(name="many", scope="module")
def _many() -> list[list[Arrival]]:
    return _some(timelines(SPEC, min_size=8), 150)


def _with_latest(arrivals: Sequence[Arrival]) -> list[tuple[datetime, datetime]]:
    """Return the time of each event but the first, and the latest time before it came."""
    times = [arrival.event_time for arrival in arrivals]
    return [(time, max(times[:place])) for place, time in enumerate(times) if place]


class TestObjects:
    """`objects_of`."""

    @given(made=st.lists(objects_of(Everything), min_size=1, max_size=3))
    def test_an_object_is_made_with_a_field_of_each_type(self, made: list[Everything]) -> None:
        """Objects with a field of each type can be stored, and so they can be made again."""
        codec = codec_of(Everything)
        stored = codec.encode(made)
        again = codec.encode(codec.decode(stored))

        # As text, since NaN isn't equal to itself.
        assert [str(column.to_pylist()) for column in stored] == [
            str(column.to_pylist()) for column in again
        ]

    @given(made=objects_of(Reading))
    def test_values_that_the_class_refuses_are_not_made(self, made: Reading) -> None:
        """Values that the class itself refuses are not made."""
        assert made.value <= 0

    def test_nan_large_integers_and_decimals_are_made(self) -> None:
        """NaN, very large integers and decimals of the declared digits are made."""

        @attrs.define
        class State:
            numbers: tuple[int, ...]
            share: float | None
            price: Annotated[Decimal, DecimalType(3, 1)]

        states = _some(objects_of(State), 300)

        assert any(state.share is not None and isnan(state.share) for state in states)
        assert any(max(state.numbers, default=0) > 2**60 for state in states)
        assert any(state.price < Decimal(-90) for state in states)

    @given(made=st.lists(objects_of(Sum, modest=True), max_size=20), data=st.data())
    def test_the_sum_of_modest_floats_is_the_same_in_every_order(
        self, made: list[Sum], data: DataObject
    ) -> None:
        """The sum of modest floats is the same in every order."""
        shuffled = data.draw(st.permutations(made))

        assert sum(one.total for one in made) == sum(one.total for one in shuffled)

    def test_a_class_that_cannot_be_stored_is_refused(self) -> None:
        """A class that cannot be stored is refused at once."""

        @attrs.define
        class State:
            anything: object

        with pytest.raises(SpecError, match="State.anything"):
            objects_of(State)


class TestTimelines:
    """`timelines`."""

    @given(arrivals=timelines(SPEC))
    def test_a_driver_takes_every_timeline_that_is_made(self, arrivals: list[Arrival]) -> None:
        """A driver takes what is made, and every event can be folded."""
        driver = SessionDriver(SPEC)
        for arrival in arrivals:
            driver.add(*arrival)
        driver.run_until_idle()

        assert len(arrivals) == driver.counts.processed

    @given(arrivals=timelines(SPEC))
    def test_a_field_that_is_a_column_says_the_same_as_the_column(
        self, arrivals: list[Arrival]
    ) -> None:
        """A field of the event that is a column of the spec says the same as the column."""
        for key, time, event in arrivals:
            assert (key[1], time) == (event.sensor, event.at)

    @pytest.mark.parametrize("nudge_us", [-1_000, -1, 0, 1, 1_000])
    def test_two_events_of_a_key_lie_one_gap_apart_or_a_little_less_or_more(
        self, nudge_us: int, many: list[list[Arrival]]
    ) -> None:
        """Two events of a key lie one gap apart, and a little less and more."""
        apart = GAP + timedelta(microseconds=nudge_us)

        assert any(
            one.key == other.key and other.event_time - one.event_time == apart
            for arrivals in many
            for one in arrivals
            for other in arrivals
        )

    def test_events_come_just_before_and_after_the_end_of_their_window(
        self, many: list[list[Arrival]]
    ) -> None:
        """Events come when the watermark is just before the end of their window, or after it."""
        early = [
            time + GAP - (latest - DELAY)
            for arrivals in many
            for time, latest in _with_latest(arrivals)
        ]

        assert any(timedelta(0) < by <= NEAR for by in early)
        assert any(-NEAR <= by <= timedelta(0) for by in early)

    def test_several_keys_have_events_and_one_has_two_at_one_instant(
        self, many: list[list[Arrival]]
    ) -> None:
        """Several keys have events, and one key has two at one instant."""
        assert any(len({arrival.key for arrival in arrivals}) > 1 for arrivals in many)
        assert any(
            len({(arrival.key, arrival.event_time) for arrival in arrivals}) < len(arrivals)
            for arrivals in many
        )

    def test_events_come_in_order_out_of_order_and_far_too_late(
        self, many: list[list[Arrival]]
    ) -> None:
        """Events come in order, out of order within the delay, and far too late."""
        lags = [latest - time for arrivals in many for time, latest in _with_latest(arrivals)]

        assert any(lag < timedelta(0) for lag in lags)
        assert any(NEAR < lag <= DELAY for lag in lags)
        assert any(lag > DELAY + GAP + NEAR for lag in lags)

    @given(data=st.data())
    def test_events_and_keys_of_the_callers_choice_are_taken(self, data: DataObject) -> None:
        """Events and keys of the caller's choice are taken."""
        events = st.builds(
            Reading, st.just(datetime(2000, 1, 1, tzinfo=UTC)), st.just(""), st.just(-7.0)
        )
        arrivals = data.draw(timelines(SPEC, events, keys=st.just((5, "s")), max_size=3))

        assert {(5, "s")} == {arrival.key for arrival in arrivals}
        assert {-7.0} == {arrival.event.value for arrival in arrivals}
        assert len(arrivals) <= 3


class TestCuts:
    """`cuts`."""

    @given(data=st.data(), items=st.lists(st.integers(), min_size=1))
    def test_the_batches_of_a_cut_are_all_items_in_their_order(
        self, data: DataObject, items: list[int]
    ) -> None:
        """The batches one after the other are the items in their order, and none is empty."""
        batches = data.draw(cuts(items, max_batches=3))

        assert items == [item for batch in batches for item in batch]
        assert all(batches)
        assert len(batches) <= 3

    def test_every_cut_is_made(self) -> None:
        """Every cut is made; nothing is one batch without anything."""
        made = _some(cuts("abc"), 50)

        assert 4 == len({repr(batches) for batches in made})
        assert [[]] == _some(cuts([]), 1)[0]


def test_only_here_is_hypothesis_loaded() -> None:
    """Importing `sessionkit.testing` loads neither hypothesis nor pyspark."""
    code = (
        "import sys, sessionkit.testing\n"
        "print({'hypothesis', 'pyspark', 'pytest'} & sys.modules.keys() or 'none')"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert "none" == found.stdout.strip()
