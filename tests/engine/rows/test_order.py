"""The numbers of keys, by which events and what is stored of a bucket are put together."""

import pyarrow as pa
import pytest

from sessionkit._engine.rows.order import FEW, key_numbers


@pytest.mark.parametrize("repeats", [1, FEW])
def test_few_keys_and_many_are_numbered_alike(repeats: int) -> None:
    """Numbers follow the first appearance; a stored key that no event has gets -1."""
    events = pa.chunked_array([["b", "a"], ["b", "c"] * repeats])
    stored = pa.chunked_array([["c", "x", "b"]])
    numbers, found = key_numbers([events], [stored])
    assert [0, 1] + [0, 2] * repeats == numbers.tolist()
    assert [2, -1, 0] == found.tolist()


@pytest.mark.parametrize("repeats", [1, FEW])
def test_keys_of_several_columns_are_numbered_together(repeats: int) -> None:
    """A stored key is known only where all of its columns are those of an event."""
    names, days = pa.array(["a", "a", "b"] * repeats), pa.array([1, 2, 1] * repeats)
    stored = pa.array(["b", "b", "a"]), pa.array([1, 2, 3])
    numbers, found = key_numbers([names, days], stored)
    assert [0, 1, 2] * repeats == numbers.tolist()
    assert [2, -1, -1] == found.tolist()
