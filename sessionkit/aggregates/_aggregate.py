"""
What every aggregate is: a description, and how NumPy and Arrow compute it.

Each kind is a subclass of `Kind` in one of the modules next to this one, together with the function
of `sessionkit.aggregates` that makes it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, Self, get_args

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import check_field
from sessionkit._arrays import Mask, Numbers, mask_of, numbers_of, total_order, whole
from sessionkit.aggregates._events import Condition, EventRows, check_condition, type_in
from sessionkit.errors import SpecError, StateValueError
from sessionkit.state._codec import codec_of, encode_column
from sessionkit.state._collections import Field, ListType, OptionalType, inner_type
from sessionkit.state._fields import attributes_of, fields_of
from sessionkit.state._scalars import DatetimeType, IntType
from sessionkit.state._types import FieldType


@attrs.frozen(kw_only=True)
class Aggregate:
    """
    One aggregate of a session. The functions of `sessionkit.aggregates` make it.

    Attributes:
        of: The field that it is of; the condition, for `any`, `all` and `holds`; None for all
            events.
        where: Which events are chosen; None for all.
        at_most: How many values or instants are kept, where there is a limit.
        is_from_now: Whether sessions that were open before it was added have none of their earlier
            events in it.
    """

    # Expressions have no `==` that compares them: it makes a third one.
    of: Condition | None = attrs.field(default=None, eq=repr)
    where: Condition | None = attrs.field(default=None, eq=repr)
    at_most: int | None = None
    is_from_now: bool = False

    def from_now(self) -> Self:
        """
        Return the aggregate as one that is added to a query with a checkpoint.

        A session that is open then has it of its later events alone; every later session has it of
        all events. So its result may be None where that of no event is. Keep this for as long as
        the checkpoint lives.

        Raises:
            SpecError: It is of the session as a whole: `duration` or `rate`, alone or in `holds`.
        """
        return attrs.evolve(self, is_from_now=True)


@attrs.frozen(kw_only=True)
class Kind(Aggregate):
    """
    An aggregate of one kind: how it's written, what it takes, what it stores, how it's computed.

    Attributes:
        kind: The name of the function that makes it.
        stored_as: What the text of it in a checkpoint calls it, if not by its kind.
        gives: The annotation of its result, where that doesn't depend on the field.
        takes_condition: Whether it's of a condition, not of a field.
        is_ordered: Whether the result depends on the order of events, and so on a `sequence`.
    """

    kind: ClassVar[str]
    stored_as: ClassVar[str | None] = None
    gives: ClassVar[Any] = None
    takes_condition: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False

    # -- how it is written ----------------------------------------------------------------------

    def __attrs_post_init__(self) -> None:
        """Check what needs no event class."""
        if not isinstance(self.of, Condition if self.takes_condition else str | None):
            wanted = "a condition" if self.takes_condition else "the name of a field, as text"
            argument = 'pc.field("kind") == "buy"' if self.takes_condition else '"seconds"'
            found = f"`{self.kind}` takes {wanted}, found {self.of!r}"
            raise SpecError(found, f"pass that first, such as {argument}")
        if not isinstance(self.where, Condition | None):
            found = f"`where` takes an expression or the name of a bool field, found {self.where!r}"
            raise SpecError(found, 'write where=pc.field("kind") == "buy"')
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            found = f"`at_most` must be a whole number from 1, found {self.at_most!r}"
            raise SpecError(found, "leave it out for the default")
        self.check()

    def check(self) -> None:
        """Check the arguments of this kind."""

    @property
    def most(self) -> int:
        """The limit; only of a kind that has one."""
        return self.at_most or 0

    @property
    def arguments(self) -> list[str]:
        """Its arguments as they are written, without the limit and the filter."""
        if self.of is None:
            return []
        return [repr(self.of) if isinstance(self.of, str) else str(self.of)]

    def __str__(self) -> str:
        """Return it as it is written, without its filter."""
        limit = [] if self.at_most is None else [f"at_most={self.at_most}"]
        return f"{self.kind}({', '.join([*self.arguments, *limit])})"

    # -- what the event class says of it --------------------------------------------------------

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions that it asks of events, by what they are."""
        return {} if self.where is None else {"`where`": self.where}

    def read_by(self) -> list[Condition]:
        """Return the fields and conditions that it reads of an event."""
        of = [] if self.of is None else [self.of]
        return [*of, *self.conditions.values()]

    def bind(self, event: type[Any], name: str) -> "BoundAggregate":
        """Return it under a name, checked against the event class."""
        for what, condition in self.conditions.items():
            check_condition(event, f"`{name}`: {what}", condition)
        kind = self.value_type(event, name)
        missing = self.where is not None or self.is_from_now or isinstance(kind, OptionalType)
        return BoundAggregate(name, self, inner_type(kind), missing)

    def value_type(self, event: type[Any], name: str) -> FieldType:
        """Return the type of the values that it is of."""
        if self.of is None:
            return IntType()
        found = f"`{name}` is `{self}`, and {event.__name__} has no field `{self.of}`"
        kind = type_in(event, str(self.of), found)
        found = f"`{name}` is `{self}`, and `{event.__name__}.{self.of}` is"
        self.check_type(inner_type(kind), found)
        return kind

    def check_type(self, kind: FieldType, found: str) -> None:
        """Check the type of the field; `found` begins the error."""
        if kind.facts is None:
            hint = "use a field of a plain type, such as a column that Spark computes from it"
            raise SpecError(f"{found} a collection or a class", hint)

    def check_values(self, event: type[Any], bound: "BoundAggregate", *values: Any) -> None:
        """Check that the field may have the values of an argument."""
        for value in values:
            try:
                encode_column(bound.type, [value], bound.name)
            except StateValueError as error:
                found = (
                    f"`{bound.name}`: `{self.kind}` is of `{event.__name__}.{self.of}`, which is"
                )
                raise SpecError(f"{found} never {value!r}", "write values of its type") from error

    def annotation(self, bound: "BoundAggregate") -> Any:
        """Return the annotation of the field of the result."""
        if self.gives is not None:
            return self.gives
        return bound.python_type | None if bound.may_be_missing else bound.python_type

    # -- how it is computed ---------------------------------------------------------------------

    def identity(self, _: "BoundAggregate") -> str:
        """Return what must not change while a checkpoint lives, but for its kind and its limit."""
        return "" if self.of is None else str(self.of)

    def stored(self, bound: "BoundAggregate") -> list[Field]:
        """Return what is stored of a session: fields named as it is, or that and more."""
        raise NotImplementedError

    def fold(self, bound: "BoundAggregate", rows: EventRows) -> list[pa.Array]:
        """Return the columns of what is stored, a row for each session."""
        raise NotImplementedError

    def result(self, bound: "BoundAggregate", sessions: pa.Table) -> pa.Array:
        """Return the column of the result, from what is stored."""
        return bound.column(sessions)

    def of_nothing(self, kind: FieldType) -> Any:
        """Return what is stored of no events: an empty list, a null, or a zero."""
        if isinstance(inner_type(kind), ListType):
            return []
        return None if kind.facts is None else kind.facts.annotation()

    def values(self, rows: EventRows) -> pa.Array:
        """Return what it is of: the field of each event, or its condition."""
        return rows.field(str(self.of))

    def chosen(self, rows: EventRows) -> Mask | None:
        """Mark the events that have a part in it; None for all."""
        masks = [] if self.where is None else [mask_of(rows.met(self.where))]
        if self.of is not None and (values := self.values(rows)).null_count:
            masks.append(mask_of(values.is_valid()))
        return np.logical_and.reduce(masks) if masks else None


