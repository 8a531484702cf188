"""How each aggregate is stored, folded and shown."""

from typing import Protocol

import pyarrow as pa

from sessionkit._aggregated import BoundAggregate
from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.sessions.aggregates.lists import Collect, Distinct
from sessionkit._engine.sessions.aggregates.numbers import Count, Mean, Sum, Truth
from sessionkit._engine.sessions.aggregates.picks import Edge, Extreme
from sessionkit._engine.sessions.aggregates.rows import Rows
from sessionkit.session import AnySessionSpec
from sessionkit.state import Field

__all__ = ["Kernel", "kernels_of", "stored_fields"]


class Kernel(Protocol):
    """
    One aggregate as the engine computes it.

    The first column of its state has its name, others the name, a dot and what they are.
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


@remembered
def kernels_of(spec: AnySessionSpec) -> list[Kernel]:
    """Return the kernels of the aggregates of a spec, in their order."""
    return [_kernel(bound, has_fixed_gap=spec.has_fixed_gap) for bound in spec.bound]


def _kernel(bound: BoundAggregate, *, has_fixed_gap: bool) -> Kernel:
    match bound.aggregate.kind:
        case "count":
            return Count(bound)
        case "sum":
            return Sum(bound)
        case "mean":
            return Mean(bound)
        case "min" | "max":
            return Extreme(bound)
        case "first" | "last":
            return Edge(bound, has_fixed_gap)
        case "count_distinct":
            return Distinct(bound)
        case "collect":
            return Collect(bound)
        case "any" | "all":
            return Truth(bound)


def stored_fields(spec: AnySessionSpec) -> list[Field]:
    """Return the columns of the state of a spec with aggregates."""
    return [field for kernel in kernels_of(spec) for field in kernel.stored]
