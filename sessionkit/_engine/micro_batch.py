"""
One micro-batch of a group: its clocks, the group's memory, the outcome, and the logic.

`GroupLogic` is the seam between the shell and the two folds, of sessions and of keys.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from sessionkit._arrays import Numbers
from sessionkit._engine.boundaries import MILLISECOND_US
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US, span_us
from sessionkit.spec.base import AnySpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, forms_of
from sessionkit.timeouts._policies import Clock, EventTimeGap
from sessionkit.timeouts._session_rules import SessionRules

CLOCKS: Final[tuple[Clock, Clock]] = ("event_time", "processing_time")
NO_TIME: Final = timedelta(0)
NEVER_US: Final = END_OF_TIME_US
"""The due time of what never happens."""


@attrs.frozen
class BatchClocks:
    """
    The clocks of a micro-batch, in microseconds, the same for every key and row of it.

    Attributes:
        by_events_us: The watermark by events alone; None where nothing else has moved it.
        whole: Whether all events of a group come at once, as on a batch.
        since_us: The watermark at which the query began with a seed; None where it has none.
        idle_us: How far a watermark of their own had moved groups by then, where a source was idle.
        ends_us: The latest instant at which a session of the seed can end.
    """

    watermark_us: int
    processing_us: int
    by_events_us: int | None = None
    whole: bool = False
    since_us: int | None = None
    idle_us: int = BEGINNING_US
    ends_us: int = BEGINNING_US

    def at_least(self, floor_us: int) -> "BatchClocks":
        """Return the clocks with a watermark of the group's own, where it's ahead of Spark's."""
        # Spark's watermark takes over once it has passed the floor.
        in_force_us = max(self.watermark_us, floor_us)
        return attrs.evolve(self, watermark_us=in_force_us, by_events_us=self.watermark_us)


@attrs.frozen
class IdleClock:
    """
    The idle clock of a group, which times a watermark at rest. All in microseconds.

    Spark's watermark moves with events alone. Under `close_idle_after`, each group notes since when
    it has stood still, in processing time. After that span the group goes on by the *floor*: the
    watermark that an event of this moment would bring. The floor is stored, so that events that
    come later for what has closed are late; Spark's watermark takes over once it has passed it.

    A group counts only the time that it has witnessed: under a timeout in processing time Spark
    calls it in every micro-batch. A longer pause between two of them, as after a restart, starts
    the count anew, and so does a clock that has gone back.

    Attributes:
        watermark: Spark's watermark, when the group was last called.
        seen: The processing time of that call.
        since: The processing time since which the watermark has been the same.
        floor: The watermark in force at least.
        until: The latest instant at which a session can end, by the events so far.
    """

    watermark: int
    seen: int
    since: int
    floor: int
    until: int = BEGINNING_US

    @classmethod
    def of_table(cls, table: pa.Table) -> "IdleClock":
        return cls(**table.to_pylist()[0])

    def table(self) -> pa.Table:
        return pa.Table.from_pylist([attrs.asdict(self)])

    @property
    def holds(self) -> bool:
        """Whether the floor is still ahead of Spark's watermark, so that it must be remembered."""
        return self.floor > self.watermark


def latest_end(spec: AnySpec, watermark_us: int) -> int:
    """Return the latest instant at which a session can end, by all events up to a watermark."""
    # The watermark is the latest event time in whole milliseconds, less the delay.
    latest_us = watermark_us + span_us(spec.watermark_delay or NO_TIME) + MILLISECOND_US - 1
    policy, stays = spec.timeout, spec.lateness.allowed or NO_TIME
    longest = policy.longest if isinstance(policy, EventTimeGap | SessionRules) else NO_TIME
    return latest_us + span_us(longest) + span_us(stays)


def idle_clock(spec: AnySpec, before: IdleClock | None, clocks: BatchClocks) -> IdleClock | None:
    """Advance the idle clock of a group in a micro-batch; None without `close_idle_after`."""
    rules = spec.timeout
    if not isinstance(rules, SessionRules) or rules.close_idle_after is None:
        return None
    span, watermark_us, now = (
        span_us(rules.close_idle_after),
        clocks.watermark_us,
        clocks.processing_us,
    )
    until = max(latest_end(spec, watermark_us), clocks.ends_us)
    if before is None:
        return IdleClock(watermark_us, now, now, BEGINNING_US, until)
    moved = watermark_us > before.watermark
    since = before.since if not moved and 0 <= now - before.seen <= span else now
    # A restart may have made the delay shorter, since when no event has come.
    floor, until = before.floor, max(until, before.until)
    if now - since >= span:
        # A floor never falls: what it has closed stays closed.
        floor = max(floor, min(now - span_us(spec.watermark_delay or NO_TIME), until))
    return IdleClock(max(watermark_us, before.watermark), now, since, floor, until)


