"""
Which events of a micro-batch are late or duplicates, and which sessions the others make.

What belongs together depends on times alone; so events are rows here, of all keys at once.
"""

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.boundaries import is_late, window_end
from sessionkit._engine.rows.order import in_total_order, key_numbers
from sessionkit._engine.rows.table import (
    Rejected,
    has_state,
    instants,
    is_trace,
    micros,
    parted,
    stacked,
)
from sessionkit._engine.sessions.behind import Horizon
from sessionkit._engine.sessions.events import Distinct, WindowedEvents
from sessionkit._engine.sessions.intervals import unite
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.program import Program
from sessionkit.spec.functions import Failure

Mask: TypeAlias = npt.NDArray[np.bool_]

LATE_EVENT = "its own window is over: event time + gap is at or before the watermark"
LATE_DAY = "its own window is over: event time + gap, or midnight, is at or before the watermark"
LATE_SESSION = "the session it would join is over: its end is at or before the watermark"
LATE_HEARTBEAT = "no open session is there at its time, which is at or before the watermark"


def read_events(program: Program, arrived: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
    """Return the events of a table with their windows, and those that can't be processed."""
    starts, rejected = micros(arrived["time"]), list[Rejected]()
    events = WindowedEvents(arrived, starts, window_end(starts, program.gap_us))
    if program.event_functions is not None:
        events, rejected = program.event_functions.asked(events)
    for keeper in (program.duplicates, program.session_events):
        if keeper is not None:
            events = attrs.evolve(events, table=keeper.read(events.table))
    return events, rejected


@attrs.frozen
class Timely:
    """
    The events that can be processed, and those that can't.

    Attributes:
        plan: What the timely ones belong to; None where there is none.
        late: Those that aren't in time.
        distinct: The timely ones, told apart from their duplicates.
    """

    plan: Plan | None
    late: list[Rejected]
    distinct: Distinct

    @property
    def rejected(self) -> list[Rejected]:
        """Those that can't be processed."""
        return [*self.late, *self.distinct.rejected]


def timely(
    program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon
) -> Timely:
    """Plan for the events that are neither late nor duplicates."""
    if horizon.late_us is None:
        return _planned(program, sessions, events, [], horizon)
    rejected: list[Rejected] = []
    if program.late_by_event:
        events, rejected = _in_time(program, events, horizon.late_us)
    if not program.late_by_session:
        return _planned(program, sessions, events, rejected, horizon)
    # A duplicate joins no session, so it's found first. Where the one that it repeats is late, it
    # isn't one.
    while True:
        found = _planned(program, sessions, events, rejected, horizon)
        if found.plan is None:
            return found
        first = found.distinct.first
        late = np.zeros(len(first.starts), np.bool_)
        late[found.plan.places_of(is_late(found.plan.unions.closes, horizon.late_us))] = True
        if not late.any():
            return found
        rejected = rejected + Rejected.chosen("late", late_session(program), first.table, late)
        events = found.distinct.with_others(first.only(~late))


def _in_time(
    program: Program, events: WindowedEvents, late_us: int
) -> tuple[WindowedEvents, list[Rejected]]:
    """Return the events whose own windows aren't over, and the late ones."""
    closes = events.ends if program.rules is None else program.rules.closes(events)
    late = is_late(closes, late_us)
    if not late.any():
        return events, []
    if program.late_by_session and program.event_functions is not None:
        late &= program.event_functions.extend(events)
    by_day = program.rules is not None and program.rules.rules.midnight is not None
    why = _why(program, LATE_DAY if by_day else LATE_EVENT)
    return events.only(~late), Rejected.chosen("late", why, events.table, late)


def late_session(program: Program) -> str:
    """Return why events are late for the session that they would join."""
    return _why(program, LATE_HEARTBEAT if program.late_by_event else LATE_SESSION)


def _why(program: Program, reason: str) -> str:
    return f"{reason}, less `Lateness(allowed=...)`" if program.horizons.lateness_us else reason


def _planned(
    program: Program,
    sessions: pa.Table,
    events: WindowedEvents,
    late: list[Rejected],
    horizon: Horizon,
) -> Timely:
    found = Distinct(events)
    if program.duplicates is not None:
        found = program.duplicates.distinct(sessions, events)
    if not len(found.first.starts):
        return Timely(None, late, found)
    return Timely(planned(program, sessions, found.first, horizon), late, found)


def planned(program: Program, sessions: pa.Table, events: WindowedEvents, horizon: Horizon) -> Plan:
    """Find out what belongs together; there is at least one event."""
    number = len(program.spec.keys)
    numbers, found = key_numbers(events.table.columns[:number], sessions.columns[:number])
    concerned, traces = found >= 0, None
    dropped = is_trace(sessions)
    if dropped.any():
        traces = sessions.filter(pa.array(dropped))
    if program.duplicates is not None or traces is not None:
        concerned &= has_state(sessions)
    touched, untouched = parted(sessions, concerned)
    keys = np.concatenate([found[concerned], numbers])
    starts = np.concatenate([micros(touched["start"]), events.starts])
    ends = np.concatenate([micros(touched["end"]), events.ends])
    order = in_total_order(keys, starts, events.table, touched.num_rows)
    failures = dict[int, Failure]()
    if program.rules is None:
        unions = unite(keys[order], starts[order], ends[order], gap_inclusive=program.gap_inclusive)
    else:
        unions, failures = program.rules.united(touched, events, order, (keys, starts, ends))
    is_event = order >= touched.num_rows
    counts = unions.sums(is_event.astype(np.int64))
    parts = program.spec, events, touched, untouched, order, is_event, unions, counts, horizon
    return Plan(*parts, failures, traces)


def sessions_after(
    program: Program, plan: Plan, good: Mask, states: Sequence[pa.Array]
) -> pa.Table:
    """
    Return the table of sessions: those without events as they were, and the folded ones.

    Args:
        program: The spec, compiled.
        plan: What belongs together.
        good: The sessions with events that have a new state.
        states: The columns of their states.
    """
    folded = [
        *plan.keys_of(good).columns,
        instants(plan.unions.start[good]),
        instants(plan.unions.end[good]),
        pa.array((plan.counts + plan.counts_before)[good]),
        pa.array(plan.marks_of(good)),
    ]
    for feature in program.features:
        folded += feature.columns(plan, good)
    folded += states
    parts = [plan.untouched, pa.Table.from_arrays(folded, schema=program.schema)]
    if not plan.active.all():
        passed = plan.touched.take(pa.array(plan.order[plan.unions.first[~plan.active]]))
        parts.append(passed if program.rules is None else program.rules.passed(plan, passed))
    return stacked(parts)
