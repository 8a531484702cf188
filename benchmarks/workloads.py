"""
The workloads: what comes in, who takes part, and in how many batches.

A batch covers more than the gap, by default twice as much (`SPAN`), so sessions of one batch are
over in the next. The events of a batch come in any order, but bids in time order. No event
is ever late, so every entrant has to return the same rows.

Left out is whoever nobody would take: `transformWithStateInPandas`, which Spark has replaced by
`transformWithState`; PyFlink's DataStream, which takes a millisecond and more for an event; and
window functions of Spark's SQL, which `session_window` is a shorter name for.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = ["SPAN", "WORKLOADS", "Mode", "Task", "Workload", "families"]

Task: TypeAlias = Literal["sessions", "counts", "bids"]
"""
`sessions`: a count and a sum for each session. `counts`: both for each key, in every batch.
`bids`: query 11 of NEXMark, the number of bids in each session of a bidder.
"""

Mode: TypeAlias = Literal["stream", "batch", "job"]
"""
What is timed: each micro-batch of a `stream`, each reading of all files as one `batch`, or a whole
`job`, from the start of its process to the last row.
"""

SPAN: Final = timedelta(seconds=60)
"""The event time that a batch covers, unless a workload says otherwise."""

ENOUGH: Final = 10
"""The JVM compiles during the first batches, so the median needs this many samples."""


@attrs.frozen(kw_only=True)
class Workload:
    """
    What is measured side by side.

    Attributes:
        name: How the command line calls it.
        about: What it shows, for the report.
        entrants: Who takes part, by name.
        events: How many events a batch has.
        keys: Over how many users they are spread, evenly by chance; of bids, how many people are
            active at a time.
        task: What the entrants compute.
        mode: What is timed.
        batches: How many batches there are.
        repetitions: How often a batch is read.
        warm_up: How many samples come before those that count.
        few: Slow entrants, and how many batches each gets.
        opened: How many more keys there are, each of which gets one event in the first batch.
        one_each: Whether every user has exactly one event a batch.
        key_columns: The columns of the key.
        disorder: By how much events are out of order, at most, and the watermark's delay.
        gap: What ends a session.
        span: The event time that a batch covers.
        to_files: Whether rows that are timed go to Parquet files; by default they go nowhere.
        family: The name of the workloads that belong together, by default its own.
        size: What grows in its family: events or open sessions. The rows of its first are compared.
    """

    name: str
    about: str
    entrants: tuple[str, ...]
    events: int
    keys: int
    task: Task = "sessions"
    mode: Mode = "stream"
    batches: int = ENOUGH
    repetitions: int = 4
    warm_up: int = 1
    few: Mapping[str, int] = attrs.field(factory=dict)
    opened: int = 0
    one_each: bool = False
    key_columns: tuple[str, ...] = ("user_id",)
    disorder: timedelta = timedelta(0)
    gap: timedelta = timedelta(seconds=30)
    span: timedelta = SPAN
    to_files: bool = False
    family: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    size: int = 0

    def scaled(self, factor: float) -> "Workload":
        """Return the same with more or fewer events and keys, at least one of each."""
        events, keys = (max(1, round(n * factor)) for n in (self.events, self.keys))
        return attrs.evolve(self, events=events, keys=keys, opened=round(self.opened * factor))

    def shortened(self, batches: int | None) -> "Workload":
        """Return the same with at most this many batches."""
        return attrs.evolve(self, batches=min(self.batches, batches or self.batches))

    def batches_of(self, entrant: str) -> int:
        """Return how many batches an entrant gets."""
        return min(self.batches, self.few.get(entrant, self.batches))

    @property
    def is_growth(self) -> bool:
        """Whether it's part of `python -m benchmarks growth`."""
        return bool(self.size)

    @property
    def is_compared(self) -> bool:
        """Whether rows are compared: where a family grows, those of its smallest."""
        sizes = [each.size for each in WORKLOADS.values() if each.family == self.family]
        return self.size == min(sizes, default=0)

    def uncounted_of(self, entrant: str) -> int:
        """Return how many samples of an entrant come before those that count."""
        batches = self.batches_of(entrant)
        samples = {"stream": batches, "batch": self.repetitions, "job": 1}[self.mode]
        return min(self.warm_up, samples - 1)


def _of_sizes(base: Workload, sizes: Mapping[int, Mapping[str, Any]]) -> list[Workload]:
    return [
        attrs.evolve(base, name=f"{base.name}-{size}", family=base.name, size=size, **changes)
        for size, changes in sizes.items()
    ]


OURS: Final = ("functions", "aggregates")
WINDOW: Final = "session_window, default store"
"""The faster of Spark's two stores, wherever the state fits into memory."""
ONE_MACHINE: Final = (
    "Sail, aggregates",
    "Sail, functions",
    *OURS,
    "session_window",
    "DuckDB",
    "Polars",
)
"""What one takes for a batch on one machine."""

