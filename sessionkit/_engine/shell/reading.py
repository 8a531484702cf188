"""
The reading of stored tables as tables of a spec, and what prevents it.

The identity of a payload has the rules and the classes under which it was written. The rules must
equal the spec's. The classes may have changed: then the columns of the state and of waiting events
are converted here to the present classes, and nothing above knows of older ones.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Numbers, with_column
from sessionkit._engine.micro_batch import GroupLogic, GroupState
from sessionkit._engine.rows.objects import decode_keys, decode_states, encode_states
from sessionkit._engine.rows.tables import SALT, has_state
from sessionkit._instants import duration_text, instant_of
from sessionkit.errors import StateError, UserFunctionError
from sessionkit.spec.base import UpgradeStep
from sessionkit.spec.functions import call_failed, name_of, wrong_class
from sessionkit.spec.session import SessionSpec
from sessionkit.state._codec import Differences, FieldChange, change_of, changes_of, codec_of

UNITS: Final = {"_us": timedelta(microseconds=1), "_ms": timedelta(milliseconds=1)}
"""The units of the durations in an identity, by the ends of their names."""
DELAY: Final = "watermark_delay_ms"
"""The entry of an identity that may change, but not between a duration and none."""
CLASSES: Final = frozenset(
    {"state", "event", "passthrough", "aggregates", "state_version", "remembered"}
)
"""The entries of an identity that may change."""
MAY_BE_CARRIED: Final = frozenset(
    {
        "bucket_count",
        "drop_duplicates_for_us",
        "event",
        "event_id",
        "gap_us",
        "keys",
        "layout",
        "longest_gap_us",
        "memory",
        "order",
        "passthrough",
        "remembered",
        "revisions",
        "rules",
        "sequence",
        DELAY,
    }
)
"""The entries that `migrate` can carry over."""
CARRY: Final = (
    "carry the state over to a new checkpoint: seed = migrate(checkpoint, old_spec, new_spec, "
    "folder), then {job}(seed.unread(events), new_spec, seed=seed)"
)
BUCKET_COUNT_ALONE: Final = frozenset({"bucket_count"})
SAME_BUCKETS: Final = "pass storage=Storage(bucket_count={count}), as it was started, or {other}"
NOT_CARRIED: Final = (
    "undo the change of {names}, which migrate can't carry; it can carry any other rule"
)
FROM_NOW: Final = (
    "add a new aggregate with `.from_now()`, and a changed one so too, under another name: a "
    "session that is open then has it of its later events alone"
)
NEW_FIELD: Final = "undo the change, or keep the field, and add a new one with a default"
BY_HAND: Final = "undo the change, or convert stored states with `upgrade=`"
ANOTHER_NAME: Final = "use a name that no stored row has, or convert stored states with `upgrade=`"


@attrs.frozen
class Reading:
    """
    The conversion of tables stored under one identity to tables of the spec.

    The state gets the columns of its class, or of an older class that `steps` upgrade; waiting
    events get the columns of the present class.
    """

    state: Sequence[FieldChange] = ()
    steps: Sequence[UpgradeStep] = ()
    events: Mapping[str, Sequence[FieldChange]] = attrs.field(factory=dict)
    remembered: FieldChange | None = None
    is_changed: bool = False

    def memory(
        self, logic: GroupLogic, kept: pa.Table, buffered: pa.Table, salts: Numbers | None = None
    ) -> GroupState:
        """Convert stored tables to the tables of the spec, with salts where it has any."""
        schema, waiting = logic.program.schema, logic.empty_state.buffered.schema
        place = schema.get_field_index(SALT.name)
        if place >= 0 and SALT.name not in kept.schema.names:
            salts = np.zeros(kept.num_rows, np.int64) if salts is None else salts
            # At its place, so that tables under unchanged rules need no `select`.
            kept = kept.add_column(min(place, kept.num_columns), SALT, pa.array(salts))
        if kept.schema != schema:
            kept = logic.program.completed(kept)
        if self.is_changed:
            kept = self._kept(logic, kept)
            for prefix, changes in self.events.items():
                buffered = _with_columns(buffered, _changed(buffered, prefix, changes))
        if self.remembered is not None and not self.remembered.is_none:
            name, stored = self.remembered.field.name, {n: kept[n] for n in kept.column_names}
            column = self.remembered.column(stored, kept.num_rows)
            kept = with_column(kept, schema.field(name), column)
        # A class may have its fields reordered.
        return GroupState(
            kept if kept.schema == schema else kept.select(schema.names),
            buffered if buffered.schema == waiting else buffered.select(waiting.names),
        )

    def _kept(self, logic: GroupLogic, stored: pa.Table) -> pa.Table:
        if not self.steps and all(change.is_none for change in self.state):
            return stored
        with_state = has_state(stored)
        # Of three rows, the second without a state, the states are 0, null, 1.
        places = pa.array(np.cumsum(with_state) - 1, mask=~with_state)
        rows = stored.filter(pa.array(with_state))
        columns = _changed(rows, "state", self.state)
        if self.steps:
            keys = decode_keys(logic.spec, rows)
            states = decode_states(self.steps[0].old, _with_columns(rows, columns))
            for step in self.steps:
                states = [_called(step, key, old) for key, old in zip(keys, states, strict=True)]
            names = [f"state.{field.name}" for field in codec_of(self.steps[-1].new).type.fields]
            encoded = encode_states(self.steps[-1].new, states, keys.__getitem__)
            columns = dict(zip(names, encoded, strict=True))
        return _with_columns(stored, {name: array.take(places) for name, array in columns.items()})


def reading_of(logic: GroupLogic, identity: bytes) -> Reading:
    """
    Return the reading of what was stored under an identity, and cache it.

    Where rules or classes forbid that, a StateError names each difference.
    """
    reading = Reading()
    if identity != logic.program.identity:
        comparison = compared(logic, json.loads(identity))
        comparison.check("the stored state")
        reading = comparison.reading
    logic.readings[identity] = reading
    return reading


@attrs.frozen
class Comparison:
    """
    The comparison of a stored identity with a spec: the reading, and a line for each obstacle.

    `hint` says what to do about the first obstacle. `stored` tells for each field of the state
    whether it was stored, under that `version` of the state.
    """

    reading: Reading
    problems: Sequence[str]
    hint: str
    stored: Mapping[str, bool]
    version: int

    def check(self, what: str) -> None:
        """Raise a StateError if anything prevents reading it."""
        if self.problems:
            lines = "\n  ".join(self.problems)
            raise StateError(f"{what} was written under other rules:\n  {lines}", self.hint)


def compared(logic: GroupLogic, then: Mapping[str, Any]) -> Comparison:
    """Compare a stored identity with the rules of a spec."""
    now, version = json.loads(logic.program.identity), then["state_version"]
    changed = [name for name in then.keys() | now.keys() if then.get(name) != now.get(name)]
    names = {name for name in changed if name not in CLASSES}
    if None not in (then.get(DELAY), now.get(DELAY)):
        names.discard(DELAY)  # nothing stored depends on it, and Spark's watermark never falls
    rules, events, state = identity_differences(then, now, names), Differences(), Differences()
    remembered = Differences()
    fixed = [f"`{name}`" for name in sorted(names - MAY_BE_CARRIED)]
    before, after = then.get("aggregates", {}), now.get("aggregates", {})
    redefined = identity_differences(before, after, before.keys() & after.keys())
    state.problems.extend(f"aggregate {line}" for line in redefined)
    reading = _reading(logic, then, now, events, state)
    if (memory := getattr(logic.spec, "memory", None)) and "remembered" in then.keys() & now.keys():
        kind = codec_of(memory.remembered).type
        change = change_of("remembered", then["remembered"], kind, remembered)
        reading = attrs.evolve(reading, remembered=change)
    job = "sessionize" if isinstance(logic.spec, SessionSpec) else "apply_with_state"
    carry = CARRY.format(job=job)
    if names == BUCKET_COUNT_ALONE:
        carry = SAME_BUCKETS.format(count=then["bucket_count"], other=carry)
    hints = (
        (NOT_CARRIED.format(names=", ".join(fixed)), fixed),
        (carry, rules),
        (NEW_FIELD, [*events.problems, *remembered.problems]),
        (FROM_NOW if "aggregates" in now else BY_HAND, state.problems),
        *((hint, [line]) for line, hint in [*events.renames, *state.renames, *remembered.renames]),
    )
    differences = (events, state, remembered)
    lines = [*rules, *(line for part in differences for line in part.problems)]
    lines += [line for part in differences for line, _ in part.renames]
    hint = next((hint for hint, reasons in hints if reasons), "")
    return Comparison(reading, lines, hint, {**state.stored, **remembered.stored}, version)


def identity_differences(
    stored: Mapping[str, Any], current: Mapping[str, Any], names: Iterable[str] | None = None
) -> list[str]:
    """Return a line for each entry that differs, among `names` if they're passed."""
    either = stored.keys() | current.keys() if names is None else names
    differing = {name for name in either if stored.get(name) != current.get(name)}
    if "gap_us" in differing and None not in (stored.get("gap_us"), current.get("gap_us")):
        differing.discard("longest_gap_us")  # it equals the gap
    lines = []
    for name in sorted(differing):
        unit = UNITS.get(name[-3:])
        before, now = (
            repr(value) if unit is None or value is None else duration_text(value * unit)
            for value in (stored.get(name), current.get(name))
        )
        option = name if unit is None else name[:-3]
        lines.append(f"`{option}` is {now} in the spec, {before} in the checkpoint")
    return lines


