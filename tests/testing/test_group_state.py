"""
`FakeGroupState` against PySpark's `GroupState`.

The tests of the first part run on both classes: they are the contract, for each PySpark of the
matrix.
"""

import datetime as dt
import decimal
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import Row, StructType

from sessionkit.testing.group_state import FakeGroupState, StoredGroup

EVENT_TIME = "EventTimeTimeout"
PROCESSING_TIME = "ProcessingTimeTimeout"
State = Any
"""The fake or PySpark's class; untyped, because the tests also pass what both refuse."""
MakeState = Callable[..., State]
Refused = Any
"""An argument that the annotations forbid."""


def _pyspark_state(
    *,
    value: tuple[Any, ...] | None = None,
    timeout: str = "NoTimeout",
    watermark_ms: int | None = None,
    processing_time_ms: int = 0,
    has_timed_out: bool = False,
) -> GroupState:
    """Build PySpark's class as its worker does from what the JVM sends."""
    return GroupState(
        optionalValue=Row(*(value or ())),
        batchProcessingTimeMs=processing_time_ms,
        eventTimeWatermarkMs=-1 if watermark_ms is None else watermark_ms,
        timeoutConf=timeout,
        hasTimedOut=has_timed_out,
        watermarkPresent=watermark_ms is not None,
        defined=value is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,
        keyAsUnsafe=b"",
        valueSchema=StructType([]),
    )


@pytest.fixture(name="make_state", params=[FakeGroupState, _pyspark_state], ids=["fake", "pyspark"])
def _make_state(request: pytest.FixtureRequest) -> MakeState:
    """Make a state by keywords, of the fake or of PySpark."""
    make: MakeState = request.param
    return make


def _armed(state: State) -> int | None:
    """Read the timer this call has armed; what PySpark sends to the JVM, as the JVM reads it."""
    if isinstance(state, FakeGroupState):
        return state.timeout_timestamp_ms
    sent = json.loads(state.json())["timeoutTimestamp"]
    return None if sent == -1 else int(sent)


def _changes(state: State) -> tuple[bool, bool]:
    """Read whether the state is marked as updated and as removed."""
    if isinstance(state, FakeGroupState):
        return state.is_updated, state.is_removed
    sent = json.loads(state.json())
    return sent["updated"], sent["removed"]


class TestValueContract:
    """The state value, on the fake and on PySpark."""

    def test_a_key_without_a_value_does_not_exist(self, make_state: MakeState) -> None:
        """A key without a value does not exist; getOption gives None, and get a ValueError."""
        state = make_state()

        assert not state.exists
        assert state.getOption is None
        with pytest.raises(ValueError, match=r"."):
            _ = state.get

    def test_a_stored_value_is_read_as_a_tuple(self, make_state: MakeState) -> None:
        """A stored value comes back as a tuple from both getters; reading changes nothing."""
        state = make_state(value=(1, "a", None))

        assert state.exists
        assert (1, "a", None) == state.get == state.getOption
        assert tuple is type(state.get)
        assert (False, False) == _changes(state)
        assert _armed(state) is None

    @pytest.mark.parametrize("value", [(7, "a"), [7, "a"]])
    def test_an_update_gives_a_key_its_value(self, make_state: MakeState, value: Any) -> None:
        """An update with a tuple or a list of fields gives a key its value, and marks it."""
        state = make_state()
        state.update(value)

        assert (7, "a") == state.get
        assert (True, False) == _changes(state)

    @pytest.mark.parametrize("value", [None, 7])
    def test_an_update_that_is_no_tuple_is_refused(self, make_state: MakeState, value: Any) -> None:
        """Neither None nor a bare number is a state value, and the refusal changes nothing."""
        state = make_state(value=(1,))

        with pytest.raises(TypeError):
            state.update(value)

        assert (1,) == state.get
        assert (False, False) == _changes(state)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (np.int64(3), 3),
            (np.float32(0.5), 0.5),
            (np.True_, True),
            (np.str_("a"), "a"),
            (np.datetime64("2024-01-01T00:00:00", "us"), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
            (np.datetime64(5, "ns"), 5),
            (pd.Timestamp("2024-01-01", tz="UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
            (pd.Timedelta(minutes=3), dt.timedelta(minutes=3)),
            (decimal.Decimal("1.50"), decimal.Decimal("1.50")),
            (None, None),
        ],
    )
    def test_scalars_of_numpy_and_pandas_become_values_of_python(
        self, make_state: MakeState, given: object, expected: object
    ) -> None:
        """NumPy and pandas scalars at the top level become Python values."""
        state = make_state()
        state.update((given,))

        assert (expected,) == state.get
        assert type(expected) is type(state.get[0])

    @pytest.mark.parametrize("value", [(1,), None])
    def test_a_removed_value_is_gone(self, make_state: MakeState, value: Any) -> None:
        """A removed value is gone, and the key is marked; removing what isn't there is allowed."""
        state = make_state(value=value)
        state.remove()

        assert not state.exists
        assert state.getOption is None
        assert (False, True) == _changes(state)

    def test_the_last_of_update_and_remove_counts(self, make_state: MakeState) -> None:
        """Of update and remove."""
        state = make_state(value=(1,))
        state.remove()
        state.update((2,))
        assert (2,) == state.get
        assert (True, False) == _changes(state)
        state.remove()
        assert not state.exists
        assert (False, True) == _changes(state)

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, "GroupState(<undefined>)"), ((1, "a"), "GroupState((1, 'a'))")],
    )
    def test_the_text_names_the_value(
        self, make_state: MakeState, value: tuple[Any, ...] | None, text: str
    ) -> None:
        """The text names the value, or says that there is none."""
        assert text == str(make_state(value=value))


