"""How events become states, and states results: by functions, by aggregates, or one by one."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import pyarrow as pa

from sessionkit._arrays import prefixed_columns
from sessionkit._engine.rows.objects import build_events, decode_states
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.by_aggregates import (
    finish_by_aggregates,
    fold_by_aggregates,
    results_by_aggregates,
    states_by_aggregates,
    stored_fields,
)
from sessionkit._engine.sessions.by_event import finish_per_event, fold_per_event
from sessionkit._engine.sessions.by_functions import finish_by_functions, fold_by_functions
from sessionkit._engine.sessions.careful_fold import SessionFold
from sessionkit._engine.sessions.emission import Finish
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit.spec.logic import Aggregates, Functions
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field


@attrs.frozen(eq=False)
class Fold:
    """
    How events become states, and states results. Every fold groups events alike.

    Attributes:
        kind: What the identity of a spec calls it.
        fields: The fields of the state as they're stored.
        fold: Makes the states of a plan.
        finish: Makes the results of the rows of sessions.
        states: Returns the states of open sessions as objects.
        columns: Returns them as columns.
        refuse_first: Returns late events, without those that their class refuses: these are
            quarantined.
    """

    kind: str
    fields: Sequence[Field]
    fold: Callable[[Plan], Folded]
    finish: Finish
    states: Callable[[pa.Table], list[Any]]
    columns: Callable[[pa.Table], list[pa.Array]]
    refuse_first: Callable[[Rejected], list[Rejected]]


def fold_of(spec: AnySessionSpec) -> Fold:
    match spec.logic:
        case Functions():
            return Fold(
                kind="session",
                fields=codec_of(spec.state).type.fields,
                fold=partial(fold_by_functions, SessionFold.of(spec)),
                finish=finish_by_functions,
                states=partial(decode_states, spec.state),
                columns=_stored,
                refuse_first=partial(_refused_first, spec),
            )
        case Aggregates():
            return Fold(
                kind="session of aggregates",
                fields=stored_fields(spec),
                fold=fold_by_aggregates,
                finish=finish_by_aggregates,
                states=partial(states_by_aggregates, spec),
                columns=partial(results_by_aggregates, spec),
                refuse_first=_as_they_are,
            )
        case _:
            return Fold(
                kind="session of events",
                fields=codec_of(spec.state).type.fields,
                fold=fold_per_event,
                finish=finish_per_event,
                states=partial(decode_states, spec.state),
                columns=_stored,
                refuse_first=_as_they_are,
            )


def _stored(sessions: pa.Table) -> list[pa.Array]:
    return prefixed_columns(sessions, "state.")


def _as_they_are(late: Rejected) -> list[Rejected]:
    return [late]


def _refused_first(spec: AnySessionSpec, late: Rejected) -> list[Rejected]:
    _, refused = build_events(spec, late.rows)
    if not refused:
        return [late]
    others = [place for place in range(late.rows.num_rows) if place not in refused]
    reasons = [late.reasons[place] for place in others]
    return [
        *Rejected.with_reasons("quarantined", refused, late.rows),
        Rejected("late", reasons, late.rows.take(pa.array(others, pa.int64()))),
    ]
