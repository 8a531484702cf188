"""
What a streaming query of sessions needs: cores, partitions, memory, state and bytes.

An estimate before there is a query, from costs that `make bench` measures. `size` computes it, and
`python -m sessionkit size` prints it.

A micro-batch costs a fixed time on the driver, which more cores don't shorten, and CPU time for
each event and for the state that it rewrites. With `layout="buckets"` that is every open session;
with `"pages"` it is the pages that hold the sessions of the events. The layout of fewer CPU seconds
is taken.
"""

from collections.abc import Iterator
from datetime import timedelta
from math import ceil, expm1
from typing import Final, Literal, TypeAlias

import attrs

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.groups import BUCKETS, LARGEST_BUCKET_COUNT, buckets_for

__all__ = ["COSTS", "Costs", "Layout", "Size", "size"]

Layout: TypeAlias = Literal["buckets", "pages"]
"""How the state is stored: `Storage(layout=...)`."""

BUSY: Final = 0.6
"""The share of its trigger that a micro-batch may take, so that a query catches up after a stop."""
SESSIONS_A_BUCKET: Final = 30_000
PAGE_BYTES: Final = 4_500
PAGE_UPLOADED: Final = 2_200
"""What a page that has changed adds to a changelog, compressed."""
LAYOUTS: Final[tuple[Layout, ...]] = ("buckets", "pages")
JVM_BYTES: Final = 2_500_000_000
WORKER_BYTES: Final = 400_000_000
COPIES: Final = 4
"""How often a row of state is in memory at a time, on the way from Python to the store."""
EVENT_BYTES: Final = 300
THOUSAND: Final = 1000
ROW_BYTES: Final = 44
"""What an open session takes besides the values of its state, with a key of some 10 bytes."""


@attrs.frozen(kw_only=True)
class Costs:
    """
    What was measured, in seconds: Spark 4.3 on two shared cores, `make bench`.

    Attributes:
        fixed: Of a micro-batch, whatever it holds; more cores don't shorten it.
        fixed_cpu: The CPU of that.
        bucket: CPU of a bucket.
        event: CPU of an event, from its file to its sessions.
        session: CPU of an open session whose bucket is rewritten.
        page: CPU of a page that is read and written.
    """

    fixed: float
    fixed_cpu: float
    bucket: float
    event: float
    session: float
    page: float


_FUNCTIONS: Final = Costs(
    fixed=0.38, fixed_cpu=1.0, bucket=0.0025, event=1.6e-6, session=1.9e-6, page=6e-4
)
COSTS: Final = {
    "functions": _FUNCTIONS,
    "aggregates": attrs.evolve(_FUNCTIONS, event=1.2e-6, session=1.7e-6),
}
"""What was measured of a spec of functions, and of one of aggregates, in seconds."""


