"""
Where the memory of a group is between micro-batches: the seam to what Spark stores.

`BucketRow` stores many keys in one row, `KeyRow` one key in a row with a column for each field of
its state. Both store a group as a whole. `PagedBucket` stores many keys in pages, of which it reads
those only that have keys with events or something due: a step needs no others.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks, arm
from sessionkit._engine.keys.row import KeyRow
from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.logic import Logic, first_due
from sessionkit._engine.outcome import Memory
from sessionkit._engine.pages.bucket import DIRECTORY_COLUMNS, memory_in_pages
from sessionkit._engine.pages.storage import PagedBucket
from sessionkit._engine.rows.identity import check_bucket_count
from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.rows.table import no_events
from sessionkit._engine.sessions.step import SessionLogic
from sessionkit._spec import AnySpec
from sessionkit.session import SessionSpec
from sessionkit.state import FORMAT_VERSION, check_format, pack, unpack
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import Clock
from sessionkit.typing import GroupStateLike

__all__ = [
    "BucketRow",
    "GroupRow",
    "Row",
    "Storage",
    "columns_of",
    "identity_of",
    "logic_of",
    "nothing_of",
    "row_of",
    "storage_of",
    "stored_memory",
]


class Storage(Protocol):
    """The memory of one group during one micro-batch."""

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> Memory:
        """Return what is remembered of the keys that have events, or for which something is due."""

    def store(self, memory: Memory) -> None:
        """Remember this in place of what was loaded, and be woken when something is due."""


class Row(Protocol):
    """How the memory of a group stands in one row of Spark's state store."""

    @property
    def columns(self) -> str:
        """The columns of the row, as Spark's SQL has them."""

    def read(self, group: tuple[Any, ...], row: tuple[Any, ...]) -> Memory:
        """
        Return the memory of a group from its row.

        Raises:
            StateError: It is damaged, or was written under other rules.
        """

    def write(self, memory: Memory, due: Mapping[Clock, int]) -> tuple[Any, ...]:
        """Return the row of a group that remembers something, and when that is due."""


@attrs.frozen
class BucketRow:
    """Many keys in one row: a payload, and what is worth seeing without reading it."""

    logic: Logic
    columns: str = attrs.field(
        default="format INT, bucket_count INT, kept BIGINT, buffered BIGINT, event_due_us BIGINT, "
        "processing_due_us BIGINT, payload BINARY",
        init=False,
    )

    def read(self, group: tuple[Any, ...], row: tuple[Any, ...]) -> Memory:
        """Return the memory of a bucket from its row."""
        del group
        version, bucket_count, *_, payload = row
        check_format(version)
        kept, *buffered = unpack(bytes(payload), self.logic.identity)
        check_bucket_count(self.logic.spec, bucket_count)
        nothing = no_events(self.logic.spec)
        # By name: the fields of a class may have been put in another order.
        return Memory(
            kept.select(self.logic.schema.names),
            buffered[0].select(nothing.column_names) if buffered else nothing,
        )

    def write(self, memory: Memory, due: Mapping[Clock, int]) -> tuple[Any, ...]:
        """Return the row of a bucket; a table of events only where some wait."""
        tables = [memory.kept, *([memory.buffered] if memory.buffered.num_rows else [])]
        return (
            FORMAT_VERSION,
            self.logic.spec.bucket_count,
            memory.kept.num_rows,
            memory.buffered.num_rows,
            due.get("event_time"),
            due.get("processing_time"),
            pack(self.logic.identity, tables),
        )


@attrs.frozen
class GroupRow:
    """
    The memory of a group in one row of Spark's state store, read and written as a whole.

    Attributes:
        logic: Whose memory it is.
        row: How it stands there.
        group: What Spark grouped by.
        state: Spark's group state; always updated or removed, since a call that changes nothing
            would leave a timer that goes off in every micro-batch.
    """

    logic: Logic
    row: Row
    group: tuple[Any, ...]
    state: GroupStateLike

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> Memory:
        """Return all that is remembered, whatever is asked for."""
        del arrived, clocks
        if not self.state.exists:
            return nothing_of(self.logic)
        return self.row.read(self.group, self.state.get)

    def store(self, memory: Memory) -> None:
        """Replace the row, or remove it where nothing is left, and arm the timer."""
        if memory.is_empty:
            self.state.remove()
            return
        due = first_due(self.logic, memory)
        self.state.update(self.row.write(memory, due))
        arm(self.logic.spec, due, self.state)


LOGICS: Final[dict[type[Any], Callable[[Any], Logic]]] = {
    SessionSpec: SessionLogic,
    StatefulSpec: KeyLogic,
}


def logic_of(spec: AnySpec) -> Logic:
    """Return the fold that a spec asks for."""
    return LOGICS[type(spec)](spec)


@remembered
def nothing_of(logic: Logic) -> Memory:
    """Return the memory of a group that remembers nothing."""
    return Memory(logic.schema.empty_table(), no_events(logic.spec))


def storage_of(logic: Logic, group: tuple[Any, ...], state: Any) -> Storage:
    """
    Return where the memory of a group is.

    Args:
        logic: Whose memory it is.
        group: What Spark grouped by.
        state: Spark's group state; under `layout="pages"` a `PagedStateLike`.
    """
    if logic.spec.layout == "pages":
        return PagedBucket(logic, state)
    return GroupRow(logic, row_of(logic), group, state)


def columns_of(logic: Logic) -> str:
    """Return the columns of the stored row of a group, as Spark's SQL has them."""
    return DIRECTORY_COLUMNS if logic.spec.layout == "pages" else row_of(logic).columns


def row_of(logic: Logic) -> Row:
    """Return how the layout of a spec stores a group in a row."""
    if isinstance(logic, KeyLogic) and logic.spec.layout == "per_key":
        return KeyRow(logic.spec, logic.identity)
    return BucketRow(logic)


def identity_of(spec: AnySpec) -> bytes:
    """Return what must not change while a checkpoint lives, as JSON."""
    return logic_of(spec).identity


def stored_memory(spec: AnySpec, group: tuple[Any, ...], row: tuple[Any, ...]) -> Memory:
    """
    Return the memory of a group from its row in a checkpoint.

    Args:
        spec: The spec under which it was stored.
        group: What Spark grouped by: the label of a bucket, or a key as it crosses.
        row: The stored row; under `layout="pages"` with the pages, by their numbers, at its end.

    Raises:
        StateError: It is damaged, or was written under other rules.
    """
    logic = logic_of(spec)
    if spec.layout == "pages":
        return memory_in_pages(logic, row[:-1], row[-1])
    return row_of(logic).read(group, row)
