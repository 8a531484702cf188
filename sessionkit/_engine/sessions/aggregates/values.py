"""Columns of Arrow as arrays of NumPy and back, and values of any plain type as ranks."""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Column",
    "Mask",
    "Numbers",
    "array_of",
    "coded",
    "is_number",
    "mask_of",
    "numbers_of",
    "ranked",
]

Column: TypeAlias = pa.Array
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

WORD: Final = 64


def mask_of(flags: pa.Array) -> Mask:
    """Return flags, a null as false."""
    known = flags.fill_null(fill_value=False) if flags.null_count else flags
    mask: Mask = known.to_numpy(zero_copy_only=False)
    return mask


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared as numbers of NumPy."""
    return bool(pa.types.is_primitive(kind)) and not pa.types.is_boolean(kind)


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers and times as numbers of NumPy, a null as 0."""
    width = column.type.bit_width
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64() if width == WORD else pa.int32())
    found: npt.NDArray[Any] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found if width == WORD else found.astype(np.int64)


def array_of(numbers: npt.NDArray[Any], kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Return numbers of NumPy as a column of a type, null where marked."""
    if kind.bit_width != WORD:
        numbers = numbers.astype(np.int32)
    return pa.array(numbers, mask=missing).view(kind)


def coded(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its place among the different ones, and these.

    NaN is equal to itself. A null has the place after the last.
    """
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # one zero: Arrow tells -0.0 from 0.0
    encoded = values.dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    return places.astype(np.int64), encoded.dictionary


def ranked(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its rank among the different ones, and these in ascending order.

    NaN comes last. A null has the rank 0.
    """
    codes, different = coded(values)
    order = pc.sort_indices(different)
    ranks = np.zeros(1 + len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[codes], different.take(order)
