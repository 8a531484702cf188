"""The aggregates of a spec: what an open session stores of them, and the columns of its row."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._engine.rows.table import remembered, whole
from sessionkit._engine.sessions.aggregates.numbers import COUNT, DURATION, MEAN, SUM, TRUTH
from sessionkit._engine.sessions.aggregates.picks import COLLECT, DISTINCT, EDGE, EXTREME
from sessionkit._engine.sessions.aggregates.rows import Kernel, Rows
from sessionkit.spec.aggregates import BoundAggregate, condition_of, evaluated
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, ListType, OptionalType, inner_type
from sessionkit.state._scalars import BoolType, DecimalType
from sessionkit.state._times import TimedeltaType
from sessionkit.state._types import FieldType

Bound: TypeAlias = tuple[BoundAggregate, Kernel]

KERNELS: Final[Mapping[str, Kernel]] = {
    "count": COUNT,
    "sum": SUM,
    "mean": MEAN,
    "min": EXTREME,
    "max": EXTREME,
    "first": EDGE,
    "last": EDGE,
    "count_distinct": DISTINCT,
    "collect": COLLECT,
    "any": TRUTH,
    "all": TRUTH,
    "duration": DURATION,
}
"""By their kind. A `holds` has none: its parts are stored and folded, each by its own."""


@remembered
def kernels_of(spec: AnySessionSpec) -> Sequence[Bound]:
    """Return the aggregates of a spec with their kernels, the parts of a `holds` in its place."""
    flat = [part for bound in spec.bound for part in bound.parts or [bound]]
    return [(bound, KERNELS[bound.aggregate.kind]) for bound in flat]


def stored_fields(spec: AnySessionSpec) -> list[Field]:
    """Return the columns of the state of a spec with aggregates."""
    return [
        attrs.evolve(field, default=partial(_nothing, bound.aggregate.kind, field.type))
        if bound.aggregate.is_from_now
        else field
        for bound, kernel in kernels_of(spec)
        for field in kernel.stored(bound)
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


def folded(spec: AnySessionSpec, rows: Rows) -> list[pa.Array]:
    """
    Return the columns of the state, a row for each session of the rows.

    Raises:
        SumTooLargeError: Sums do not fit.
    """
    return [column for bound, kernel in kernels_of(spec) for column in kernel.fold(bound, rows)]


def results_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[pa.Array]:
    """Return the columns of the results, in the order of the fields of their class."""
    found = {bound.name: kernel.result(bound, sessions) for bound, kernel in kernels_of(spec)}
    for bound in spec.bound:
        if bound.parts:
            found[bound.name] = _holds(bound, found)
    return [found[field.name] for field in codec_of(spec.result).type.fields]


def _holds(bound: BoundAggregate, found: Mapping[str, pa.Array]) -> pa.Array:
    """Return for which sessions a condition over other aggregates is true; a null isn't."""
    names = [name for name, _ in bound.aggregate.parts]
    parts = pa.table([found[part.name] for part in bound.parts], names)
    condition: Any = bound.aggregate.of
    (holds,) = evaluated(parts, [condition_of(condition)])
    return whole(holds).fill_null(fill_value=False)
