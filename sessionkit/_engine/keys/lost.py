"""
States that a call changed and didn't set: nothing of the change is stored, so someone must say so.

On Spark a sample of the calls is looked at, and the log says it; a driver looks at all of them.
"""

import logging
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, Final

import attrs
import pyarrow as pa

from sessionkit.errors import StateValueError
from sessionkit.spec.functions import name_of
from sessionkit.spec.views import MISSING, KeySnapshot, KeyState
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import AttrsType

FIRST: Final = 20
EVERY: Final = 1_000
"""Which calls of a process are looked at: the first ones, then one in so many."""

LOG: Final = logging.getLogger("sessionkit")
CALLS: Final = count()


@attrs.define(eq=False)
class WatchedState(KeyState[Any]):
    """The state of a key that remembers what it has handed out, as it would have been stored."""

    _handed: list[tuple[Any, list[pa.Array] | None]] = attrs.field(factory=list)

    def get(self, default: Any = MISSING) -> Any:
        value = super().get(default)
        if value.__class__ is self._kind.cls:
            self._handed.append((value, _stored(value)))
        return value

    @property
    def is_lost(self) -> bool:
        """Whether an object was changed, and what the call leaves isn't what it was given."""
        snapshot = self._snapshot
        if snapshot.is_set or snapshot.was_removed or snapshot.is_last:
            return False
        return any(_differ(_stored(value), before) for value, before in self._handed)


def _stored(value: Any) -> list[pa.Array] | None:
    try:
        return codec_of(type(value)).encode([value])
    except StateValueError:
        return None


def _differ(now: list[pa.Array] | None, before: list[pa.Array] | None) -> bool:
    # To Arrow no NaN equals another; as texts they do.
    return now != before and _text(now) != _text(before)


def _text(columns: list[pa.Array] | None) -> str:
    return repr(columns and [column.to_pylist() for column in columns])


def sampled(snapshot: KeySnapshot, kind: AttrsType) -> KeyState[Any]:
    """Return the state for a call, watched in a few calls of a process."""
    number = next(CALLS)
    is_chosen = number < FIRST or not number % EVERY
    return WatchedState(snapshot, kind) if is_chosen else KeyState(snapshot, kind)


def log_lost(role: str, function: Callable[..., Any], _key: Any) -> None:
    """Log that a function lost what it changed, once in a process."""
    _log_once(role, name_of(function))


@cache
def _log_once(role: str, name: str) -> None:
    LOG.warning(
        "`%s` (%s) changed the state that `get` gave it without `set`: the change isn't stored",
        role, name,
    )  # fmt: skip
