"""`run_group`: one call of a hand-written function, as Spark's worker makes it."""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sessionkit.testing.calls import run_group
from sessionkit.testing.group_state import FakeGroupState, StoredGroup

OUTPUT = ["user", "visits"]
Returned = Any
"""What a function under test returns, also what the annotations forbid."""


def _visits(*seconds: float) -> pd.DataFrame:
    """Make an input frame, a row for each number."""
    return pd.DataFrame({"user": "ann", "seconds": list(seconds)})


def _count_visits(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: FakeGroupState
) -> Iterator[pd.DataFrame]:
    """Count rows until the key is silent for 100 ms, as users write it."""
    (count,) = state.getOption or (0,)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"user": [key[0]], "visits": [count]})
        return
    state.update((count + sum(len(frame) for frame in frames),))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 100)


def _call(result: Returned, output_columns: list[str] | None = OUTPUT) -> pd.DataFrame:
    """Run a function under test that ignores its input and returns `result`."""

    def function_under_test(key: object, frames: object, state: object) -> Returned:
        return result

    call = (function_under_test, ("ann",), [_visits(1)], FakeGroupState())
    return run_group(*call, output_columns=output_columns)


def _counts(*numbers: int) -> pd.DataFrame:
    return pd.DataFrame({"user": "ann", "visits": list(numbers)})


@pytest.fixture(name="state")
def _state() -> FakeGroupState:
    """Make a new key's state at watermark 500."""
    return FakeGroupState(timeout="EventTimeTimeout", watermark_ms=500)


@pytest.fixture(name="timed_out")
def _timed_out() -> FakeGroupState:
    """Make the state of a call on timeout."""
    return FakeGroupState(
        value=(3,), timeout="EventTimeTimeout", watermark_ms=500, has_timed_out=True
    )


class TestWholeLife:
    """A key from its first row to its timeout."""

    def test_three_calls(self, state: FakeGroupState) -> None:
        """Data, more data in two frames, timeout: each call finds what the last one stored."""
        first = run_group(_count_visits, ("ann",), [_visits(1)], state)
        second_state = state.next_call(watermark_ms=550)
        run_group(_count_visits, ("ann",), [_visits(1, 2), _visits(3)], second_state)
        last_state = second_state.next_call(watermark_ms=651, has_timed_out=True)
        last = run_group(
            _count_visits, ("ann",), [], last_state, columns=["user"], output_columns=OUTPUT
        )

        assert first.empty
        assert StoredGroup((4,), 650) == second_state.stored_after()
        assert [{"user": "ann", "visits": 4}] == last.to_dict("records")
        assert last_state.stored_after() is None


class TestKey:
    """What the function gets as its key."""

    @pytest.mark.parametrize(
        ("given", "kind"),
        [
            (1, np.int64),
            (1.5, np.float64),
            (True, np.bool_),
            (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pd.Timestamp),
            (np.int32(1), np.int32),
            ("ann", str),
            (None, type(None)),
        ],
    )
    def test_scalars(self, state: FakeGroupState, given: object, kind: type) -> None:
        """Numbers and times come as NumPy and pandas scalars, the rest as it is."""
        seen: list[Any] = []

        def remember(key: tuple[Any, ...], frames: object, state: object) -> list[pd.DataFrame]:
            seen.extend(key)
            return []

        run_group(remember, (given,), [_visits(1)], state)

        assert [kind] == [type(part) for part in seen]
        assert [given] == seen

    def test_no_tuple(self, state: FakeGroupState) -> None:
        """A bare key is refused."""
        key: Any = "ann"
        with pytest.raises(TypeError, match=r"`key`(.|\n)*found str(.|\n)*Hint: pass `\('ann',\)`"):
            run_group(_count_visits, key, [_visits(1)], state)


class TestInput:
    """The frames that the function gets."""

    def test_lazy(self, state: FakeGroupState) -> None:
        """No frame is read before the function asks for it, and none is there twice."""
        read: list[int] = []

        def source() -> Iterator[pd.DataFrame]:
            for number in range(3):
                read.append(number)
                yield _visits(number)

        def look(key: object, frames: Iterator[pd.DataFrame], state: object) -> list[pd.DataFrame]:
            next(frames)
            next(frames)
            assert [0, 1] == read
            assert [1, 0] == [len(list(frames)), len(list(frames))]
            return []

        run_group(look, ("ann",), source(), state)

        assert [0, 1, 2] == read


@pytest.mark.parametrize(
    ("frames", "columns", "timed_out", "text"),
    [
        ([], None, False, "no frame"),
        ([_visits(1), _visits()], None, False, "without rows"),
        ([_visits(1), _visits(2)[["seconds", "user"]]], None, False, r"\['user', 'seconds'\] are"),
        (
            [_visits(2)[["seconds", "user"]]],
            ["user", "seconds"],
            False,
            r"\['user', 'seconds'\] are",
        ),
        ([_visits(1)], None, True, "has timed out"),
        ([], None, True, "`columns`: missing"),
    ],
)
def test_frames_that_spark_never_passes_are_refused(
    frames: list[pd.DataFrame], columns: list[str] | None, timed_out: bool, text: str
) -> None:
    """None without a timeout, rows on one, one without rows, and other columns."""
    state = FakeGroupState(
        value=(3,), timeout="EventTimeTimeout", watermark_ms=500, has_timed_out=timed_out
    )
    with pytest.raises(ValueError, match=rf"{text}(.|\n)*Hint: "):
        run_group(_count_visits, ("ann",), frames, state, columns=columns)


