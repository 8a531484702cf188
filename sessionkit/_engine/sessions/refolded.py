"""What is left of sessions that are folded again without the events that fail."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.marks import marks_of
from sessionkit._engine.rows.table import INSTANT
from sessionkit._engine.sessions.duplicates import all_open
from sessionkit._engine.sessions.gathered import gathered_lists
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.revisions import joined_revisions
from sessionkit._engine.sessions.ruled import closing_columns
from sessionkit._engine.sessions.table import state_columns
from sessionkit._engine.sessions.traces import told_apart
from sessionkit.spec.functions import Failure

__all__ = ["Interval", "Part", "Refolded"]


@attrs.frozen(eq=False)
class Interval:
    """
    One part of a session.

    Attributes:
        start: Its start, in microseconds.
        end: Its end, exclusive.
        content: The event, or the state of an open session.
        event: The place of the event among all; None for an open session.
        events: How many events it stands for.
        each: What's kept of each of these events; see `gathered`.
        stored: The place of the open session among those stored; None for an event.
    """

    start: int
    end: int
    content: Any
    event: int | None
    events: int
    each: Sequence[tuple[Any, ...]]
    stored: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether it's an open session with a state: all of its events may be discarded."""
        return self.event is None and self.events > 0


Part: TypeAlias = list[Interval]


@attrs.define(eq=False)
class Refolded:
    """
    What is left of the sessions of a plan.

    Attributes:
        failures: Why events fail, by their places.
        late: The places of the events whose session, without those, is over.
        rows: For each session that is left, its place in the plan and its columns.
        parts: For each of these, what it's made of.
    """

    failures: dict[int, Failure] = attrs.field(factory=dict)
    late: list[int] = attrs.field(factory=list)
    rows: list[tuple[int, int, int, int, Sequence[tuple[Any, ...]], Any]] = attrs.field(
        factory=list
    )
    parts: list[Part] = attrs.field(factory=list)

    def keep(self, place: int, part: Part, state: Any) -> None:
        """Note a session that is left."""
        end = max(interval.end for interval in part)
        events = sum(interval.events for interval in part)
        each = [one for interval in part for one in interval.each]
        self.rows.append((place, part[0].start, end, events, each, state))
        self.parts.append(part)

    def table(self, plan: Plan) -> pa.Table:
        """Return the table of the sessions that are left."""
        places, starts, ends, events, kept, states = (
            zip(*self.rows, strict=True) if self.rows else [()] * 6
        )
        keys = plan.keys_of(plan.active).take(pa.array(places, pa.int64()))
        return pa.Table.from_arrays(
            [
                *keys.columns,
                pa.array(starts, INSTANT),
                pa.array(ends, INSTANT),
                pa.array(events, pa.int64()),
                pa.array(self._marks(plan, keys, np.array(starts, np.int64))),
                *gathered_lists(plan.spec, kept),
                *all_open(plan.spec, len(kept)),
                *closing_columns(plan.spec.rules, starts, ends),
                *self._revisions(plan),
                *state_columns(plan.spec, keys, states),
            ],
            schema=plan.touched.schema,
        )

    def _marks(
        self, plan: Plan, keys: pa.Table, starts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the marks of the sessions that are left; see `Plan.marks_of`."""
        marks, stored = plan.horizon.marks(starts), marks_of(plan.opened_of(plan.active))
        if plan.traces.num_rows:
            marks = told_apart(plan.traces, keys, starts, marks)
        for place, part in enumerate(self.parts):
            if part[0].stored is not None:
                marks[place] = stored[part[0].stored]
        return marks

    def _revisions(self, plan: Plan) -> list[pa.Array]:
        """Return what is stored for the revisions of the sessions that are left."""
        stored = [[one.stored for one in part if one.stored is not None] for part in self.parts]
        counts = [len(part) for part in stored]
        came = np.array([len(part) for part in self.parts], np.int64) - counts
        opened = plan.opened_of(plan.active).take(pa.array(list(chain(*stored)), pa.int64()))
        owners = np.repeat(np.arange(len(counts)), counts)
        return joined_revisions(plan.spec, opened, owners, came)
