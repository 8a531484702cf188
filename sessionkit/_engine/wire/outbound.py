"""The frame that a bucket hands to Spark: result rows, rejected events, and one row of counts."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.wire.columns import wire_values
from sessionkit._spec import REJECTED_COLUMNS, AnySpec
from sessionkit.state import DatetimeType, Field, FieldType, FloatType, StrType, inner_type

__all__ = [
    "KINDS",
    "has_floats",
    "output_fields",
    "output_frame",
]

KINDS: Final = ("session", "result", "late", "quarantined", "failed", "failed_output", "counts")
"""What a row can be; it crosses as its place here. `failed_output` is a session that is over and
whose `finish` failed, or a timer whose function failed, under `on_error="reject"`."""


SHOWN_AS: Final = {"time": "event_time", "start": "session_start", "end": "session_end"}


def output_fields(spec: AnySpec, *, with_rejected: bool) -> list[Field]:
    """
    Return the columns of the output, under the names that users see.

    On the wire they are `out_0`, `out_1` and so on, besides `kind`, `counts` and `nans`.
    """
    fields = [*spec.result_fields]
    if with_rejected:
        types: tuple[FieldType, ...] = (StrType(), DatetimeType())
        own = zip(REJECTED_COLUMNS, types, strict=True)
        fields += [Field(name, kind, name) for name, kind in own]
        fields += spec.passthrough_fields
    return fields


def has_floats(fields: Sequence[Field]) -> bool:
    """Return whether a column of the output can be NaN, and so needs the column `nans`."""
    return any(isinstance(inner_type(field.type), FloatType) for field in fields)


def output_frame(
    spec: AnySpec, results: pa.Table, rejected: Sequence[Rejected] | None, counts: Counts
) -> pd.DataFrame:
    """
    Return what a group hands to Spark: one frame, the row of counts last.

    Args:
        spec: The spec.
        results: The result rows.
        rejected: The rejected rows; None where they are not asked for.
        counts: What became of the events.
    """
    fields = output_fields(spec, with_rejected=rejected is not None)
    parts = [
        (spec.row_kind, results),
        *((part.kind, _shown(spec, part)) for part in rejected or ()),
    ]
    rows = pa.concat_tables([_fitted(fields, table) for _, table in parts])
    kinds = chain.from_iterable([KINDS.index(kind)] * table.num_rows for kind, table in parts)
    columns: dict[str, list[Any]] = {
        "kind": [*kinds, KINDS.index("counts")],
        "counts": [None] * rows.num_rows + [[getattr(counts, name) for name in COUNTED]],
    }
    if has_floats(fields):
        columns["nans"] = [*_nans(fields, rows), 0]
    for place, field in enumerate(fields):
        columns[f"out_{place}"] = [*wire_values(inner_type(field.type), rows[field.name]), None]
    # Without the dtype pandas 3 would make columns of text its own, and their nulls NaN.
    return pd.DataFrame({name: _objects(values) for name, values in columns.items()}, dtype=object)


def _shown(spec: AnySpec, part: Rejected) -> pa.Table:
    """Return rejected rows under the names that users see, without what is the engine's own."""
    shown = {
        SHOWN_AS.get(name, name.removeprefix("key.").removeprefix("passthrough.")): part.rows[name]
        for name in part.rows.column_names
        if name in SHOWN_AS or name.startswith(("key.", "passthrough."))
    }
    if spec.event_time is None:
        shown.pop("event_time", None)
    return pa.table({**shown, "reason": pa.array(part.reasons, pa.string())})


def _fitted(fields: Sequence[Field], rows: pa.Table) -> pa.Table:
    """Return a table with exactly these columns, nulls where the rows have none."""
    here = set(rows.column_names)
    columns = [
        rows[field.name] if field.name in here else pa.nulls(rows.num_rows, field.type.arrow)
        for field in fields
    ]
    schema = pa.schema([pa.field(field.name, field.type.arrow) for field in fields])
    return pa.Table.from_arrays(columns, schema=schema)


def _nans(fields: Sequence[Field], rows: pa.Table) -> list[int]:
    """Return for each row the places of the columns that are NaN, as bits."""
    bits = np.zeros(rows.num_rows, np.int64)
    floats = [field for field in fields if isinstance(inner_type(field.type), FloatType)]
    for place, field in enumerate(floats):
        is_nan = pc.is_nan(rows[field.name].fill_null(0.0)).to_numpy()
        bits |= is_nan.astype(np.int64) << place
    listed: list[int] = bits.tolist()
    return listed


def _objects(values: list[Any]) -> npt.NDArray[np.object_]:
    """Return a column of objects: pandas must not turn integers beside a null into floats."""
    column = np.empty(len(values), np.object_)
    for place, value in enumerate(values):
        column[place] = value
    return column
