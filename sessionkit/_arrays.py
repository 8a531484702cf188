"""
Columns of Arrow as arrays of NumPy, and back.

A list column is worked on flat: its values one after another, and for each the row that it belongs
to. For `[["a", "b"], [], ["c"]]` the values are `a b c`, the owners `0 0 2`, the sizes `2 0 1`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

WORD: Final = 64
"""The bits of a number that NumPy takes as it is."""
INSTANT: Final = pa.timestamp("us", tz="UTC")
LARGEST: Final = 2**63 - 1


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Nearly every column is in one piece, which `combine_chunks` takes longer to find out.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def micros(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return a column of instants as microseconds since the epoch."""
    result: Numbers = whole(column).view(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def mask_of(flags: pa.Array) -> Mask:
    """Return flags as a mask; a null is false."""
    known = flags.fill_null(fill_value=False) if flags.null_count else flags
    mask: Mask = known.to_numpy(zero_copy_only=False)
    return mask


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared as numbers of NumPy."""
    return bool(pa.types.is_primitive(kind)) and not pa.types.is_boolean(kind)


def numbers_of(column: pa.Array) -> Array:
    """Return numbers and times as numbers of NumPy; a null is 0."""
    width = column.type.bit_width
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64() if width == WORD else pa.int32())
    found: Array = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found if width == WORD else found.astype(np.int64)


def array_of(numbers: Array, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Return numbers of NumPy as a column of a type, null where marked."""
    if kind.bit_width != WORD:
        numbers = numbers.astype(np.int32)
    return pa.array(numbers, mask=missing).view(kind)


def coded(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its place among the different ones, and these.

    `b a b` is `0 1 0` of `b a`. NaN is equal to itself. A null has the place after the last.
    """
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # one zero: Arrow tells -0.0 from 0.0
    encoded = values.dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    return places.astype(np.int64), encoded.dictionary


def ranked(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return each value as its rank among the different ones, and these in ascending order.

    `b a b` is `1 0 1` of `a b`. NaN comes last. A null has the rank 0.
    """
    codes, different = coded(values)
    order = pc.sort_indices(different)
    ranks = np.zeros(1 + len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[codes], different.take(order)


def running_maximum(groups: Numbers, values: Numbers, begins: Mask) -> Numbers:
    """
    Return the greatest value of each group so far.

    Groups are numbers from 0 in ascending order; marks say, from the second on, which value begins
    one. In the groups `0 0 1 1`, `5 3 1 4` becomes `5 5 1 4`.
    """
    if ((values[1:] >= values[:-1]) | begins).all():
        return values
    # One running maximum serves all groups when each is lifted above the one before.
    lowest = values.min()
    lift = int(values.max() - lowest) + 1
    if (int(groups[-1]) + 1) * lift <= LARGEST:
        lifted = groups * lift
        running: Numbers = np.maximum.accumulate(lifted + (values - lowest)) - lifted + lowest
        return running
    # Ranks keep the sum within 64 bits where the values don't.
    ascending = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[ascending] = np.arange(len(values))
    lifted = groups * len(values)
    return values[ascending[np.maximum.accumulate(lifted + rank) - lifted]]


def lists_of(values: pa.Array, sizes: Numbers, missing: Mask | None = None) -> pa.Array:
    """Return values as lists of these sizes, null where marked."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    mask = None if missing is None else pa.array(missing)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def owners_of(lists: pa.Array) -> Numbers:
    """Return the row of each value of a column of lists."""
    owners: Numbers = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    return owners


def places_in(sizes: Numbers, owners: Numbers) -> Numbers:
    """Return the place of each value in its list; the values are in the order of their owners."""
    first = np.cumsum(sizes) - sizes
    places: Numbers = np.arange(len(owners)) - first[owners]
    return places


def tallied(
    owners: Numbers, codes: Numbers, counts: Numbers | None
) -> tuple[Numbers, Numbers, Numbers]:
    """
    Return each pair of an owner and a code once, in order, and the sum of its counts.

    Without counts, the sums say nothing. The owners `0 1 0`, codes `2 5 2` and counts `1 1 3`
    become `0 1`, `2 5` and `4 1`.
    """
    width = int(codes.max(initial=0)) + 1
    pairs = owners * width + codes
    order = None if counts is None else np.argsort(pairs, kind="stable")
    pairs = np.sort(pairs) if order is None else pairs[order]
    first = np.flatnonzero(np.diff(pairs, prepend=-1) != 0)
    sums = first if counts is None or not len(first) else np.add.reduceat(counts[order], first)
    return *np.divmod(pairs[first], width), sums


# -- tables ---------------------------------------------------------------------------------


def key_columns(table: pa.Table) -> list[pa.ChunkedArray]:
    return prefixed_columns(table, "key.")


def prefixed_columns(table: pa.Table, prefix: str) -> list[pa.ChunkedArray]:
    names = table.schema.names
    return [table.column(place) for place, name in enumerate(names) if name.startswith(prefix)]


def left_over(table: pa.Table, places: Numbers) -> pa.Table:
    """Return the rows but for those at some places, in ascending order."""
    left = np.ones(table.num_rows, np.bool_)
    left[places] = False
    others = np.flatnonzero(left)
    if len(others) and others[-1] - others[0] >= len(others):
        return table.filter(pa.array(left))
    # A few rows are seldom apart, and Arrow takes long to begin with a filter.
    return table.slice(others[0] if len(others) else 0, len(others))


def split(table: pa.Table, chosen: Mask) -> tuple[pa.Table, pa.Table]:
    """Return the rows that a mask chooses, and the others; a whole table as it is."""
    if not chosen.any():
        return table.slice(0, 0), table
    if chosen.all():
        return table, table.slice(0, 0)
    return table.filter(pa.array(chosen)), table.filter(pa.array(~chosen))


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables; where only one has rows, that as it is."""
    filled = list(filter(len, tables))
    return pa.concat_tables(filled) if len(filled) > 1 else (filled or tables)[0]


def filled(schema: pa.Schema, columns: Mapping[str, pa.Array], number: int) -> pa.Table:
    """Return a number of rows of a schema with these columns, and nulls in the others."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def with_column(table: pa.Table, field: pa.Field, column: pa.Array) -> pa.Table:
    """Return a table with a column in place of the one of this name, or after the others."""
    if field.name not in table.column_names:
        return table.append_column(field, column)
    return table.set_column(table.schema.get_field_index(field.name), field, column)


def replaced(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with others in place of some of its columns."""
    if not columns:
        return table
    arrays = dict(zip(table.column_names, table.columns, strict=True)) | {**columns}
    return pa.Table.from_arrays(list(arrays.values()), schema=table.schema)


def whole_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return rows, at most some hundred megabytes, as one record batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def numbers_in(table: pa.Table, name: str) -> Numbers:
    """Return a column of whole numbers; 0 for a null."""
    column = whole(table[name])
    numbers: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def instants(instants_us: Numbers) -> pa.Array:
    """Return microseconds since the epoch as a column of instants."""
    return pa.array(instants_us, type=pa.int64()).view(INSTANT)
