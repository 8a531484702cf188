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
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.boundaries import processing_timer_ms, timer_ms
from sessionkit._engine.logic import Logic, Memory
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import BEHIND
from sessionkit._engine.shell.payload import (
    FORMAT_VERSION,
    NOBODY,
    RESTORE,
    Bond,
    Origin,
    check_format,
    pack,
    unpack,
)
from sessionkit._engine.shell.reading import Reading, reading_of
from sessionkit.errors import StateCorruptedError, StateError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike

MARKS: Final = pa.schema([pa.field("place", pa.int32()), BEHIND])

EVENT_DUE_AT: Final = -2
"""Where the columns next to a payload have `event_due_us`, in each layout."""
PLAIN: Final = frozenset({int, str, bool, bytes, type(None)})
MOST_BYTES: Final = 2**28
"""
Of a row, and of a page. They cross as one value of Arrow or protobuf, and lie in one array of Java:
neither takes 2 GiB, and on the way there are several copies at once. A row of 500 MB took more
than the 6 GB of a JVM.
"""


def pack_row(
    logic: Logic,
    group: tuple[Any, ...],
    columns: tuple[Any, ...],
    tables: Sequence[pa.Table],
    origin: Origin,
) -> tuple[Any, ...]:
    """Return the row of a group: columns, and a payload bound to them, the group and the query."""
    bond = Bond(_name_of(logic.spec, group), _as_text(columns), origin)
    return (*columns, pack(logic.identity, tables, bond))


def unpack_row(
    logic: Logic,
    group: tuple[Any, ...],
    row: tuple[Any, ...],
    now: Origin,
    seen: "Neighbours | None" = None,
) -> tuple[Reading, list[pa.Table]]:
    """
    Return the tables in the row of a group, and how they are read.

    Args:
        logic: Whose row it is.
        group: What Spark grouped by.
        row: The row.
        now: The micro-batch that reads it.
        seen: The rows that its task has read before.

    Raises:
        StateCorruptedError: It is damaged, or belongs to another group or micro-batch, or is older
            than the other rows say.
        StateMismatchError: Another query wrote it, or it has other rules, or another format.
    """
    *columns, payload = row
    if columns[0] != FORMAT_VERSION:
        check_format(columns[0])
    found = unpack(bytes(payload))
    what = f"the stored row of {_as_text(group).decode()}"
    found.origin.check(now, what)
    reading = logic.readings.get(found.identity) or reading_of(logic, found.identity)
    found.check(Bond(_name_of(logic.spec, group), _as_text(columns)))
    if seen is not None and logic.spec.clock == "event_time":
        seen.add(what, found.origin, columns[EVENT_DUE_AT], now)
    return reading, found.tables


def _name_of(spec: AnySpec, group: tuple[Any, ...]) -> bytes:
    """Return the name of a bucket, or of a key: the same on every machine and in every release."""
    if spec.storage.layout != "per_key":
        return _as_text(group)
    key = zip(spec.key_fields, map(_plain, group), strict=True)
    return _as_text([field.type.load(value) for field, value in key])


def _as_text(values: Sequence[Any]) -> bytes:
    values = list(values if PLAIN.issuperset(map(type, values)) else map(_plain, values))
    # What `repr` escapes changes with the releases of Unicode.
    return ascii(values).encode()


def _plain(value: Any) -> Any:
    """Return a value that Spark hands over as NumPy's, or as Java's bytes, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return bytes(value) if isinstance(value, bytearray) else value


@attrs.define(eq=False)
class Neighbours:
    """
    The rows that one task has read so far: that with the first timer, and that of the last write.

    Rows of several tasks can't be compared: they may be of copies of a query, or of two operators.
    """

    _waiting: tuple[int, str, Origin] | None = attrs.field(default=None, init=False)
    _written: tuple[str, Origin] = attrs.field(default=("", NOBODY), init=False)

    def add(self, what: str, origin: Origin, due_us: int | None, now: Origin) -> None:
        """
        Add the row of a group that Spark wakes in event time.

        Args:
            what: The row, for the error.
            origin: The micro-batch that wrote it. One that isn't known says nothing, and neither
                does the one that runs: it may still call the others.
            due_us: When the first thing is due in it, in microseconds.
            now: The micro-batch that runs.

        Raises:
            StateCorruptedError: It, or one that was read before, is an older row.
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


def check_size(spec: AnySpec, what: str, size: int, memory: Memory, most: int = MOST_BYTES) -> None:
    """
    Check that what would be stored isn't too large: with more, Spark fails and says nothing.

    Raises:
        StateError: It's larger; the message names the key with the largest part of the memory.
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


def _largest(spec: AnySpec, memory: Memory) -> tuple[Any, int]:
    """Return the key with the most bytes, those of events that wait among them."""
    sizes: Counter[Any] = Counter()
    for table in (memory.kept, memory.buffered):
        for place, key in enumerate(decode_keys(spec, table)):
            sizes[key] += table.slice(place, 1).nbytes
    return sizes.most_common(1)[0]


def stored_marks(marks: npt.NDArray[np.int64]) -> pa.Table:
    """Return what is stored of the marks of some rows."""
    places = np.flatnonzero(marks)
    columns = [pa.array(places, pa.int32()), pa.array(marks[places])]
    return pa.Table.from_arrays(columns, schema=MARKS)


def marks_stored(stored: pa.Table, number: int) -> npt.NDArray[np.int64]:
    """Return the marks of so many rows from what is stored of them."""
    marks = np.zeros(number, np.int64)
    marks[stored["place"].to_numpy()] = stored[BEHIND.name].to_numpy()
    return marks


def arm(
    clock: Clock | None, due: Mapping[Clock, int], state: GroupStateLike, watermark_ms: int
) -> None:
    """
    Let Spark call again when a clock reaches what is due; after `update`, which clears the timer.

    Args:
        clock: The clock by which Spark wakes the group.
        due: The first instant, in microseconds, that each clock must reach.
        state: Spark's group state.
        watermark_ms: Spark's watermark.
    """
    if clock == "event_time" and clock in due:
        state.setTimeoutTimestamp(timer_ms(due[clock], watermark_ms))
    if clock == "processing_time" and due:
        state.setTimeoutDuration(_delay_ms(due, state.getCurrentProcessingTimeMs()))


def _delay_ms(due: Mapping[Clock, int], now_ms: int) -> int:
    """Return how long Spark may leave a group alone under a clock in processing time."""
    if "event_time" in due:
        # No timer of Spark's waits for the watermark under this clock: look in every micro-batch.
        return 1
    return processing_timer_ms(due["processing_time"], now_ms)
