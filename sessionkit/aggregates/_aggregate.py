"""
The base classes of aggregates.

A module next to this one has each subclass of `Kind`, with the function of `sessionkit.aggregates`
that makes it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arguments import explained_methods
from sessionkit._arrays import (
    Mask,
    Numbers,
    begins,
    instants,
    mask_of,
    numbers_of,
    total_order,
    whole,
)
from sessionkit.aggregates._events import Condition, EventRows, check_condition, type_in
from sessionkit.aggregates._expressions import (
    Operation,
    Operators,
    Plain,
    constant_of,
)
from sessionkit.aggregates._operands import Column, Value
from sessionkit.errors import SpecError, StateValueError
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import Field, ListType, OptionalType, inner_type
from sessionkit.state._derived import seconds_of
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import DatetimeType, IntType
from sessionkit.state._types import FieldType


@explained_methods
@attrs.frozen(kw_only=True, order=False, repr=False)
class Aggregate(Operators["Aggregate"]):
    """
    A value computed of a session's events. Functions and operators of the module make it.

        agg.max("seconds") - agg.min("seconds")
        (agg.duration() > timedelta(seconds=10)) | (agg.count(where=pc.field("kind") == "buy") > 1)

    The operators `+ - * /`, `< <= > >=`, `& | ~`, a minus sign in front, and `abs` take aggregates
    and constants. They make an aggregate that is computed when a row is made, as in Spark's SQL:
    None where a part is None, but for `False & None`, which is False, and `True | None`, which is
    True. A division gives a float, or a Decimal if one side is a Decimal and none a float; by zero
    it gives None. `==` tells whether two aggregates are the same; `eq` compares their values.

    Attributes:
        of: The field to aggregate; the condition, for `any` and `all`; None for whole events.
        where: The condition that selects events; None for all events.
        at_most: The number of values or instants kept, where there is a limit.
        is_from_now: Whether `from_now` made it.
    """

    # `==` of two expressions makes a third one, so they are compared by their text.
    of: Condition | None = attrs.field(default=None, eq=repr)
    where: Condition | None = attrs.field(default=None, eq=repr)
    at_most: int | None = None
    is_from_now: bool = False

    def from_now(self) -> Self:
        """
        Return this aggregate for a query that already has a checkpoint.

        Use it to add an aggregate to a running query. In a session that is open then, it covers
        only later events; in a new session, all events. An aggregate that gives None without
        events, such as `max`, thus makes a field that is Optional. Keep this call for as long as
        the checkpoint lives.

        Raises:
            SpecError: The aggregate needs the whole session, as `duration()` does.
        """
        return attrs.evolve(self, is_from_now=True)

    def eq(self, other: "Aggregate | Plain") -> "Aggregate":
        """Return whether the value equals another one: a bool, None if one of them is None."""
        return self._operated("eq", self, other)

    def ne(self, other: "Aggregate | Plain") -> "Aggregate":
        """Return whether the value differs from another: a bool, None if one of them is None."""
        return self._operated("ne", self, other)

    def is_null(self) -> "Aggregate":
        """Return whether the value is missing: a bool."""
        return self._operated("is_null", self)

    def fill_null(self, value: "Aggregate | Plain") -> "Aggregate":
        """Return the value, or another one if there is none, as SQL's `coalesce` does."""
        return self._operated("fill_null", self, value)

    def _operated(self, sign: str, *operands: object) -> "Aggregate":
        return expression(sign, *operands)


