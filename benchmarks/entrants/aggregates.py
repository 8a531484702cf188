"""sessionkit with aggregates instead of functions, all other settings at their defaults."""

from typing import Any, Final

from pyspark.sql import DataFrame

from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.functions import Bid, BidsRow, View, VisitRow
from benchmarks.workloads import Workload
from sessionkit import SessionSpec, Storage, aggregates
from sessionkit.spark import sessionize

__all__ = ["AGGREGATES", "totals"]


def totals(workload: Workload, storage: Storage | None = None) -> SessionSpec[Any, Any, Any]:
    """Return the spec of a workload's sessions."""
    return SessionSpec.aggregate(
        View,
        {"events": aggregates.count(), "seconds": aggregates.sum("seconds")},
        result=VisitRow,
        keys=dict.fromkeys(workload.key_columns, str),
        event_time="ts",
        gap=workload.gap,
        watermark_delay=workload.disorder,
        storage=storage or Storage(),
    )


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions."""
    return sessionize(events, totals(workload))


def bids_of(workload: Workload) -> SessionSpec[Any, Any, Any]:
    """Return the spec of query 11 of NEXMark."""
    return SessionSpec.aggregate(
        Bid,
        {"bids": aggregates.count()},
        result=BidsRow,
        keys={"bidder": int},
        event_time="dateTime",
        gap=workload.gap,
        watermark_delay=workload.disorder,
    )


def bids(events: DataFrame, workload: Workload) -> DataFrame:
    """Count the bids of each bidder's sessions."""
    return sessionize(events, bids_of(workload))


AGGREGATES: Final = Entrant(
    name="aggregates",
    about="sessionkit, aggregates instead of functions",
    ways={"sessions": sessions, "bids": bids},
)
