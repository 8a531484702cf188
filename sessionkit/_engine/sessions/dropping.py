"""
Sessions that are dropped whole where a function fails, under `on_error="drop_session"`.

Its events of this micro-batch have failed, and what is stored of it goes too. The session itself is
a failed output: its events of earlier micro-batches are counted as processed, and so nothing else
would say that they're gone. Later events begin a new session; only a trace stays, so that this one
has another id.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected, instants, key_columns
from sessionkit._engine.sessions.closings import CODES
from sessionkit._engine.sessions.ids import session_ids
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.traces import with_traces
from sessionkit._instants import instant_of
from sessionkit.spec.functions import Failure

Mask: TypeAlias = npt.NDArray[np.bool_]


def dropped_sessions(plan: Plan, dropped: Mask, failures: Sequence[Failure]) -> list[Rejected]:
    """Return the rows of sessions that are dropped, and why: their events, and they themselves."""
    came, before = plan.counts[dropped].tolist(), plan.counts_before[dropped].tolist()
    places = plan.places_of(dropped).tolist()
    of_session = np.repeat(np.arange(len(failures)), came).tolist()
    events = {
        place: _told("its session is dropped", failures[number])
        for place, number in zip(places, of_session, strict=True)
    }
    sessions = {
        number: _told(f"dropped with {new + old} events, {old} of them folded before", failure)
        for number, (failure, new, old) in enumerate(zip(failures, came, before, strict=True))
    }
    return [
        *Rejected.with_failures("failed", events, plan.events.table),
        *Rejected.with_failures("failed_output", sessions, _bounds(plan, dropped)),
    ]


def traced(plan: Plan, dropped: Mask, sessions: pa.Table) -> pa.Table:
    """Return a table of sessions with the traces of those of a plan that are dropped."""
    closes, starts = plan.unions.closes[dropped], plan.unions.start[dropped]
    # None begins at or after a rule; exactly one gap after the last event, some join.
    joins = plan.spec.timeout.gap_inclusive & (plan.unions.closed_by[dropped] == CODES["gap"])
    marks = plan.marks_of(dropped)
    return with_traces(sessions, plan.keys_of(dropped), starts, closes + joins, marks)


def over_event(plan: Plan, failure: Failure, culprits: Sequence[int]) -> Failure:
    """Name the event over which a session failed, where it's one alone."""
    if len(culprits) != 1:
        return failure
    at = instant_of(int(plan.events.starts[culprits[0]]))
    return failure._replace(reason=f"{failure.reason}, over the event of {at.isoformat()}")


def _told(what: str, failure: Failure) -> Failure:
    return failure._replace(reason=f"{what}: {failure.reason}")


def _bounds(plan: Plan, chosen: Mask) -> pa.Table:
    """Return the keys, ids, starts and ends of sessions."""
    keys, starts = plan.keys_of(chosen), plan.unions.start[chosen]
    own: Mapping[str, pa.Array] = {
        "session_id": pa.array(
            session_ids(key_columns(keys), starts, plan.marks_of(chosen)), pa.string()
        ),
        "start": instants(starts),
        "end": instants(plan.unions.end[chosen]),
    }
    return pa.table({**dict(zip(keys.column_names, keys.columns, strict=True)), **own})
