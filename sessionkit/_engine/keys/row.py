"""The memory of one key in one row, a column for each field of its state."""

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.keys.cells import cells_of, loaded_cell
from sessionkit._engine.keys.table import (
    STAMPS,
    keys_schema,
    read_timers,
    timer_columns,
)
from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.table import INSTANT, micros, no_events
from sessionkit._key_view import Armed
from sessionkit.state import (
    FORMAT_VERSION,
    OptionalType,
    check_format,
    check_identity,
    codec_of,
    encode_column,
    inner_type,
    pack,
    unpack,
)
from sessionkit.stateful import AnyStatefulSpec
from sessionkit.timeouts import Clock

__all__ = ["KeyRow"]

COLUMNS: Final = ", ".join(
    [
        "sessionkit_format INT",
        "sessionkit_identity STRING",
        "sessionkit_exists BOOLEAN",
        *(f"sessionkit_{name}_us BIGINT" for name in STAMPS),
        "sessionkit_timers STRING",
        "sessionkit_buffered BINARY",
    ]
)


@attrs.frozen
class KeyRow:
    """
    The row of a key under `layout="per_key"`: the columns here, then those of the state.

    Attributes:
        spec: Under whose rules it is stored.
        identity: What must not change while a checkpoint lives.
        columns: The columns before those of the state, as Spark's SQL has them.
    """

    spec: AnyStatefulSpec
    identity: bytes
    columns: str = attrs.field(default=COLUMNS, init=False)

    def read(self, group: tuple[Any, ...], row: tuple[Any, ...]) -> Memory:
        """
        Return the memory of a key from its row.

        Raises:
            StateError: It was written under other rules.
        """
        version, identity, exists, *stamps, timers, buffered = row[: 5 + len(STAMPS)]
        check_format(version)
        check_identity(identity.encode(), self.identity)
        armed = {name: Armed(clock, at) for name, (clock, at) in json.loads(timers).items()}
        columns = [
            *self._key(group),
            pa.array([exists]),
            *(pa.array([stamp], pa.int64()).cast(INSTANT) for stamp in stamps),
            *timer_columns([armed]),
            *self._state(row[5 + len(STAMPS) :]),
        ]
        has_keys = exists or bool(armed)
        keys = pa.Table.from_arrays(columns, schema=keys_schema(self.spec))
        return Memory(keys if has_keys else keys.slice(0, 0), self._buffered(buffered))

    def write(self, memory: Memory, due: Mapping[Clock, int]) -> tuple[Any, ...]:
        """Return the row of a key that remembers something; what is due, its columns say."""
        del due
        buffered = pack(self.identity, [memory.buffered]) if memory.buffered.num_rows else None
        first = (FORMAT_VERSION, self.identity.decode())
        fields = codec_of(self.spec.state).type.fields
        if not memory.kept.num_rows:
            # Nothing but events that wait.
            return (*first, False, *[None] * len(STAMPS), "{}", buffered, *[None] * len(fields))
        keys = memory.kept
        stamps = [None if keys[n].null_count else int(micros(keys[n])[0]) for n in STAMPS]
        (armed,) = read_timers(keys["timers"])
        timers = json.dumps({name: [one.clock, one.at_us] for name, one in armed.items()})
        values = [cells_of(inner_type(f.type), keys[f"state.{f.name}"])[0] for f in fields]
        return (*first, keys["exists"][0].as_py(), *stamps, timers, buffered, *values)

    def _key(self, group: tuple[Any, ...]) -> list[pa.Array]:
        return [
            encode_column(field.type, [field.type.load(_plain(value))], field.name)
            for field, value in zip(self.spec.key_fields, group, strict=True)
        ]

    def _state(self, values: tuple[Any, ...]) -> list[pa.Array]:
        return [
            encode_column(OptionalType(field.type), [loaded_cell(field.type, value)], field.name)
            for field, value in zip(codec_of(self.spec.state).type.fields, values, strict=True)
        ]

    def _buffered(self, payload: bytes | None) -> pa.Table:
        nothing = no_events(self.spec)
        if payload is None:
            return nothing
        return unpack(bytes(payload), self.identity)[0].select(nothing.column_names)


def _plain(value: Any) -> Any:
    """Return a grouping value, which Spark hands over as NumPy's, as Python's."""
    return value.item() if isinstance(value, np.generic) else value