class TestClockContract:
    """What a call learns about time, on the fake and on PySpark."""

    def test_both_clocks_are_known_in_every_timeout_mode(self, make_state: MakeState) -> None:
        """They are known in every timeout mode; the watermark of a first batch is 0, not absent."""
        assert 500 == make_state(watermark_ms=500).getCurrentWatermarkMs()
        assert 0 == make_state(timeout=EVENT_TIME, watermark_ms=0).getCurrentWatermarkMs()
        assert 900 == make_state(processing_time_ms=900).getCurrentProcessingTimeMs()
        with pytest.raises(RuntimeError):
            make_state().getCurrentWatermarkMs()

    @pytest.mark.parametrize("timed_out", [False, True])
    def test_the_function_is_told_whether_it_is_called_on_timeout(
        self, make_state: MakeState, timed_out: bool
    ) -> None:
        """The function is told whether it is called on timeout, and never the stored timer."""
        state = make_state(timeout=EVENT_TIME, watermark_ms=500, has_timed_out=timed_out)
        state.setTimeoutTimestamp(700)

        assert timed_out is state.hasTimedOut
        assert -1 == state.oldTimeoutTimestamp


DURATION, TIMESTAMP = "setTimeoutDuration", "setTimeoutTimestamp"
MODES = {DURATION: PROCESSING_TIME, TIMESTAMP: EVENT_TIME}


