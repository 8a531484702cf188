"""
The workloads: what comes in, who takes part, and in how many batches.

A batch covers more than the gap, by default twice as much (`SPAN`), so sessions of one batch are
over in the next. The events of a batch come in any order, but bids in time order. No event
is ever late, so every entrant has to return the same rows.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal, TypeAlias

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

ENOUGH: Final = 16
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
        hot_share: The share of the events that belong to one user.
        extra_columns: How many columns the events have that nobody needs.
        disorder: By how much events are out of order, at most, and the watermark's delay.
        gap: What ends a session.
        span: The event time that a batch covers.
        to_files: Whether rows that are timed go to Parquet files; by default they go nowhere.
        settings: Settings of Spark for this workload.
        family: The name of the workloads that belong together, by default its own.
        size: Which of its family it is.
    """

    name: str
    about: str
    entrants: tuple[str, ...]
    events: int
    keys: int
    task: Task = "sessions"
    mode: Mode = "stream"
    batches: int = ENOUGH
    repetitions: int = 5
    warm_up: int = 1
    few: Mapping[str, int] = attrs.field(factory=dict)
    opened: int = 0
    one_each: bool = False
    hot_share: float = 0.0
    extra_columns: int = 0
    disorder: timedelta = timedelta(0)
    gap: timedelta = timedelta(seconds=30)
    span: timedelta = SPAN
    to_files: bool = False
    settings: Mapping[str, str] = attrs.field(factory=dict)
    family: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    size: int = 1

    def scaled(self, factor: float) -> "Workload":
        """Return the same with more or fewer events and keys, at least one of each."""
        events, keys = (max(1, round(n * factor)) for n in (self.events, self.keys))
        return attrs.evolve(self, events=events, keys=keys, opened=round(self.opened * factor))

    def shortened(self, batches: int | None) -> "Workload":
        """Return the same with at most this many batches."""
        return attrs.evolve(self, batches=min(self.batches, batches or self.batches))

    def repeated(self, times: int | None) -> "Workload":
        """Return the same with a batch that is read at most so often."""
        return attrs.evolve(self, repetitions=min(self.repetitions, times or self.repetitions))

    def batches_of(self, entrant: str) -> int:
        """Return how many batches an entrant gets."""
        return min(self.batches, self.few.get(entrant, self.batches))

    @property
    def uncounted(self) -> int:
        """How many samples come before those that count."""
        samples = {"stream": self.batches, "batch": self.repetitions, "job": 1}[self.mode]
        return min(self.warm_up, samples - 1)


def _of_sizes(base: Workload, **sizes: tuple[int, ...]) -> list[Workload]:
    steps = zip(*sizes.values(), strict=True)
    return [
        attrs.evolve(
            base,
            name=f"{base.name}-{2**number}",
            family=base.name,
            size=2**number,
            **dict(zip(sizes, values, strict=True)),
        )
        for number, values in enumerate(steps)
    ]


OURS: Final = ("functions", "aggregates")
SPARK: Final = ("session_window", "session_window, default store", "java")

