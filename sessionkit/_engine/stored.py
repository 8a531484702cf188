"""
What was stored under one identity, read under the rules of a spec.

The identity of a payload says under which rules and with which classes it was written. The rules
must be those of the spec. The classes may have changed: then the columns of the state, and those of
events that wait, become those of the present classes here, and nothing above knows of older ones.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.logic import Logic
from sessionkit._engine.outcome import Memory
from sessionkit._engine.rows.objects import decode_keys, decode_states, encode_states
from sessionkit._engine.rows.remembered import remembered
from sessionkit._engine.rows.table import events_schema
from sessionkit._functions import call_failed, name_of, wrong_class
from sessionkit._spec import AnySpec
from sessionkit._upgrade import UpgradeStep
from sessionkit.errors import StateMismatchError, UserFunctionError, with_hint
from sessionkit.state import (
    Bond,
    Change,
    Origin,
    changes_of,
    check_format,
    codec_of,
    identity_differences,
    pack,
    unpack,
)

__all__ = ["Comparison", "Reading", "compared", "pack_row", "reading_of", "unpack_row"]

CLASSES: Final = frozenset({"state", "event", "passthrough", "aggregates", "state_version"})
"""The entries of an identity that may change."""
UNDO: Final = "undo the change, or start with a new checkpoint"
BESIDE: Final = "undo the change, or keep the field and add a new one, with a default, beside it"
BY_HAND: Final = "undo the change, or say with `upgrade=` what becomes of a stored state"


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
    logic: Logic, group: tuple[Any, ...], row: tuple[Any, ...], now: Origin
) -> tuple["Reading", list[pa.Table]]:
    """
    Return the tables in the row of a group, and how they are read.

    Args:
        logic: Whose row it is.
        group: What Spark grouped by.
        row: The row.
        now: The micro-batch that reads it.

    Raises:
        StateCorruptedError: It is damaged, or belongs to another group or micro-batch.
        StateMismatchError: Another query wrote it, or it has other rules, or another format.
    """
    *columns, payload = row
    check_format(columns[0])
    found = unpack(bytes(payload))
    found.origin.check(now, f"the stored row of {_as_text(group).decode()}")
    reading = reading_of(logic, found.identity)
    found.check(Bond(_name_of(logic.spec, group), _as_text(columns)))
    return reading, found.tables


def _name_of(spec: AnySpec, group: tuple[Any, ...]) -> bytes:
    """Return the name of a bucket, or of a key: the same on every machine and in every release."""
    if spec.layout != "per_key":
        return _as_text(group)
    key = zip(spec.key_fields, map(_plain, group), strict=True)
    return _as_text([field.type.load(value) for field, value in key])


def _as_text(values: Sequence[Any]) -> bytes:
    # What `repr` escapes changes with the releases of Unicode.
    return ascii(list(map(_plain, values))).encode()


def _plain(value: Any) -> Any:
    """Return a value that Spark hands over as NumPy's, or as Java's bytes, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return bytes(value) if isinstance(value, bytearray) else value