class TestTimerContract:
    """Both timers, on the fake and on PySpark."""

    @pytest.fixture(name="make_timed")
    def _make_timed(self, make_state: MakeState) -> MakeState:
        """Make a state for a setter at processing time 1000 and watermark 500."""
        return lambda setter: make_state(
            timeout=MODES[setter], processing_time_ms=1_000, watermark_ms=500
        )

    @pytest.mark.parametrize(
        ("setter", "number", "armed"),
        [
            *((DURATION, number, 1_000 + int(number)) for number in (1, 250, 250.75)),
            (DURATION, np.float64(250), 1_250),
            *((TIMESTAMP, number, int(number)) for number in (500, 501, 700.9)),
            (TIMESTAMP, np.float64(700), 700),
        ],
    )
    def test_a_timer_is_armed_in_whole_milliseconds(
        self, make_timed: MakeState, setter: str, number: float, armed: int
    ) -> None:
        """In whole milliseconds, at the watermark at the earliest; the last one counts."""
        state = make_timed(setter)
        getattr(state, setter)(10_000)
        getattr(state, setter)(**{f"{'duration' if setter == DURATION else 'timestamp'}Ms": number})

        assert armed == _armed(state)
        assert (False, False) == _changes(state)
        assert not state.exists

    @pytest.mark.parametrize(
        "change", [lambda state: state.update((1,)), lambda state: state.remove()]
    )
    def test_a_timer_survives_update_and_remove_in_the_same_call(
        self, make_timed: MakeState, change: Callable[[State], None]
    ) -> None:
        """A timer set earlier in the call survives update and remove."""
        state = make_timed(DURATION)
        state.setTimeoutDuration(10)
        change(state)

        assert 1_010 == _armed(state)

    @pytest.mark.parametrize(
        ("setter", "number"),
        [
            *((setter, number) for setter in MODES for number in (0, -1, 0.0, -0.5)),
            (TIMESTAMP, 499),
            (TIMESTAMP, 499.9),
            (TIMESTAMP, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)),
            (TIMESTAMP, pd.NaT),
        ],
    )
    def test_a_timer_in_the_past_is_refused(
        self, make_timed: MakeState, setter: str, number: Any
    ) -> None:
        """Not positive, before the watermark, or at no time: a ValueError; the timer stays."""
        state = make_timed(setter)
        getattr(state, setter)(10_000)
        before = _armed(state)

        with pytest.raises(ValueError, match=r"."):
            getattr(state, setter)(number)

        assert before == _armed(state)

    @pytest.mark.parametrize(
        ("setter", "number"),
        [
            (DURATION, "10 seconds"),
            (DURATION, dt.timedelta(seconds=1)),
            (TIMESTAMP, "2024-01-01"),
            (TIMESTAMP, dt.date(2024, 1, 1)),
            *((setter, None) for setter in MODES),
            *((setter, decimal.Decimal(600)) for setter in MODES),
            *((setter, np.int64(600)) for setter in MODES),
            *((setter, np.int32(600)) for setter in MODES),
        ],
    )
    def test_a_timer_that_is_no_number_is_refused(
        self, make_timed: MakeState, setter: str, number: Refused
    ) -> None:
        """Neither int nor float: the fake fails the call, PySpark at the latest the task."""
        state = make_timed(setter)

        with pytest.raises(TypeError):  # noqa: PT012 (PySpark's, at the end of the call)
            getattr(state, setter)(number)
            _armed(state)

    @pytest.mark.parametrize("setter", MODES)
    @pytest.mark.parametrize("number", [600, -10])
    def test_a_timer_of_another_mode_is_refused(
        self, make_state: MakeState, setter: str, number: int
    ) -> None:
        """A RuntimeError, before a bad number; text is never a duration, in whatever mode."""
        (other,) = {*MODES.values()} - {MODES[setter]}
        for timeout in ("NoTimeout", other):
            state = make_state(timeout=timeout, watermark_ms=0)
            with pytest.raises(RuntimeError):
                getattr(state, setter)(number)
            with pytest.raises(TypeError if setter == DURATION else RuntimeError):
                getattr(state, setter)("10 seconds")

            assert _armed(state) is None

    @pytest.mark.parametrize(
        "when",
        [
            dt.datetime(2024, 1, 1, 12, 0, 0, 123_999, tzinfo=dt.UTC),
            pd.Timestamp("2024-01-01T14:00:00.123999", tz="Europe/Helsinki"),
            dt.datetime(2024, 1, 1, 12),  # noqa: DTZ001
            pd.Timestamp("2024-01-01T12:00"),
        ],
    )
    def test_a_datetime_is_cut_to_whole_milliseconds(
        self, make_timed: MakeState, when: dt.datetime
    ) -> None:
        """It's cut to whole milliseconds; a naive one is in the time zone of the machine."""
        state = make_timed(TIMESTAMP)
        state.setTimeoutTimestamp(when)

        expected = 1_704_110_400_123
        if when.tzinfo is None:
            expected = int(dt.datetime(2024, 1, 1, 12).astimezone().timestamp() * 1000)
        assert expected == _armed(state)


class TestConstruction:
    """Calls that Spark never makes are refused."""

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"timeout": "EventTime"}, ValueError, "found 'EventTime'"),
            ({"timeout": EVENT_TIME}, ValueError, "without a watermark"),
            ({"has_timed_out": True}, ValueError, "need a timeout mode"),
            ({"stored_timeout_ms": 5}, ValueError, "need a timeout mode"),
            ({"timeout": PROCESSING_TIME, "has_timed_out": True}, ValueError, "processing_time_ms"),
            (
                {
                    "timeout": EVENT_TIME,
                    "watermark_ms": 9,
                    "has_timed_out": True,
                    "stored_timeout_ms": 9,
                },
                ValueError,
                "a timer at 9 does not fire at watermark_ms=9",
            ),
        ],
    )
    def test_an_impossible_call_is_refused_with_a_hint(
        self, arguments: dict[str, Any], error: type[Exception], text: str
    ) -> None:
        """An impossible call is an error with a hint."""
        with pytest.raises(error, match=rf"{text}(.|\n)*Hint: "):
            FakeGroupState(**arguments)

    def test_the_function_changes_a_copy_of_the_value(self) -> None:
        """A list in the value of a test is not the one that the function changes."""
        mine = [1]
        FakeGroupState(value=(mine,)).get[0].append(2)

        assert [1] == mine

    def test_the_representation_shows_value_marks_and_timer(self) -> None:
        """The representation shows value, marks and timer."""
        state = FakeGroupState(timeout="EventTimeTimeout", watermark_ms=0)
        state.update((1,))
        state.setTimeoutTimestamp(5)

        for part in ("value=(1,)", "is_updated=True", "timeout_timestamp_ms=5"):
            assert part in repr(state)


