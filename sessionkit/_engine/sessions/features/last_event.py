"""
The time of a session's last event, where its end doesn't imply it.

    sessions   last_event   its time

With one gap for all events, it's the end less the gap. It isn't where the gap depends on the event
or the state, or where some events keep no session open.
"""

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import Mask, instants, micros, whole, with_column
from sessionkit._engine.rows.tables import LAST_EVENT
from sessionkit._engine.sessions.feature import Feature
from sessionkit._engine.sessions.plan import Plan, with_last_event
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec


@attrs.frozen(eq=False)
class LastEvent(Feature):
    """The stored time of a session's last event."""

    fields: Sequence[pa.Field] = (LAST_EVENT,)

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "LastEvent | None":
        rules = spec.rules
        is_needed = rules is not None and (rules.state_gap is not None or rules.extends is not None)
        # Elsewhere the end of a session is the end of its last event's gap.
        return cls() if is_needed or callable(spec.timeout.gap) else None

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        times = plan.starts.copy()
        times[: len(plan.rows)] = micros(plan.touched[LAST_EVENT.name])
        return [instants(plan.unions.reduced(np.maximum, times[plan.order])[chosen])]

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """
        Add the time of the last event to sessions of another spec.

        Where it isn't known, it's the earliest that it can have been.
        """
        names = [name for name in sessions.column_names if name != LAST_EVENT.name]
        counted = with_last_event(sessions.select(names), span_us(old.timeout.longest))
        last = whole(counted[LAST_EVENT.name])
        if LAST_EVENT.name in sessions.column_names:
            last = pc.coalesce(whole(sessions[LAST_EVENT.name]), last)
        return with_column(sessions, LAST_EVENT, last)
