"""
When the last event of a session was, where its end doesn't say that.

    sessions   last_event   its time

Where a spec has one gap for all events, that is the end less the gap. It isn't where the gap
depends on the event or the state, or where some events keep no session open.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import INSTANT, Mask, instants, micros, whole, with_column
from sessionkit._engine.rows.tables import has_state
from sessionkit._engine.sessions.feature import Feature
from sessionkit._engine.sessions.plan import Plan
from sessionkit._instants import span_us
from sessionkit.errors import StateError
from sessionkit.spec.session import AnySessionSpec

LAST_EVENT: Final = pa.field("last_event", INSTANT)
MIGRATE: Final = (
    "carry it over to a new checkpoint, where it's the earliest that it can have been: seed = "
    "migrate(checkpoint, spec, spec, folder), then sessionize(seed.unread(events), spec, seed=seed)"
)


@attrs.frozen(eq=False)
class LastEvent(Feature):
    """What a session stores of its last event."""

    fields: Sequence[pa.Field] = (LAST_EVENT,)

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "LastEvent | None":
        rules = spec.rules
        own = rules is not None and (rules.state_gap is not None or rules.extends is not None)
        # Elsewhere the end of a session is that of its last event's gap.
        return cls() if own or callable(spec.timeout.gap) else None

    def check(self, sessions: pa.Table) -> None:
        stored = sessions[LAST_EVENT.name]
        if stored.null_count and stored.is_null().to_numpy()[has_state(sessions)].any():
            found = "the stored state doesn't say when the last event of each session was"
            raise StateError(found, MIGRATE)

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        times = plan.starts.copy()
        times[: len(plan.places)] = micros(plan.touched[LAST_EVENT.name])
        return [instants(plan.unions.reduced(np.maximum, times[plan.order])[chosen])]

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Return sessions of another spec with the time of their last event.

        Where neither it nor the end says it, it's the earliest that it can have been.
        """
        last = _counted_back(sessions, span_us(old.timeout.longest))
        if LAST_EVENT.name in sessions.column_names:
            last = pc.coalesce(whole(sessions[LAST_EVENT.name]), last)
        return with_column(sessions, LAST_EVENT, last)


def last_event_before(spec: Any, kept: pa.Table) -> pa.Array:
    """
    Return the last events of sessions that were stored without.

    Another gap for each event hides them: null. Under a fixed one, what else makes the end say less
    was added since then.
    """
    if callable(spec.timeout.gap):
        return pa.nulls(kept.num_rows, INSTANT)
    return _counted_back(kept, span_us(spec.timeout.longest))


def with_last_event(sessions: pa.Table, gap_us: int) -> pa.Table:
    """Return sessions with when the last event of each was, where it isn't stored."""
    if LAST_EVENT.name in sessions.schema.names:
        return sessions
    return sessions.append_column(LAST_EVENT, _counted_back(sessions, gap_us))


def _counted_back(sessions: pa.Table, gap_us: int) -> pa.Array:
    # A session that was stored under a longer gap began in any case before that.
    starts, ends = micros(sessions["start"]), micros(sessions["end"])
    return instants(np.maximum(starts, ends - gap_us))
