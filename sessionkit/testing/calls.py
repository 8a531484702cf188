"""One call of a hand-written `applyInPandasWithState` function, as Spark's worker makes it."""

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from sessionkit.arguments import explains
from sessionkit.errors import with_hint
from sessionkit.testing.group_state import FakeGroupState, type_name

# Spark takes the key from row 0 of pandas columns, which hold these as NumPy or pandas scalars.
_COLUMN_SCALARS = (bool, int, float, dt.datetime)


@explains
def run_group(
    func: Callable[..., Iterable[pd.DataFrame]],
    key: tuple[Any, ...],
    frames: Iterable[pd.DataFrame],
    state: FakeGroupState,
    *,
    columns: Sequence[str] | None = None,
    output_columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """
    Call `func(key, frames, state)` as Spark's worker does for one group, and check the call.

    * The key's numbers and times reach `func` as NumPy and pandas scalars.
    * The frames reach it as an iterator that can be read once and only as far as `func` reads:
      Spark may cut a group of two rows into two frames.
    * On a timeout (`state.hasTimedOut`) it gets a list of one frame without rows, whose columns
      are all of dtype object: `.dt` and arithmetic on them fail, there as here.
    * What it returns is read to the end. Only then is the call over and `state.stored_after()`
      what Spark would store; the code of a generator before its first `yield` runs no sooner.
    * Frames without rows are dropped.

    Args:
        func: The function as it is passed to `applyInPandasWithState`.
        key: The grouping key, one element for each grouping column.
        frames: The group's rows, in one frame or several; none on a timeout.
        state: The group's state; it serves this call only, `state.next_call()` gives the next.
        columns: The names of the input columns; needed on a timeout, unless `frames` has a frame
            without rows.
        output_columns: The names of the output schema. Without them the frames are only compared
            with each other.

    Returns:
        The rows of all frames in one frame, with a fresh index and the columns in the order of
        `output_columns`. Without rows: a frame without rows.

    Raises:
        TypeError: The key isn't a tuple, or `func` returned a frame, something that can't be
            iterated, or an iterable with something other than frames in it.
        RuntimeError: A returned frame doesn't have as many columns as the output schema.
        ValueError: A returned frame has other column names, which Spark turns into NULL columns
            silently; or Spark never makes such a call (no rows without a timeout, rows on
            a timeout, a state that another call has used).
    """
    if not isinstance(key, tuple):
        found = f"`key`: Spark passes the key as a tuple, found {type_name(key)}."
        raise TypeError(with_hint(found, f"pass `({key!r},)` for one grouping column."))
    if state.is_updated or state.is_removed or state.timeout_timestamp_ms is not None:
        found = f"`state`: already changed by another call, found {state!r}."
        hint = "pass `state.next_call(...)`, which carries over what Spark stores."
        raise ValueError(with_hint(found, hint))
    source = _chunks(frames, columns, timed_out=state.hasTimedOut)
    parts = [pd.Series([part])[0] if isinstance(part, _COLUMN_SCALARS) else part for part in key]
    result = func(tuple(parts), source, state)
    name = getattr(func, "__qualname__", repr(func))
    kept = _checked_frames(name, result, output_columns)
    if not kept:
        return pd.DataFrame(columns=list(output_columns or ()))
    names = list(kept[0].columns if output_columns is None else output_columns)
    return pd.concat([frame[names] for frame in kept], ignore_index=True)


def _chunks(
    frames: Iterable[pd.DataFrame], columns: Sequence[str] | None, *, timed_out: bool
) -> Iterable[pd.DataFrame]:
    """Peek at the first frame, as the worker does for the key; the others stay unread."""
    source = iter(frames)
    first = next(source, None)
    every = () if first is None else itertools.chain([first], source)
    if timed_out:
        if any(map(len, every)):
            found = "`frames`: rows, and the state has timed out; Spark passes none on a timeout."
            hint = "pass `[]` and name the input's `columns=`, or leave out `has_timed_out=True`."
            raise ValueError(with_hint(found, hint))
        if columns is None and first is not None:
            columns = list(first.columns)
        if columns is None:
            found = "`columns`: missing; on a timeout Spark passes one frame without rows."
            hint = 'pass `columns=["ts", "url"]`, the names of the input columns.'
            raise ValueError(with_hint(found, hint))
        return [pd.DataFrame(columns=list(columns))]
    if first is None:
        found = "`frames`: no frame, and the state has not timed out: Spark makes no such call."
        raise ValueError(with_hint(found, "pass a frame, or a state with `has_timed_out=True`."))
    expected = list(first.columns) if columns is None else list(columns)
    return (_checked_chunk(frame, expected) for frame in every)


def _checked_chunk(frame: pd.DataFrame, expected: list[Any]) -> pd.DataFrame:
    if len(frame) == 0:
        found = "`frames`: a frame without rows; Spark passes one only on a timeout."
        hint = "leave it out, or pass a state with `has_timed_out=True`."
        raise ValueError(with_hint(found, hint))
    if list(frame.columns) != expected:
        found = f"`frames`: columns {expected} are expected in this order, found "
        hint = "select the columns of the query's input in each frame."
        raise ValueError(with_hint(f"{found}{list(frame.columns)}.", hint))
    return frame


def _checked_frames(
    name: str, result: object, output_columns: Sequence[str] | None
) -> list[pd.DataFrame]:
    """Refuse what Spark refuses, and the names for which it stores NULL."""
    if isinstance(result, pd.DataFrame) or not isinstance(result, Iterable):
        kind = type_name(result)
        found = f"`{name}` must return an iterable of pandas DataFrames, found {kind}."
        hint = "`yield` each frame, or return a list of frames, `[]` for no output."
        raise TypeError(with_hint(found, hint))
    expected = None if output_columns is None else list(output_columns)
    kept: list[pd.DataFrame] = []
    for frame in result:
        if not isinstance(frame, pd.DataFrame):
            kind = type_name(frame)
            found = f"`{name}` must return pandas DataFrames, found {kind} among them."
            raise TypeError(with_hint(found, "wrap the row, as in `pd.DataFrame([row])`."))
        names = list(frame.columns)
        if expected is not None and (names or len(frame)) and len(names) != len(expected):
            found = f"`{name}` returned a frame with {len(names)} columns, {names}; the output has "
            hint = "yield all columns of the output schema and no other."
            raise RuntimeError(with_hint(f"{found}{len(expected)}, {expected}.", hint))
        if not len(frame):
            continue
        if expected is not None and set(names) != set(expected):
            found = f"`{name}` returned a frame with the columns {names}; the output has "
            found += f"{expected}. Spark fills a column that it does not find with NULL."
            hint = "name the columns of the frame as in the output schema."
            raise ValueError(with_hint(found, hint))
        expected = names if expected is None else expected
        kept.append(frame)
    return kept