# Without `order=False`, mypy takes an attrs class for one with comparisons of its own.
@attrs.frozen(kw_only=True, order=False, repr=False)
class Kind(Aggregate):
    """
    The base class of all kinds of aggregates: arguments, checks, storage and computation.

    Attributes:
        kind: The name of the function that makes it.
        gives: The annotation of the result, where it doesn't depend on the field.
        needs_field: Whether it needs `of`, the name of a field or a condition.
        takes_condition: Whether `of` is a condition.
        is_ordered: Whether the result depends on the order of events, and so on a `sequence`.
        merges: The types of values for which parts of a session, each of any of its events, merge
            to the very bits that all events give.
    """

    kind: ClassVar[str]
    gives: ClassVar[Any] = None
    needs_field: ClassVar[bool] = True
    takes_condition: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False
    merges: ClassVar[tuple[type[FieldType], ...]] = ()
    without: ClassVar[str] = ""
    """What it means without `of`, for a hint."""

    # -- the arguments -------------------------------------------------------------------------

    def __attrs_post_init__(self) -> None:
        """Check the arguments; `bind` checks them against the event class."""
        may_be_left_out = self.of is None and not self.needs_field
        if not (may_be_left_out or isinstance(self.of, Condition if self.takes_condition else str)):
            expected = "a condition" if self.takes_condition else "the name of a field, as text"
            argument = 'pc.field("kind") == "buy"' if self.takes_condition else '"seconds"'
            found = f"`{self.kind}` takes {expected}, found {self.of!r}"
            raise SpecError(found, f"pass that first, such as {argument}{self.without}")
        if not isinstance(self.where, Condition | None):
            found = f"`where` takes an expression or the name of a bool field, found {self.where!r}"
            raise SpecError(found, 'write where=pc.field("kind") == "buy"')
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            found = f"`at_most` must be a whole number from 1, found {self.at_most!r}"
            raise SpecError(found, "leave it out for the default")
        self.check()

    def check(self) -> None:
        """Check the arguments of a kind; nothing by default."""

    @property
    def most(self) -> int:
        return self.at_most or 0

    @property
    def arguments(self) -> list[str]:
        """The arguments as written, without `at_most` and `where`."""
        if self.of is None:
            return []
        return [repr(self.of) if isinstance(self.of, str) else str(self.of)]

    def __str__(self) -> str:
        """Return the call that makes it, without `where`."""
        return self._call()

    def __repr__(self) -> str:
        where = [] if self.where is None else [f"where={self.where}"]
        return f"{self._call(*where)}{'.from_now()' if self.is_from_now else ''}"

    def _call(self, *where: str) -> str:
        limit = [] if self.at_most is None else [f"at_most={self.at_most}"]
        return f"{self.kind}({', '.join([*self.arguments, *limit, *where])})"

    # -- the event class ------------------------------------------------------------------------

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions on events, by their names in errors."""
        return {} if self.where is None else {"`where`": self.where}

    def read_by(self) -> list[Condition]:
        of = [] if self.of is None else [self.of]
        return [*of, *self.conditions.values()]

    def bind(self, event: type[Any], name: str) -> "BoundAggregate":
        """Check the aggregate against the event class, and name it."""
        for what, condition in self.conditions.items():
            check_condition(event, f"`{name}`: {what}", condition)
        kind = self.value_type(event, name)
        may_be_missing = (
            self.where is not None or self.is_from_now or isinstance(kind, OptionalType)
        )
        return BoundAggregate(name, self, inner_type(kind), may_be_missing)

    def value_type(self, event: type[Any], name: str) -> FieldType:
        if self.of is None:
            return IntType()
        found = f"`{name}` is `{self}`, and {event.__name__} has no field `{self.of}`"
        kind = type_in(event, str(self.of), found)
        found = f"`{name}` is `{self}`, and `{event.__name__}.{self.of}`"
        self.check_type(inner_type(kind), found)
        return kind

    def check_type(self, kind: FieldType, found: str) -> None:
        """Check the type of the field; `found` is the start of the error."""
        if kind.facts is None:
            hint = "use a field of a plain type, such as a column that Spark computes from it"
            raise SpecError(f"{found} is a collection or a class", hint)

    def check_values(self, event: type[Any], bound: "BoundAggregate", *values: Any) -> None:
        """Check that values of an argument fit the field."""
        for value in values:
            try:
                encode_column(bound.type, [value], bound.name)
            except StateValueError as error:
                found = f"`{bound.name}`: `{event.__name__}.{self.of}` is never {value!r}"
                raise SpecError(found, "write values of its type") from error

    def annotation(self, bound: "BoundAggregate") -> Any:
        if self.gives is not None:
            return self.gives
        return bound.python_type | None if bound.may_be_missing else bound.python_type

    # -- the computation ------------------------------------------------------------------------

    def identity(self, _: "BoundAggregate") -> str:
        """Return the arguments that are fixed while a checkpoint lives, without `at_most`."""
        return "" if self.of is None else str(self.of)

    def stored(self, bound: "BoundAggregate") -> list[Field]:
        """Return the stored fields of a session, made by `bound.field`."""
        raise NotImplementedError

    def fold(self, bound: "BoundAggregate", rows: EventRows) -> list[pa.Array]:
        """Return the stored columns, a row for each session."""
        raise NotImplementedError

    def result(self, bound: "BoundAggregate", sessions: pa.Table) -> pa.Array:
        """Return the column of the result from the stored columns."""
        return bound.column(sessions)

    def of_nothing(self, kind: FieldType) -> Any:
        """Return the stored value without events: an empty list, a null or a zero."""
        if isinstance(inner_type(kind), ListType):
            return []
        return None if kind.facts is None else kind.facts.annotation()

    def values(self, rows: EventRows) -> pa.Array:
        """Return the aggregated value of each event: its field, or its condition."""
        return rows.field(str(self.of))

    def chosen(self, rows: EventRows) -> Mask | None:
        """Mark the events to aggregate; None for all."""
        masks = [] if self.where is None else [mask_of(rows.met(self.where))]
        if self.of is not None and (values := self.values(rows)).null_count:
            masks.append(mask_of(values.is_valid()))
        return np.logical_and.reduce(masks) if masks else None


@attrs.frozen
class BoundAggregate:
    """
    An aggregate with its name, bound to an event class.

    Attributes:
        type: The type of the aggregated values, without Optional; bool for a condition.
        may_be_missing: Whether it may leave out an event, by `where` or for a null.
        parts: The aggregates of an expression, each named after it, such as `engaged.1`.
        in_seconds: Whether the result class declares a timedelta in seconds.
        sequence: The field that orders events of one instant, if the result depends on it.
    """

    name: str
    aggregate: Kind
    type: FieldType
    may_be_missing: bool
    parts: tuple["BoundAggregate", ...] = ()
    in_seconds: bool = False
    sequence: str | None = None

    def in_sequence(self, name: str) -> "BoundAggregate":
        """Return the aggregate with a field that orders events of one instant."""
        parts = tuple(part.in_sequence(name) for part in self.parts)
        return attrs.evolve(self, parts=parts, sequence=name if self.aggregate.is_ordered else None)

    @property
    def conditions(self) -> list[Condition]:
        inner = [condition for part in self.parts for condition in part.conditions]
        return [*self.aggregate.conditions.values(), *inner]

    @property
    def text(self) -> str:
        """The text that is fixed while a checkpoint lives. Conditions may change, as code does."""
        kind = self.aggregate
        since = ", from now" if kind.is_from_now else ""
        return f"{kind.kind}({kind.identity(self)}), {kind.at_most}{since}"

    @property
    def merges(self) -> bool:
        """Whether parts of a session merge exactly, whichever events each part has."""
        if self.parts:
            return all(part.merges for part in self.parts)
        return isinstance(self.type, self.aggregate.merges)

    @property
    def annotation(self) -> Any:
        return self.aggregate.annotation(self)

    @property
    def python_type(self) -> Any:
        """The annotation of the aggregated values."""
        return None if self.type.facts is None else self.type.facts.annotation

    @property
    def stored(self) -> list[Field]:
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
        column = self.aggregate.result(self, sessions)
        return seconds_of(column) if self.in_seconds else column

    def field(self, kind: FieldType, part: str = "") -> Field:
        """Return a stored field, named after the aggregate and a part."""
        return Field(self.name + part, kind, self.name + part)

    def column(self, sessions: pa.Table, part: str = "") -> pa.Array:
        """Return the stored column of such a field."""
        return whole(sessions[f"state.{self.name}{part}"])

    def moments(self, form: Callable[[FieldType], FieldType] = ListType) -> list[Field]:
        """Return the fields with the time of each value, and its place in the `sequence`."""
        at, turn = self.field(form(DatetimeType()), ".at"), self.field(form(IntType()), ".sequence")
        return [at] if self.sequence is None else [at, turn]

    def in_order(
        self, rows: EventRows, values: pa.Array, chosen: Mask | None
    ) -> tuple[Numbers, pa.Array, list[pa.Array]]:
        """
        Sort stored values and values of chosen events by session, time, sequence and value.

        Returns:
            The session of each value, the values, and the columns of `moments`.
        """
        turns = [] if self.sequence is None else [rows.field(self.sequence)]
        parts = zip(("", ".at", ".sequence"), (values, instants(rows.times), *turns), strict=False)
        lists = [(self.column(rows.opened, part), events) for part, events in parts]
        sessions = rows.listed(lists[0][0], chosen)
        values, at, *turns = (rows.flat(before, events, chosen) for before, events in lists)
        content = [pa.chunked_array([column]) for column in (*turns, values)]
        order = total_order(sessions, numbers_of(at), content)
        places = pa.array(order)
        values, *moments = (column.take(places) for column in (values, at, *turns))
        return sessions[order], values, moments

    def by_instant(
        self, rows: EventRows, bits: pa.Array, chosen: Mask | None
    ) -> tuple[Numbers, pa.Array, list[pa.Array]]:
        """Sort as `in_order`, and unite the bits of each instant, or place in a `sequence`."""
        sessions, bits, moments = self.in_order(rows, bits, chosen)
        new = begins(sessions, *map(numbers_of, moments))
        if new.all():
            return sessions, bits, moments
        united = np.bitwise_or.reduceat(numbers_of(bits), np.flatnonzero(new))
        return sessions[new], pa.array(united), [moment.filter(pa.array(new)) for moment in moments]


@attrs.frozen(kw_only=True, order=False, repr=False)
class Expression(Kind):
    """Operators over other aggregates; each different one of these is folded and stored once."""

    kind: ClassVar = "expression"
    needs_field: ClassVar = False
    operation: Operation

    def _call(self, *_: str) -> str:
        return str(self.operation)

    @property
    def folded(self) -> list[Kind]:
        """The aggregates of the expression, in an order that doesn't depend on the operators."""
        return sorted({*self.operation.leaves()}, key=lambda part: (part.kind, repr(part)))

    def from_now(self) -> Self:
        operation = self.operation.changed(lambda part: part.from_now())
        return attrs.evolve(self, operation=operation, is_from_now=True)

    def read_by(self) -> list[Condition]:
        return [condition for part in self.folded for condition in part.read_by()]

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        parts = [part.bind(event, name) for part in self.folded]
        nothing = [pa.nulls(0, field_type(part.annotation, name).arrow) for part in parts]
        result = self._column(parts, nothing, name).value
        named = (attrs.evolve(part, name=f"{name}.{n}") for n, part in enumerate(parts, 1))
        return BoundAggregate(name, self, result.type, result.may_be_missing, tuple(named))

    def identity(self, bound: BoundAggregate) -> str:
        return "; ".join(part.text for part in bound.parts)

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field for part in bound.parts for field in part.stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [column for part in bound.parts for column in part.fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        values = [part.result(sessions) for part in bound.parts]
        return self._column(bound.parts, values, bound.name).array

    def _column(
        self, parts: Sequence[BoundAggregate], values: Sequence[pa.Array], name: str
    ) -> Column:
        kinds = (field_type(part.annotation, name) for part in parts)
        columns = map(Column, map(Value.of, kinds), values)
        leaves = {part.aggregate: column for part, column in zip(parts, columns, strict=True)}
        return self.operation.column(leaves, len(values[0]), name)


def expression(sign: str, *operands: object) -> Expression:
    """Return an operator over aggregates and constants; a `SpecError` refuses other operands."""

    def operand(value: object) -> Any:
        if isinstance(value, Expression):
            return value.operation
        return value if isinstance(value, Kind) else constant_of(sign, value)

    return Expression(operation=Operation(sign, tuple(map(operand, operands))))
