"""
Erasures, by which a group forgets all that it remembers of a key.

An erasure crosses as a row of its own kind, packed like events, with nothing but a key. It goes
before everything else in its micro-batch: it drops what the group remembers of the key, also from a
seed, and events of the same micro-batch find a new key.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa

from sessionkit._arrays import Numbers, filled, key_columns, whole
from sessionkit._engine.counts import Counts
from sessionkit._engine.micro_batch import GroupLogic, GroupState
from sessionkit._engine.rows.order import key_numbers
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.wire.inbound import REASON, rejected_schema, valid_keys
from sessionkit._engine.wire.packing import (
    REJECTED_COLUMN,
    joined_packs,
    packed_by_group,
    packed_rows,
    packs_in,
)
from sessionkit.spec.base import AnySpec

ERASED_COLUMN: Final = "_erased"
"""The column of packs of keys."""
KINDS: Final = {ERASED_COLUMN: pa.binary(), REJECTED_COLUMN: pa.binary()}
NOT_A_KEY: Final = "an erasure: %s"
DROPPED: Final = "dropped of this key: %d rows of state, %d events that waited"


@attrs.frozen
class ErasurePacker:
    """A packer of the keys of erasures, in one map task; the names of groups are never null."""

    spec: AnySpec
    group: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack key columns, named as on the wire; quarantine rows without a valid key."""
        for rows in batches:
            valid, keys, reasons = valid_keys(self.spec, rows)
            groups, mask = pa.table(rows.select(self.group)), pa.array(valid)
            of_packs, packs, _ = packed_by_group(groups.filter(mask), keys.filter(mask))
            yield packed_rows(of_packs, KINDS, {ERASED_COLUMN: packs})
            if not valid.all():
                invalid = pa.array(~valid)
                # A valid row has no text: it stays None, and is filtered out.
                texts = pa.array([text and NOT_A_KEY % text for text in reasons], pa.string())
                columns = {name: whole(keys[name]) for name in keys.column_names} | {REASON: texts}
                schema = rejected_schema(self.spec.events_schema)
                quarantined = filled(schema, columns, rows.num_rows).filter(invalid)
                of_packs, packs, _ = packed_by_group(groups.filter(invalid), quarantined)
                yield packed_rows(of_packs, KINDS, {REJECTED_COLUMN: packs})


def erased_keys(logic: GroupLogic, frames: Sequence[pd.DataFrame]) -> pa.Table | None:
    """Return the keys that the rows of a group erase, each once; None if they erase nothing."""
    erasures = [frame for frame in frames if ERASED_COLUMN in frame.columns]
    (packs,) = packs_in(erasures, ERASED_COLUMN)
    if not packs:
        return None
    keys = joined_packs(pa.schema(logic.spec.key_schema), packs)
    columns = key_columns(keys)
    # The keys 7, 3, 7 are numbered 0 1 0; the numbers 0 and 1 first appear at the places 0 and 1.
    first = np.unique(key_numbers(columns, columns)[0], return_index=True)[1]
    return keys.take(pa.array(first))


def keys_to_load(arrived: pa.Table, erasing: pa.Table) -> pa.Table:
    """Return the keys of events and of erasures, with all of which a group must be loaded."""
    names = erasing.column_names
    return pa.concat_tables([arrived.select(names), erasing])


@attrs.frozen(eq=False)
class Erased:
    """The memory of a group without erased keys, and how much was dropped of each."""

    keys: pa.Table
    left: GroupState
    states: Numbers
    events: Numbers

    @classmethod
    def of(cls, keys: pa.Table, memory: GroupState) -> "Erased":
        kept, states = _others(keys, memory.kept)
        buffered, events = _others(keys, memory.buffered)
        return cls(keys, attrs.evolve(memory, kept=kept, buffered=buffered), states, events)

    @property
    def output(self) -> SideOutput:
        """A row for each key that was erased."""
        reasons = [DROPPED % counts for counts in zip(self.states, self.events, strict=True)]
        return SideOutput("erased", reasons, self.keys)

    def counted(self, counts: Counts) -> Counts:
        """Add the erasures to the counts; erased events no longer wait."""
        events = int(self.events.sum())
        return attrs.evolve(
            counts,
            buffered=counts.buffered - events,
            erasures=self.keys.num_rows,
            erased_states=int(self.states.sum()),
            erased_events=events,
        )


def _others(keys: pa.Table, rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return the rows of other keys, and the number of rows of each of these keys."""
    _, numbers = key_numbers(key_columns(keys), key_columns(rows))
    # Rows of the second key, of another and of the second have the numbers 1 -1 1, and the counts 0
    # 2: no row of the first key, two of the second.
    counts: Numbers = np.bincount(numbers[numbers >= 0], minlength=keys.num_rows)
    return rows.filter(pa.array(numbers < 0)) if counts.any() else rows, counts
