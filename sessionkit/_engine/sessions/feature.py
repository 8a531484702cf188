"""
What a feature is: one value that says what an option of a spec adds to each stage.

    compile    fields, identity                what is stored of a session, and under which rules
    events     read, distinct                  what is read of an event, and which don't count
    fold       columns, passed                 what is stored after a fold
    close      due, due_at                     which sessions give a row, and when
               context, row_columns            what `finish` gets, and a result row says
               finishing                       how `finish` is called
               emitted                         what comes of the rows
               remembered                      which rows remember sessions that are forgotten
    restart    incompatibilities, migrated     how rows of another spec become rows of this one

A spec has the features that its options ask for, in the order of `program.FEATURES`. Each stage
asks all of them, one after the other, and knows none by its name. They share no code: what one
needs of another it finds as a column, and says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sessionkit._arrays import Mask, Numbers
from sessionkit._engine.rows.rejected import Rejected
from sessionkit._engine.sessions.emission import Closed, Emission, Finish
from sessionkit._engine.sessions.intervals import WindowedEvents
from sessionkit._engine.sessions.plan import Plan
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import Clock


class Feature:
    """
    A feature that adds nothing: each one says otherwise where it does.

    `session_attributes` maps the `row_columns` that `finish` gets too to attributes of `Session`.
    """

    session_attributes: ClassVar[Mapping[str, str]] = {}

    @property
    def fields(self) -> Sequence[pa.Field]:
        """What is stored of a session."""
        return ()

    @property
    def identity(self) -> dict[str, Any]:
        """The rules under which that is stored, as JSON has them."""
        return {}

    def read(self, events: WindowedEvents) -> tuple[WindowedEvents, list[Rejected]]:
        """Return events with what is read of each, and those that can't be processed."""
        return events, []

    def distinct(
        self, sessions: pa.Table, events: WindowedEvents
    ) -> tuple[WindowedEvents, WindowedEvents | None]:
        """Return the events that count, and those that repeat one of these or an earlier one."""
        return events, None

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return the columns of `fields` for chosen sessions of a plan that was folded."""
        return []

    def passed(self, plan: Plan, sessions: pa.Table) -> pa.Table:
        """Return those sessions of a plan that have no events, as they are from now on."""
        return sessions

    def due(self, emission: Emission) -> Emission:
        """Let more sessions give a row than those that close."""
        return emission

    def due_at(self, sessions: pa.Table) -> dict[Clock, Numbers]:
        """Return when each session gives a row before it's over, in microseconds."""
        return {}

    def context(self, emission: Emission) -> Emission:
        """Add to the given rows what `finish` gets, and what a result row says."""
        return emission

    def row_columns(self, given: pa.Table) -> Mapping[str, pa.Array]:
        """Return the columns of a result row, an entry for each session that gives one."""
        return {}

    def finishing(self, finish: Finish) -> Finish:
        """Return how sessions are finished."""
        return finish

    def emitted(self, emission: Emission, closed: Closed) -> Closed:
        """Return what became of the sessions, with what this adds to it."""
        return closed

    def remembered(
        self, memories: pa.Table, kept: pa.Table, forgotten: pa.Table, watermark_us: int
    ) -> list[pa.Table]:
        """Return the rows that remember sessions from now on: earlier ones, and new ones."""
        return []

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Return a line for each thing in which sessions of another spec don't fit."""
        return []

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """Return sessions of another spec with `fields`."""
        return sessions
