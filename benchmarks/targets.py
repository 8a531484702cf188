"""What sessionkit has to reach, as ratios of medians of one run, and whether it does."""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from statistics import linear_regression
from typing import Final, Literal

import attrs

from benchmarks.results import Figure, Result

__all__ = ["LATENCY_TARGETS", "TARGETS", "Exponent", "Ratio", "Size", "Target", "exponent"]

FUNCTIONS: Final = "functions"
AGGREGATES: Final = "aggregates"
PAGES: Final = "pages"
AGGREGATES_PAGES: Final = "aggregates pages"
WINDOW: Final = ("session_window", "session_window, default store")
"""Spark's own operator on each of its stores: which one is the faster depends on the workload."""


@attrs.frozen
class Ratio:
    """An entrant's time for a batch, divided by another's, or by the least of several others."""

    workload: str
    entrant: str
    against: str | tuple[str, ...]
    at_most: float
    goal: float | None = None
    figure: Literal["seconds", "cpu_s"] = "seconds"

    def measured(self, results: Mapping[str, Result]) -> float | None:
        """Return the ratio, if all of them have run."""
        result = results.get(self.workload)
        if result is None:
            return None
        own_time, *others = (
            result.figure(name, self.figure) for name in (self.entrant, *self.others)
        )
        found = [seconds for seconds in others if seconds]
        return own_time / min(found) if own_time and len(found) == len(others) else None

    @property
    def others(self) -> tuple[str, ...]:
        """Those that it's compared with."""
        return (self.against,) if isinstance(self.against, str) else self.against

    @property
    def text(self) -> str:
        """Say what is measured."""
        name, *more = self.others
        time = "time" if self.figure == "seconds" else "CPU time"
        return f"{time} / {name}{', the better store' if more else ''}"


@attrs.frozen
class Size:
    """How many bytes an entrant writes."""

    workload: str
    entrant: str
    figure: Figure
    at_most: float
    goal: float | None = None

    def measured(self, results: Mapping[str, Result]) -> float | None:
        """Return the bytes, if it has run."""
        result = results.get(self.workload)
        return result.figure(self.entrant, self.figure) if result else None

    @property
    def text(self) -> str:
        """Say what is measured."""
        return {
            "checkpoint_bytes": "bytes to the checkpoint a batch",
            "state_bytes": "bytes in the checkpoint for an open session",
        }.get(self.figure, self.figure)


@attrs.frozen
class Exponent:
    """The power of the size with which an entrant's time grows, in a family of workloads."""

    workload: str
    entrant: str
    at_most: float
    goal: float | None = None

    def measured(self, results: Mapping[str, Result]) -> float | None:
        """Return the exponent, if the entrant has run at two sizes or more."""
        points = [
            (result.workload.size, seconds)
            for result in results.values()
            if result.workload.family == self.workload
            if (seconds := result.figure(self.entrant, "seconds"))
        ]
        return exponent(*zip(*points, strict=True)) if len(points) > 1 else None

    @property
    def text(self) -> str:
        """Say what is measured."""
        return "exponent of the growth of the time"


Target = Ratio | Size | Exponent


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the power of the size with which the seconds grow, by a fit of their logarithms."""
    return linear_regression([log(size) for size in sizes], [log(each) for each in seconds]).slope


def _both(
    workload: str,
    against: str | tuple[str, ...],
    functions: float,
    aggregates: float,
    *,
    goal: float | None = None,
    figure: Literal["seconds", "cpu_s"] = "seconds",
) -> Iterator[Target]:
    yield Ratio(workload, FUNCTIONS, against, functions, goal, figure)
    yield Ratio(workload, AGGREGATES, against, aggregates, figure=figure)


TARGETS: Final[Sequence[Target]] = (
    *_both("tiny", WINDOW, 1.6, 1.5, goal=1.3),
    *_both("small", WINDOW, 1.0, 0.95),
    *_both("dense", "java", 0.95, 0.75),
    *_both("dense", WINDOW, 0.4, 0.34),
    Ratio("dense", AGGREGATES, "floor", 1.15),
    *_both("small", "by hand", 1 / 18, 1 / 20),
    Ratio("keys", FUNCTIONS, "by hand", 1 / 60),
    Ratio("keys", FUNCTIONS, "transformWithState", 1 / 12),
    Ratio("sparse", PAGES, WINDOW, 0.85),
    Ratio("sparse", AGGREGATES_PAGES, WINDOW, 0.85),
    Size("sparse", PAGES, "checkpoint_bytes", 5e6),
    Size("sparse", AGGREGATES_PAGES, "checkpoint_bytes", 5e6),
    *_both("batch", "SQL window functions", 0.8, 0.55),
    Ratio("batch", AGGREGATES, "DuckDB", 2.0),
    Ratio("batch", "Sail, aggregates", "DuckDB", 0.85),
    Ratio("batch", "Sail, aggregates", "DuckDB", 0.7, figure="cpu_s"),
    Ratio("batch", "Sail, functions", "DuckDB", 2.0),
    *_both("long", WINDOW, 0.62, 0.55),
    *_both("huge groups", WINDOW, 1.0, 1.0),
    *_both("skew", WINDOW, 0.45, 0.38),
    *_both("nexmark-q11", WINDOW, 1.0, 0.75),
    *_both("nexmark-q11", WINDOW, 1.0, 0.75, figure="cpu_s"),
    *(
        Size("state", entrant, "state_bytes", 64)
        for entrant in (FUNCTIONS, AGGREGATES, PAGES, AGGREGATES_PAGES)
    ),
    Exponent("growth-events", FUNCTIONS, 1.05),
    Exponent("growth-events", AGGREGATES, 1.05),
    Exponent("growth-open", PAGES, 0.3),
    Exponent("growth-open", AGGREGATES_PAGES, 0.3),
)

LATENCY_TARGETS: Final[Mapping[tuple[int, str], float]] = {
    (1_000, "functions, on_update"): 1.3,
    (1_000, "aggregates, on_update"): 1.2,
}
"""The most that p50 and p99 may be, as a ratio to a window in update mode, by events a second."""
