"""
Where the memory of a group is between micro-batches: the seam to what Spark stores.

`GroupRow` stores a group, a bucket of many keys, as a whole in one row.
`PagedBucket` stores it in pages, of which it reads those only that have keys with events or
something due: a step needs no others.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa

from sessionkit._engine.keys.step import KeyLogic
from sessionkit._engine.logic import BatchClocks, BucketStats, GroupState, Logic
from sessionkit._engine.sessions.step import SessionLogic
from sessionkit._engine.shell.paged_bucket import DIRECTORY_COLUMNS, PagedBucket, memory_in_pages
from sessionkit._engine.shell.payload import NOBODY, Origin
from sessionkit._engine.shell.stored import ROW_COLUMNS, GroupRow
from sessionkit.spec.base import AnySpec
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.stateful import StatefulSpec


class GroupStore(Protocol):
    """The memory of one group during one micro-batch."""

    def load(self, arrived: pa.Table, clocks: BatchClocks) -> GroupState:
        """
        Return what is remembered of the keys that have events, or for which something is due.

        The idle clock in it is that of this micro-batch; by the watermark in force with it
        something may be due that isn't by that of Spark.
        """

    def store(self, memory: GroupState) -> BucketStats:
        """
        Remember this in place of what was loaded, and be woken when something is due.

        Returns the stats of the group, but for the watermark.
        """


STORAGES: Final[dict[str, Callable[..., GroupStore]]] = {
    "buckets": GroupRow,
    "pages": PagedBucket,
}
"""What makes the storage of a group, by the layout of its spec."""
LOGICS: Final[dict[type[Any], Callable[[Any], Logic]]] = {
    SessionSpec: SessionLogic,
    StatefulSpec: KeyLogic,
}


def logic_of(spec: AnySpec) -> Logic:
    return LOGICS[type(spec)](spec)


def columns_of(logic: Logic) -> str:
    """Return the columns of the stored row of a group, as Spark's SQL has them."""
    return DIRECTORY_COLUMNS if logic.spec.storage.layout == "pages" else ROW_COLUMNS


def stored_memory(
    logic: Logic, group: tuple[Any, ...], row: tuple[Any, ...], now: Origin = NOBODY
) -> GroupState:
    """
    Return the memory of a group from its row in a checkpoint, as `Worker.__call__` names it.

    One logic serves all groups, since it remembers how they are read. Under `layout="pages"` the
    row ends in the pages, by their numbers. By default the row of any query is read.
    """
    if logic.spec.storage.layout == "pages":
        return memory_in_pages(logic, group, row[:-1], row[-1], now)
    nowhere: Any = None
    return GroupRow(logic, group, nowhere, now).read(row)
