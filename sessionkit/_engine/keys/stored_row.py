"""The stored state of a group of keys: the row of a bucket, and the row of one key."""

import json
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from sessionkit._engine.keys.table import (
    keyed_identity,
    keys_schema,
    load_keys,
    read_timers,
    timer_columns,
)
from sessionkit._engine.rows.table import INSTANT, micros
from sessionkit._engine.wire.inbound import load_wire, wire_values
from sessionkit._key_view import Armed
from sessionkit.state import (
    FORMAT_VERSION,
    OptionalType,
    check_format,
    check_identity,
    codec_of,
    encode_column,
    inner_type,
)
from sessionkit.stateful import StatefulSpec

__all__ = ["PER_KEY_COLUMNS", "row_of_key", "stored_bucket", "stored_key"]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]

PER_KEY_COLUMNS: Final = (
    "sessionkit_format INT",
    "sessionkit_identity STRING",
    "sessionkit_exists BOOLEAN",
    "sessionkit_last_event_time_us BIGINT",
    "sessionkit_last_processing_time_us BIGINT",
    "sessionkit_created_us BIGINT",
    "sessionkit_updated_us BIGINT",
    "sessionkit_timers STRING",
)
"""What stands before the fields of the state in the row of one key, under layout="per_key"."""


def stored_bucket(spec: AnySpec, value: tuple[Any, ...]) -> pa.Table:
    """
    Return the table of keys from the stored row of a bucket.

    Raises:
        StateError: It is damaged, or was written under other rules.
    """
    version, *_, payload = value
    check_format(version)
    return load_keys(spec, bytes(payload))


def stored_key(spec: AnySpec, key: tuple[Any, ...], value: tuple[Any, ...]) -> pa.Table:
    """
    Return the stored row of a key as a table of one.

    Raises:
        StateError: It was written under other rules.
    """
    version, identity, exists, seen, heard, created, updated, timers, *values = value
    check_format(version)
    check_identity(identity.encode(), keyed_identity(spec))
    armed = {name: Armed(clock, at) for name, (clock, at) in json.loads(timers).items()}
    fields = codec_of(spec.state).type.fields
    return pa.Table.from_arrays(
        [
            *(
                encode_column(field.type, [field.type.load(_plain(value))], field.name)
                for field, value in zip(spec.key_fields, key, strict=True)
            ),
            pa.array([exists]),
            *(_instant(value) for value in (seen, heard, created, updated)),
            *timer_columns([armed]),
            *(
                encode_column(OptionalType(field.type), [load_wire(field.type, value)], field.name)
                for field, value in zip(fields, values, strict=True)
            ),
        ],
        schema=keys_schema(spec),
    )


def row_of_key(spec: AnySpec, keys: pa.Table) -> tuple[Any, ...]:
    """Return the only row of a table of keys as Spark is to store it."""
    (armed,) = read_timers(keys["timers"])
    stamps = [
        None if keys[name].null_count else int(micros(keys[name])[0])
        for name in ("last_event_time", "last_processing_time", "created", "updated")
    ]
    values = [
        wire_values(inner_type(field.type), keys[f"state.{field.name}"])[0]
        for field in codec_of(spec.state).type.fields
    ]
    timers = json.dumps({name: [one.clock, one.at_us] for name, one in armed.items()})
    identity = keyed_identity(spec).decode()
    return (FORMAT_VERSION, identity, keys["exists"][0].as_py(), *stamps, timers, *values)


def _plain(value: Any) -> Any:
    """Return a grouping value, which Spark hands over as NumPy's, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _instant(value: int | None) -> pa.Array:
    return pa.array([value], pa.int64()).cast(INSTANT)
