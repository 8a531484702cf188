"""sessionkit with pages of state: for much state and little input."""

from typing import Final

from pyspark.sql import DataFrame

from benchmarks.entrants.aggregates import totals
from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.functions import visits
from benchmarks.workloads import Workload
from sessionkit import Storage
from sessionkit.spark import sessionize

__all__ = ["AGGREGATES_PAGES", "PAGES"]


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions with functions."""
    return sessionize(events, visits(workload, Storage(layout="pages")))


def sessions_of_aggregates(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions with aggregates."""
    return sessionize(events, totals(workload, Storage(layout="pages")))


PAGES: Final = Entrant(
    name="pages",
    about='sessionkit, plain functions, `layout="pages"`',
    ways={"sessions": sessions},
    environment="protobuf",
)
AGGREGATES_PAGES: Final = Entrant(
    name="aggregates pages",
    about='sessionkit, aggregates, `layout="pages"`',
    ways={"sessions": sessions_of_aggregates},
    environment="protobuf",
)
