"""The frame that a group hands to Spark: what was counted, and result and rejected rows, packed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.counts import COUNTED, Counts
from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.rows.table import Rejected, result_schema, whole, whole_batch
from sessionkit._engine.wire.columns import COUNTS_COLUMN, ROWS_COLUMN
from sessionkit._engine.wire.event_ids import event_ids
from sessionkit._engine.wire.packs import packs_of, read_packs
from sessionkit._spec import REJECTED_COLUMNS, AnySpec
from sessionkit.state import DatetimeType, Field, FieldType, OptionalType, StrType, codec_of

__all__ = ["Unpacker", "output_fields", "output_frame"]

SHOWN_AS: Final = {"time": "event_time", "start": "session_start", "end": "session_end"}


def output_fields(spec: AnySpec, *, with_rejected: bool) -> list[Field]:
    """
    Return the columns of the output, under the names that users see.

    With rejected rows comes `kind`: `session` or `result`, `late`, `quarantined`, `failed`, or
    `failed_output`, which is a session that is over and whose `finish` failed, or a timer whose
    function failed, under `on_error="reject"`. `event` isn't there where its class has no fields.
    """
    if not with_rejected:
        return [*spec.result_fields]
    event = codec_of(spec.event).type
    text, instant = OptionalType(StrType()), OptionalType(DatetimeType())
    types: tuple[FieldType, ...] = (text, instant, text, OptionalType(event))
    own = [*zip(REJECTED_COLUMNS, types, strict=True)][: None if event.fields else -1]
    return [
        Field("kind", StrType(), "kind"),
        *spec.result_fields,
        *(Field(name, kind, name) for name, kind in own),
        *spec.passthrough_fields,
    ]


def output_frame(
    spec: AnySpec, results: pa.Table, rejected: Sequence[Rejected] | None, counts: Counts
) -> pd.DataFrame:
    """
    Return what a group hands to Spark; the counts are in the first row.

    Args:
        spec: The spec.
        results: The result rows.
        rejected: The rejected rows; None where they are not asked for.
        counts: What became of the events.
    """
    rows = results if rejected is None else _with_rejected(spec, results, rejected)
    packs: list[bytes | None] = [*packs_of(whole_batch(rows))] or [None]
    counted = [getattr(counts, name) for name in COUNTED]
    columns = {COUNTS_COLUMN: [counted, *[None] * (len(packs) - 1)], ROWS_COLUMN: packs}
    return pd.DataFrame(columns, dtype=object)


@attrs.frozen
class Unpacker:
    """
    Unpacks the rows that groups handed to Spark.

    Attributes:
        schema: Of the rows.
    """

    schema: pa.Schema

    @classmethod
    def of(cls, spec: AnySpec, *, with_rejected: bool) -> "Unpacker":
        """Return what unpacks the rows of a spec."""
        return cls(_rejecting_schema(spec) if with_rejected else result_schema(spec))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows in the column of packs, whose nulls stand for no rows."""
        for batch in batches:
            yield from read_packs(self.schema, batch.column(0).drop_null().to_pylist())

    def table(self, frames: Iterable[pd.DataFrame]) -> pa.Table:
        """Return the rows in frames of a group as a table."""
        packs: list[Any] = [pack for frame in frames for pack in frame[ROWS_COLUMN].dropna()]
        return pa.Table.from_batches(read_packs(self.schema, packs), self.schema)


def _with_rejected(spec: AnySpec, results: pa.Table, rejected: Sequence[Rejected]) -> pa.Table:
    parts = [(spec.row_kind, results), *((part.kind, _shown(spec, part)) for part in rejected)]
    schema = _rejecting_schema(spec)
    return pa.concat_tables([_fitted(schema, kind, rows) for kind, rows in parts])


def _shown(spec: AnySpec, part: Rejected) -> pa.Table:
    """Return rejected rows under the names that users see, without what is the engine's own."""
    shown = {
        SHOWN_AS.get(name, name.removeprefix("key.").removeprefix("passthrough.")): part.rows[name]
        for name in part.rows.column_names
        if name in SHOWN_AS or name.startswith(("key.", "passthrough."))
    }
    if spec.event_time is None:
        shown.pop("event_time", None)
    if part.kind != "failed_output":
        shown |= _event(spec, part.rows)
    return pa.table({**shown, "reason": pa.array(part.reasons, pa.string())})


def _event(spec: AnySpec, rows: pa.Table) -> dict[str, pa.Array]:
    """Return the event of each row, and by what it is known."""
    ids = pa.array(event_ids(spec, rows), pa.string())
    kind = codec_of(spec.event).type.arrow
    if not kind.num_fields:
        return {"event_id": ids}
    parts = [whole(rows[f"event.{field.name}"]) for field in kind]
    return {"event_id": ids, "event": pa.StructArray.from_arrays(parts, fields=list(kind))}


@remembered
def _rejecting_schema(spec: AnySpec) -> pa.Schema:
    fields = output_fields(spec, with_rejected=True)
    return pa.schema([pa.field(field.name, field.type.arrow) for field in fields])


def _fitted(schema: pa.Schema, kind: str, rows: pa.Table) -> pa.Table:
    """Return rows of a kind with exactly these columns, nulls where they have none."""
    here = set(rows.column_names)
    columns = [
        rows[field.name] if field.name in here else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    kinds = pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows)
    return pa.Table.from_arrays([kinds, *columns[1:]], schema=schema)
