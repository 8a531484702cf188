"""
The features of a spec: what each option adds to the stages of a micro-batch.

    compile    fields, identity                what is stored of a session, and under which rules
    events     read, repeats                   what is read of an event, and which repeat others
    fold       columns, passed                 what is stored after a fold
    close      due, due_at                     which sessions give a row, and when
               context, row_columns            what `finish` gets, and a result row says
               finishing                       how `finish` is called
               emitted                         what is stored and reported after `finish`
               remembered                      the memories of forgotten sessions
    restart    incompatibilities, migrated     how rows of another spec become rows of this one

A spec has the features of its options, in the order of `program.FEATURES`. Each stage calls all of
them in turn, and names none. Features share no code: what one needs of another it reads from a
column. `exists`, `closed` and `last_event` are columns of the core (`rows.tables`): stages read
them, whichever feature stores them.

At a close the stages hand on three values:

    Emission   which sessions give a row, and these rows as `finish` gets them
    Finished   the columns of the results
    Closed     the result rows, and all other output
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.sessions.plan import Members, Plan, Repeats, WindowedEvents
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session
from sessionkit.timeouts._policies import Clock

Owners: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@attrs.frozen
class Emission:
    """
    The sessions of a group at an instant, and which of them give a row.

    The masks have an entry for each session. Here the watermark is at 10:30, and the second session
    has just taken an event under `emit="on_update"`:

        ends at     10:20   10:50   10:55
        over        yes     no      no        the watermark has reached its end
        final       yes     no      no        it's over, and wasn't before: it closes
        expired     yes     no      no        it's over, and needn't wait for late events
        gives_row   yes     yes     no        a final row, and an early one

    Attributes:
        sessions: The rows of sessions: open ones, and closed ones that wait for late events.
        memories: The rows that only remember sessions: the ids of their events, or their key's
            history.
        may_be_early: Whether sessions that are open may give a row.
        over, final, expired, gives_row: See above.
        emitting: The rows of the sessions that give a row, in order. Features add columns.
        is_final: Which of these are over, and give a final row.
        notes: What a feature computes before `finish` and needs after it, by its name.
    """

    sessions: pa.Table
    memories: pa.Table
    clocks: BatchClocks
    may_be_early: bool
    over: Mask
    final: Mask
    expired: Mask
    gives_row: Mask
    emitting: pa.Table
    is_final: Mask
    notes: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Finished:
    """
    The columns of results, the row of each result's session, and the failures of `finish`.

    `left` is what each session leaves to the next one of its key, as it's stored; None without
    `remember`.
    """

    columns: Sequence[pa.Array]
    owners: Owners
    failed: dict[int, Failure] = attrs.field(factory=dict)
    left: pa.Array | None = None


Tell: TypeAlias = Callable[[], Sequence[Session[Any]]]
"""A function that makes the `Session` objects of `finish`; a fold without functions needs none."""
Finisher: TypeAlias = Callable[[AnySessionSpec, pa.Table, Tell], Finished]
"""A function that makes results of the rows of sessions, at least one."""


@attrs.frozen
class Closed:
    """
    The output of the sessions that gave a row.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        others: The sessions whose `finish` failed, and the events that are handed out.
        owners: For each result row, the row of its session among the emitting ones.
        failed: The rows of the sessions whose `finish` failed.
        sessions: How many sessions closed, without failed ones.
        stored: The columns that replace stored ones, an entry for each emitting session.
        left: See `Finished`.
        revised: How many rows replace earlier ones.
        out_of_order: How many sessions began before the previous one was over.
    """

    rows: pa.Table
    others: Sequence[SideOutput] = ()
    owners: Owners = range(0)
    failed: Collection[int] = ()
    sessions: int = 0
    stored: Mapping[str, pa.Array] = attrs.field(factory=dict)
    left: pa.Array | None = None
    revised: int = 0
    out_of_order: int = 0


class Feature:
    """
    The base class of features: every hook does nothing by default.

    `session_attributes` names the `row_columns` that `finish` gets too, as attributes of `Session`.
    """

    session_attributes: ClassVar[Sequence[str]] = ()

    @property
    def fields(self) -> Sequence[pa.Field]:
        """The stored fields of a session."""
        return ()

    @property
    def identity(self) -> dict[str, Any]:
        """The rules under which the fields are stored, as JSON."""
        return {}

    def read(self, events: WindowedEvents) -> tuple[WindowedEvents, list[SideOutput]]:
        """Add what the feature reads of each event; return the rejected events too."""
        return events, []

    def repeats(self, sessions: pa.Table, members: Members) -> Repeats | None:
        """Return which events have the id of an earlier one; None if none has."""
        return None

    def columns(self, plan: Plan, chosen: Mask) -> list[pa.Array]:
        """Return the columns of `fields` for chosen sessions of a folded plan."""
        return []

    def passed(self, plan: Plan, sessions: pa.Table) -> pa.Table:
        """Return the sessions of a plan that have no events, as they are stored afterwards."""
        return sessions

    def due(self, emission: Emission) -> Emission:
        """Choose sessions that give a row though they stay open."""
        return emission

    def due_at(self, sessions: pa.Table) -> dict[Clock, Numbers]:
        """Return when each session gives an early row, in microseconds."""
        return {}

    def context(self, emission: Emission) -> Emission:
        """Add the columns that `finish` and the result rows need."""
        return emission

    def row_columns(self, sessions: pa.Table) -> Mapping[str, pa.Array]:
        """Return the columns of a result row, an entry for each session that gives one."""
        return {}

    def finishing(self, finish: Finisher) -> Finisher:
        """Wrap the function that finishes sessions."""
        return finish

    def emitted(self, emission: Emission, closed: Closed) -> Closed:
        """Add what the feature stores, reports or hands out after `finish`."""
        return closed

    def remembered(
        self, memories: pa.Table, kept: pa.Table, forgotten: pa.Table, watermark_us: int
    ) -> list[pa.Table]:
        """Return the memories to store: earlier ones, and new ones of forgotten sessions."""
        return []

    def incompatibilities(self, old: AnySessionSpec) -> list[str]:
        """Return a line for each reason why stored sessions of another spec don't fit."""
        return []

    def migrated(self, sessions: pa.Table, old: AnySessionSpec) -> pa.Table:
        """Return sessions of another spec with `fields`."""
        return sessions