BATCH: Final = Workload(
    name="batch",
    about="5,000,000 events of 200,000 users within five minutes, as a batch",
    entrants=(*ONE_MACHINE, "Sail, functions, 1 worker", "Sail, functions, 4 workers"),
    events=1_000_000,
    keys=200_000,
    mode="batch",
    batches=5,
)
BATCH_OF_FEW: Final = attrs.evolve(
    BATCH,
    name="batch-few",
    about="5,000,000 events of 20,000 users over three days, as a batch",
    entrants=ONE_MACHINE,
    keys=20_000,
    gap=timedelta(minutes=30),
    span=timedelta(days=3) / 5,
    family="batch-few",
)
BATCH_OF_KEYS: Final = attrs.evolve(
    BATCH,
    name="batch-keys",
    about="5,000,000 events of 200,000 keys of three columns, as a batch",
    entrants=ONE_MACHINE,
    key_columns=("site", "device", "user_id"),
    family="batch-keys",
)
DENSE: Final = Workload(
    name="dense",
    about="1,000,000 events of 200,000 keys in a micro-batch",
    entrants=(*OURS, WINDOW, "java"),
    events=1_000_000,
    keys=200_000,
    batches=6,
)
SPARSE: Final = Workload(
    name="sparse",
    about="2,000,000 open sessions, and 1,000 events in a micro-batch",
    entrants=("pages", "aggregates pages", "session_window"),
    events=1_000,
    keys=2_000_000,
    batches=8,
    opened=2_000_000,
    gap=timedelta(hours=1),
)
SMALL: Final = Workload(
    name="small",
    about="100,000 events of 20,000 keys in a micro-batch",
    entrants=(*OURS, WINDOW, "java", "by hand", "transformWithState"),
    events=100_000,
    keys=20_000,
    few={"by hand": 2, "transformWithState": 2},
)
STEADY: Final = Workload(
    name="steady",
    about="1,000 events of 500 keys in a micro-batch, once the JVM has compiled",
    entrants=(*OURS, WINDOW),
    events=1_000,
    keys=500,
    batches=80,
    warm_up=50,
)
KEYS: Final = Workload(
    name="keys",
    about="a running count for each of 100,000 keys, one event of each in a micro-batch",
    entrants=("functions", "by hand", "transformWithState"),
    events=100_000,
    keys=100_000,
    task="counts",
    batches=6,
    one_each=True,
    few={"by hand": 1, "transformWithState": 1},
)
HUGE: Final = Workload(
    name="huge groups",
    about="10,000,000 events of only 3 keys in a micro-batch",
    entrants=(*OURS, "session_window"),
    events=10_000_000,
    keys=3,
    batches=1,
)
ENGINES: Final = Workload(
    name="engines",
    about="200,000 events of 20,000 keys from files to the last row, start-up included",
    entrants=("functions", "session_window", "Flink SQL", "Bytewax", "Pathway"),
    events=200_000,
    keys=20_000,
    mode="job",
    batches=1,
)
NEXMARK: Final = Workload(
    name="nexmark-q11",
    about="query 11 of NEXMark: 4,600,000 bids of 100,000 bidders in 12 micro-batches, to Parquet",
    entrants=(*OURS, WINDOW),
    # 50 events of the published generator have 46 bids: so it's at its default rate of 10,000
    # events a second, with as many active people as there.
    events=46 * 8_340,
    keys=1_000,
    task="bids",
    batches=12,
    span=timedelta(seconds=41.7),
    gap=timedelta(seconds=10),
    disorder=timedelta(seconds=4),
    to_files=True,
)
GROWTH_BATCH: Final = attrs.evolve(
    BATCH_OF_FEW,
    name="growth-batch",
    about="events of users with 250 events each over three days, as a batch",
    entrants=("Sail, aggregates", "aggregates", "DuckDB"),
    warm_up=0,
)
GROWTH_EVENTS: Final = Workload(
    name="growth-events",
    about="events in a micro-batch, five of each key",
    entrants=(*OURS, "session_window"),
    events=0,
    keys=0,
    batches=12,
    warm_up=4,
)
GROWTH_OPEN: Final = Workload(
    name="growth-open",
    about="open sessions, and 1,000 events in a micro-batch",
    entrants=("pages", "functions", "session_window"),
    events=1_000,
    keys=0,
    batches=8,
    warm_up=3,
    gap=timedelta(hours=1),
)
MILLION: Final = 1_000_000

WORKLOADS: Final[Mapping[str, Workload]] = {
    workload.name: workload
    for workload in (
        BATCH,
        BATCH_OF_FEW,
        BATCH_OF_KEYS,
        DENSE,
        SPARSE,
        SMALL,
        STEADY,
        KEYS,
        HUGE,
        ENGINES,
        NEXMARK,
        *_of_sizes(
            GROWTH_BATCH,
            {
                millions * MILLION: {
                    "keys": millions * MILLION // 250,
                    "batches": millions,
                    "repetitions": repetitions,
                }
                for millions, repetitions in {1: 5, 5: 3, 20: 2, 100: 1}.items()
            },
        ),
        *_of_sizes(
            GROWTH_EVENTS,
            {n: {"events": n, "keys": n // 5} for n in (1_000, 10_000, 100_000, MILLION)},
        ),
        *_of_sizes(
            GROWTH_OPEN,
            {n: {"keys": n, "opened": n} for n in (10_000, 100_000, 500_000, 2 * MILLION)},
        ),
    )
}
"""By name, those that matter most first."""


def families() -> list[str]:
    """Return the names that the command line takes, in order."""
    return list(dict.fromkeys(workload.family for workload in WORKLOADS.values()))
