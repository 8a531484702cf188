"""The keys of a `StatefulSpec`, read back from a stored group as typed objects."""

from collections.abc import Mapping
from typing import Any, Generic

import attrs

from sessionkit._engine.keys.table import read_timers
from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._instants import instant_of
from sessionkit._key_view import Timer
from sessionkit._spec import S
from sessionkit.stateful import StatefulSpec

__all__ = ["StoredKey", "stored_keys_of"]


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