class TestStoredAfter:
    """The row that Spark keeps after a call."""

    @pytest.mark.parametrize(
        ("calls", "expected"),
        [
            ([], StoredGroup((1,), 700)),
            ([("update", (2,))], StoredGroup((2,), None)),
            ([("update", (2,)), ("setTimeoutTimestamp", 800)], StoredGroup((2,), 800)),
            ([("setTimeoutTimestamp", 800)], StoredGroup((1,), 800)),
            ([("remove",)], None),
            ([("remove",), ("setTimeoutTimestamp", 800)], StoredGroup(None, 800)),
        ],
    )
    def test_an_update_clears_the_timer_and_a_removal_deletes_the_row(
        self, calls: list[tuple[Any, ...]], expected: StoredGroup | None
    ) -> None:
        """An update without a timer clears the old one; a removal deletes it, or keeps one."""
        state = FakeGroupState(
            value=(1,), timeout="EventTimeTimeout", watermark_ms=500, stored_timeout_ms=700
        )
        for name, *arguments in calls:
            getattr(state, name)(*arguments)

        assert expected == state.stored_after()

    def test_a_call_that_does_nothing_leaves_the_row_as_it_was(self) -> None:
        """A call that does nothing leaves the row as it was, with the timer that has fired."""
        state = FakeGroupState(
            value=(1,), timeout="EventTimeTimeout", watermark_ms=500, has_timed_out=True
        )

        assert FakeGroupState().stored_after() is None
        assert StoredGroup((1,), 499) == state.stored_after()

    def test_a_list_that_is_changed_without_an_update_is_lost(self) -> None:
        """A list changed in place is lost, as in Spark; after update it's stored as it ends."""
        state = FakeGroupState(value=([1],))
        state.get[0].append(2)
        assert StoredGroup(([1],), None) == state.stored_after()

        pages = [1]
        state.update((pages,))
        pages.append(2)
        assert StoredGroup(([1, 2],), None) == state.stored_after()


class TestNextCall:
    """The state of the next call for the same key."""

    def test_the_next_call_has_the_stored_value_and_timer(self) -> None:
        """Value and timer are those stored, the marks are fresh, the clocks stay or advance."""
        state = FakeGroupState(
            timeout="EventTimeTimeout", watermark_ms=500, processing_time_ms=1_000
        )
        state.update((2,))
        state.setTimeoutTimestamp(800)
        later = state.next_call(watermark_ms=600)

        assert (2,) == later.get
        assert not later.is_updated
        assert later.timeout_timestamp_ms is None
        assert StoredGroup((2,), 800) == later.stored_after()
        assert (600, 1_000) == (later.getCurrentWatermarkMs(), later.getCurrentProcessingTimeMs())
        later.remove()
        assert not later.next_call().exists

    @pytest.mark.parametrize(("after_ms", "fires"), [(-1, False), (0, False), (1, True)])
    @pytest.mark.parametrize("clock", ["watermark_ms", "processing_time_ms"])
    def test_a_timer_fires_when_its_clock_is_strictly_past_it(
        self, clock: str, after_ms: int, fires: bool
    ) -> None:
        """A timer fires when its clock is strictly past it."""
        if clock == "watermark_ms":
            state = FakeGroupState(timeout="EventTimeTimeout", watermark_ms=500)
            state.setTimeoutTimestamp(800)
        else:
            state = FakeGroupState(timeout="ProcessingTimeTimeout", processing_time_ms=500)
            state.setTimeoutDuration(300)
        arguments: dict[str, Any] = {clock: 800 + after_ms, "has_timed_out": True}

        if fires:
            assert state.next_call(**arguments).hasTimedOut
        else:
            with pytest.raises(ValueError, match=r"a timer at 800 does not fire(.|\n)*Hint: "):
                state.next_call(**arguments)

    def test_a_key_whose_timer_was_cleared_does_not_time_out(self) -> None:
        """A key whose timer was cleared by an update does not time out."""
        state = FakeGroupState(
            value=(1,), timeout="EventTimeTimeout", watermark_ms=500, stored_timeout_ms=700
        )
        state.update((2,))

        with pytest.raises(ValueError, match=r"no timer is stored(.|\n)*Hint: "):
            state.next_call(watermark_ms=900, has_timed_out=True)

    @pytest.mark.parametrize("name", ["watermark_ms", "processing_time_ms"])
    def test_neither_clock_goes_back(self, name: str) -> None:
        """Neither clock goes back."""
        state = FakeGroupState(watermark_ms=500, processing_time_ms=500)
        earlier: dict[str, Any] = {name: 499}

        with pytest.raises(ValueError, match=rf"{name}=499(.|\n)*never goes back(.|\n)*Hint: "):
            state.next_call(**earlier)


@pytest.mark.parametrize("missing", [pd.NaT, pd.NA])
def test_a_value_that_pandas_misses_cannot_be_stored(missing: Any) -> None:
    """Spark's task fails with it: NaT is no datetime there, and the JVM knows no NA."""
    state = FakeGroupState()
    with pytest.raises(ValueError, match=r"has (NaT|<NA>), .*\s+Hint: store None"):
        state.update((missing,))
    with pytest.raises(ValueError, match="fails"):
        FakeGroupState(value=(missing,))
