"""sessionkit with plain functions, all other settings at their defaults."""

from typing import Any, Final

import attrs
from pyspark.sql import DataFrame

from benchmarks.entrants.entrant import Entrant
from benchmarks.workloads import Workload
from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    NoTimeout,
    Session,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit.spark import apply_with_state, sessionize

__all__ = ["COUNTS", "FUNCTIONS", "Bid", "BidsRow", "View", "VisitRow", "bids_of", "visits"]


@attrs.define
class View:
    """An event."""

    seconds: float


@attrs.define
class Visit:
    """An open session."""

    events: int = 0
    seconds: float = 0.0


@attrs.frozen
class VisitRow:
    """A closed session."""

    events: int
    seconds: float


@attrs.define
class Bid:
    """A bid: only who made it counts, and when."""


@attrs.define
class Bids:
    """An open session of a bidder."""

    bids: int = 0


@attrs.frozen
class BidsRow:
    """A closed session of a bidder."""

    bids: int


@attrs.frozen
class Count:
    """A state and its result: how many events, and their sum."""

    events: int
    seconds: float


def create(key: object, view: View) -> Visit:
    """Open a session."""
    return Visit(1, view.seconds)


def update(visit: Visit, view: View) -> Visit:
    """Fold one event."""
    visit.events += 1
    visit.seconds += view.seconds
    return visit


def merge(left: Visit, right: Visit) -> Visit:
    """Join two sessions."""
    return Visit(left.events + right.events, left.seconds + right.seconds)


def finish(session: Session, visit: Visit) -> VisitRow:
    """Close a session."""
    return VisitRow(visit.events, visit.seconds)


def first_bid(key: object, bid: Bid) -> Bids:
    """Open a session of a bidder."""
    return Bids(1)


def next_bid(bids: Bids, bid: Bid) -> Bids:
    """Count a bid."""
    bids.bids += 1
    return bids


def merge_bids(left: Bids, right: Bids) -> Bids:
    """Join two sessions of a bidder."""
    return Bids(left.bids + right.bids)


def finish_bids(session: Session, bids: Bids) -> BidsRow:
    """Close a session of a bidder."""
    return BidsRow(bids.bids)


def process(key: Any, views: list[View], state: KeyState[Count], times: KeyTimes) -> Count:
    """Count the events of a key, and return the count."""
    before = state.get(Count(0, 0.0))
    seconds = before.seconds + sum(view.seconds for view in views)
    count = Count(before.events + len(views), seconds)
    state.set(count)
    return count


def visits(workload: Workload, storage: Storage | None = None) -> SessionSpec[Any, Any, Any]:
    """Return the spec of a workload's sessions."""
    return SessionSpec(
        keys=dict.fromkeys(workload.key_columns, str),
        event_time="ts",
        logic=Functions(
            event=View,
            state=Visit,
            result=VisitRow,
            create=create,
            update=update,
            merge=merge,
            finish=finish,
        ),
        timeout=EventTimeGap(workload.gap),
        watermark_delay=workload.disorder,
        storage=storage or Storage(),
    )


def bids_of(workload: Workload) -> SessionSpec[Any, Any, Any]:
    """Return the spec of query 11 of NEXMark."""
    return SessionSpec(
        keys={"bidder": int},
        event_time="dateTime",
        logic=Functions(
            event=Bid,
            state=Bids,
            result=BidsRow,
            create=first_bid,
            update=next_bid,
            merge=merge_bids,
            finish=finish_bids,
        ),
        timeout=EventTimeGap(workload.gap),
        watermark_delay=workload.disorder,
    )


COUNTS: Final = StatefulSpec(
    keys={"user_id": str},
    event=View,
    state=Count,
    result=Count,
    process=process,
    timeout=NoTimeout(),
)


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions."""
    return sessionize(events, visits(workload))


def bids(events: DataFrame, workload: Workload) -> DataFrame:
    """Count the bids of each bidder's sessions."""
    return sessionize(events, bids_of(workload))


def counts(events: DataFrame, workload: Workload) -> DataFrame:
    """Count each user's events."""
    return apply_with_state(events, COUNTS)


FUNCTIONS: Final = Entrant(
    name="functions",
    about="sessionkit, plain functions",
    ways={"sessions": sessions, "counts": counts, "bids": bids},
)
