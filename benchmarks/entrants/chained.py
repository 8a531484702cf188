"""sessionkit on `transformWithState`, with no operator after it."""

from typing import Final

import attrs
from pyspark.sql import DataFrame

from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.functions import visits
from benchmarks.workloads import Workload
from sessionkit import Results
from sessionkit.spark import sessionize

__all__ = ["CHAINED"]


def sessions(events: DataFrame, workload: Workload) -> DataFrame:
    """Find the sessions."""
    return sessionize(
        events, attrs.evolve(visits(workload), results=Results(carries_watermark=True))
    )


CHAINED: Final = Entrant(
    name="chained",
    about="sessionkit, plain functions, on transformWithState",
    ways={"sessions": sessions},
    environment="protobuf",
)
