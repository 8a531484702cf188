"""What ends the sessions of a spec: the gap alone, or rules too."""

from typing import Protocol

import attrs
import pyarrow as pa

from sessionkit._arrays import Numbers, whole
from sessionkit._engine.sessions.careful_fold import StateGaps
from sessionkit._engine.sessions.cutting import RuledIntervals, closings, cut, reasons_of
from sessionkit._engine.sessions.intervals import GapAlone, Members, Unions, WindowedEvents
from sessionkit._engine.sessions.sequence import numbered
from sessionkit.spec.functions import Failure
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import SessionRules


class Cuts(Protocol):
    """
    What ends sessions.

    `rules` say it, in full: a gap is a rule too. `column` is the stored instant at which a session
    is over.
    """

    @property
    def rules(self) -> SessionRules: ...

    @property
    def column(self) -> str: ...

    def over_at(self, events: WindowedEvents) -> Numbers:
        """Return when sessions of one event each would be over, in microseconds."""
        ...

    def united(self, members: Members) -> tuple[Unions, dict[int, Failure]]:
        """Join open sessions and events into sessions; also return why events failed on the way."""
        ...

    def reasons(self, sessions: pa.Table) -> pa.Array:
        """Return by which rules sessions are over, by the names of the rules."""
        ...


@attrs.frozen
class ByRules:
    """Sessions that rules end where the gap doesn't; `features.rules` stores when and which."""

    rules: SessionRules
    column: str = "closes"

    def over_at(self, events: WindowedEvents) -> Numbers:
        return closings(self.rules, events.starts, events.ends)[0]

    def united(self, members: Members) -> tuple[Unions, dict[int, Failure]]:
        gaps = None if self.rules.state_gap is None else StateGaps(self.rules, members)
        unions = cut(self.rules, RuledIntervals.of(self.rules, members), gaps)
        if members.spec.sequence is not None:
            unions = numbered(members, unions)
        return unions, {} if gaps is None else gaps.failures

    def reasons(self, sessions: pa.Table) -> pa.Array:
        return reasons_of(self.rules, whole(sessions["closed_by"]))


def cuts_of(spec: AnySessionSpec) -> Cuts:
    timeout = spec.timeout
    if isinstance(timeout, SessionRules):
        return ByRules(timeout)
    longest, inclusive = timeout.max_gap, timeout.gap_inclusive
    return GapAlone(SessionRules(timeout.gap, max_gap=longest, gap_inclusive=inclusive))
