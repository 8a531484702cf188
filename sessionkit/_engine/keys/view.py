"""The keys of a `StatefulSpec`, read back from a stored group as typed objects."""

from collections.abc import Mapping
from typing import Any, Final, Generic

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.keys.program import read_timers
from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._engine.rows.structs import as_struct, key_struct
from sessionkit._engine.rows.table import INSTANT, prefixed_columns, whole
from sessionkit._instants import instant_of
from sessionkit.spec.shared import S
from sessionkit.spec.stateful import AnyStatefulSpec, StatefulSpec
from sessionkit.spec.views import Timer
from sessionkit.state._codec import codec_of

TIMERS: Final = pa.map_(
    pa.string(), pa.struct([pa.field("clock", pa.string()), pa.field("at", INSTANT)])
)


@attrs.frozen
class StoredKey(Generic[S]):
    """
    A key of which something is stored.

    Attributes:
        key: The key: a named tuple with the columns of `StatefulSpec.keys`.
        state: Its state, an object of its own; None where it has only timers.
        timers: Its timers by name.
    """

    key: Any
    state: S | None
    timers: Mapping[str, Timer]


def stored_keys_of(spec: StatefulSpec[Any, S, Any], memory: Memory) -> list[StoredKey[S]]:
    """Return the keys of a group that have a state or timers."""
    rows = memory.kept
    exists = rows["exists"].to_pylist()
    states = iter(decode_states(spec.state, rows.filter(rows["exists"])))
    timers = [
        {name: Timer(one.clock, instant_of(one.at_us)) for name, one in armed.items()}
        for armed in read_timers(rows["timers"])
    ]
    return [
        StoredKey(key, next(states) if there else None, named)
        for key, there, named in zip(decode_keys(spec, rows), exists, timers, strict=True)
    ]


def stored_key_rows(spec: AnyStatefulSpec, memory: Memory) -> pa.Table:
    """Return the keys of a group as rows, under the names of `StoredKey`."""
    rows = memory.kept
    timers = [
        [(name, {"clock": one.clock, "at": one.at_us}) for name, one in armed.items()]
        for armed in read_timers(rows["timers"])
    ]
    states, fields = prefixed_columns(rows, "state."), codec_of(spec.state).type.fields
    columns = {
        "key": key_struct(spec, rows),
        "state": as_struct(fields, states, pc.invert(whole(rows["exists"]))),
        "timers": pa.array(timers, TIMERS),
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})
