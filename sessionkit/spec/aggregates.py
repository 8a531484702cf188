"""The aggregates of a spec and the conditions on its events, checked against the event class."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, get_args

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from sessionkit._arguments import check_field
from sessionkit._classes import attributes_of
from sessionkit._instants import duration_text
from sessionkit.aggregates import Aggregate, Condition
from sessionkit.errors import SpecError, StateValueError, with_hint
from sessionkit.state._codec import codec_of, encode_column
from sessionkit.state._collections import OptionalType, inner_type
from sessionkit.state._fields import fields_of
from sessionkit.state._scalars import BoolType, DecimalType, FloatType, IntType
from sessionkit.state._times import TimedeltaType
from sessionkit.state._types import FieldType

UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\)")


def condition_of(condition: Condition) -> Any:
    return pc.field(condition) if isinstance(condition, str) else condition


def evaluated(table: pa.Table, expressions: Sequence[Any]) -> list[pa.ChunkedArray]:
    """Return the values of expressions for the rows of a table."""
    if not expressions:
        return []
    names = [str(place) for place in range(len(expressions))]
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
    ]
    found: list[pa.ChunkedArray] = (
        acero.Declaration.from_sequence(steps).to_table(use_threads=False).columns
    )
    return found


def type_in(event: type[Any], name: str, found: str) -> FieldType:
    """Return the type of a field of the event class; `found` is the error where it has none."""
    types = {field.name: field.type for field in codec_of(event).type.fields}
    if name not in types:
        near = get_close_matches(name, types, n=1)
        hint = f"write `{near[0]}`" if near else f"it has {', '.join(types) or 'none'}"
        raise SpecError(with_hint(found, hint))
    return types[name]


def fields_of_condition(condition: Condition, type_of: Callable[[str], pa.DataType]) -> list[str]:
    """Return the names of the fields that a condition reads; each is asked for its type."""
    if isinstance(condition, str):
        type_of(condition)
        return [condition]
    read: dict[str, pa.DataType] = {}
    while True:
        # Arrow doesn't list the fields of an expression; it names the first that a table lacks.
        try:
            evaluated(pa.schema(read).empty_table(), [condition])
        except pa.ArrowException as error:
            unknown = UNKNOWN.search(str(error))
            if unknown is None or unknown[1] in read:
                return list(read)
            read[unknown[1]] = type_of(unknown[1])
        else:
            return list(read)


def check_condition(event: type[Any], what: str, condition: Condition | None) -> None:
    """Check that a condition is over fields of the event, and is true or false."""
    if isinstance(condition, str):
        found = f"{what} is {condition!r}, and {event.__name__} has no field `{condition}`"
        if not isinstance(inner_type(type_in(event, condition, found)), BoolType):
            found = f"{what} is {condition!r}, and `{event.__name__}.{condition}` is not a bool"
            raise SpecError(with_hint(found, f'compare it: pc.field("{condition}") == ...'))
        return
    schema = codec_of(event).schema
    try:
        (column,) = evaluated(schema.empty_table(), [condition])
    except (pa.ArrowException, TypeError, ValueError) as error:
        unknown = UNKNOWN.search(str(error))
        if unknown:
            found = f"{what} is {condition}, and {event.__name__} has no field `{unknown[1]}`"
            type_in(event, unknown[1], found)
        found = f"{what} is {condition}, which does not fit the fields of {event.__name__}: {error}"
        hint = "compare a field with a value of its type"
        raise SpecError(with_hint(found, hint)) from error
    if not pa.types.is_boolean(column.type):
        found = f"{what} is {condition}, which is {column.type}, neither true nor false"
        raise SpecError(with_hint(found, 'compare it, such as pc.field("kind") == "buy"'))


ADDED: Final = (IntType, FloatType, TimedeltaType, DecimalType)
MEANT: Final = (IntType, FloatType)
SPREAD: Final = (IntType, FloatType, TimedeltaType)
IN_ORDER: Final = frozenset({"first", "last", "collect", "path", "steps", "funnel", "funnel_times"})
"""The kinds whose result depends on the order of events."""
STORED_AS: Final[Mapping[str, str]] = {"holds": "engaged"}
"""The kinds that the text of an aggregate in a checkpoint calls otherwise."""


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
    aggregate: Aggregate
    type: FieldType
    may_be_missing: bool
    parts: tuple["BoundAggregate", ...] = ()
    sequence: str | None = None

    def in_sequence(self, name: str) -> "BoundAggregate":
        """Return it over events that a field puts in order."""
        parts = tuple(part.in_sequence(name) for part in self.parts)
        ordered = self.aggregate.kind in IN_ORDER
        return attrs.evolve(self, parts=parts, sequence=name if ordered else None)

    @property
    def is_of_condition(self) -> bool:
        """Whether it is of a condition that is asked of events, not of a field."""
        return self.aggregate.kind in {"any", "all"}

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that it asks of events."""
        own = [self.aggregate.where, self.aggregate.of if self.is_of_condition else None]
        own += [condition for _, condition in self.aggregate.steps]
        known = [condition for condition in own if condition is not None]
        return known + [condition for part in self.parts for condition in part.conditions]

    @property
    def text(self) -> str:
        """What must not change while a checkpoint lives: not its conditions, which are code."""
        aggregate = self.aggregate
        of = "" if self.is_of_condition or aggregate.of is None else aggregate.of
        if self.parts:
            of = ", ".join(map(_named, self.parts))
        if aggregate.steps:
            of = ", ".join(name for name, _ in aggregate.steps)
            of += "; strict" if aggregate.strict else ""
        if aggregate.cap is not None and aggregate.within is not None:
            of = f"{duration_text(aggregate.cap)}; {duration_text(aggregate.within)}"
        if aggregate.relative_error is not None:
            of = f"{aggregate.of}; {aggregate.relative_error!r}"
        since = ", from now" if aggregate.is_from_now else ""
        return f"{STORED_AS.get(aggregate.kind, aggregate.kind)}({of}), {aggregate.at_most}{since}"

    @property
    def result(self) -> Any:
        """The annotation of the field of the result."""
        match self.aggregate.kind:
            case "count":
                return int
            case "any" | "all" | "holds":
                return bool
            case "count_distinct" | "funnel" | "steps":
                return int | None
            case "rate" | "percentile":
                return (timedelta if isinstance(self.type, TimedeltaType) else float) | None
            case "top":
                return list[_annotation(self.type)] | None  # type: ignore[misc]  # as below
            case "funnel_times":
                return list[datetime] | None
            case "collect" | "path":
                return list[_annotation(self.type)]  # type: ignore[misc]  # known when it runs
            case "sum" if isinstance(self.type, DecimalType):
                return _annotation(DecimalType(scale=self.type.scale))
            case "sum":
                return _annotation(self.type)
        value = float if self.aggregate.kind == "mean" else _annotation(self.type)
        return value | None if self.may_be_missing else value