DENSE: Final = Workload(
    name="dense",
    about="1,000,000 events of 200,000 keys in a batch",
    entrants=(*OURS, *SPARK, "floor"),
    events=1_000_000,
    keys=200_000,
)
SPARSE: Final = Workload(
    name="sparse",
    about="2,000,000 open sessions, and 1,000 events in a batch",
    entrants=("pages", "aggregates pages", *OURS, *SPARK),
    events=1_000,
    keys=2_000_000,
    opened=2_000_000,
    gap=timedelta(hours=1),
    # The default store rewrites every session in every batch.
    few={"session_window, default store": 4},
)
BATCH: Final = Workload(
    name="batch",
    about="5,000,000 events, some 552,000 sessions, as a batch",
    entrants=(
        "Sail, aggregates",
        "Sail, functions",
        *OURS,
        "aggregates, nothing set",
        "session_window",
        "SQL window functions",
        "DuckDB",
        "Polars",
    ),
    events=1_000_000,
    keys=200_000,
    mode="batch",
    batches=5,
)
BATCH_OF_FEW: Final = attrs.evolve(
    BATCH,
    name="batch-few",
    about="5,000,000 events of 20,000 keys, each with 250, as a batch",
    keys=20_000,
    family="batch-few",
)
LONG: Final = Workload(
    name="long",
    about="1,000,000 events of 1,000 keys in a batch: sessions that stay open",
    entrants=(*OURS, *SPARK, "floor"),
    events=1_000_000,
    keys=1_000,
)
SKEW: Final = Workload(
    name="skew",
    about="1,000,000 events of 200,000 keys in a batch; 20 % belong to one key",
    entrants=(*OURS, *SPARK, "floor"),
    events=1_000_000,
    keys=200_000,
    hot_share=0.2,
)
SMALL: Final = Workload(
    name="small",
    about="100,000 events of 20,000 keys in a batch",
    entrants=(
        *OURS,
        *SPARK,
        "by hand",
        "transformWithState",
        "transformWithStateInPandas",
        "floor",
    ),
    events=100_000,
    keys=20_000,
    few={"by hand": 4, "transformWithState": 5, "transformWithStateInPandas": 4},
)
TINY: Final = Workload(
    name="tiny",
    about="1,000 events of 500 keys in a batch: what a micro-batch costs in itself",
    entrants=(*OURS, *SPARK, "floor"),
    events=1_000,
    keys=500,
    batches=40,
)
STEADY: Final = attrs.evolve(
    TINY,
    name="steady",
    about="1,000 events of 500 keys, once the JVM has compiled: the last 40 of 100 batches",
    entrants=(*OURS, *SPARK),
    batches=100,
    warm_up=60,
    family="steady",
)
KEYS: Final = Workload(
    name="keys",
    about="a running count for each of 100,000 keys, one event of each in a batch",
    entrants=("functions", "by hand", "transformWithState", "transformWithStateInPandas"),
    events=100_000,
    keys=100_000,
    task="counts",
    one_each=True,
    few={"by hand": 2, "transformWithState": 3, "transformWithStateInPandas": 2},
)
STATE: Final = Workload(
    name="state",
    about="bytes in the checkpoint for an open session, uncompressed: 1,000,000 are opened",
    entrants=("functions", "aggregates", "pages", "aggregates pages", "session_window", "java"),
    events=1,
    keys=1,
    opened=1_000_000,
    batches=1,
    gap=timedelta(hours=1),
    settings={"spark.sql.streaming.stateStore.rocksdb.compression": "no"},
)
GROWTH_EVENTS: Final = Workload(
    name="growth-events",
    about="1, 2, 4 and 8 times 250,000 events of 50,000 keys in a batch",
    entrants=(*OURS, "session_window", "java"),
    events=250_000,
    keys=50_000,
    batches=10,
)
GROWTH_OPEN: Final = Workload(
    name="growth-open",
    about="1, 2, 4 and 8 times 250,000 open sessions, and 1,000 events in a batch",
    entrants=("pages", "aggregates pages", "functions", "session_window"),
    events=1_000,
    keys=250_000,
    opened=250_000,
    batches=10,
    gap=timedelta(hours=1),
)
WIDE: Final = Workload(
    name="wide",
    about="200,000 events of 40,000 keys in a batch, 40 columns, and 3 are needed",
    entrants=(*OURS, "session_window", "java"),
    events=200_000,
    keys=40_000,
    extra_columns=36,
)
DISORDER: Final = Workload(
    name="disorder",
    about="200,000 events of 40,000 keys in a batch, out of order by up to 90 seconds",
    entrants=(*OURS, "session_window"),
    events=200_000,
    keys=40_000,
    disorder=timedelta(seconds=90),
)
HUGE: Final = Workload(
    name="huge groups",
    about="10,000,000 events of 3 keys in a batch: how much memory a group takes",
    entrants=(*OURS, *SPARK[:2]),
    events=10_000_000,
    keys=3,
    batches=1,
)
ENGINES: Final = Workload(
    name="engines",
    about="500,000 events of 20,000 keys from files to the last row, start-up included",
    entrants=("functions", "session_window", "Flink SQL", "PyFlink", "Bytewax", "Pathway"),
    events=100_000,
    keys=20_000,
    mode="job",
    batches=5,
    # About a millisecond for each event.
    few={"Bytewax": 1, "Pathway": 2},
)
NEXMARK: Final = Workload(
    name="nexmark-q11",
    about="query 11 of NEXMark: 4,600,000 bids of 100,000 bidders in 12 batches, to Parquet",
    entrants=(*OURS, *SPARK),
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
NEXMARK_JOBS: Final = attrs.evolve(
    NEXMARK,
    name="nexmark-q11-jobs",
    about="the same bids from files to the last row, start-up included, rows to nowhere",
    entrants=(*NEXMARK.entrants, "Flink SQL", "PyFlink"),
    mode="job",
    to_files=False,
    # About a third of a millisecond for each bid.
    few={"PyFlink": 1},
    family="nexmark-q11-jobs",
)
SIZES: Final = (1, 2, 4, 8)

WORKLOADS: Final[Mapping[str, Workload]] = {
    workload.name: workload
    for workload in (
        DENSE,
        SPARSE,
        BATCH,
        BATCH_OF_FEW,
        LONG,
        SKEW,
        SMALL,
        TINY,
        STEADY,
        KEYS,
        STATE,
        *_of_sizes(
            GROWTH_EVENTS,
            events=tuple(GROWTH_EVENTS.events * n for n in SIZES),
            keys=tuple(GROWTH_EVENTS.keys * n for n in SIZES),
        ),
        *_of_sizes(
            GROWTH_OPEN,
            keys=tuple(GROWTH_OPEN.keys * n for n in SIZES),
            opened=tuple(GROWTH_OPEN.opened * n for n in SIZES),
        ),
        WIDE,
        DISORDER,
        HUGE,
        ENGINES,
        NEXMARK,
        NEXMARK_JOBS,
    )
}
"""By name, those that matter most first."""


def families() -> list[str]:
    """Return the names that the command line takes, in order."""
    return list(dict.fromkeys(workload.family for workload in WORKLOADS.values()))
