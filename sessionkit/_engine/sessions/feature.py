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
asks all of them, one after the other, and names none. They share no code: what one needs of
another it finds as a column, and says so. `exists`, `closed` and `last_event` are columns of the
core (`rows.tables`): stages read them, whichever feature stores them.

At a close they hand on three values:

    Emission   which sessions give a row, and these rows as `finish` gets them
    Finished   the columns of the results
    Closed     the result rows, and everything else that comes of them
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers
from sessionkit._engine.micro_batch import BatchClocks
from sessionkit._engine.rows.tables import Rejected
from sessionkit._engine.sessions.plan import Plan, WindowedEvents
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session
from sessionkit.timeouts._policies import Clock

ResultPlaces: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@attrs.frozen
class Emission:
    """
    The sessions of a group at an instant, and which of them give a row.

    The masks have an entry for each of the sessions. Of three, the watermark is at 10:30, and the
    second has just taken an event under `emit="on_update"`:

        ends at     10:20   10:50   10:55
        over        yes     no      no        the watermark has reached its end
        final       yes     no      no        it's over, and wasn't before: it closes
        expired     yes     no      no        it's over, and needn't wait for late events
        gives_row   yes     yes     no        a final row, and an early one

    Attributes:
        sessions: The rows of sessions: open ones, and closed ones that wait for late events.
        memories: The rows that only remember sessions: the ids of their events, or their key's
            history.
        clocks: The clocks of the micro-batch.
        may_be_early: Whether sessions that are open may give a row.
        over, final, expired, gives_row: See above.
        given: The rows of the sessions that give one, in order. Features add columns.
        is_final: Which of these give a final row: their sessions are over.
        notes: What a feature works out before `finish`, and needs again after it, by its name.
    """

    sessions: pa.Table
    memories: pa.Table
    clocks: BatchClocks
    may_be_early: bool
    over: Mask
    final: Mask
    expired: Mask
    gives_row: Mask
    given: pa.Table
    is_final: Mask
    notes: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Finished:
    """
    The columns of results, for each result the place of its session, and why `finish` failed.

    `left` is what each session leaves to the next one of its key, as it's stored; None without
    `remember`.
    """

    columns: Sequence[pa.Array]
    places: ResultPlaces
    failed: dict[int, Failure] = attrs.field(factory=dict)
    left: pa.Array | None = None


Tell: TypeAlias = Callable[[], Sequence[Session[Any]]]
"""Makes the sessions that `finish` is given: a fold without functions needs none."""
Finisher: TypeAlias = Callable[[AnySessionSpec, pa.Table, Tell], Finished]
"""Makes results of the rows of sessions, at least one."""


@attrs.frozen
class Closed:
    """
    What became of the sessions that gave a row.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        rejected: The sessions whose `finish` failed, and the events that are handed out.
        places: For each result row, the place of its session among those given.
        failed: The places of those whose `finish` failed.
        sessions: How many closed, without those.
        stored: The columns of the sessions that are other ones from now on, an entry for each of
            those given.
        left: See `Finished`.
        revised: How many rows replace earlier ones.
        out_of_order: How many sessions began before the one before them was over.
    """

    rows: pa.Table
    rejected: Sequence[Rejected] = ()
    places: ResultPlaces = range(0)
    failed: Collection[int] = ()
    sessions: int = 0
    stored: Mapping[str, pa.Array] = attrs.field(factory=dict)
    left: pa.Array | None = None
    revised: int = 0
    out_of_order: int = 0


class Feature:
    """
    The base of features: every method does nothing.

    `session_attributes` names the `row_columns` that `finish` gets too, as attributes of `Session`.
    """

    session_attributes: ClassVar[Sequence[str]] = ()

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

    def finishing(self, finish: Finisher) -> Finisher:
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
