"""The row of a group: columns, and a payload bound to them, to the group and to the query."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sessionkit._engine.logic import Logic
from sessionkit._engine.neighbours import Neighbours
from sessionkit._engine.payload import Bond, Origin, check_format, pack, unpack
from sessionkit._engine.reading import Reading, reading_of
from sessionkit.spec.shared import AnySpec

__all__ = ["pack_row", "unpack_row"]

EVENT_DUE_AT: Final = -2
"""Where the columns beside a payload have `event_due_us`, in each layout."""


def pack_row(
    logic: Logic,
    group: tuple[Any, ...],
    columns: tuple[Any, ...],
    tables: Sequence[pa.Table],
    origin: Origin,
) -> tuple[Any, ...]:
    """Return the row of a group: columns, and a payload bound to them, the group and the query."""
    bond = Bond(_name_of(logic.spec, group), _as_text(columns), origin)
    return (*columns, pack(logic.identity, tables, bond))


def unpack_row(
    logic: Logic,
    group: tuple[Any, ...],
    row: tuple[Any, ...],
    now: Origin,
    seen: Neighbours | None = None,
) -> tuple[Reading, list[pa.Table]]:
    """
    Return the tables in the row of a group, and how they are read.

    Args:
        logic: Whose row it is.
        group: What Spark grouped by.
        row: The row.
        now: The micro-batch that reads it.
        seen: The rows that its task has read before.

    Raises:
        StateCorruptedError: It is damaged, or belongs to another group or micro-batch, or is older
            than the other rows say.
        StateMismatchError: Another query wrote it, or it has other rules, or another format.
    """
    *columns, payload = row
    check_format(columns[0])
    found = unpack(bytes(payload))
    what = f"the stored row of {_as_text(group).decode()}"
    found.origin.check(now, what)
    reading = reading_of(logic, found.identity)
    found.check(Bond(_name_of(logic.spec, group), _as_text(columns)))
    if seen is not None and logic.spec.clock == "event_time":
        seen.add(what, found.origin, columns[EVENT_DUE_AT], now)
    return reading, found.tables


def _name_of(spec: AnySpec, group: tuple[Any, ...]) -> bytes:
    """Return the name of a bucket, or of a key: the same on every machine and in every release."""
    if spec.layout != "per_key":
        return _as_text(group)
    key = zip(spec.key_fields, map(_plain, group), strict=True)
    return _as_text([field.type.load(value) for field, value in key])


def _as_text(values: Sequence[Any]) -> bytes:
    # What `repr` escapes changes with the releases of Unicode.
    return ascii(list(map(_plain, values))).encode()


def _plain(value: Any) -> Any:
    """Return a value that Spark hands over as NumPy's, or as Java's bytes, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return bytes(value) if isinstance(value, bytearray) else value