@attrs.frozen(kw_only=True)
class Size:
    """
    What a query needs.

    Attributes:
        layout: How state is stored: `Storage(layout=...)`.
        buckets: Into how many groups keys are hashed: `Storage(bucket_count=...)`.
        cores: The cores of the executors, and `spark.sql.shuffle.partitions`.
        cpu: The CPU seconds of a micro-batch.
        seconds: How long a micro-batch takes on these cores.
        trigger: How often one begins.
        state_bytes: The state of all open sessions.
        checkpoint_bytes: What a micro-batch uploads to the checkpoint, with changelogs.
        memory_bytes: The memory of the executors and their Python workers, with RocksDB.
        other_cpu: The CPU seconds of a micro-batch in the other layout.
    """

    layout: Layout
    buckets: int
    cores: int
    cpu: float
    seconds: float
    trigger: timedelta
    state_bytes: int
    checkpoint_bytes: int
    memory_bytes: int
    other_cpu: float

    def __str__(self) -> str:
        """Return it as a table of text."""
        return "\n".join(f"{name:<22}{value}" for name, value in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        other = "pages" if self.layout == "buckets" else "buckets"
        trigger = self.trigger.total_seconds()
        yield "layout", f"{self.layout} ({other}: {self.other_cpu:.3g} CPU s a micro-batch)"
        yield "buckets", f"{self.buckets:,}"
        yield "cores", f"{self.cores:,}, and as many shuffle partitions"
        yield "a micro-batch", f"{self.seconds:.3g} s of {trigger:g} s, {self.cpu:.3g} CPU s"
        yield "state", _shown(self.state_bytes)
        yield "to the checkpoint", f"{_shown(self.checkpoint_bytes)} a micro-batch"
        yield "memory", _shown(self.memory_bytes)


def size(
    *,
    events_per_second: float,
    open_sessions: int,
    state_bytes: int = 16,
    trigger: Duration = "10 seconds",
    logic: Literal["functions", "aggregates"] = "functions",
) -> Size:
    """
    Estimate what a streaming query needs.

    Args:
        events_per_second: How many events come in a second, at the busiest time of the day.
        open_sessions: How many sessions are open at a time: about the users of a second, times
            the length of a session with its gap and the delay of the watermark, in seconds.
        state_bytes: The bytes of an open session's state: 8 for a number, those of a text.
        trigger: How often a micro-batch begins.
        logic: Whether functions run for each event, or aggregates.

    Raises:
        SpecError: The trigger is shorter than a micro-batch without events, or a number isn't one
            that can be.
    """
    span = duration(trigger, "trigger").total_seconds()
    _check(
        events_per_second=events_per_second, open_sessions=open_sessions, state_bytes=state_bytes
    )
    costs = COSTS[logic]
    room = BUSY * span - costs.fixed
    if room <= 0:
        least = costs.fixed / BUSY
        found = f"a micro-batch takes {costs.fixed} s without events, found a trigger of {span:g} s"
        raise SpecError(with_hint(found, f"take at least {ceil(least * 10) / 10:g} seconds"))
    events = events_per_second * span
    state = open_sessions * (ROW_BYTES + state_bytes)
    pages = _touched(state / PAGE_BYTES, events)
    written = {"buckets": state, "pages": round(pages * PAGE_UPLOADED)}
    cpu = {
        "buckets": costs.event * events + costs.session * open_sessions,
        "pages": costs.event * events + costs.page * pages,
    }
    layout, other = sorted(LAYOUTS, key=cpu.__getitem__)
    stored_in_rows = open_sessions if layout == "buckets" else 0
    least = max(BUCKETS, ceil(stored_in_rows / SESSIONS_A_BUCKET))
    cores = max(2, ceil((cpu[layout] + costs.bucket * least) / room))
    buckets = _buckets(cores, stored_in_rows)
    overhead = costs.fixed_cpu + costs.bucket * buckets
    return Size(
        layout=layout,
        buckets=buckets,
        cores=cores,
        cpu=overhead + cpu[layout],
        seconds=costs.fixed + (costs.bucket * buckets + cpu[layout]) / cores,
        trigger=timedelta(seconds=span),
        state_bytes=state,
        checkpoint_bytes=written[layout],
        memory_bytes=_memory(cores, events, written[layout] / buckets),
        other_cpu=overhead + cpu[other],
    )


def _touched(pages: float, events: float) -> float:
    """Return how many of the pages hold at least one of the events' keys, spread by chance."""
    return -pages * expm1(-events / pages) if pages else 0


def _buckets(cores: int, sessions: int) -> int:
    """Return the number that a stream takes by itself, or more where rows would grow too large."""
    needed = ceil(sessions / SESSIONS_A_BUCKET)
    return min(LARGEST_BUCKET_COUNT, max(buckets_for(cores), needed))


def _memory(cores: int, events: float, row: float) -> int:
    return round(JVM_BYTES + cores * (WORKER_BYTES + COPIES * row) + EVENT_BYTES * events)


def _shown(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < THOUSAND:
            return f"{count:.3g} {unit}"
        count /= THOUSAND
    return f"{count:.3g} TB"


def _check(**numbers: float) -> None:
    for name, number in numbers.items():
        if type(number) not in (int, float) or not number >= 0:
            found = f"`{name}` must be a number from 0, found {number!r}"
            raise SpecError(with_hint(found, f"write {name}=1000"))
