"""
The input of aggregates: rows of open sessions and events, and conditions on events.

*Conditions* are Arrow expressions, checked against the event class and computed for all events.

*Rows*: each open session and each event of a micro-batch is a row with a number: first the open
sessions, then the events. `order` has these numbers session by session, so that NumPy's `reduceat`
folds all of them at once. Take two open sessions (0, 1) and three events (2, 3, 4). The first event
joins session 0, the others session 1:

    order    0 2 1 3 4      the row numbers, session by session
    first    0   2          the position in `order` where each session begins
    sizes    2   3          the number of rows of each session
    owners   0 1 0 1 1      the session of each row, by row number
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from sessionkit._arguments import nearest
from sessionkit._arrays import (
    Array,
    Mask,
    Numbers,
    lists_of,
    mask_of,
    one_form,
    owners_of,
    places_in,
    whole,
)
from sessionkit.aggregates._literals import misleading
from sessionkit.errors import SpecError
from sessionkit.state._codec import codec_of
from sessionkit.state._types import FieldType

Condition: TypeAlias = str | pc.Expression
"""
The name of a bool field of the event class, or a pyarrow expression over its fields.

`"is_view"`, or `pc.field("kind") == "view"`. Arrow computes it for all events of a micro-batch at
once. Where it is null, the event isn't selected. A spec raises a `SpecError` for a field that the
event class doesn't have, and for an expression that isn't a bool.

Combine expressions with `&`, `|` and `~`, and compare with several values by `.isin([...])`:
pyarrow raises an error for `and`, `or`, `not` and `in`. A spec refuses a comparison with None or
NaN, which no event meets, or every one: ask by `.is_null()`, `.is_valid()` or `.is_nan()`. It also
refuses `.isin` of single characters alone, which is what Arrow makes of `.isin("/x")`.
"""

NOT_A_NAME: Final = (
    'write a condition as pc.field("page") == "/x", since text is the name of a field; '
    "add a computed column before"
)

UNKNOWN: Final = re.compile(r"No match for FieldRef\.(?:Nested\(FieldRef\.)?Name\((.*?)\)[ )]")
"""Arrow's error for a field that isn't there; of a nested one, it has the outermost name."""
BY_PLACE: Final = re.compile(r"No match for FieldRef\.FieldPath\(")


def evaluated(table: pa.Table, conditions: Collection[Condition]) -> list[pa.Array]:
    """Evaluate conditions for the rows of a table."""
    if not conditions:
        return []
    expressions = [pc.field(asked) if isinstance(asked, str) else asked for asked in conditions]
    names = [str(place) for place in range(len(expressions))]
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions(expressions, names)),
    ]
    columns = acero.Declaration.from_sequence(steps).to_table(use_threads=False).columns
    return list(map(whole, columns))


def type_in(event: type[Any], name: str, found: str) -> FieldType:
    """Return the type of a field of the event class; `found` is the error if there is none."""
    types = {field.name: field.type for field in codec_of(event).type.fields}
    if name not in types:
        hint = hint_for_name(name, types)
        if not hint:
            near = nearest(name, types)
            hint = f"write `{near}`" if near else f"name another field: it has {', '.join(types)}"
        raise SpecError(found, hint if types else f"give {event.__name__} the field")
    return types[name]


def hint_for_name(name: str, known: Collection[str]) -> str:
    """Return the hint for a text that can't be the name of a field; nothing for one that can."""
    parent, _, child = name.partition(".")
    if name == "*":
        return "agg.count() counts all events; others take the name of one field"
    if child.isidentifier() and parent in known:
        column = f'add a column before: withColumn("{child}", F.col("{name}"))'
        return f'{column}; a condition reads it as pc.field("{parent}", "{child}")'
    return "" if name.isidentifier() else NOT_A_NAME


def fields_of_condition(condition: Condition, type_of: Callable[[str], pa.DataType]) -> list[str]:
    """Return the names of the fields that a condition reads; `type_of` gives their types."""
    if isinstance(condition, str):
        type_of(condition)
        return [condition]
    read: dict[str, pa.DataType] = {}
    while True:
        # Arrow doesn't list the fields of an expression, but names the first missing one.
        try:
            evaluated(pa.schema(read).empty_table(), [condition])
        except pa.ArrowException as error:
            if BY_PLACE.search(str(error)):
                found = f"`{condition}` reads a field by its place, which another one may take"
                raise SpecError(found, 'read it by its name: pc.field("page")') from None
            unknown = UNKNOWN.search(str(error))
            if unknown is None or unknown[1] in read:
                return list(read)
            read[unknown[1]] = type_of(unknown[1])
        else:
            return list(read)


