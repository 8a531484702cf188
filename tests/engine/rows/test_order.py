"""The numbers of keys, by which events and what is stored of a bucket are put together."""

from math import inf, isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit._engine.rows.order import FEW_ROWS, in_total_order, key_numbers

floats = st.sampled_from([None, nan, -nan, -inf, -0.0, 0.0, 1.5])
whole_floats = st.sampled_from([nan, -nan, -inf, -0.0, 0.0, 1.5])
texts = st.sampled_from([None, "", "a", "b"])
lists = st.sampled_from([None, [], [1], [1, 2]])
rows = st.tuples(st.integers(0, 2), st.integers(-1, 2), floats, whole_floats, texts, lists)


@pytest.mark.parametrize("repeats", [1, FEW_ROWS])
def test_few_keys_and_many_are_numbered_alike(repeats: int) -> None:
    """Numbers follow the first appearance; a stored key that no event has gets -1."""
    events = pa.chunked_array([["b", "a"], ["b", "c"] * repeats])
    stored = pa.chunked_array([["c", "x", "b"]])
    numbers, found = key_numbers([events], [stored])
    assert [0, 1] + [0, 2] * repeats == numbers.tolist()
    assert [2, -1, 0] == found.tolist()


@pytest.mark.parametrize("repeats", [1, FEW_ROWS])
def test_keys_of_several_columns_are_numbered_together(repeats: int) -> None:
    """A stored key is known only where all of its columns are those of an event."""
    names, days = pa.array(["a", "a", "b"] * repeats), pa.array([1, 2, 1] * repeats)
    stored = pa.array(["b", "b", "a"]), pa.array([1, 2, 3])
    numbers, found = key_numbers([names, days], stored)
    assert [0, 1, 2] * repeats == numbers.tolist()
    assert [2, -1, -1] == found.tolist()


@given(st.lists(rows, min_size=1, max_size=30), st.sampled_from([1, FEW_ROWS]), st.data())
def test_intervals_are_ordered_by_key_start_and_content(
    drawn: list[Any], repeats: int, data: st.DataObject
) -> None:
    """NaN is after all other numbers, null after that; the equal keep the order they came in."""
    rows, scale = drawn * repeats, data.draw(st.sampled_from([1, 2**52, 2**60]))
    first_event = data.draw(st.integers(0, len(rows)))
    keys, starts, *columns = zip(*rows, strict=True)
    events = pa.table(
        [column[first_event:] for column in columns], ["event.0", "event.1", "2", "event.3"]
    )

    def position(number: int) -> Any:
        key, start, some, other, _, values = rows[number]
        if number < first_event:
            return key, start, False
        content = [
            (one is None, isnan(one or 0), 0 if one is None or isnan(one) else one)
            for one in (some, other)
        ]
        return key, start, True, content, repr(values)

    found = in_total_order(np.array(keys), np.array(starts) * scale, events, first_event)

    assert sorted(range(len(rows)), key=position) == found.tolist()