@attrs.frozen
class GroupState:
    """The memory of a group: open sessions or keys, waiting events, and the idle clock, if any."""

    kept: pa.Table
    buffered: pa.Table
    idle: IdleClock | None = None


@attrs.frozen
class Outcome:
    """
    The outcome of one micro-batch for a group; for its numbers see `Counts`.

    The rows have the names that users see. `others` has all other output: events that became part
    of no result, outputs that failed, and the events of closed sessions.
    """

    memory: GroupState
    rows: pa.Table
    others: list[SideOutput]
    processed: int
    buffered: int = 0
    sessions: int = 0
    timers: int = 0
    revised: int = 0
    out_of_order: int = 0

    def then(self, later: "Outcome") -> "Outcome":
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(later, name) for name in SUMMED}
        return Outcome(later.memory, pa.concat_tables([self.rows, later.rows]), **sums)


SUMMED: Final = tuple(field.name for field in attrs.fields(Outcome)[2:])
"""The attributes of an outcome after its memory and its rows, which add up."""


@attrs.frozen
class BucketStats:
    """
    The statistics of a bucket after a micro-batch: a few integers that follow its counts.

    A bucket that isn't called in a micro-batch reports nothing, and hasn't changed. So the last
    statistics of each bucket give the exact sum, minimum and maximum over all buckets.

    Attributes:
        open: The open sessions, or the keys. None under `layout="pages"` where the spec also
            remembers sessions that have closed: only their pages tell which those are.
        buffered: The events that wait for the watermark.
        stored_bytes: How many bytes it handed to Spark's state store: its row and its pages.
        oldest_us: When the oldest of its open sessions began; None where none is open, for a
            `StatefulSpec`, and under `layout="pages"`, which doesn't read all sessions.
        watermark_us: The watermark in force in it; None before the first.
    """

    open: int | None = 0
    buffered: int = 0
    stored_bytes: int = 0
    oldest_us: int | None = None
    watermark_us: int | None = None


class GroupProgram(Protocol):
    """The compiled form of a spec: what it stores of a group, and under which rules."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows that a group keeps."""

    @property
    def state_fields(self) -> Sequence[Field]:
        """The fields of the state as they're stored."""

    @property
    def identity(self) -> bytes:
        """The rules and the types under which rows are stored, as JSON."""

    def completed(self, kept: pa.Table) -> pa.Table:
        """Add to stored rows what a spec may gain without a migration."""

    def incompatibilities(self, old: AnySpec) -> list[str]:
        """Return a line for each reason why stored rows of another spec don't fit."""

    def migrated(self, old: AnySpec, kept: pa.Table) -> pa.Table:
        """Convert rows of another spec to rows of this one."""


class GroupLogic(Protocol):
    """
    The fold of one spec: `SessionLogic` or `KeyLogic`.

    A step needs only the rows of keys with events or with something due, since what it does to one
    key never depends on another. So a storage may read parts of a group.
    """

    @property
    def spec(self) -> AnySpec: ...

    @property
    def program(self) -> GroupProgram: ...

    @property
    def readings(self) -> dict[bytes, Any]:
        """The readings of stored rows, by the identity under which they were written."""

    @property
    def empty_state(self) -> GroupState:
        """The memory of a group before its first event."""

    @property
    def keeps_only_open(self) -> bool:
        """Whether each row that is kept is an open session, or a key."""

    @property
    def takes_portions(self) -> bool:
        """Whether the events of a batch may come in several steps, without a change in any row."""

    def open_stats(self, kept: pa.Table) -> tuple[int, int | None]:
        """Return how many sessions or keys are open, and when the oldest began."""

    def due(self, kept: pa.Table) -> dict[Clock, Numbers]:
        """Return, for each clock, the instant at which something is due for each row."""

    def step(self, memory: GroupState, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """Run one micro-batch of a group."""


def shared_identity(spec: AnySpec, state: Sequence[Field]) -> dict[str, Any]:
    """Return the entries of the identity that sessions and keys share; the state as it's stored."""
    entries: dict[str, Any] = {
        "layout": spec.storage.layout,
        "keys": [[field.name, field.type.form] for field in spec.key_fields],
        "bucket_count": spec.storage.buckets,
        "watermark_delay_ms": spec.delay_ms,
        "order": spec.order,
        "state": forms_of(state),
        "state_version": spec.storage.version,
    }
    if spec.order == "event_time":
        entries["event"] = forms_of(codec_of(spec.event).type.fields)
        entries["passthrough"] = forms_of(spec.passthrough_fields)
    return entries
