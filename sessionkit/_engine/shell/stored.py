"""
The row of a group: columns, and a payload bound to them, to the group and to the query.

Rows of a partition also tell on each other. In a micro-batch Spark calls every group whose timer is
below the watermark, and each call writes the row anew. So where one row was written at a watermark,
no other one of its partition still waits for a timer below that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import micros
from sessionkit._engine.boundaries import processing_timer_ms, timer_ms
from sessionkit._engine.logic import (
    NEVER_US,
    BatchClocks,
    BucketStats,
    GroupState,
    IdleClock,
    Logic,
    idle_clock,
)
from sessionkit._engine.rows.kept import SALT, without_salts
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.shell.payload import (
    FORMAT_VERSION,
    NOBODY,
    RESTORE,
    Origin,
    binding_checksum,
    check_format,
    pack,
    unpack,
)
from sessionkit._engine.shell.reading import Reading, reading_of
from sessionkit.errors import StateCorruptedError, StateError, with_hint
from sessionkit.spec.base import AnySpec
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike

ROW_COLUMNS: Final = (
    "format INT, bucket_count INT, written_ms BIGINT, kept BIGINT, buffered BIGINT, "
    "event_due_us BIGINT, processing_due_us BIGINT, payload BINARY"
)
"""The row of a group: the payload, and what is worth seeing without it."""
SALTS: Final = pa.schema([pa.field("place", pa.int32()), SALT])
"""The salts of sessions, of which few have one: by their places in the table of sessions."""
EVENT_DUE_AT: Final = -2
"""Where the columns next to a payload have `event_due_us`, in each layout."""
MOST_BYTES: Final = 2**28
"""
Of a row, and of a page. They cross as one value of Arrow or protobuf, and lie in one array of Java:
neither takes 2 GiB, and on the way there are several copies at once. A row of 500 MB took more
than the 6 GB of a JVM.
"""


@attrs.define(eq=False)
class TaskRows:
    """
    The rows that one task has read so far: that with the first timer, and that of the last write.

    Rows of several tasks can't be compared: they may be of copies of a query, or of two operators.
    """

    _waiting: tuple[int, str, Origin] | None = attrs.field(default=None, init=False)
    _written: tuple[str, Origin] = attrs.field(default=("", NOBODY), init=False)

    def add(self, what: str, origin: Origin, due_us: int | None, now: Origin) -> None:
        """
        Add the row of a group that Spark wakes in event time; raise where one is an older row.

        A row whose micro-batch isn't known says nothing, and neither does one of the micro-batch
        that runs: it may still call the others.
        """
        if NOBODY.query in {origin.query, now.query} or origin.batch >= now.batch:
            return
        if origin.watermark_ms > self._written[1].watermark_ms:
            self._written = (what, origin)
        if due_us is not None:
            at_ms = timer_ms(due_us, origin.watermark_ms)
            if self._waiting is None or at_ms < self._waiting[0]:
                self._waiting = (at_ms, what, origin)
        # A timer is never below the watermark at which it was set, so the other row is newer.
        if self._waiting is not None and self._waiting[0] < self._written[1].watermark_ms:
            raise _older(*self._waiting[1:], *self._written)


def _older(old: str, before: Origin, new: str, after: Origin) -> StateCorruptedError:
    found = (
        f"the stored state is damaged: {old} is older than it may be: micro-batch {before.batch} "
        f"wrote it, and something in it was due by micro-batch {after.batch}, which wrote {new}"
    )
    return StateCorruptedError(with_hint(found, RESTORE))


@attrs.frozen
class GroupRow:
    """
    The memory of a group, a bucket of many keys, in one row of Spark's state store.

    It is read and written as a whole. Spark's group state is always updated or removed, since a
    call that changes nothing would leave a timer that goes off in every micro-batch.
    """

    logic: Logic
    group: tuple[Any, ...]
    state: GroupStateLike
    now: Origin = NOBODY
    task_rows: TaskRows | None = None

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> GroupState:
        """Return all that is remembered, whatever is asked for."""
        del arrived
        memory = self.read(self.state.get) if self.state.exists else self.logic.empty_state
        if self.logic.spec.close_idle_after is None:
            return memory
        return attrs.evolve(memory, idle=idle_clock(self.logic.spec, memory.idle, clocks))

    def store(self, memory: GroupState) -> BucketStats:
        """Replace the row, or remove it where nothing is left, and arm the timer."""
        if memory.is_empty:
            self.state.remove()
            return BucketStats()
        due = first_due(self.logic, memory)
        row = self.write(memory, due, self.state.getCurrentProcessingTimeMs())
        if len(row[-1]) > MOST_BYTES:
            check_size(self.logic.spec, "a row of state", len(row[-1]), memory)
        self.state.update(row)
        arm(self.logic.spec.clock, due, self.state, self.now.watermark_ms)
        open_rows, oldest_us = self.logic.open_stats(memory.kept)
        return BucketStats(open_rows, memory.buffered.num_rows, len(row[-1]), oldest_us)

    def read(self, row: tuple[Any, ...]) -> GroupState:
        """Return the memory in a row; see `unpack_row` for what it raises."""
        reading, (kept, *more) = unpack_row(self.logic, self.group, row, self.now, self.task_rows)
        waiting, *others = more or [self.logic.empty_state.buffered]
        salts = idle = None
        for table in others:
            if table.column_names[0] == SALTS.names[0]:
                salts = np.zeros(kept.num_rows, np.int64)
                salts[table["place"].to_numpy()] = table[SALT.name].to_numpy()
            else:
                idle = IdleClock.of_table(table)
        memory = reading.memory(self.logic, kept, waiting, salts)
        return memory if idle is None else attrs.evolve(memory, idle=idle)

    def write(self, memory: GroupState, due: Mapping[Clock, int], now_ms: int) -> tuple[Any, ...]:
        """Return the row; a table of events only where some wait, or others follow."""
        kept, salts = without_salts(memory.kept)
        others = [] if memory.idle is None else [memory.idle.table()]
        if salts.any():
            places = np.flatnonzero(salts)
            columns = [pa.array(places, pa.int32()), pa.array(salts[places])]
            others.append(pa.Table.from_arrays(columns, schema=SALTS))
        waiting = [memory.buffered] if memory.buffered.num_rows or others else []
        numbers = (now_ms, kept.num_rows, memory.buffered.num_rows)
        tables = [kept, *waiting, *others]
        return pack_row(self.logic, self.group, numbers, tables, self.now, due=due)


def pack_row(
    logic: Logic,
    group: tuple[Any, ...],
    numbers: tuple[int, ...],
    tables: Sequence[pa.Table],
    origin: Origin,
    *,
    due: Mapping[Clock, int],
) -> tuple[Any, ...]:
    """Return the row of a group: when it was written, what it counts, what is due, the payload."""
    first_due_us = (due.get("event_time"), due.get("processing_time"))
    columns = (FORMAT_VERSION, logic.spec.storage.buckets, *numbers, *first_due_us)
    binding = binding_checksum(group, columns)
    return (*columns, pack(logic.program.identity, tables, binding, origin))


def unpack_row(
    logic: Logic,
    group: tuple[Any, ...],
    row: tuple[Any, ...],
    now: Origin,
    task_rows: TaskRows | None,
) -> tuple[Reading, list[pa.Table]]:
    """
    Return how the row of a group is read, and the tables in it.

    A row that is damaged, older than others say, or of another place, query, rules or format is a
    StateError.
    """
    *columns, payload = row
    check_format(columns[0])
    stored = unpack(bytes(payload))
    what = f"the stored row of [{', '.join(map(str, group))}]"
    stored.origin.check(now, what)
    reading = logic.readings.get(stored.identity) or reading_of(logic, stored.identity)
    stored.check(binding_checksum(group, columns))
    if task_rows is not None and logic.spec.clock == "event_time":
        task_rows.add(what, stored.origin, columns[EVENT_DUE_AT], now)
    return reading, stored.tables


def first_due(logic: Logic, memory: GroupState) -> dict[Clock, int]:
    """Return the first instant, in microseconds, that each clock must reach for a change."""
    first: dict[Clock, int] = {}
    due = [*logic.due(memory.kept).items()]
    if memory.buffered.num_rows:
        due.append(("event_time", micros(memory.buffered["time"])))
    for clock, at_us in due:
        earliest = min(first.get(clock, NEVER_US), int(at_us.min(initial=NEVER_US)))
        if earliest < NEVER_US:
            first[clock] = earliest
    return first


def arm(
    clock: Clock | None, due: Mapping[Clock, int], state: GroupStateLike, watermark_ms: int
) -> None:
    """
    Let Spark call again when a clock reaches what is due; after `update`, which clears the timer.

    The clock is that by which Spark wakes the group; of each clock, `due` has the first instant.
    """
    if clock == "event_time" and clock in due:
        state.setTimeoutTimestamp(timer_ms(due[clock], watermark_ms))
    elif clock == "processing_time" and "event_time" in due:
        # No timer of Spark's waits for the watermark under this clock: look in every micro-batch.
        state.setTimeoutDuration(1)
    elif clock == "processing_time" and due:
        now_ms = state.getCurrentProcessingTimeMs()
        state.setTimeoutDuration(processing_timer_ms(due[clock], now_ms))


def check_size(
    spec: AnySpec, what: str, size: int, memory: GroupState, most: int = MOST_BYTES
) -> None:
    """
    Check that what would be stored isn't too large: beyond that, Spark fails without a message.

    The StateError names the key with the largest part of the memory.
    """
    if size <= most:
        return
    key, own = _largest(spec, memory)
    text = f"{what} would have {size:,} bytes, and at most {most:,} can be stored"
    hint = 'raise `bucket_count` for a new checkpoint, or use Storage(layout="pages")'
    if 2 * own > size or spec.storage.layout != "buckets":
        hint = "keep less in its state"
        if spec.row_kind == "session":
            sooner = "end its sessions sooner, with max_events or max_duration of SessionRules"
            hint = f"{sooner}, or {hint}"
    raise StateError(with_hint(f"{text}; the largest part, {own:,} bytes, is of {key}", hint))


def _largest(spec: AnySpec, memory: GroupState) -> tuple[Any, int]:
    """Return the key with the most bytes, those of events that wait among them."""
    sizes: Counter[Any] = Counter()
    for table in (memory.kept, memory.buffered):
        for place, key in enumerate(decode_keys(spec, table)):
            sizes[key] += table.slice(place, 1).nbytes
    return sizes.most_common(1)[0]
