"""
Sessions that are dropped whole where a function fails, under `on_error="drop_session"`.

Its events of this micro-batch have failed, and what is stored of it goes too. The session itself is
a failed output: its events of earlier micro-batches are counted as processed, and so nothing else
would say that they're gone. Later events begin a new session; only a trace stays, so that this one
has another id.

    sessions   start, end   when one may have begun that was dropped; `end` is exclusive
               closes       the same as `end`
               behind       minus a hash of its id; where several meet, of these

A *trace* is a row without a state. The id of a dropped session may be in rejected rows, and in
result rows from before the state was carried over; others of its ids, or of sessions that it has
swallowed, were those of a later start. A session that gets its start within a trace gets a mark
that hashes this too. A trace goes when the session would have been forgotten: from then on, the
watermark has passed what gets its start there.
"""

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.table import (
    Mask,
    Rejected,
    concat,
    filled,
    instants,
    is_trace,
    key_columns,
    marks_of,
    micros,
    split,
)
from sessionkit._engine.sessions.careful_fold import CarefulFold, FoldError, careful_folds
from sessionkit._engine.sessions.ids import mark_of, session_ids
from sessionkit._engine.sessions.intervals import BY_GAP, unite
from sessionkit._engine.sessions.plan import Folded, Plan
from sessionkit._engine.sessions.program import Program
from sessionkit._instants import instant_of
from sessionkit.spec.functions import Failure


def dropped(program: Program, plan: Plan, good: Mask, states: list[pa.Array]) -> Folded:
    """Drop the sessions of a plan that have events and aren't good; return the others."""
    failed, unions = plan.active & ~good, plan.unions
    parts = careful_folds(plan, unions.first[failed], unions.sizes[failed])
    failures = [_first_failure(plan, part) for part in parts]
    sessions = with_traces(plan, failed, program.sessions_after(plan, good, states))
    rows = dropped_sessions(plan, failed, failures)
    return Folded(sessions, int(plan.counts[good].sum()), rows)


def dropped_sessions(plan: Plan, dropped: Mask, failures: Sequence[Failure]) -> list[Rejected]:
    """Return the rows of sessions that are dropped, and why: their events, and they themselves."""
    before = plan.of_opened(np.add, plan.had)[dropped].tolist()
    came, places = plan.counts[dropped].tolist(), plan.places_of(dropped).tolist()
    of_session = np.repeat(np.arange(len(failures)), came).tolist()
    events = {
        place: _because("its session is dropped", failures[number])
        for place, number in zip(places, of_session, strict=True)
    }
    sessions = {
        number: _because(f"dropped with {new + old} events, {old} of them folded before", failure)
        for number, (failure, new, old) in enumerate(zip(failures, came, before, strict=True))
    }
    return [
        *Rejected.with_failures("failed", events, plan.events.table),
        *Rejected.with_failures("failed_output", sessions, _bounds(plan, dropped)),
    ]


def _because(what: str, failure: Failure) -> Failure:
    return failure._replace(reason=f"{what}: {failure.reason}")


def _bounds(plan: Plan, chosen: Mask) -> pa.Table:
    """Return the keys, ids, starts and ends of sessions."""
    keys, starts = plan.keys_of(chosen), plan.unions.start[chosen]
    ids = session_ids(key_columns(keys), starts, plan.marks_of(chosen))
    own = {
        "session_id": pa.array(ids, pa.string()),
        "start": instants(starts),
        "end": instants(plan.unions.end[chosen]),
    }
    return pa.table({**dict(zip(keys.column_names, keys.columns, strict=True)), **own})


def with_traces(plan: Plan, dropped: Mask, sessions: pa.Table) -> pa.Table:
    """Return a table of sessions with the traces of those of a plan that are dropped."""
    unions, keys, marks = plan.unions, plan.keys_of(dropped), plan.marks_of(dropped)
    starts, closes = unions.start[dropped], unions.closes[dropped]
    # None begins at or after a rule; exactly one gap after the last event, some join.
    closes = closes + (plan.spec.timeout.gap_inclusive & (unions.closed_by[dropped] == BY_GAP))
    hashes = [-mark_of(*one) for one in zip(starts.tolist(), marks.tolist(), strict=True)]
    before, others = split(sessions, is_trace(sessions))
    keys = concat([before.select(keys.column_names), keys])
    starts = np.concatenate([micros(before["start"]), starts])
    ends = np.concatenate([micros(before["end"]), closes])
    hashed = np.concatenate([marks_of(before), np.array(hashes, np.int64)])
    numbers, _ = key_numbers(key_columns(keys), key_columns(keys))
    order = np.lexsort((starts, numbers))
    # Those that meet become one: a key that always fails has one trace, not one a micro-batch.
    united = unite(numbers[order], starts[order], ends[order], gap_inclusive=False)
    parts = [part.tolist() for part in np.split(hashed[order], united.first[1:])]
    own = keys.take(pa.array(order[united.first]))
    columns = dict(zip(own.column_names, own.columns, strict=True))
    columns |= {"start": instants(united.start)}
    columns |= dict.fromkeys(("end", "closes"), instants(united.end))
    columns |= {"behind": pa.array(map(_together, parts), pa.int64())}
    columns |= {"exists": pa.array(np.zeros(len(parts), np.bool_))}
    return concat([others, filled(sessions.schema, columns, len(parts))])


def _together(hashes: Sequence[int]) -> int:
    return hashes[0] if len(hashes) == 1 else -mark_of(*sorted(hashes))


def _first_failure(plan: Plan, part: CarefulFold) -> Failure:
    """Return why a session can't be folded: over the first event that fails, if one does alone."""
    failure, event = Failure("its session can't be folded, though each event can"), None
    for strict in (set[int](), {*part.places}):
        again = attrs.evolve(part, known=plan.failures, strict=strict)
        try:
            again.state_of(part.places)
        except FoldError as error:
            failure, event = Failure.of(error), part.event_at(error.place)
            break
    events = [one for one in part.numbers if one >= 0] if event is None else [event]
    if len(events) != 1:
        return failure
    at = instant_of(int(plan.events.starts[events[0]]))
    return failure._replace(reason=f"{failure.reason}, over the event of {at.isoformat()}")