@attrs.frozen
class BoundAggregate:
    """
    An aggregate under its name, with what the event class says of it.

    Attributes:
        type: The type of the values that it is of, without Optional; bool for a condition.
        may_be_missing: Whether an event may have no part in it: it isn't chosen, or has a null.
        parts: The aggregates that its condition is over, under its name, a dot and theirs.
        sequence: The field by which events of one instant are in order, if its result depends on
            that.
    """

    name: str
    aggregate: Kind
    type: FieldType
    may_be_missing: bool
    parts: tuple["BoundAggregate", ...] = ()
    sequence: str | None = None

    def in_sequence(self, name: str) -> "BoundAggregate":
        """Return it over events that a field puts in order."""
        parts = tuple(part.in_sequence(name) for part in self.parts)
        return attrs.evolve(self, parts=parts, sequence=name if self.aggregate.is_ordered else None)

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that it asks of events."""
        own = list(self.aggregate.conditions.values())
        return own + [condition for part in self.parts for condition in part.conditions]

    @property
    def text(self) -> str:
        """What must not change while a checkpoint lives: not its conditions, which are code."""
        one = self.aggregate
        since = ", from now" if one.is_from_now else ""
        return f"{one.stored_as or one.kind}({one.identity(self)}), {one.at_most}{since}"

    @property
    def annotation(self) -> Any:
        """The annotation of the field of the result."""
        return self.aggregate.annotation(self)

    @property
    def python_type(self) -> Any:
        """The annotation of the values that it is of."""
        return None if self.type.facts is None else self.type.facts.annotation

    @property
    def stored(self) -> list[Field]:
        """What is stored of a session."""
        fields = self.aggregate.stored(self)
        if not self.aggregate.is_from_now:
            return fields
        nothing = self.aggregate.of_nothing
        return [
            attrs.evolve(field, default=field.default or partial(nothing, field.type))
            for field in fields
        ]

    def fold(self, rows: EventRows) -> list[pa.Array]:
        return self.aggregate.fold(self, rows)

    def result(self, sessions: pa.Table) -> pa.Array:
        return self.aggregate.result(self, sessions)

    def field(self, kind: FieldType, part: str = "") -> Field:
        """Return a field of what is stored: the aggregate's own, or one with a part after it."""
        return Field(self.name + part, kind, self.name + part)

    def column(self, sessions: pa.Table, part: str = "") -> pa.Array:
        """Return what is stored of sessions in such a field."""
        return whole(sessions[f"state.{self.name}{part}"])

    # -- what an ordered list stores ------------------------------------------------------------

    @property
    def moment_fields(self) -> list[Field]:
        """The fields for when each value of a list was: its time, and its turn in a `sequence`."""
        at = self.field(ListType(DatetimeType()), ".at")
        turn = self.field(ListType(IntType()), ".sequence")
        return [at] if self.sequence is None else [at, turn]

    def in_order(
        self, rows: EventRows, values: pa.Array, chosen: Mask | None
    ) -> tuple[Numbers, pa.Array, list[pa.Array]]:
        """
        Return the values in lists and of the chosen events by session, time, turn and value.

        Before them are their sessions, after them the columns of `moment_fields`.
        """
        came = [rows.instants, *([] if self.sequence is None else [rows.field(self.sequence)])]
        parts = zip(("", ".at", ".sequence"), (values, *came), strict=False)
        lists = [(self.column(rows.opened, part), events) for part, events in parts]
        sessions = rows.listed(lists[0][0], chosen)
        values, at, *turns = (rows.flat(before, events, chosen) for before, events in lists)
        content = [pa.chunked_array([column]) for column in (*turns, values)]
        order = total_order(sessions, numbers_of(at), content)
        places = pa.array(order)
        return sessions[order], values.take(places), [one.take(places) for one in (at, *turns)]


