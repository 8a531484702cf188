"""What an entrant is: how it turns the events into rows, and what it needs to run."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import attrs
from pyspark.sql import DataFrame

from benchmarks.workloads import Task, Workload

__all__ = ["Entrant", "Way"]

Way: TypeAlias = Callable[[DataFrame, Workload], DataFrame]
"""
Makes rows of events: `user_id`, `session_start`, `session_end`, `events` and `seconds`; of bids,
`bidder`, `session_start`, `session_end` and `bids`.
"""


@attrs.frozen(kw_only=True)
class Entrant:
    """
    One way to get the rows.

    Attributes:
        name: How the command line and the tables call it.
        about: What it is, in one line.
        ways: For Spark, the function for each task.
        script: For another engine, the program in `benchmarks/engines`, instead of `ways`.
        logic: For sessionkit on another engine, which of its specs.
        reads: The format of the files that it gets; Flink from PyPI has no reader for Parquet.
        environment: The name of the packages that it needs besides the project's own.
        settings: Its own settings of Spark, in addition to the shared ones.
    """

    name: str
    about: str
    ways: Mapping[Task, Way] = attrs.field(factory=dict)
    script: str | None = None
    logic: Literal["", "aggregates", "functions"] = ""
    reads: Literal["parquet", "csv"] = "parquet"
    environment: str | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether it is sessionkit."""
        return self.about.startswith("sessionkit")
