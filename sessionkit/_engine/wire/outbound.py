"""
The output of a group to Spark: result rows, rejected rows, and counts.

On a batch, rows cross as Arrow columns, and the last row of a partition holds only the counts. On a
stream, a pandas frame holds both, with the rows packed unless pandas keeps every value.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa

from sessionkit._arrays import INSTANT, whole
from sessionkit._engine.counts import COUNTS_OF, Counts
from sessionkit._engine.rows.ids import event_ids
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.wire.packing import packs_of
from sessionkit.spec.base import AnySpec
from sessionkit.spec.columns import COUNTS_COLUMN, KIND, OF_PASSTHROUGH, OF_ROWS
from sessionkit.state._codec import codec_of
from sessionkit.state._scalars import FloatType

ROWS_COLUMN: Final = "_rows"

COUNTS: Final = pa.list_(pa.int64())
WITHOUT_EVENT: Final = frozenset({"failed_output", "erased"})
"""Kinds of rejected rows that aren't events."""
KEPT: Final = frozenset(
    {pa.int64(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), INSTANT, pa.list_(pa.string())}
)
"""Types that Spark reads from a pandas column of objects unchanged, with instants as integers."""
ROWS_OF_A_FRAME: Final = 10_000
"""As many as in Spark's Arrow batches. Objects take ten times the memory of Arrow columns."""
NAMED: Final = {
    "session_id": "session_id",
    "start": "session_start",
    "end": "session_end",
    "last_event": "last_event_time",
    "ended_by": "closed_by",
    "number": f"{OF_ROWS}number",
}


@attrs.frozen
class BatchOutput:
    """The output of a group: its rows, with the columns of `Worker.fields`, and its counts."""

    rows: pa.Table
    counts: Counts


def output_of(
    spec: AnySpec, results: pa.Table, rejected: Sequence[SideOutput] | None, counts: Counts
) -> BatchOutput:
    """Return the output of a group; `rejected` is None if the output has no rejected rows."""
    if rejected is None:
        return BatchOutput(results, counts)
    no_rows = spec.schema_with_rejected.empty_table()
    if not (rejected or results.num_rows):
        return BatchOutput(no_rows, counts)
    parts = [(part.kind, pa.table(_named(spec, part))) for part in rejected]
    if results.num_rows:
        parts.insert(0, (spec.row_kind, results))
    tables = [
        table.append_column(KIND, pa.repeat(pa.scalar(kind), table.num_rows))
        for kind, table in parts
    ]
    # "default" fills the columns that a table lacks with nulls.
    return BatchOutput(pa.concat_tables([no_rows, *tables], promote_options="default"), counts)


def packed_columns(spec: AnySpec) -> list[str]:
    """Return the columns that force result rows to be packed."""
    return [
        field.name
        for field in spec.result_fields
        if not (field.type.arrow in KEPT or isinstance(field.type, FloatType))
    ]


def row_frames(output: BatchOutput, stats: Sequence[int | None] = ()) -> Iterator[pd.DataFrame]:
    """Yield frames of unpacked rows; an additional last row holds the counts and the stats."""
    rows = output.rows
    for start in range(0, max(1, rows.num_rows), ROWS_OF_A_FRAME):
        part = rows.slice(start, ROWS_OF_A_FRAME)
        columns = {name: _objects(part[name]) for name in part.column_names}
        is_last = start + ROWS_OF_A_FRAME >= rows.num_rows
        yield _frame(columns, [*COUNTS_OF(output.counts), *stats] if is_last else None)


def packed_frame(output: BatchOutput, stats: Sequence[int | None] = ()) -> pd.DataFrame:
    """Return a frame of packed rows; an additional last row holds the counts and the stats."""
    packs = list[bytes]()
    for batch in output.rows.combine_chunks().to_batches():
        packs += [pack for _, pack in packs_of(batch)]
    return _frame({ROWS_COLUMN: packs}, [*COUNTS_OF(output.counts), *stats])


def _frame(
    columns: Mapping[str, Sequence[Any]], counts: Sequence[int | None] | None
) -> pd.DataFrame:
    length = len(next(iter(columns.values())))
    # Two rows with a single column: [[None, "a"], [None, "b"], [counts, None]].
    values = np.empty((length + (counts is not None), len(columns) + 1), object)
    for place, column in enumerate(columns.values(), 1):
        values[:length, place] = column
    if counts is not None:
        values[length, 0] = counts
    # From a dict of columns, pandas takes five times as long.
    names = pd.Index([COUNTS_COLUMN, *columns], dtype=object)
    return pd.DataFrame(values, columns=names, dtype=object)


def _objects(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return the values for a column of objects: a NumPy array, or a list of integers and nulls."""
    if column.type == INSTANT:
        column = column.cast(pa.int64())
    is_number = pa.types.is_integer(column.type)
    values: Sequence[Any] = (
        column.to_pylist() if is_number and column.null_count else column.to_numpy()
    )
    return values


def output_batches(outputs: Iterable[BatchOutput], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's groups on a batch, then a row with the sum of the counts."""
    total = Counts()
    for output in outputs:
        total += output.counts
        yield from _with_counts(output.rows, pa.nulls(output.rows.num_rows, COUNTS))
    last = pa.Table.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema)
    yield from _with_counts(last, pa.array([[*COUNTS_OF(total)]], COUNTS))


def _with_counts(rows: pa.Table, counts: pa.Array) -> Iterator[pa.RecordBatch]:
    yield from rows.append_column(COUNTS_COLUMN, counts).to_batches()


def _named(spec: AnySpec, part: SideOutput) -> dict[str, Any]:
    """Return rejected rows with the columns of the output, without internal columns."""
    columns: dict[str, Any] = {
        NAMED.get(name, name.removeprefix("key.")): part.rows[name]
        for name in part.rows.column_names
        if name in NAMED or name.startswith(("key.", OF_PASSTHROUGH))
    }
    if spec.event_time is not None and "time" in part.rows.column_names:
        columns[spec.time_of_rejected] = part.rows["time"]
    if part.kind not in WITHOUT_EVENT:
        columns[f"{OF_ROWS}event_id"] = pa.array(event_ids(spec, part.rows), pa.string())
        kind = codec_of(spec.event).type.arrow
        if kind.num_fields:
            parts = [whole(part.rows[f"event.{field.name}"]) for field in kind]
            events = pa.StructArray.from_arrays(parts, fields=list(kind))
            columns[f"{OF_ROWS}event"] = events
    columns[f"{OF_ROWS}reason"] = pa.array(part.reasons, pa.string())
    if part.tracebacks is not None:
        columns[f"{OF_ROWS}traceback"] = pa.array(part.tracebacks, pa.string())
    return columns
