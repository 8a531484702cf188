"""The floor: the same rows, unpacked, to a Python function that does nothing, 64 groups."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.spark_sql import seconds_of
from benchmarks.workloads import Workload

__all__ = ["FLOOR"]

GROUPS: Final = 64


def to_nothing(events: DataFrame, workload: Workload) -> DataFrame:
    """Read, shuffle and hand over the rows; return none."""
    group = F.pmod(F.xxhash64("user_id"), F.lit(GROUPS)).cast("int").alias("group")
    return (
        events.withWatermark("ts", seconds_of(workload.disorder))
        .select(group, "user_id", "ts", "seconds")
        .groupBy("group")
        .applyInPandasWithState(
            count_rows, "rows bigint", "rows bigint", "append", GroupStateTimeout.EventTimeTimeout
        )
    )


def count_rows(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count the rows, so that every frame is made."""
    state.update((sum(map(len, frames)),))
    return iter(())


FLOOR: Final = Entrant(
    name="floor",
    about="the same rows to an empty Python function, 64 groups",
    ways={"sessions": to_nothing},
)
