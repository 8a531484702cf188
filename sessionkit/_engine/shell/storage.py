"""
The storage of a group's memory between micro-batches: the seam to Spark's state store.

`GroupRow` stores a group, a bucket of many keys, as a whole in one row. `PagedBucket` stores it in
pages, and reads only the pages that have keys with events or with something due.

Spark tells which rows of its state store a micro-batch has written. Most keys in them stay as they
were, so changes are found by comparing what is stored before and after.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import micros, numbers_in
from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.micro_batch import (
    NEVER_US,
    BatchClocks,
    BucketStats,
    GroupLogic,
    GroupState,
    IdleClock,
    idle_clock,
)
from sessionkit._engine.rows.tables import SALT
from sessionkit._engine.sessions.step import SessionLogic
from sessionkit._engine.shell.paged_bucket import (
    DIRECTORY_COLUMNS,
    BucketHead,
    memory_in_pages,
    read_pages,
)
from sessionkit._engine.shell.pages import Directory
from sessionkit._engine.shell.payload import NOBODY, GroupAccess, Origin, check_size
from sessionkit._typing import GroupStateLike
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import SessionSpec
from sessionkit.timeouts._policies import Clock

if TYPE_CHECKING:
    from sessionkit.spec.stateful import AnyStatefulSpec

Change: TypeAlias = Literal["new", "changed", "gone"]

ROW_COLUMNS: Final = (
    "format INT, bucket_count INT, written_ms BIGINT, kept BIGINT, buffered BIGINT, "
    "event_due_us BIGINT, processing_due_us BIGINT, payload BINARY"
)
"""The row of a group: the payload, and columns to read without it."""
SALTS: Final = pa.schema([pa.field("place", pa.int32()), SALT])
"""The salts of the few sessions that have one, by their places in the table of sessions."""
ONE_BY_ONE: Final = 8
"""At most this many rows are compared one by one."""


class GroupStorage(Protocol):
    """The memory of one group during one micro-batch."""

    @property
    def access(self) -> GroupAccess: ...

    def load(self, keys: pa.Table, clocks: BatchClocks) -> tuple[GroupState, BatchClocks]:
        """
        Return the memory, at least of these keys and of keys with something due, and the clocks.

        Under `close_idle_after`, these have the watermark of the group, which may be ahead of
        Spark's; the storage keeps the idle clock.
        """

    def store(self, memory: GroupState) -> tuple[BucketStats, Mapping[Clock, int]]:
        """
        Store a memory in place of the loaded one.

        Returns the stats of the group, but for the watermark, and the first instant that each clock
        must reach for a change, in microseconds.
        """


@attrs.define(eq=False)
class GroupRow:
    """
    The memory of a group, a bucket of many keys, in one row of Spark's state store.

    It is read and written as a whole. Spark's group state is always updated or removed, since a
    call that changes nothing would leave a timer that fires in every micro-batch.
    """

    access: GroupAccess
    state: GroupStateLike
    _idle: IdleClock | None = attrs.field(init=False, default=None)

    def load(self, keys: pa.Table, clocks: BatchClocks) -> tuple[GroupState, BatchClocks]:
        del keys  # A row is read as a whole.
        spec, memory = self.access.logic.spec, self.access.logic.empty_state
        if self.state.exists:
            memory = memory_in_row(self.access, self.state.get)
        if spec.close_idle_after is not None:
            self._idle = idle_clock(spec, memory.idle, clocks)
        return memory, clocks if self._idle is None else clocks.at_least(self._idle.floor)

    def store(self, memory: GroupState) -> tuple[BucketStats, Mapping[Clock, int]]:
        holds = self._idle is not None and self._idle.holds
        if not (memory.kept.num_rows or memory.buffered.num_rows or holds):
            self.state.remove()
            return BucketStats(), {}
        logic = self.access.logic
        due = first_due(logic, memory)
        row = self.write(memory, due, self.state.getCurrentProcessingTimeMs())
        check_size(logic.spec, "a row of state", len(row[-1]), memory, self.access.most_bytes)
        self.state.update(row)
        open_rows, oldest_us = logic.open_stats(memory.kept)
        return BucketStats(open_rows, memory.buffered.num_rows, len(row[-1]), oldest_us), due

    def write(self, memory: GroupState, due: Mapping[Clock, int], now_ms: int) -> tuple[Any, ...]:
        """Return the row; its table of events is left out where none wait and no table follows."""
        kept, salts = memory.kept, np.zeros(0, np.int64)
        if SALT.name in kept.schema.names:
            kept, salts = kept.drop_columns(SALT.name), numbers_in(kept, SALT.name)
        optional = [] if self._idle is None else [self._idle.table()]
        if salts.any():
            # The salts 0 8 9 are stored as the places 1 2 with the salts 8 9.
            places = np.flatnonzero(salts)
            columns = [pa.array(places, pa.int32()), pa.array(salts[places])]
            optional.append(pa.Table.from_arrays(columns, schema=SALTS))
        waiting = [memory.buffered] if memory.buffered.num_rows or optional else []
        numbers = (now_ms, kept.num_rows, memory.buffered.num_rows)
        return self.access.packed(numbers, [kept, *waiting, *optional], due)


def memory_in_row(access: GroupAccess, row: tuple[Any, ...]) -> GroupState:
    """Return the memory in the row of a group; see `GroupAccess` for what it raises."""
    reading, (kept, *more) = access.unpacked(row)
    waiting, *optional = more or [access.logic.empty_state.buffered]
    salts = idle = None
    for table in optional:
        # The optional tables differ in their first column.
        if table.column_names[0] == SALTS.names[0]:
            salts = np.zeros(kept.num_rows, np.int64)
            # The place 1 with the salt 8, of three sessions, gives 0 8 0.
            salts[table["place"].to_numpy()] = table[SALT.name].to_numpy()
        else:
            idle = IdleClock.of_table(table)
    memory = reading.memory(access.logic, kept, waiting, salts)
    return memory if idle is None else attrs.evolve(memory, idle=idle)


def first_due(logic: GroupLogic, memory: GroupState) -> dict[Clock, int]:
    """Return the first instant, in microseconds, at which each clock has something to do."""
    first: dict[Clock, int] = {}
    due = [*logic.due(memory.kept).items()]
    if memory.buffered.num_rows:
        due.append(("event_time", micros(memory.buffered["time"])))
    for clock, at_us in due:
        earliest = min(first.get(clock, NEVER_US), int(at_us.min(initial=NEVER_US)))
        if earliest < NEVER_US:
            first[clock] = earliest
    return first


def logic_of(spec: AnySpec) -> GroupLogic:
    if isinstance(spec, SessionSpec):
        return SessionLogic(spec)
    return KeyLogic(cast("AnyStatefulSpec", spec))


def columns_of(logic: GroupLogic) -> str:
    """Return the stored columns of a group's row, as a schema of Spark SQL."""
    return DIRECTORY_COLUMNS if logic.spec.storage.layout == "pages" else ROW_COLUMNS