class TestTimeoutInput:
    """The frame that the function gets on a timeout."""

    @pytest.mark.parametrize(
        ("frames", "columns"), [([], ["user", "seconds"]), ([_visits()], None)]
    )
    def test_frame(
        self, timed_out: FakeGroupState, frames: list[pd.DataFrame], columns: list[str] | None
    ) -> None:
        """It is one frame in a list, without rows, its columns of dtype object."""
        seen: list[list[pd.DataFrame]] = []

        def remember(
            key: object, frames: list[pd.DataFrame], state: FakeGroupState
        ) -> list[pd.DataFrame]:
            seen.append(frames)
            state.remove()
            return []

        run_group(remember, ("ann",), frames, timed_out, columns=columns)
        [[frame]] = seen

        assert list is type(seen[0])
        assert 0 == len(frame)
        assert {"user": np.dtype(object), "seconds": np.dtype(object)} == frame.dtypes.to_dict()


class TestOutput:
    """What the function may return, and what comes of it."""

    @pytest.mark.parametrize("empty", [pd.DataFrame(), _counts()])
    def test_joined(self, empty: pd.DataFrame) -> None:
        """The rows of all frames come in one with a fresh index; those without rows are dropped."""
        found = _call([empty, _counts(1, 2), empty, _counts(3)])

        assert [1, 2, 3] == found["visits"].tolist()
        assert [0, 1, 2] == found.index.tolist()

    @pytest.mark.parametrize(("output_columns", "expected"), [(OUTPUT, OUTPUT), (None, [])])
    def test_nothing(self, output_columns: list[str] | None, expected: list[str]) -> None:
        """No output is a frame without rows, which has the columns that are known."""
        found = _call([], output_columns)

        assert expected == list(found.columns)
        assert found.empty

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            (_counts(1), "found pandas(.|\n)*DataFrame"),
            (None, "found NoneType"),
            (7, "found int"),
            ([("ann", 1)], "found tuple among them"),
            ([None], "found NoneType among them"),
        ],
    )
    def test_wrong_type(self, result: object, text: str) -> None:
        """Anything but an iterable of frames is refused, and the function is named."""
        with pytest.raises(
            TypeError, match=rf"function_under_test` must(.|\n)*{text}(.|\n)*Hint: "
        ):
            _call(result)

    @pytest.mark.parametrize(
        "frame",
        [
            _counts(1)[["user"]],
            _counts(1).assign(more=1),
            _counts()[["user"]],
            pd.DataFrame(index=[0]),
        ],
    )
    def test_column_count(self, frame: pd.DataFrame) -> None:
        """Another number of columns is refused, with rows or without."""
        with pytest.raises(RuntimeError, match=r"the output has 2(.|\n)*Hint: "):
            _call([frame])

    @pytest.mark.parametrize(
        "columns", [["user", "visit"], ["user", "Visits"], ["user", "user"], [0, 1]]
    )
    def test_column_names(self, columns: list[Any]) -> None:
        """Other names, for which Spark would store NULL, are refused."""
        with pytest.raises(ValueError, match=r"fills a column(.|\n)*NULL(.|\n)*Hint: "):
            _call([pd.DataFrame([["ann", 1]], columns=columns)])

    def test_unequal_frames(self) -> None:
        """Without output columns frames that differ from each other are refused."""
        with pytest.raises(ValueError, match="NULL"):
            _call([_counts(1), _counts(2).rename(columns={"visits": "n"})], None)


class TestState:
    """The state around the call."""

    def test_captured_at_the_end(self, state: FakeGroupState) -> None:
        """What a generator does after its last frame still counts."""

        def update_last(
            key: object, frames: object, state: FakeGroupState
        ) -> Iterator[pd.DataFrame]:
            yield _counts(1)
            state.update((1,))

        run_group(update_last, ("ann",), [_visits(1)], state, output_columns=OUTPUT)

        assert StoredGroup((1,), None) == state.stored_after()

    @pytest.mark.parametrize(
        "use",
        [
            lambda state: state.update((1,)),
            lambda state: state.remove(),
            lambda state: state.setTimeoutTimestamp(600),
        ],
    )
    def test_used(self, state: FakeGroupState, use: Callable[[FakeGroupState], None]) -> None:
        """A state that another call has changed is refused: Spark makes a new one."""
        use(state)

        with pytest.raises(ValueError, match=r"already changed(.|\n)*Hint: pass `state.next_call"):
            run_group(_count_visits, ("ann",), [_visits(1)], state)
