"""What folding a plan gives: states of its sessions, or the events without which to plan anew."""

from collections.abc import Collection, Sequence

import attrs
import pyarrow as pa

from sessionkit._arrays import Mask
from sessionkit._engine.rows.table import Rejected
from sessionkit._engine.sessions.plan import Plan


@attrs.frozen
class Folded:
    """
    The states of sessions, and the events that are part of none.

    Attributes:
        plan: The plan that was folded; None where what is left of it needs another one.
        good: Which of its sessions have events and a new state.
        states: The columns of these states.
        rejected: The events that failed or were refused.
        gone: Their places, in the plan that was to be folded.
        late: The places of events that are late without these.
    """

    plan: Plan | None
    good: Mask
    states: Sequence[pa.Array]
    rejected: Sequence[Rejected] = ()
    gone: Collection[int] = ()
    late: Collection[int] = ()
