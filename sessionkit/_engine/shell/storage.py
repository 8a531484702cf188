"""
Where the memory of a group is between micro-batches: the seam to what Spark stores.

`GroupRow` stores a group as a whole in one row: a bucket of many keys or, under `per_key`, a key.
`PagedBucket` stores many keys in pages, of which it reads those only that have keys with events or
something due: a step needs no others.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from sessionkit._engine.idle import IdleClock, idle_clock
from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.logic import BatchClocks, BucketStats, Logic, Memory, first_due
from sessionkit._engine.rows.table import unmarked
from sessionkit._engine.sessions.step import SessionLogic
from sessionkit._engine.shell.paged_bucket import DIRECTORY_COLUMNS, PagedBucket, memory_in_pages
from sessionkit._engine.shell.payload import FORMAT_VERSION, NOBODY, Origin
from sessionkit._engine.shell.reading import marked
from sessionkit._engine.shell.stored import (
    MARKS,
    MOST_BYTES,
    Neighbours,
    arm,
    check_size,
    marks_stored,
    pack_row,
    stored_marks,
    unpack_row,
)
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.shared import AnySpec
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike


class Storage(Protocol):
    """The memory of one group during one micro-batch."""

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> Memory:
        """
        Return what is remembered of the keys that have events, or for which something is due.

        The idle clock in it is that of this micro-batch; by the watermark in force with it
        something may be due that isn't by that of Spark.
        """

    def store(self, memory: Memory) -> BucketStats:
        """
        Remember this in place of what was loaded, and be woken when something is due.

        Returns:
            How the group stands, but for the watermark.
        """


@attrs.frozen
class BucketRow:
    """
    Many keys, or one, in a row: a payload, and what is worth seeing without reading it.

    The payload is bound to the group, to the columns beside it, and to the query.

    Attributes:
        logic: Whose row it is.
        now: The micro-batch that reads and writes it.
        seen: The rows that its task has read before.
    """

    logic: Logic
    now: Origin = NOBODY
    seen: Neighbours | None = None

    def read(self, group: tuple[Any, ...], row: tuple[Any, ...]) -> Memory:
        """
        Return the memory of a group from its row.

        Raises:
            StateError: It is damaged, or was written under other rules.
        """
        reading, (kept, *more) = unpack_row(self.logic, group, row, self.now, self.seen)
        if not more:
            rows, waiting = marked(kept, self.logic.schema), self.logic.nothing.buffered
            if not reading.is_changed and rows.schema.names == self.logic.schema.names:
                return Memory(rows, waiting)
            return reading.memory(self.logic, kept, waiting)
        others = {table.column_names[0]: table for table in more[1:]}
        if (stored := others.pop(MARKS.names[0], None)) is not None:
            kept = marked(kept, self.logic.schema, marks_stored(stored, kept.num_rows))
        memory = reading.memory(self.logic, kept, more[0])
        idle = [IdleClock.of_table(table) for table in others.values()]
        return attrs.evolve(memory, idle=idle[0]) if idle else memory

    def write(
        self, group: tuple[Any, ...], memory: Memory, due: Mapping[Clock, int], now_ms: int
    ) -> tuple[Any, ...]:
        """Return the row of a group; a table of events only where some wait, or others follow."""
        kept, marks = unmarked(memory.kept)
        tables = [kept]
        if memory.buffered.num_rows or memory.idle is not None or marks.any():
            tables.append(memory.buffered)
            tables += [] if memory.idle is None else [memory.idle.table()]
            tables += [stored_marks(marks)] if marks.any() else []
        columns = (
            FORMAT_VERSION,
            self.logic.spec.storage.buckets,
            now_ms,
            int((marks >= 0).sum()),
            memory.buffered.num_rows,
            due.get("event_time"),
            due.get("processing_time"),
        )
        return pack_row(self.logic, group, columns, tables, self.now)


@attrs.frozen
class GroupRow:
    """
    The memory of a group in one row of Spark's state store, read and written as a whole.

    Attributes:
        logic: Whose memory it is.
        group: What Spark grouped by.
        state: Spark's group state; always updated or removed, since a call that changes nothing
            would leave a timer that goes off in every micro-batch.
        now: The micro-batch.
        seen: The rows that its task has read before.
    """

    logic: Logic
    group: tuple[Any, ...]
    state: GroupStateLike
    now: Origin
    seen: Neighbours | None

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> Memory:
        """Return all that is remembered, whatever is asked for."""
        del arrived
        memory = self.logic.nothing
        if self.state.exists:
            row = BucketRow(self.logic, self.now, self.seen)
            memory = row.read(self.group, self.state.get)
        if self.logic.spec.close_idle_after is None:
            return memory
        times = clocks.watermark_us, clocks.processing_us
        return attrs.evolve(memory, idle=idle_clock(self.logic.spec, memory.idle, *times))

    def store(self, memory: Memory) -> BucketStats:
        """Replace the row, or remove it where nothing is left, and arm the timer."""
        if not memory.kept.num_rows and memory.is_empty:
            self.state.remove()
            return BucketStats()
        due = first_due(self.logic, memory)
        now_ms = self.state.getCurrentProcessingTimeMs()
        row = BucketRow(self.logic, self.now).write(self.group, memory, due, now_ms)
        if len(row[-1]) > MOST_BYTES:
            check_size(self.logic.spec, "a row of state", len(row[-1]), memory)
        self.state.update(row)
        arm(self.logic.spec.clock, due, self.state, self.now.watermark_ms)
        kept = self.logic.open_in(memory.kept)
        oldest_us = self.logic.oldest_us(kept)
        return BucketStats(kept.num_rows, memory.buffered.num_rows, len(row[-1]), oldest_us)


ROW_COLUMNS: Final = (
    "format INT, bucket_count INT, written_ms BIGINT, kept BIGINT, buffered BIGINT, "
    "event_due_us BIGINT, processing_due_us BIGINT, payload BINARY"
)
"""The row of a group: the payload, and what is worth seeing without it."""
LOGICS: Final[dict[type[Any], Callable[[Any], Logic]]] = {
    SessionSpec: SessionLogic,
    StatefulSpec: KeyLogic,
}


def logic_of(spec: AnySpec) -> Logic:
    """Return the fold that a spec asks for."""
    return LOGICS[type(spec)](spec)


def storage_of(
    logic: Logic, group: tuple[Any, ...], state: Any, now: Origin, seen: Neighbours | None = None
) -> Storage:
    """
    Return where the memory of a group is.

    Args:
        logic: Whose memory it is.
        group: What Spark grouped by.
        state: Spark's group state; under `layout="pages"` a `PagedStateLike`.
        now: The query, the micro-batch, and its watermark.
        seen: The rows that its task has read before.
    """
    if logic.spec.storage.layout == "pages":
        return PagedBucket(logic, group, state, now, seen)
    return GroupRow(logic, group, state, now, seen)


def columns_of(logic: Logic) -> str:
    """Return the columns of the stored row of a group, as Spark's SQL has them."""
    return DIRECTORY_COLUMNS if logic.spec.storage.layout == "pages" else ROW_COLUMNS


def stored_memory(
    logic: Logic, group: tuple[Any, ...], row: tuple[Any, ...], now: Origin = NOBODY
) -> Memory:
    """
    Return the memory of a group from its row in a checkpoint.

    Args:
        logic: Whose memory it is; one for all groups, since it remembers how they are read.
        group: What Spark grouped by: the label of a bucket, or a key as it crosses.
        row: The stored row; under `layout="pages"` with the pages, by their numbers, at its end.
        now: The query, and its last finished micro-batch; by default any query's row is read.

    Raises:
        StateError: It is damaged, or was written by another query, or under other rules.
    """
    if logic.spec.storage.layout == "pages":
        return memory_in_pages(logic, group, row[:-1], row[-1], now)
    return BucketRow(logic, now).read(group, row)
