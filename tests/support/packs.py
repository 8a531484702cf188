"""Rows as Spark's projection sends them to the packer, and what the packer makes of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit._engine.wire.inbound import FUTURE_COLUMN, TIME_COLUMN
from sessionkit._engine.wire.outbound import packed_frame
from sessionkit._engine.wire.packing import (
    EVENTS_COLUMN,
    REJECTED_COLUMN,
    WATERMARK_COLUMN,
    Packer,
    packs_in,
    rows_of_frames,
    unpacked,
)
from sessionkit._instants import END_OF_TIME_US
from sessionkit.spec.base import AnySpec

GROUP: Final = ("group",)
IS_FUTURE: Final = "is_future"


def sent(spec: AnySpec, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return columns, named as the user names them, as they reach the packer."""
    names = {column.field.name: column.name for column in spec.wire_columns}
    names |= {IS_FUTURE: FUTURE_COLUMN}
    if spec.event_time is not None:
        names[spec.event_time] = TIME_COLUMN
    return pa.table({names.get(name, name): values for name, values in columns.items()})


@attrs.define
class Packed:
    """What a packer returned."""

    packs: dict[tuple[Any, ...], list[dict[str, Any]]]
    markers: list[int]
    sizes: list[int]

    def frames(self, group: Any) -> list[pd.DataFrame]:
        """Return the packs of a group as frames of one row each."""
        return [pd.DataFrame([pack], dtype=object) for pack in self.packs[group]]

    def read(self, spec: AnySpec, group: Any) -> tuple[pa.Table, list[SideOutput]]:
        """Return the events of a group, and its rows that can't be events."""
        packs = packs_in(self.frames(group), EVENTS_COLUMN, REJECTED_COLUMN)
        return unpacked(spec.events_schema.empty_table(), *packs)


def packed(
    spec: AnySpec,
    batches: Iterable[pa.RecordBatch],
    *,
    group: Sequence[str] = GROUP,
    moves_watermark: bool = True,
) -> Packed:
    """Pack record batches, and check that every row is one of packs or one of markers."""
    found = Packed({}, [], [])
    watermark = [WATERMARK_COLUMN] if moves_watermark else []
    for batch in Packer(spec, group, moves_watermark)(batches):
        assert [*group, *watermark, EVENTS_COLUMN, REJECTED_COLUMN] == batch.schema.names
        times = batch[WATERMARK_COLUMN].cast(pa.int64()).to_pylist() if moves_watermark else []
        found.markers += [time for time in times if time is not None]
        for row in batch.drop_columns(watermark).to_pylist():
            key = tuple(row.pop(name) for name in group)
            packs = [pack for pack in row.values() if pack is not None]
            is_marker = key == (None,) * len(group)
            assert int(not is_marker) == len(packs)
            if packs:
                found.packs.setdefault(key, []).append(row)
                found.sizes += map(len, packs)
    return found


def frame_of(spec: AnySpec, table: pa.Table) -> pd.DataFrame:
    """Return rows of one group as Spark hands them to the worker."""
    grouped = table.append_column(GROUP[0], pa.nulls(table.num_rows, pa.int32()).fill_null(0))
    (rows,) = packed(spec, grouped.to_batches()).packs.values()
    return pd.DataFrame(rows, dtype=object)


def run_whole(spec: AnySpec, frame: pd.DataFrame, processing_us: int = 0) -> pd.DataFrame:
    """Run rows of one group as a batch does; return its output as a stream hands it out."""
    worker = Worker(logic_of(spec), with_rejected=True)
    ((output, _),) = worker.until(
        worker.portions(rows_of_frames([frame])), processing_us, END_OF_TIME_US
    )
    return packed_frame(output)