# -- the aggregates of a spec -------------------------------------------------------------------


def bound_aggregates(event: type[Any], aggregates: object) -> tuple[BoundAggregate, ...]:
    """Return the aggregates of a spec, checked against the event class."""
    check_event_class(event)
    if not (isinstance(aggregates, Mapping) and aggregates):
        found = f"`aggregates` must be a dict of names and aggregates, found {aggregates!r}"
        raise SpecError(found, 'write {"pages": agg.count()}')
    for name, aggregate in aggregates.items():
        check_field(
            name, "`aggregates`: ", "use letters, digits and underscores, and no word of Python's"
        )
        if not isinstance(aggregate, Kind):
            found = f"`aggregates`: `{name}` must be an aggregate, found {aggregate!r}"
            raise SpecError(found, f'write {{"{name}": agg.count()}}')
    return tuple(aggregate.bind(event, name) for name, aggregate in aggregates.items())


def check_event_class(event: type[Any]) -> None:
    """Check that no event need be built to know what its class makes of it."""
    codec_of(event)
    hint = "use functions, which build events, or a class without it and a `where`"
    for field in attributes_of(event):
        for what in ("validator", "converter"):
            if getattr(field, what) is not None:
                found = f"`{event.__name__}.{field.name}` has a {what}, and without functions no"
                raise SpecError(f"{found} event is built to run it", hint)
    for hook in ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__"):
        if hasattr(event, hook):
            found = f"{event.__name__} has `{hook}`, and without functions no event"
            raise SpecError(f"{found} is built to run it", hint)


@lru_cache(maxsize=256)
def class_of_results(*fields: tuple[str, Any]) -> type[Any]:
    """Return the class of rows with these fields; equal fields have one class."""
    made = {name: attrs.field(type=annotation) for name, annotation in fields}
    return attrs.make_class("Row", made, frozen=True)


def check_result(result: type[Any], bound: Sequence[BoundAggregate]) -> None:
    """Check a class that is given for the result: it must have the fields, in any order."""
    made = class_of_results(*((one.name, one.annotation) for one in bound))
    wanted = {field.name: field.type for field in fields_of(made).fields}
    declared = {field.name: field.type for field in fields_of(result).fields}
    if wanted.keys() != declared.keys():
        text = f"{result.__name__} has the fields {', '.join(declared)}; the aggregates are "
        raise SpecError(text + ", ".join(wanted), "give both the same names")
    for one in bound:
        if declared[one.name] not in (wanted[one.name], OptionalType(wanted[one.name])):
            text = f"`{result.__name__}.{one.name}` has another type than `{one.aggregate}`"
            spelled = getattr(one.annotation, "__name__", None)
            if get_args(one.annotation) or spelled is None:
                spelled = str(one.annotation)
            raise SpecError(text, f"write `{one.name}: {spelled}`")
