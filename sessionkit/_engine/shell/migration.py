"""What a query remembers under one spec, as another spec stores it: a migration."""

import json
from typing import Any

import pyarrow as pa

from sessionkit._engine.logic import Logic, Memory
from sessionkit._engine.rows.table import events_schema
from sessionkit._engine.shell.payload import identity_differences
from sessionkit._engine.shell.reading import MAY_BE_CARRIED
from sessionkit._engine.shell.storage import logic_of
from sessionkit.errors import StateMismatchError, StateValueError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.state._types import FieldType, key_form, type_name


def check_migration(old: AnySpec, new: AnySpec) -> None:
    """
    Check that what was stored under one spec can become what another stores.

    Raises:
        StateMismatchError: It can't; the message names each difference that stands in the way.
    """
    before, after = logic_of(old), logic_of(new)
    lines = identity_differences(_fixed(before), _fixed(after))
    lines += [*_keys(old, new), *_waiting(old, new)]
    # Logic of another kind is a difference already, and knows no rules of this one.
    lines += after.obstacles(old) if type(before) is type(after) else []
    if lines:
        text = "the state can't be carried over:\n  " + "\n  ".join(lines)
        raise StateMismatchError(with_hint(text, "undo the change, or start without a seed"))


def _fixed(logic: Logic) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(logic.identity)
    return {name: entry for name, entry in entries.items() if name not in MAY_BE_CARRIED}


def _keys(old: AnySpec, new: AnySpec) -> list[str]:
    if sorted(old.keys) != sorted(new.keys):
        return [f"the key columns were {', '.join(old.keys)}, and are {', '.join(new.keys)}"]
    before = {field.name: field.type for field in old.key_fields}
    return [
        f"the key column `{field.name}` can't become {field.type.arrow}"
        for field in new.key_fields
        if before[field.name].arrow != field.type.arrow
        and type_name(field.type) not in key_form(before[field.name]).becomes
    ]


def _waiting(old: AnySpec, new: AnySpec) -> list[str]:
    """Say so where the new spec needs a column of events that wait, and it isn't there so."""
    if old.order != "event_time":
        return []
    there = {field.name: field.type for field in events_schema(old)}
    return [
        f"the column `{field.name}` of the events that wait isn't {field.type}"
        for field in events_schema(new)
        if not field.name.startswith("key.") and there.get(field.name) != field.type
    ]


def migrated(old: AnySpec, new: AnySpec, memory: Memory) -> Memory:
    """
    Return what was stored under one spec as another stores it.

    Raises:
        StateValueError: A key doesn't have exactly one form in its new type.
    """
    held = memory.buffered if memory.buffered.num_rows else events_schema(new).empty_table()
    logic = logic_of(new)
    kept = _fitted(old, logic.migrated(old, memory.kept), logic.schema)
    return Memory(kept, _fitted(old, held, events_schema(new)))


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
        found = column.cast(field.type)
        same = found.cast(old.arrow).equals(column)
    except pa.ArrowInvalid as error:
        raise _unfit(field, str(error)) from error
    if not same:
        raise _unfit(field, "a value has several forms there, such as '1' and '01'")
    return found


def _unfit(field: pa.Field, found: str) -> StateValueError:
    text = f"the stored keys of `{field.name}` don't fit {field.type}: {found}"
    return StateValueError(with_hint(text, "leave the type of the key as it was"))
