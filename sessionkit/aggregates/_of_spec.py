"""The aggregates of a spec, checked against its event class and its result class."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs

from sessionkit._arguments import check_field
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind
from sessionkit.aggregates._expressions import NOT_BY_EQUALITY
from sessionkit.errors import SpecError
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import OptionalType, inner_type
from sessionkit.state._derived import SecondsType
from sessionkit.state._fields import attributes_of, check_class, fields_of
from sessionkit.state._scalars import TimedeltaType
from sessionkit.state._types import FieldType


def bound_aggregates(event: type[Any], aggregates: object) -> tuple[BoundAggregate, ...]:
    """Bind the aggregates of a spec to the event class."""
    check_event_class(event)
    if not (isinstance(aggregates, Mapping) and aggregates):
        found = f"`aggregates` must be a dict of names and aggregates, found {aggregates!r}"
        raise SpecError(found, 'write {"pages": agg.count()}')
    bound = []
    for name, aggregate in aggregates.items():
        check_field(
            name, "`aggregates`: ", "use letters, digits and underscores, and no word of Python's"
        )
        must_be = f"`aggregates`: `{name}` must be an aggregate"
        check_aggregate(aggregate, Kind, must_be, f'write {{"{name}": agg.count()}}')
        bound.append(aggregate.bind(event, name))
    return tuple(bound)


def check_aggregate(value: object, cls: type[Aggregate], must_be: str, hint: str) -> None:
    """Refuse anything but an aggregate, such as the bool of a `==` in place of an `eq`."""
    if not isinstance(value, cls):
        hint = NOT_BY_EQUALITY if isinstance(value, bool) else hint
        raise SpecError(f"{must_be}, found {value!r}", hint)


def check_event_class(event: type[Any]) -> None:
    """Check that the event class has no code that runs when an event is built."""
    check_class(event)
    codec_of(event)
    hooks = ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__")
    code = [
        *[
            f"`{event.__name__}.{field.name}` has a {argument}"
            for field in attributes_of(event)
            for argument in ("validator", "converter")
            if getattr(field, argument) is not None
        ],
        *[f"{event.__name__} has `{hook}`" for hook in hooks if hasattr(event, hook)],
    ]
    if code:
        hint = "use functions, which build events, or a class without it and a `where`"
        raise SpecError(f"{code[0]}, and without functions no event is built to run it", hint)


@lru_cache(maxsize=256)
def _class_of_results(*fields: tuple[str, Any]) -> type[Any]:
    """Return the class of rows with these fields; equal fields give the same class."""
    attributes = {name: attrs.field(type=annotation) for name, annotation in fields}
    return attrs.make_class("Row", attributes, frozen=True)


def with_result(
    bound: Sequence[BoundAggregate], result: type[Any] | None
) -> tuple[type[Any], tuple[BoundAggregate, ...]]:
    """
    Return the class of result rows, and the aggregates that give values of its types.

    A class that is passed has the fields of the aggregates, in any order. Without it, one is made.
    """
    annotations = {aggregate.name: aggregate.annotation for aggregate in bound}
    made = _class_of_results(*annotations.items())
    if result is None:
        return made, tuple(bound)
    expected = {field.name: field.type for field in fields_of(made).fields}
    declared = {field.name: field.type for field in fields_of(result).fields}
    if expected.keys() != declared.keys():
        text = f"{result.__name__} has the fields {', '.join(declared)}; the aggregates are "
        raise SpecError(text + ", ".join(expected), "give both the same names")
    typed = []
    for aggregate in bound:
        name, annotation = aggregate.name, annotations[aggregate.name]
        if declared[name] not in _declarable(expected[name]):
            text = f"`{result.__name__}.{name}` has another type than `{aggregate.aggregate}`"
            spelled = annotation.__name__ if isinstance(annotation, type) else annotation
            raise SpecError(text, f"write `{name}: {spelled}`")
        in_seconds = declared[name].arrow != expected[name].arrow
        typed.append(attrs.evolve(aggregate, in_seconds=in_seconds))
    return result, tuple(typed)


def _declarable(kind: FieldType) -> list[FieldType]:
    """Return the types that a result class may give a field; a timedelta may be in seconds."""
    kinds = [kind]
    if inner_type(kind) == TimedeltaType():
        is_optional = isinstance(kind, OptionalType)
        kinds.append(OptionalType(SecondsType()) if is_optional else SecondsType())
    return [*kinds, *map(OptionalType, kinds)]
