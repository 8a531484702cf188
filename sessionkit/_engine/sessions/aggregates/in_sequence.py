"""
Aggregates whose result depends on the order of events, where these have a `sequence`.

What they store of an event they store with its place in the sequence too: `NAME.sequence`.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.table import Numbers, whole
from sessionkit._engine.sessions.aggregates.picks import COLLECT, EDGE, collected, picked
from sessionkit._engine.sessions.aggregates.rows import Kernel, Rows, array_of, numbers_of
from sessionkit._engine.sessions.aggregates.sequences import (
    FUNNEL,
    FUNNEL_TIMES,
    PATH,
    STEPS,
    kept_steps,
    longer,
)
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import IntType
from sessionkit.state._times import DatetimeType


def _turns(bound: BoundAggregate, rows: Rows) -> pa.Array:
    """Return the place of each event in the sequence."""
    return whole(rows.plan.events.table[f"event.{bound.sequence}"])


def _name(bound: BoundAggregate) -> str:
    return f"{bound.name}.sequence"


# -- the first and the last ---------------------------------------------------------------------


def _edge_stored(bound: BoundAggregate) -> list[Field]:
    at, turn = f"{bound.name}.at", _name(bound)
    return [
        EDGE.stored(bound)[0],
        Field(at, OptionalType(DatetimeType()), at),
        Field(turn, OptionalType(IntType()), turn),
    ]


def _edge(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the value that comes first or last by time and sequence; of several, by value."""
    times = rows.joined(numbers_of(rows.part(f"{bound.name}.at")), rows.times)
    turns = rows.joined(numbers_of(rows.part(_name(bound))), numbers_of(_turns(bound, rows)))
    found, at, missing = picked(bound, rows, _ranks(times, turns))
    return [
        found,
        array_of(times[at], DatetimeType.arrow, missing),
        pa.array(turns[at], mask=missing),
    ]


def _ranks(times: Numbers, turns: Numbers) -> Numbers:
    """Return numbers that sort as times and turns do; equal ones are equal."""
    order = np.lexsort((turns, times))
    new = (np.diff(times[order]) != 0) | (np.diff(turns[order]) != 0)
    ranks = np.zeros(len(order), np.int64)
    ranks[order[1:]] = np.cumsum(new)
    return ranks


# -- lists --------------------------------------------------------------------------------------


def _listed_stored(bound: BoundAggregate) -> list[Field]:
    return [*COLLECT.stored(bound), Field(_name(bound), ListType(IntType()), _name(bound))]


def _collect(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the earliest values by time and sequence, those at one place of it by value."""
    turns, chosen = _turns(bound, rows), rows.chosen(bound)
    if chosen is not None:
        turns = turns.filter(pa.array(chosen))
    stored = rows.part(_name(bound)).flatten()
    return collected(bound, rows, pa.concat_arrays([stored, turns]))


# -- funnels ------------------------------------------------------------------------------------


def _funnel_stored(bound: BoundAggregate) -> list[Field]:
    return [*FUNNEL.stored(bound), Field(_name(bound), ListType(IntType()), _name(bound))]


def _funnel(bound: BoundAggregate, rows: Rows) -> list[pa.Array]:
    """Return the steps at each place of the sequence."""
    stored = numbers_of(rows.part(_name(bound)).flatten())
    return kept_steps(bound, rows, (stored, numbers_of(_turns(bound, rows))))


KERNELS_IN_SEQUENCE: Final[Mapping[str, Kernel]] = {
    "first": Kernel(_edge_stored, _edge),
    "last": Kernel(_edge_stored, _edge),
    "collect": Kernel(_listed_stored, _collect),
    "path": Kernel(_listed_stored, _collect, PATH.result),
    "steps": Kernel(
        lambda bound: _listed_stored(longer(bound)),
        lambda bound, rows: _collect(longer(bound), rows),
        STEPS.result,
    ),
    "funnel": Kernel(_funnel_stored, _funnel, FUNNEL.result),
    "funnel_times": Kernel(_funnel_stored, _funnel, FUNNEL_TIMES.result),
}