def check_condition(event: type[Any], what: str, condition: Condition) -> None:
    """Check that a condition reads fields of the event class and is a bool."""
    schema = codec_of(event).schema
    found = f"{what} is {repr(condition) if isinstance(condition, str) else condition}"

    def type_of(name: str) -> pa.DataType:
        type_in(event, name, f"{found}, and {event.__name__} has no field `{name}`")
        return schema.field(name).type

    read = fields_of_condition(condition, type_of)
    if not isinstance(condition, str):
        types = {name: type_in(event, name, found) for name in read}
        if (problem := misleading(condition, types)) is not None:
            raise SpecError(f"{found}, which {problem[0]}", problem[1])
    try:
        (column,) = evaluated(schema.empty_table(), [condition])
    except (pa.ArrowException, TypeError, ValueError) as error:
        found = f"{found}, which does not fit the fields of {event.__name__}: {error}"
        hint = "compare a field with a value of its type"
        hint = "name a field that the nested class has" if UNKNOWN.search(str(error)) else hint
        raise SpecError(found, hint) from error
    if pa.types.is_boolean(column.type):
        return
    if isinstance(condition, str):
        found = f"{found}, and `{event.__name__}.{condition}` is not a bool"
        raise SpecError(found, f'compare it: pc.field("{condition}") == ...')
    found = f"{found}, which is {column.type}, neither true nor false"
    raise SpecError(found, 'compare it, such as pc.field("kind") == "buy"')


@attrs.frozen
class EventRows:
    """
    The open sessions and the events of a micro-batch, at least one event for each session.

    Attributes:
        opened: The open sessions: `start`, and their stored columns as `state.NAME`.
        events: The events, their fields as `event.NAME`.
        times: The event times, in microseconds.
        order: The numbers of all rows, session by session.
        first: The position in `order` of the first row of each session.
        sizes: The number of rows of each session.
        conditions: The values of each condition for the events, by its text.
    """

    opened: pa.Table
    events: pa.Table
    times: Numbers
    order: Numbers
    first: Numbers
    sizes: Numbers
    conditions: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sessions(self) -> Numbers:
        """The session of each row, in order."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def owners(self) -> Numbers:
        """The session of each row, by row number."""
        owners = np.empty(len(self.order), np.int64)
        owners[self.order] = self.sessions
        return owners

    def field(self, name: str | None) -> pa.Array:
        column = f"event.{name}"
        return self._floats[column] if column in self._floats else whole(self.events[column])

    @cached_property
    def _floats(self) -> Mapping[str, pa.Array]:
        """The float columns of the events, with equal bits for equal floats."""
        names = [part.name for part in self.events.schema if pa.types.is_floating(part.type)]
        return {name: one_form(whole(self.events[name])) for name in names}

    def met(self, condition: Condition | None) -> pa.Array:
        return self.conditions[repr(condition)]

    def bits(self, conditions: Iterable[Condition]) -> Numbers:
        """Return the conditions that each event meets: 0b101 for the first and the third."""
        bits = np.zeros(len(self.times), np.int64)
        for place, condition in enumerate(conditions):
            bits |= mask_of(self.met(condition)).astype(np.int64) << place
        return bits

    def joined(self, stored: Array, events: Array) -> Array:
        """Return stored values and event values, in `order`."""
        values: Array = np.concatenate([stored, events])[self.order]
        return values

    def all_valid(self, stored: pa.Array, chosen: Mask | None) -> Mask:
        """Mark, in `order`, open sessions with a stored value and chosen events."""
        events = np.ones(len(self.times), np.bool_) if chosen is None else chosen
        return self.joined(mask_of(stored.is_valid()), events)

    def reduced(self, ufunc: np.ufunc, values: Array) -> Array:
        """Reduce values, given in `order`, to one for each session."""
        folded: Array = ufunc.reduceat(values, self.first)
        return folded

    def listed(self, lists: pa.Array, chosen: Mask | None) -> Numbers:
        """Return the session of each value in the stored lists and of each chosen event."""
        of_opened, of_events = np.split(self.owners, [len(lists)])
        of_events = of_events if chosen is None else of_events[chosen]
        return np.concatenate([of_opened[owners_of(lists)], of_events])

    def kept(
        self, owners: Numbers, columns: Iterable[pa.Array], at_most: int | None = None
    ) -> list[pa.Array]:
        """Return the first values of each session as lists; `owners` ascend."""
        sizes = np.bincount(owners, minlength=len(self))
        if at_most is not None and sizes.max() > at_most:
            stays = pa.array(places_in(sizes, owners) < at_most)
            columns = [column.filter(stays) for column in columns]
            sizes = np.minimum(sizes, at_most)
        return [lists_of(column, sizes) for column in columns]

    def flat(self, lists: pa.Array, events: pa.Array, chosen: Mask | None) -> pa.Array:
        """Return the values in the stored lists, then the values of chosen events."""
        events = events if chosen is None else events.filter(pa.array(chosen))
        return pa.concat_arrays([lists.flatten(), events])
