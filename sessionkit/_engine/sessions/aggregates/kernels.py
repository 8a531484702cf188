"""How each aggregate is stored, folded and shown."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.sessions.aggregates.lists import Collect, Distinct
from sessionkit._engine.sessions.aggregates.numbers import Count, Mean, Sum, Truth
from sessionkit._engine.sessions.aggregates.picks import Edge, Extreme
from sessionkit._engine.sessions.aggregates.rows import Rows
from sessionkit._engine.sessions.aggregates.whole import Duration, Engaged
from sessionkit.spec.aggregates import BoundAggregate
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import (
    BoolType,
    DecimalType,
    Field,
    FieldType,
    ListType,
    OptionalType,
    TimedeltaType,
    inner_type,
)

__all__ = ["Kernel", "kernels_of", "stored_fields"]


class Kernel(Protocol):
    """
    One aggregate as the engine computes it.

    A column of its state has its name, or the name, a dot and what it is.
    """

    @property
    def bound(self) -> BoundAggregate:
        """The aggregate."""

    @property
    def stored(self) -> list[Field]:
        """The columns of the state of a session."""

    def fold(self, rows: Rows) -> list[pa.Array]:
        """Return these columns, a row for each session of the rows."""

    def result(self, sessions: pa.Table) -> pa.Array:
        """Return the column of the result from the table of sessions."""


KERNELS: Final[Mapping[str, Callable[[BoundAggregate], Kernel]]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "min": Extreme,
    "max": Extreme,
    "first": Edge,
    "last": Edge,
    "count_distinct": Distinct,
    "collect": Collect,
    "any": Truth,
    "all": Truth,
    "duration": Duration,
}
"""Those that are made of no others, by their kind."""


@remembered
def kernels_of(spec: AnySessionSpec) -> list[Kernel]:
    """Return the kernels of the aggregates of a spec, in their order."""
    return [_kernel(bound) for bound in spec.bound]


def _kernel(bound: BoundAggregate) -> Kernel:
    if bound.parts:
        lasted, *counts = bound.parts
        return Engaged(bound, Duration(lasted), [Count(part) for part in counts])
    return KERNELS[bound.aggregate.kind](bound)


def stored_fields(spec: AnySessionSpec) -> list[Field]:
    """Return the columns of the state of a spec with aggregates."""
    return [
        attrs.evolve(field, default=partial(_nothing, kernel.bound.aggregate.kind, field.type))
        if kernel.bound.aggregate.is_from_now
        else field
        for kernel in kernels_of(spec)
        for field in kernel.stored
    ]


def _nothing(kind: str, stored: FieldType) -> Any:
    """Return what is stored of no events."""
    match inner_type(stored):
        case ListType():
            return []
        case _ if isinstance(stored, OptionalType):
            return None
        case BoolType():
            return kind == "all"
        case TimedeltaType():
            return timedelta(0)
        case DecimalType():
            return Decimal(0)
    return 0