def stored_memory(
    logic: GroupLogic, group: tuple[Any, ...], row: tuple[Any, ...], now: Origin = NOBODY
) -> GroupState:
    """
    Return the memory of a group, named as in `Worker.__call__`, from its row in a checkpoint.

    One logic serves all groups, since it caches their readings. Under `layout="pages"` the last
    value of the row has the pages, by their numbers. By default the row of any query is read.
    """
    access = GroupAccess(logic, group, now)
    if logic.spec.storage.layout == "pages":
        return memory_in_pages(access, row[:-1], row[-1])
    return memory_in_row(access, row)


@attrs.frozen(eq=False)
class Stored:
    """The row of a group, None if it has none; under `layout="pages"`, also written pages."""

    row: tuple[Any, ...] | None = None
    pages: Mapping[int, bytes] = attrs.field(factory=dict)


def changed_memory(
    logic: GroupLogic,
    group: tuple[Any, ...],
    before: Stored,
    after: Stored,
    written: Collection[int],
) -> tuple[GroupState, GroupState]:
    """
    Return the memory of a group before and after a micro-batch.

    Of a bucket in pages, it's only the memory in pages that the micro-batch has written or removed.
    A key that has moved is in both memories, since both of its pages were written.
    """
    if logic.spec.storage.layout != "pages":
        memories = [
            logic.empty_state if stored.row is None else stored_memory(logic, group, stored.row)
            for stored in (before, after)
        ]
        return memories[0], memories[1]
    buckets = [
        BucketHead.of(logic, Directory.empty())
        if stored.row is None
        else BucketHead.of_row(GroupAccess(logic, group), stored.row)
        for stored in (before, after)
    ]
    common = {*buckets[0].directory.stored} & {*buckets[1].directory.stored}
    same = [start for start, *_ in common if start not in written]
    memories = list[GroupState]()
    for bucket, stored in zip(buckets, (before, after), strict=True):
        entries = bucket.directory.entries
        # The pages that start at 0 50 80, where the one at 50 is the same, leave those at 0 and 80.
        others = Directory(entries[~np.isin(entries["start"], same)])
        memories.append(bucket.memory(logic, read_pages(others, stored.pages.get)))
    return memories[0], memories[1]


def changed_rows(before: pa.Table, after: pa.Table, name: str) -> pa.Table:
    """
    Return the rows that are new, changed or gone, with a first column `change` that says which.

    Rows match by their values in the column `name`. A row that is gone is as it was before, the
    others are as they are after.
    """
    # Before a, b and after b, c: b may have changed, c is new, a is gone.
    was, now = _places(before[name]), _places(after[name])
    kept = [key for key in now if key in was]
    old, left = _taken(before, was, kept), _taken(after, now, kept)
    parts: dict[Change, pa.Table] = {
        "new": _taken(after, now, [key for key in now if key not in was]),
        "changed": left.take(pa.array(_unequal(old, left), pa.int64())),
        "gone": _taken(before, was, [key for key in was if key not in now]),
    }
    kinds = [kind for kind, rows in parts.items() for _ in range(rows.num_rows)]
    return pa.concat_tables(parts.values()).add_column(0, "change", pa.array(kinds, pa.string()))


def _places(names: pa.ChunkedArray) -> dict[str, int]:
    # A key is a dict here, which isn't hashable: its text is.
    return {repr(name): place for place, name in enumerate(names.to_pylist())}


def _taken(rows: pa.Table, places: Mapping[str, int], names: list[str]) -> pa.Table:
    return rows.take(pa.array([places[name] for name in names], pa.int64())).combine_chunks()


def _unequal(left: pa.Table, right: pa.Table, first: int = 0) -> Iterator[int]:
    """
    Yield the places at which two tables of the same length and schema differ.

    Arrow compares nested columns only as a whole, and takes NaN for unequal to itself.
    """
    if left.equals(right):
        return
    if left.num_rows > ONE_BY_ONE:
        half = left.num_rows // 2
        yield from _unequal(left.slice(0, half), right.slice(0, half), first)
        yield from _unequal(left.slice(half), right.slice(half), first + half)
        return
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    yield from (first + place for place, pair in enumerate(rows) if repr(pair[0]) != repr(pair[1]))
