"""Events join open sessions, and sessions that are over become rows, by aggregates alone."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._engine.rows.objects import conditions_met, decode_keys
from sessionkit._engine.rows.table import Rejected, remembered, whole
from sessionkit._engine.sessions.aggregates.in_sequence import KERNELS_IN_SEQUENCE
from sessionkit._engine.sessions.aggregates.numbers import (
    COUNT,
    DURATION,
    MEAN,
    RATE,
    SUM,
    TRUTH,
    SumTooLargeError,
)
from sessionkit._engine.sessions.aggregates.percentiles import PERCENTILE
from sessionkit._engine.sessions.aggregates.picks import COLLECT, DISTINCT, EDGE, EXTREME, TOP
from sessionkit._engine.sessions.aggregates.rows import Kernel, Rows
from sessionkit._engine.sessions.aggregates.sequences import (
    ENGAGED,
    FUNNEL,
    FUNNEL_TIMES,
    PATH,
    STEPS,
)
from sessionkit._engine.sessions.close import result_rows
from sessionkit._engine.sessions.ids import ids_of
from sessionkit._engine.sessions.plan import Closed, Folded, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit.aggregates import Condition
from sessionkit.errors import StateValueError, with_hint
from sessionkit.spec.aggregates import BoundAggregate, condition_of, evaluated
from sessionkit.spec.functions import Failure
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
    "funnel": FUNNEL,
    "funnel_times": FUNNEL_TIMES,
    "path": PATH,
    "engaged_time": ENGAGED,
    "steps": STEPS,
    "top": TOP,
    "rate": RATE,
    "percentile": PERCENTILE,
}
"""By their kind. A `holds` has none: its parts are stored and folded, each by its own."""


@remembered
def kernels_of(spec: AnySessionSpec) -> Sequence[Bound]:
    """Return the aggregates of a spec with their kernels, the parts of a `holds` in its place."""
    flat = [part for bound in spec.bound for part in bound.parts or [bound]]
    return [(bound, _kernel(bound)) for bound in flat]


def _kernel(bound: BoundAggregate) -> Kernel:
    kernels = KERNELS if bound.sequence is None else KERNELS_IN_SEQUENCE
    return kernels[bound.aggregate.kind]


def stored_fields(spec: AnySessionSpec) -> list[Field]:
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


@remembered
def _conditions(spec: AnySessionSpec) -> dict[str, Condition]:
    """Return the conditions that the aggregates of a spec evaluate, by their text."""
    return {repr(asked): asked for one in spec.bound for asked in one.conditions}


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


def fold_by_aggregates(program: Program, plan: Plan) -> Folded:
    try:
        states = _states(plan)
    except SumTooLargeError as error:
        failed = plan.places_of(error.sessions).tolist()
        failures = dict.fromkeys(failed, _too_large(plan, error))
        rejected = Rejected.with_failures("failed", failures, plan.events.table)
        return Folded(None, 0, rejected, failures)
    return Folded(program.sessions_after(plan, plan.active, states), len(plan.events.starts), [])


def _states(plan: Plan) -> list[pa.Array]:
    """Return the columns of the states of the sessions that have events."""
    active = plan.active
    if not active.any():
        return [pa.array([], field.type.arrow) for field in stored_fields(plan.spec)]
    columns = _folded(plan)
    return columns if active.all() else [column.filter(pa.array(active)) for column in columns]


def _folded(plan: Plan) -> list[pa.Array]:
    """Return the columns of the states, a row for each session of a plan."""
    spec, asked = plan.spec, _conditions(plan.spec)
    holds: dict[str, pa.Array] = {}
    if asked:
        found = conditions_met(spec, plan.events.table, asked.values())
        holds = dict(zip(asked, found, strict=True))
    rows = Rows(plan, holds)
    return [column for bound, kernel in kernels_of(spec) for column in kernel.fold(bound, rows)]


def _too_large(plan: Plan, error: SumTooLargeError) -> Failure:
    """Return why sessions whose sums do not fit have failed."""
    bound = error.bound
    key = decode_keys(plan.spec, plan.keys_of(error.sessions).slice(0, 1))[0]
    text = f"`{bound.name}`, `{bound.aggregate}`, does not fit {bound.type.arrow} for {key!r}"
    hint = "sum a float or a Decimal column, or count such events as failed with on_error='reject'"
    message = with_hint(text, hint)
    if plan.spec.on_error == "raise":
        raise StateValueError(message) from error
    return Failure(f"`{bound.name}`, `{bound.aggregate}`, would not fit its type")


def close_by_aggregates(program: Program, over: pa.Table) -> Closed:
    number = over.num_rows
    results = results_by_aggregates(program.spec, over)
    rows = result_rows(program, over, ids_of(over), range(number), results)
    return Closed(rows, [], number, range(number))


def states_by_aggregates(spec: AnySessionSpec, sessions: pa.Table) -> list[Any]:
    """Return the rows that sessions would give if they were over now, as objects."""
    if not sessions.num_rows:
        return []
    return codec_of(spec.result).decode(results_by_aggregates(spec, sessions))