@attrs.frozen
class Reading:
    """
    How tables that were stored under one identity become tables of the spec.

    Attributes:
        state: How the columns of the state become those of its class, or of an older one.
        steps: What makes of an older class the present one.
        events: How the columns of events that wait become those of the present class.
        is_changed: Whether the classes, or their version, have changed since.
    """

    state: Sequence[Change] = ()
    steps: Sequence[UpgradeStep] = ()
    events: Mapping[str, Sequence[Change]] = attrs.field(factory=dict)
    is_changed: bool = False

    def memory(self, logic: Logic, kept: pa.Table, buffered: pa.Table) -> Memory:
        """
        Return stored tables as those of the spec.

        Args:
            logic: The rules under which they are read, which are those of the comparison.
            kept: The open sessions, or keys.
            buffered: The events that wait.

        Raises:
            StateError: A stored value doesn't fit its new type.
            UserFunctionError: A function of `upgrade` failed.
        """
        # By name: the fields of a class may have been put in another order.
        return Memory(
            self._kept(logic.spec, kept).select(logic.schema.names),
            self._buffered(buffered).select(events_schema(logic.spec).names),
        )

    def _kept(self, spec: AnySpec, stored: pa.Table) -> pa.Table:
        if not self.steps and all(change.is_none for change in self.state):
            return stored
        if "exists" not in stored.column_names:
            return _with_columns(stored, self._states(spec, stored))
        exists = stored["exists"].to_numpy()
        places = pa.array(np.cumsum(exists) - 1, mask=~exists)
        states = self._states(spec, stored.filter(stored["exists"]))
        return _with_columns(stored, {name: found.take(places) for name, found in states.items()})

    def _states(self, spec: AnySpec, stored: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the columns of the states of rows that have one."""
        found = _changed(stored, "state", self.state)
        return self._upgraded(spec, stored, found) if self.steps else found

    def _upgraded(
        self, spec: AnySpec, stored: pa.Table, found: dict[str, pa.ChunkedArray]
    ) -> dict[str, pa.ChunkedArray]:
        keys = decode_keys(spec, stored)
        states = decode_states(self.steps[0].old, _with_columns(stored, found))
        for step in self.steps:
            states = [_called(step, key, old) for key, old in zip(keys, states, strict=True)]
        columns = encode_states(self.steps[-1].new, states, keys.__getitem__)
        names = [f"state.{field.name}" for field in codec_of(self.steps[-1].new).type.fields]
        return dict(zip(names, columns, strict=True))

    def _buffered(self, stored: pa.Table) -> pa.Table:
        for prefix, changes in self.events.items():
            stored = _with_columns(stored, _changed(stored, prefix, changes))
        return stored


def reading_of(logic: Logic, identity: bytes) -> Reading:
    """
    Return how what was stored under an identity is read.

    Raises:
        StateMismatchError: It was stored under other rules, or with classes from which no rule
            leads to the present ones; the message names each difference.
    """
    known = _known(logic)
    if identity not in known:
        found = compared(logic, json.loads(identity))
        found.check("the stored state")
        known[identity] = found.reading
    return known[identity]


@remembered
def _known(logic: Logic) -> dict[bytes, Reading]:
    # No reading refers to the logic, which would then never be forgotten.
    return {logic.identity: Reading()}


@attrs.frozen
class Comparison:
    """
    What has changed since something was stored.

    Attributes:
        reading: How it is read.
        rules: A line for each rule that forbids it.
        events: A line for each field of events that wait that forbids it.
        state: A line for each field of the state that forbids it.
    """

    reading: Reading
    rules: Sequence[str]
    events: Sequence[str]
    state: Sequence[str]

    def check(self, what: str) -> None:
        """
        Check that nothing forbids to read it.

        Raises:
            StateMismatchError: Something does.
        """
        hints = ((UNDO, self.rules), (BESIDE, self.events), (BY_HAND, self.state))
        fitting = [hint for hint, lines in hints if lines]
        if fitting:
            lines = "\n  ".join([*self.rules, *self.events, *self.state])
            text = f"{what} was written under other rules:\n  {lines}"
            raise StateMismatchError(with_hint(text, fitting[0]))


def compared(logic: Logic, then: Mapping[str, Any]) -> Comparison:
    """Compare an identity under which something was stored with the rules of a spec."""
    now, spec = json.loads(logic.identity), logic.spec
    rules = _differences(then, now, (then.keys() | now.keys()) - CLASSES)
    was, own = then.get("aggregates", {}), now.get("aggregates", {})
    rules += [f"aggregate {line}" for line in _differences(was, own, was.keys() & own.keys())]
    unread = list[str]()
    events = _events(logic, then, unread)
    version = then["state_version"]
    steps = [step for step in spec.upgrade_steps if step.version >= version]
    if version != now["state_version"] and version not in spec.upgrade:
        return Comparison(Reading(), rules, unread, _differences(then, now, {"state_version"}))
    cls, problems = steps[0].old if steps else spec.state, list[str]()
    fields = codec_of(cls).type.fields if steps else logic.state_fields
    state = changes_of(then["state"], fields, cls.__name__, problems)
    if "aggregates" in now:
        # What a session came to before isn't stored, and no function could know it.
        rules, problems = rules + problems, []
    return Comparison(Reading(state, steps, events, is_changed=True), rules, unread, problems)


def _events(
    logic: Logic, then: Mapping[str, Any], problems: list[str]
) -> dict[str, Sequence[Change]]:
    """Return how the columns of events that wait become those of the present class."""
    spec = logic.spec
    fields = {"event": codec_of(spec.event).type.fields, "passthrough": spec.passthrough_fields}
    paths = {"event": spec.event.__name__, "passthrough": "passthrough"}
    return {
        name: changes_of(then[name], fields[name], paths[name], problems)
        for name in fields
        if name in then
    }


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], names: AbstractSet[str]
) -> list[str]:
    return identity_differences(
        {name: then.get(name) for name in names}, {name: now.get(name) for name in names}
    )


def _changed(
    stored: pa.Table, prefix: str, changes: Sequence[Change]
) -> dict[str, pa.ChunkedArray]:
    named = {
        name.removeprefix(f"{prefix}."): stored[name]
        for name in stored.column_names
        if name.startswith(f"{prefix}.")
    }
    return {
        f"{prefix}.{change.field.name}": change.column(named, stored.num_rows) for change in changes
    }


def _with_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table with these columns in place of all that have their prefixes."""
    prefixes = tuple({f"{name.partition('.')[0]}." for name in columns})
    kept = [name for name in table.column_names if not name.startswith(prefixes)]
    return pa.table({**{name: table[name] for name in kept}, **columns})


def _called(step: UpgradeStep, key: Any, old: Any) -> Any:
    role = f"upgrade[{step.version}]"
    try:
        new = step.function(old)
    except Exception as error:
        failure = call_failed(role, step.function, repr(key), error, hint="fix the function")
        raise UserFunctionError(*failure) from error
    if type(new) is not step.new:
        what = f"`{role}` ({name_of(step.function)}) must return a"
        raise UserFunctionError(wrong_class(what, step.new, new))
    return new
