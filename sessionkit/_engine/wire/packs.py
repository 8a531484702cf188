"""Packs: many rows as one Arrow record batch, in bytes, so that Spark moves them as one value."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, TypeAlias

import pandas as pd
import pyarrow as pa

__all__ = ["BYTES_OF_A_PACK", "Pack", "joined_packs", "packs_in", "packs_of", "read_packs"]

Pack: TypeAlias = bytes | pa.Buffer

BYTES_OF_A_PACK: Final = 2**17
"""Spark puts up to 10,000 rows into one Arrow batch, which must stay well under 2 GiB."""


def packs_of(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the packs of some rows, each of about as many bytes as one may have."""
    average = max(1, rows.nbytes // max(1, rows.num_rows))
    limit = max(1, BYTES_OF_A_PACK // average)
    for start in range(0, rows.num_rows, limit):
        yield rows.slice(start, limit).serialize().to_pybytes()


def read_packs(schema: pa.Schema, packs: Iterable[Pack]) -> list[pa.RecordBatch]:
    """Return the record batches in packs, all of one schema."""
    return list(map(pa.ipc.read_record_batch, map(pa.py_buffer, packs), repeat(schema)))


def packs_in(frames: Sequence[pd.DataFrame], name: str) -> list[Pack]:
    """Return the packs in a column of frames; a row without one has a null there."""
    return [pack for frame in frames for pack in frame[name] if isinstance(pack, bytes)]


def joined_packs(schema: pa.Schema, packs: Iterable[Pack]) -> pa.Table:
    """Return the rows in packs as one table, in one piece."""
    batches = read_packs(schema, packs)
    rows = pa.Table.from_batches(batches, schema)
    return rows if len(batches) == 1 else rows.combine_chunks()
