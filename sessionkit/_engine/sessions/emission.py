"""
What leaves a group at an instant: the sessions that give a row, and what `finish` made of them.

    Emission   which sessions give a row, and these rows as `finish` gets them
    Finished   the columns of the results
    Closed     the result rows, and everything else that comes of them
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._arrays import Mask
from sessionkit._engine.logic import BatchClocks
from sessionkit._engine.rows.rejected import Rejected
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session

Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@attrs.frozen
class Emission:
    """
    The sessions of a group at an instant, and which of them give a row.

    The masks have an entry for each of the sessions. Of three, the watermark is at 10:30, and the
    second has just taken an event under `emit="on_update"`:

        ends at     10:20   10:50   10:55
        over        yes     no      no        the watermark has reached its end
        final       yes     no      no        it's over, and wasn't before: it closes
        gives_row   yes     yes     no        a final row, and an early one

    Attributes:
        sessions: The rows of sessions: open ones, and closed ones that wait for late events.
        memories: The rows that only remember sessions: the ids of their events, or their key's
            history.
        clocks: The clocks of the micro-batch.
        may_be_early: Whether sessions that are open may give a row.
        over, final, gives_row: See above.
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
    places: Places
    failed: dict[int, Failure] = attrs.field(factory=dict)
    left: pa.Array | None = None


Tell: TypeAlias = Callable[[], Sequence[Session[Any]]]
"""Makes the sessions that `finish` is given: a fold without functions needs none."""
Finish: TypeAlias = Callable[[AnySessionSpec, pa.Table, Tell], Finished]
"""Makes results of the rows of sessions, at least one."""


@attrs.frozen
class Closed:
    """
    What became of the sessions that gave a row.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        failed_output: The sessions whose `finish` failed.
        places: For each result row, the place of its session among those given.
        failed: The places of those whose `finish` failed.
        sessions: How many closed, without those.
        events: The events of the sessions, where these are handed out.
        stored: The columns of the sessions that are other ones from now on, an entry for each of
            those given.
        left: See `Finished`.
        revised: How many rows replace earlier ones.
        out_of_order: How many sessions began before the one before them was over.
    """

    rows: pa.Table
    failed_output: Sequence[Rejected] = ()
    places: Places = range(0)
    failed: Collection[int] = ()
    sessions: int = 0
    events: Sequence[Rejected] = ()
    stored: Mapping[str, pa.Array] = attrs.field(factory=dict)
    left: pa.Array | None = None
    revised: int = 0
    out_of_order: int = 0

    def then(self, later: "Closed") -> "Closed":
        """Return what goes out of these and of later ones."""
        return Closed(
            rows=pa.concat_tables([self.rows, later.rows]),
            failed_output=[*self.failed_output, *later.failed_output],
            events=[*self.events, *later.events],
            sessions=self.sessions + later.sessions,
            revised=self.revised + later.revised,
            out_of_order=self.out_of_order + later.out_of_order,
        )