def _named(part: BoundAggregate) -> str:
    # A count of events and a duration have a column whose type tells which it is.
    is_known = part.aggregate.kind in {"count", "duration"} and part.aggregate.of is None
    return part.name if is_known else f"{part.name}: {part.text}"


def bound_aggregates(event: type[Any], aggregates: object) -> tuple[BoundAggregate, ...]:
    """Return the aggregates of a spec, checked."""
    check_event_class(event)
    if not (isinstance(aggregates, Mapping) and aggregates):
        found = f"`aggregates` must be a dict of names and aggregates, found {aggregates!r}"
        raise SpecError(with_hint(found, 'write {"pages": agg.count()}'))
    for name, aggregate in aggregates.items():
        _check_named(name, aggregate)
    return tuple(_bound(event, name, aggregate) for name, aggregate in aggregates.items())


def aggregated_class(bound: Sequence[BoundAggregate]) -> type[Any]:
    """Return the class of the result; equal fields have one class."""
    return _made(tuple((one.name, one.result) for one in bound))


@lru_cache(maxsize=256)
def _made(fields: tuple[tuple[str, Any], ...]) -> type[Any]:
    made = {name: attrs.field(type=annotation) for name, annotation in fields}
    return attrs.make_class("Row", made, frozen=True)


def check_result(result: type[Any], bound: Sequence[BoundAggregate]) -> None:
    """Check a class that is given for the result: it must have the fields, in any order."""
    wanted = {field.name: field.type for field in fields_of(aggregated_class(bound)).fields}
    found = {field.name: field.type for field in fields_of(result).fields}
    if wanted.keys() != found.keys():
        text = f"{result.__name__} has the fields {', '.join(found)}; the aggregates are "
        raise SpecError(with_hint(text + ", ".join(wanted), "give both the same names"))
    for one in bound:
        if found[one.name] not in (wanted[one.name], OptionalType(wanted[one.name])):
            text = f"`{result.__name__}.{one.name}` has another type than `{one.aggregate}`"
            spelled = getattr(one.result, "__name__", None)
            spelled = str(one.result) if get_args(one.result) or spelled is None else spelled
            raise SpecError(with_hint(text, f"write `{one.name}: {spelled}`"))


