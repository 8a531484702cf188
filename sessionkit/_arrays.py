"""
Arrow columns as NumPy arrays, and back; and the order of rows.

A list column is handled flat: its values one after another, and for each value its row, the owner.
For `[["a", "b"], [], ["c"]]` the values are `a b c`, the owners `0 0 2`, the sizes `2 0 1`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

WORD: Final = 64
"""The bits of a number that needs no conversion."""
INSTANT: Final = pa.timestamp("us", tz="UTC")
LARGEST: Final = 2**63 - 1


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Nearly every column has one chunk, and `combine_chunks` is slower at finding that out.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def whole_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return rows, at most some hundred megabytes, as a single record batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def micros(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return a column of instants as microseconds since the epoch."""
    result: Numbers = whole(column).view(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def mask_of(flags: pa.Array) -> Mask:
    """Return flags as a mask; a null is false."""
    without_nulls = flags.fill_null(fill_value=False) if flags.null_count else flags
    mask: Mask = without_nulls.to_numpy(zero_copy_only=False)
    return mask


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared as NumPy numbers."""
    return bool(pa.types.is_primitive(kind)) and not pa.types.is_boolean(kind)


def numbers_of(column: pa.Array) -> Array:
    """Return numbers and times as NumPy numbers; a null is 0."""
    width = column.type.bit_width
    if not pa.types.is_floating(column.type):
        column = column.view(pa.int64() if width == WORD else pa.int32())
    numbers: Array = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers if width == WORD else numbers.astype(np.int64)


def array_of(numbers: Array, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """Return NumPy numbers as a column of a type, null where marked."""
    if kind.bit_width != WORD:
        numbers = numbers.astype(np.int32)
    return pa.array(numbers, mask=missing).view(kind)


def one_form(values: pa.Array) -> pa.Array:
    """
    Normalize zeros and NaN, so that equal values have equal bits.

    Arrow tells -0.0 from 0.0, and NaN from a NaN of other bits, such as `inf - inf`. In Spark, as
    here, both zeros are equal, and all NaN are equal.
    """
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), math.nan, pc.add(values, 0.0))


def coded(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return the place of each value among the distinct values, and the distinct values.

    `b a b` is `0 1 0` of `b a`. NaN is equal to itself. A null has the place after the last.
    """
    encoded = one_form(values).dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    return places.astype(np.int64), encoded.dictionary


def ranked(values: pa.Array) -> tuple[Numbers, pa.Array]:
    """
    Return the rank of each value among the distinct values, and these in ascending order.

    `b a b` is `1 0 1` of `a b`. NaN comes last. A null has the rank 0.
    """
    codes, distinct = coded(values)
    order = pc.sort_indices(distinct)
    ranks = np.zeros(1 + len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[codes], distinct.take(order)


def running_maximum(groups: Numbers, values: Numbers, begins: Mask) -> Numbers:
    """
    Return the running maximum of values within each group.

    `groups` ascend from 0; `begins` marks, from the second value on, the first value of a group. In
    the groups `0 0 1 1`, `5 3 1 4` becomes `5 5 1 4`.
    """
    if ((values[1:] >= values[:-1]) | begins).all():
        return values
    # One running maximum serves all groups when each is lifted above the group before.
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


def begins(*columns: Numbers) -> Mask:
    """Mark the rows that differ from the previous row."""
    marks = np.ones(len(columns[0]), np.bool_)
    marks[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return marks


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

    Without counts, the sums mean nothing. The owners `0 1 0`, codes `2 5 2` and counts `1 1 3`
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


def key_columns(table: pa.Table) -> list[pa.Array]:
    names = table.schema.names
    places = [place for place, name in enumerate(names) if name.startswith("key.")]
    return [whole(table.column(place)) for place in places]


def left_over(table: pa.Table, places: Numbers) -> pa.Table:
    """Drop the rows at some places, which are in ascending order."""
    left = np.ones(table.num_rows, np.bool_)
    left[places] = False
    places_left = np.flatnonzero(left)
    if len(places_left) and places_left[-1] - places_left[0] >= len(places_left):
        return table.filter(pa.array(left))
    # The rows left are contiguous, and a filter takes long to start in Arrow.
    return table.slice(places_left[0] if len(places_left) else 0, len(places_left))


def split(table: pa.Table, chosen: Mask) -> tuple[pa.Table, pa.Table]:
    """Split rows by a mask; a part with all rows is the table itself."""
    if not chosen.any():
        return table.slice(0, 0), table
    if chosen.all():
        return table, table.slice(0, 0)
    return table.filter(pa.array(chosen)), table.filter(pa.array(~chosen))


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables; where only one has rows, return it as it is."""
    filled = list(filter(len, tables))
    return pa.concat_tables(filled) if len(filled) > 1 else (filled or tables)[0]


def filled(schema: pa.Schema, columns: Mapping[str, pa.Array], number: int) -> pa.Table:
    """Return rows of a schema with these columns, and nulls in the others."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def with_column(table: pa.Table, field: pa.Field, column: pa.Array) -> pa.Table:
    """Set the column of a field in a table, or append it."""
    if field.name not in table.column_names:
        return table.append_column(field, column)
    return table.set_column(table.schema.get_field_index(field.name), field, column)


def with_fields(table: pa.Table, fields: Iterable[pa.Field]) -> pa.Table:
    """Add a column of nulls for each field that a table lacks, or has with another type."""
    for field in fields:
        if field.name not in table.column_names or table[field.name].type != field.type:
            table = with_column(table, field, pa.nulls(table.num_rows, field.type))
    return table


def replaced(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with new values in some of its columns."""
    if not columns:
        return table
    arrays = dict(zip(table.column_names, table.columns, strict=True)) | {**columns}
    return pa.Table.from_arrays(list(arrays.values()), schema=table.schema)


def numbers_in(table: pa.Table, name: str) -> Numbers:
    """Return a column of whole numbers; 0 for a null."""
    column = whole(table[name])
    numbers: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def flags_in(table: pa.Table, name: str) -> Mask:
    """Return a column of flags; a null is false, and so are all rows without the column."""
    if name not in table.schema.names:
        return np.zeros(table.num_rows, np.bool_)
    return mask_of(whole(table[name]))


def instants(instants_us: Numbers) -> pa.Array:
    """Return microseconds since the epoch as a column of instants."""
    return pa.array(instants_us, type=pa.int64()).view(INSTANT)


SORTABLE_BITS: Final = 63
"""The bits of an integer that sorts as an unsigned number."""
FEW: Final = 256
"""Up to this many rows, a plain sort is faster than packing their numbers."""
AT_ONCE: Final = 2**18
"""The number of rows with ties that are ordered at a time, at some 100 bytes each."""


def total_order(
    groups: Numbers, starts: Numbers, content: Sequence[pa.ChunkedArray], first: int = 0
) -> Numbers:
    """
    Return the numbers of rows by (group, start), and where these tie by content.

    The `content` belongs to the rows from `first` on. Rows before it have none, and go before the
    others at one start. Rows of equal content keep their order.
    """
    if not len(groups):
        return np.zeros(0, np.int64)
    packed = None if len(groups) <= FEW else _packed(groups, starts, first)
    # `same` marks the rows in order that tie with the next one, so that content decides.
    if packed is not None:
        order = _stable_order(packed)
        packed = packed[order]
        same = (packed[1:] == packed[:-1]) & (packed[1:] & 1 == 1)
    else:
        order = np.lexsort((starts, groups))
        groups, starts = groups[order], starts[order]
        same = (groups[1:] == groups[:-1]) & (starts[1:] == starts[:-1]) & (order[:-1] >= first)
    if content and same.any():
        for start, end in pairwise(_cuts(same)):
            _order_ties(order[start:end], same[start : end - 1], content, first)
    return order


def _cuts(same: Mask) -> list[int]:
    """Return where to cut an order into pieces of about `AT_ONCE` rows without splitting a tie."""
    cuts, rows = [0], len(same) + 1
    while cuts[-1] + AT_ONCE < rows:
        first = cuts[-1] + AT_ONCE
        after = same[first - 1 :]
        cuts.append(rows if after.all() else first + int(after.argmin()))
    return cuts if cuts[-1] == rows else [*cuts, rows]


def _order_ties(order: Numbers, same: Mask, columns: Sequence[pa.ChunkedArray], first: int) -> None:
    """Order tied rows by their columns, one column after the other."""
    for column in columns:
        if not same.any():
            return
        is_tied = np.append(same, False)
        is_tied[1:] |= same
        tied = np.flatnonzero(is_tied)
        runs, numbers = np.cumsum(np.append(True, ~same))[tied], order[tied]
        codes = _codes(column.take(pa.array(numbers - first)))
        values = runs * (1 + codes.max()) + codes
        within = _stable_order(values)
        order[tied] = numbers[within]
        values = values[within]
        same[tied[:-1]] = values[1:] == values[:-1]


def _packed(groups: Numbers, starts: Numbers, first: int) -> Numbers | None:
    """Pack group, start and whether there is content into integers; None if they don't fit."""
    spans = starts - starts.min()
    span_bits = int(spans.max()).bit_length()
    if int(groups.max()).bit_length() + span_bits + 1 > SORTABLE_BITS:
        return None
    packed: Numbers = ((groups << span_bits) | spans) << 1
    packed[first:] |= 1
    return packed


def _stable_order(values: Numbers) -> Numbers:
    """
    Return the stable order of numbers that aren't negative.

    NumPy sorts numbers several times as fast as it finds such an order. So where a number and its
    place fit into one integer, these are sorted.
    """
    place_bits = (len(values) - 1).bit_length()
    if int(values.max()).bit_length() + place_bits <= SORTABLE_BITS:
        packed = (values << place_bits) | np.arange(len(values))
        packed.sort()
        packed &= (1 << place_bits) - 1
        return packed
    order: Numbers = np.argsort(values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        is_tied = np.append(same, False)
        is_tied[1:] |= same
        runs = np.cumsum(np.append(True, ~same))[is_tied]
        order[is_tied] = order[is_tied][np.lexsort((order[is_tied], runs))]
    return order


def _codes(column: pa.ChunkedArray) -> Numbers:
    """Return values as numbers from 0 in the same order: NaN after all others, then null."""
    values = whole(column)
    if pa.types.is_nested(values.type):
        values = pa.array([repr(value) for value in values.to_pylist()], pa.string())
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    codes: Numbers
    if is_number and not values.null_count:
        _, codes = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)
        return codes
    codes, different = coded(values)
    ranks = np.full(1 + len(different), len(different))
    ranks[pc.sort_indices(different).to_numpy()] = np.arange(len(different))
    return ranks[codes]


@attrs.frozen
class LogBins:
    """
    Bins that grow with the numbers in them: DDSketch, by Masson, Rim and Lee (VLDB 2019).

    The bins are between powers of `(1 + a) / (1 - a)`, where `a` is the relative error: the middle
    of a bin is at most that far from each of its numbers. A bin is named by the power of its upper
    bound.
    """

    relative_error: float
    _log_base: float = attrs.field(init=False)

    @_log_base.default
    def _(self) -> float:
        return 2 * math.atanh(self.relative_error)

    def powers(self, sizes: Array) -> Numbers:
        """Return the bin of each number."""
        result: Numbers = np.ceil(np.log(sizes) / self._log_base).astype(np.int64)
        return result

    def middles(self, powers: Numbers) -> Array:
        """Return the middle of each bin, which represents its numbers."""
        with np.errstate(over="ignore"):  # the middle of the last bin may be more than any float
            result: Array = np.exp(powers * self._log_base + math.log1p(-self.relative_error))
        return result


def ranks(share: float, totals: Numbers) -> Numbers:
    """Return the nearest ranks of a quantile in groups of these sizes, from 1."""
    # As floats, 0.07 of 100 would be more than 7.
    part = Fraction(str(share))
    exact: Any = totals.astype(object)
    places: Numbers = (-(-exact * part.numerator // part.denominator)).astype(np.int64)
    return np.maximum(places, 1)
