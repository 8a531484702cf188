"""
Seeds: what a new query remembers before its first event, and the watermark at which it begins.

Spark gives a stateful operator no initial state, so a seed crosses as rows of its own kind. They
arrive with the first micro-batch of a query, before which no group remembers anything. A seed may
come from a query under another spec: then a migration converts it.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._arrays import micros, split
from sessionkit._engine.micro_batch import BatchClocks, GroupLogic, GroupState
from sessionkit._engine.rows.tables import SideOutput
from sessionkit._engine.shell.reading import MAY_BE_CARRIED, identity_differences, reading_of
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.wire.packing import joined_packs, packs_in
from sessionkit._instants import BEGINNING_US, instant_of
from sessionkit.errors import StateError, StateValueError
from sessionkit.spec.base import AnySpec
from sessionkit.state._codec import form_text
from sessionkit.state._types import FieldType, key_form, type_name

KEPT_COLUMN: Final = "_kept"
HELD_COLUMN: Final = "_held"
"""The columns of the packs of a seed: kept rows, and waiting events."""
READ_BY_BATCH: Final = "it is before %s, up to where the batch of the seed has read"


@attrs.frozen
class SeedFormat:
    """
    The format of the rows of a seed, and when it was taken. All instants in microseconds.

    The watermark of a query doesn't fall below the watermark of its seed. A batch has read every
    event before `until_us`. Where a source was idle, groups may have followed a watermark of their
    own by then, up to `idle_us`. Its sessions, which may have had a longer gap, end by `ends_us`.
    """

    identity: bytes
    kept: pa.Schema
    held: pa.Schema
    watermark_us: int
    until_us: int | None = None
    idle_us: int = BEGINNING_US
    ends_us: int = BEGINNING_US

    @classmethod
    def of(
        cls,
        logic: GroupLogic,
        watermark_us: int,
        until_us: int | None = None,
        idle_us: int = BEGINNING_US,
        ends_us: int = BEGINNING_US,
    ) -> "SeedFormat":
        program, held = logic.program, logic.spec.events_schema
        instants = watermark_us, until_us, idle_us, ends_us
        return cls(program.identity, program.schema, held, *instants)

    @property
    def buckets(self) -> int:
        return int(json.loads(self.identity)["bucket_count"])

    def in_force(self, clocks: BatchClocks) -> BatchClocks:
        """Return the clocks of a micro-batch with a watermark that isn't before the seed's."""
        return attrs.evolve(
            clocks,
            watermark_us=max(clocks.watermark_us, self.watermark_us),
            since_us=self.watermark_us,
            idle_us=self.idle_us,
            ends_us=self.ends_us,
        )

    def unread(self, arrived: pa.Table) -> tuple[pa.Table, list[SideOutput]]:
        """Split events into unread ones, and ones that the batch of the seed may have read."""
        if self.until_us is None:
            return arrived, []
        was_read = micros(arrived["time"]) < self.until_us
        why = READ_BY_BATCH % instant_of(self.until_us)
        return split(arrived, was_read)[1], SideOutput.chosen("late", why, arrived, was_read)

    def read(
        self, logic: GroupLogic, frames: Sequence[pd.DataFrame], state: Any
    ) -> GroupState | None:
        """
        Return the memory that a seed gives to a group, from its packed rows; None without rows.

        A seed for other rules, or for a query that is under way, is a StateError.
        """
        # On a driver, only the rows of a seed have these columns.
        seeded = [frame for frame in frames if KEPT_COLUMN in frame.columns]
        kept, waiting = packs_in(seeded, KEPT_COLUMN, HELD_COLUMN)
        if not kept and not waiting:
            return None
        if state.exists:
            found = "a seed came to a query that is under way: its group remembers something"
            hint = "start the query with a new checkpoint, and never change its seed"
            raise StateError(found, hint)
        reading = reading_of(logic, self.identity)
        return reading.memory(
            logic, joined_packs(self.kept, kept), joined_packs(self.held, waiting)
        )


def started(spec: AnySpec, memory: GroupState, arrived: pa.Table) -> tuple[GroupState, pa.Table]:
    """
    Return the memory of a group after its seed, and the events that it processes.

    Where events needn't wait any more, those that waited are processed now.
    """
    if spec.order == "event_time":
        return memory, arrived
    events = pa.concat_tables([memory.buffered, arrived])
    return GroupState(memory.kept, memory.buffered.slice(0, 0)), events


def check_migration(old: AnySpec, new: AnySpec) -> None:
    """Check that one spec can take over from another; a StateError has each reason if not."""
    before, after = logic_of(old).program, logic_of(new).program
    was, now = json.loads(before.identity), json.loads(after.identity)
    lines = identity_differences(was, now, (was.keys() | now.keys()) - MAY_BE_CARRIED)
    if sorted(old.keys) != sorted(new.keys):
        was_keys, now_keys = ", ".join(old.keys), ", ".join(new.keys)
        lines.append(f"the key columns were {was_keys}, and are {now_keys}")
    else:
        keys = {field.name: field.type for field in old.key_fields}
        lines += [
            f"the key column `{field.name}` can't become {form_text(field.type.form)}"
            for field in new.key_fields
            if keys[field.name].form != field.type.form
            and type_name(field.type) not in key_form(keys[field.name]).becomes
        ]
    if old.order == "event_time":
        old_types = {field.name: field.type for field in old.events_schema}
        lines += [
            f"the column `{field.name}` of the events that wait isn't {field.type}"
            for field in new.events_schema
            if not field.name.startswith("key.") and old_types.get(field.name) != field.type
        ]
    # A program of another kind is a difference already, and knows no rules of this one.
    lines += after.incompatibilities(old) if type(before) is type(after) else []
    if lines:
        text = "the state can't be migrated:\n  " + "\n  ".join(lines)
        raise StateError(text, "undo the change, or start without a seed")


def migrated(old: AnySpec, new: AnySpec, memory: GroupState) -> GroupState:
    """Convert the memory of one spec to the memory of another; each key has exactly one form."""
    waiting = memory.buffered if memory.buffered.num_rows else new.events_schema.empty_table()
    logic = logic_of(new)
    kept = _fitted(old, logic.program.migrated(old, memory.kept), logic.program.schema)
    return GroupState(kept, _fitted(old, waiting, new.events_schema))


def _fitted(old: AnySpec, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    kinds = {f"key.{field.name}": field.type for field in old.key_fields}
    columns = [
        _as_key(rows[field.name], kinds[field.name], field)
        if field.name in kinds
        else rows[field.name]
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_key(column: pa.ChunkedArray, old: FieldType, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        converted = column.cast(field.type)
        # As numbers, "1" and "01" would be one key: so each must become the same text again.
        if converted.cast(old.arrow).equals(column):
            return converted
        why = "a value has several forms there, such as '1' and '01'"
    except pa.ArrowInvalid as error:
        why = str(error)
    text = f"the stored keys of `{field.name}` don't fit {field.type}: {why}"
    raise StateValueError(text, "leave the type of the key as it was")
