"""
What a micro-batch has changed in a group, from what is stored of it before and after.

Spark says which rows of its state store a micro-batch has written: a group, or pages of a bucket.
Each holds many keys, most of which stay as they were. So the two are read and compared.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.logic import GroupState, Logic
from sessionkit._engine.shell.paged_bucket import BucketHead, read_pages
from sessionkit._engine.shell.pages import Directory
from sessionkit._engine.shell.payload import NOBODY
from sessionkit._engine.shell.storage import stored_memory

Change: TypeAlias = Literal["new", "changed", "gone"]
FEW: Final = 8
"""So many rows are compared one by one."""


@attrs.frozen(eq=False)
class Stored:
    """The row of a group, None where there is none; with pages, also those that were written."""

    row: tuple[Any, ...] | None = None
    pages: Mapping[int, bytes] = attrs.field(factory=dict)


def changed_memory(
    logic: Logic, group: tuple[Any, ...], before: Stored, after: Stored, written: Collection[int]
) -> tuple[GroupState, GroupState]:
    """
    Return what a group remembered before a micro-batch, and after.

    Of a bucket in pages, it's what the pages hold that the micro-batch has written or removed. A
    key that has moved is in both parts, since both of its pages are among them.
    """
    if logic.spec.storage.layout != "pages":
        memories = [
            logic.empty_state if one.row is None else stored_memory(logic, group, one.row)
            for one in (before, after)
        ]
        return memories[0], memories[1]
    buckets = [
        BucketHead.of(logic, Directory.empty())
        if one.row is None
        else BucketHead.of_row(logic, group, one.row, NOBODY)
        for one in (before, after)
    ]
    both = {*buckets[0].directory.stored} & {*buckets[1].directory.stored}
    same = [start for start, *_ in both if start not in written]
    memories = [
        bucket.memory(logic, read_pages(_without(bucket.directory, same), one.pages.get))
        for bucket, one in zip(buckets, (before, after), strict=True)
    ]
    return memories[0], memories[1]


def _without(directory: Directory, starts: list[int]) -> Directory:
    return Directory(directory.entries[~np.isin(directory.entries["start"], starts)])


def changed_rows(before: pa.Table, after: pa.Table, name: str) -> pa.Table:
    """
    Return the rows that are new, changed or gone, with a first column `change` that says which.

    A row is the one that has the same value in the column of that name. What is gone has the row
    from before, the others have that from after.
    """
    was, now = _places(before[name]), _places(after[name])
    kept = [one for one in now if one in was]
    old, left = _taken(before, was, kept), _taken(after, now, kept)
    parts: dict[Change, pa.Table] = {
        "new": _taken(after, now, [one for one in now if one not in was]),
        "changed": left.take(pa.array(_unequal(old, left), pa.int64())),
        "gone": _taken(before, was, [one for one in was if one not in now]),
    }
    kinds = [kind for kind, rows in parts.items() for _ in range(rows.num_rows)]
    return pa.concat_tables(parts.values()).add_column(0, "change", pa.array(kinds, pa.string()))


def _places(names: pa.ChunkedArray) -> dict[str, int]:
    return {repr(name): place for place, name in enumerate(names.to_pylist())}


def _taken(rows: pa.Table, places: Mapping[str, int], names: list[str]) -> pa.Table:
    return rows.take(pa.array([places[name] for name in names], pa.int64())).combine_chunks()


def _unequal(one: pa.Table, other: pa.Table, first: int = 0) -> Iterator[int]:
    """
    Yield the places at which two tables of the same length and schema differ.

    Arrow compares nested columns only as a whole, and takes NaN for unequal to itself.
    """
    if one.equals(other):
        return
    if one.num_rows > FEW:
        half = one.num_rows // 2
        yield from _unequal(one.slice(0, half), other.slice(0, half), first)
        yield from _unequal(one.slice(half), other.slice(half), first + half)
        return
    rows = zip(one.to_pylist(), other.to_pylist(), strict=True)
    yield from (first + place for place, pair in enumerate(rows) if repr(pair[0]) != repr(pair[1]))
