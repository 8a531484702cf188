"""
By what an event is known: the same in every run, process, layout and release of Spark.

What is hashed is the encoding (`_engine.rows.encoding`) of the columns that `event_id` of the spec
names, in that order; else of the key columns, the event time and the fields of the event, in the
order of their declaration. It is personalised with `event/1`. A value that its type can't hold
counts as null, as in the rejected row.
"""

from typing import Final

import pyarrow as pa

from sessionkit._engine.rows.encoding import ID_BYTES, digests, encoded
from sessionkit.spec.shared import AnySpec

PERSON: Final = b"event/1"
ID: Final = pa.binary(ID_BYTES)
"""The type of a column of ids."""


def event_ids(spec: AnySpec, rows: pa.Table) -> list[str]:
    """Return the ids of events in hexadecimal; equal events have equal ones."""
    return [digest.hex() for digest in event_digests(spec, rows)]


def event_digests(spec: AnySpec, rows: pa.Table) -> list[bytes]:
    """Return the ids of events."""
    if not rows.num_rows:
        return []
    return digests(encoded([rows[name] for name in _identifying(spec, rows)]), PERSON)


def _identifying(spec: AnySpec, rows: pa.Table) -> list[str]:
    if spec.inputs.event_id is not None:
        return [spec.read_columns[name] for name in spec.inputs.event_id]
    return [n for n in rows.column_names if n == "time" or n.startswith(("key.", "event."))]
