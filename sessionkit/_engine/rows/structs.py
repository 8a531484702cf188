"""Columns of the engine's tables as structs, under the names that users see."""

from collections.abc import Sequence

import pyarrow as pa

from sessionkit._engine.rows.table import key_columns, whole
from sessionkit.spec.shared import AnySpec
from sessionkit.state._collections import Field


def key_struct(spec: AnySpec, table: pa.Table) -> pa.StructArray | None:
    """Return the key of every row."""
    return as_struct(spec.key_fields, key_columns(table))


def as_struct(
    fields: Sequence[Field],
    columns: Sequence[pa.Array | pa.ChunkedArray],
    missing: pa.Array | None = None,
) -> pa.StructArray | None:
    """
    Return columns as one; None where there are none, since Spark has no such struct.

    Args:
        fields: What the parts are.
        columns: The parts.
        missing: Marks the rows that have none.
    """
    if not fields:
        return None
    parts = [pa.field(field.name, field.type.arrow) for field in fields]
    return pa.StructArray.from_arrays([whole(one) for one in columns], fields=parts, mask=missing)
