"""How events become states and states become rows: functions, aggregates, or the events alone."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._engine.rows.objects import decode_states
from sessionkit._engine.rows.table import prefixed_columns
from sessionkit._engine.sessions.aggregates.folding import (
    close_by_aggregates,
    join_by_aggregates,
    results_by_aggregates,
    states_by_aggregates,
)
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.close import Closed, close
from sessionkit._engine.sessions.joining import Joined, join
from sessionkit._engine.sessions.per_event import close_per_event, join_per_event
from sessionkit.spec.session import AnySessionSpec

__all__ = ["Way", "way_of"]

Join: TypeAlias = Callable[[AnySessionSpec, pa.Table, pa.Table, Horizon], Joined]


@attrs.frozen
class Way:
    """
    What a session comes to. Which events belong to it is the same in all.

    Attributes:
        join: Lets events join the open sessions.
        close: Makes result rows of those that are over.
        states: Returns the states of open sessions as objects.
        columns: Returns them as columns.
    """

    join: Join
    close: Callable[[AnySessionSpec, pa.Table], Closed]
    states: Callable[[AnySessionSpec, pa.Table], list[Any]]
    columns: Callable[[AnySessionSpec, pa.Table], list[pa.Array]]


def _decoded(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    return decode_states(spec.state, sessions)


def _stored(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    del spec
    return prefixed_columns(sessions, "state.")


FUNCTIONS: Final = Way(join, close, _decoded, _stored)
AGGREGATES: Final = Way(
    join_by_aggregates, close_by_aggregates, states_by_aggregates, results_by_aggregates
)
PER_EVENT: Final = Way(join_per_event, close_per_event, _decoded, _stored)


def way_of(spec: AnySessionSpec) -> Way:
    """Return the way that a spec goes."""
    if spec.per == "event":
        return PER_EVENT
    return FUNCTIONS if spec.aggregates is None else AGGREGATES