def _reading(
    logic: GroupLogic,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    events: Differences,
    state: Differences,
) -> Reading:
    """Return the reading of stored tables; add what prevents it to the differences."""
    spec, version = logic.spec, then["state_version"]
    of_events = {
        "event": (codec_of(spec.event).type.fields, spec.event.__name__),
        "passthrough": (spec.passthrough_fields, "passthrough"),
    }
    waiting = {
        name: changes_of(then[name], *present, events)
        for name, present in of_events.items()
        if name in then
    }
    steps = [step for step in spec.upgrade_steps if step.version >= version]
    if version != now["state_version"] and version not in spec.storage.upgrade:
        state.problems.extend(identity_differences(then, now, {"state_version"}))
        return Reading()
    cls = steps[0].old if steps else spec.state
    fields = codec_of(cls).type.fields if steps else logic.program.state_fields
    changes = changes_of(then["state"], fields, cls.__name__, state)
    if "aggregates" in now:
        state.renames.clear()  # their columns have the names of aggregates, which say what they are
    return Reading(changes, steps, waiting, is_changed=True)


def check_events_order(comparisons: Iterable[tuple[Comparison, int, int]], what: str) -> None:
    """
    Check that no field was removed and added again while rows still have its old values.

    A row without the field that is newer than a row with it proves that, and raises a StateError.
    With each comparison come the first and the last time of its rows, in milliseconds.
    """
    first, last = dict[tuple[int, str], int](), dict[tuple[int, str], int]()
    for comparison, first_ms, last_ms in comparisons:
        for field, is_stored in comparison.stored.items():
            place = (comparison.version, field)
            if is_stored:
                first[place] = min(first_ms, first.get(place, first_ms))
            else:
                last[place] = max(last_ms, last.get(place, last_ms))
    # Rows lack the field after others have it: it was removed in between.
    again = [place for place in first if first[place] < last.get(place, first[place])]
    if again:
        lines = "\n  ".join(
            f"`{at[1]}` is in a row of {instant_of(first[at] * 1_000)}, and not in a newer one"
            for at in again
        )
        text = f"{what} has old values of a field that was removed and added again:\n  {lines}"
        raise StateError(text, ANOTHER_NAME)


def _changed(
    stored: pa.Table, prefix: str, changes: Sequence[FieldChange]
) -> dict[str, pa.ChunkedArray]:
    parts = {
        name.removeprefix(f"{prefix}."): stored[name]
        for name in stored.column_names
        if name.startswith(f"{prefix}.")
    }
    return {
        f"{prefix}.{change.field.name}": change.column(parts, stored.num_rows) for change in changes
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