def _annotation(kind: FieldType) -> Any:
    return None if kind.facts is None else kind.facts.annotation


# -- checks -------------------------------------------------------------------------------------


def check_event_class(event: type[Any]) -> None:
    """Check that no event need be built to know what its class makes of it."""
    codec_of(event)
    hint = "use functions, which build events, or a class without it and a `where`"
    for field in attributes_of(event):
        for what in ("validator", "converter"):
            if getattr(field, what) is not None:
                found = f"`{event.__name__}.{field.name}` has a {what}, and without functions no"
                raise SpecError(with_hint(f"{found} event is built to run it", hint))
    for hook in ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__"):
        if hasattr(event, hook):
            found = f"{event.__name__} has `{hook}`, and without functions no event"
            raise SpecError(with_hint(f"{found} is built to run it", hint))


def _check_named(name: object, aggregate: object) -> None:
    hint = "use letters, digits and underscores, and no word of Python's"
    check_field(name, "`aggregates`: ", hint)
    if not isinstance(aggregate, Aggregate):
        found = f"`aggregates`: `{name}` must be an aggregate, found {aggregate!r}"
        raise SpecError(with_hint(found, f'write {{"{name}": agg.count()}}'))


def _bound(event: type[Any], name: str, aggregate: Aggregate) -> BoundAggregate:
    where = aggregate.where is not None
    may_have_none = where or aggregate.is_from_now
    if where:
        check_condition(event, f"`{name}`: `where`", aggregate.where)
    if aggregate.kind in {"any", "all"}:
        check_condition(event, f"`{name}`: `{aggregate.kind}`", aggregate.of)
        return BoundAggregate(name, aggregate, BoolType(), may_be_missing=True)
    if aggregate.kind in {"duration", "engaged_time"}:
        return BoundAggregate(name, aggregate, TimedeltaType(), may_be_missing=False)
    if aggregate.kind == "holds":
        parts = tuple(_bound(event, f"{name}.{part}", one) for part, one in aggregate.parts)
        shown = aggregated_class([attrs.evolve(p, name=p.name.split(".")[1]) for p in parts])
        check_condition(shown, f"`{name}`: `holds`", aggregate.of)
        return BoundAggregate(name, aggregate, BoolType(), may_be_missing=False, parts=parts)
    for step, condition in aggregate.steps:
        check_condition(event, f"`{name}`: step `{step}`", condition)
    if aggregate.of is None:
        return BoundAggregate(name, aggregate, IntType(), may_be_missing=may_have_none)
    found = f"`{name}` is `{aggregate}`, and {event.__name__} has no field `{aggregate.of}`"
    kind = type_in(event, str(aggregate.of), found)
    missing = may_have_none or isinstance(kind, OptionalType)
    _check_type(event, name, aggregate, inner_type(kind))
    for value in aggregate.between or ():
        _check_value(f"`{event.__name__}.{aggregate.of}`", name, inner_type(kind), value)
    return BoundAggregate(name, aggregate, inner_type(kind), missing)


def _check_type(event: type[Any], name: str, aggregate: Aggregate, kind: FieldType) -> None:
    found = f"`{name}` is `{aggregate}`, and `{event.__name__}.{aggregate.of}` is"
    if aggregate.kind == "sum" and not isinstance(kind, ADDED):
        hint = "add up an int, a float, a timedelta or a Decimal"
        if isinstance(kind, BoolType):
            hint = f'count the events: count(where="{aggregate.of}")'
        raise SpecError(with_hint(f"{found} none of int, float, timedelta, Decimal", hint))
    if aggregate.kind == "mean" and not isinstance(kind, MEANT):
        hint = "use `sum` and `count`, and divide one by the other"
        raise SpecError(with_hint(f"{found} neither an int nor a float", hint))
    if aggregate.kind == "percentile" and not isinstance(kind, SPREAD):
        hint = "use a field that is a number, such as a column that Spark computes from it"
        raise SpecError(with_hint(f"{found} none of int, float, timedelta", hint))
    if aggregate.kind != "count" and kind.facts is None:
        hint = "use a field of a plain type, such as a column that Spark computes from it"
        raise SpecError(with_hint(f"{found} a collection or a class", hint))


def _check_value(field: str, name: str, kind: FieldType, value: object) -> None:
    """Check that a field may have a value."""
    try:
        encode_column(kind, [value], field)
    except StateValueError as error:
        found = f"`{name}`: `steps` is of {field}, which is never {value!r}"
        raise SpecError(with_hint(found, "write values of its type")) from error
