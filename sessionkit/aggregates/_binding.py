"""The aggregates of a spec, checked against the event class, and the class of their rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, get_args

import attrs

from sessionkit.aggregates._aggregate import BoundAggregate, Kind
from sessionkit.arguments import check_field
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import OptionalType
from sessionkit.state._fields import attributes_of, fields_of

RENAME: Final = "use letters, digits and underscores, and no word of Python's"


def bound_aggregates(event: type[Any], aggregates: object) -> tuple[BoundAggregate, ...]:
    """Return the aggregates of a spec, checked."""
    check_event_class(event)
    if not (isinstance(aggregates, Mapping) and aggregates):
        found = f"`aggregates` must be a dict of names and aggregates, found {aggregates!r}"
        raise SpecError(with_hint(found, 'write {"pages": agg.count()}'))
    for name, aggregate in aggregates.items():
        check_field(name, "`aggregates`: ", RENAME)
        if not isinstance(aggregate, Kind):
            found = f"`aggregates`: `{name}` must be an aggregate, found {aggregate!r}"
            raise SpecError(with_hint(found, f'write {{"{name}": agg.count()}}'))
    return tuple(aggregate.bind(event, name) for name, aggregate in aggregates.items())


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


def class_of_results(annotations: Iterable[tuple[str, Any]]) -> type[Any]:
    """Return the class of rows with these fields; equal fields have one class."""
    return _made(tuple(annotations))


@lru_cache(maxsize=256)
def _made(fields: tuple[tuple[str, Any], ...]) -> type[Any]:
    made = {name: attrs.field(type=annotation) for name, annotation in fields}
    return attrs.make_class("Row", made, frozen=True)


def check_result(result: type[Any], bound: Sequence[BoundAggregate]) -> None:
    """Check a class that is given for the result: it must have the fields, in any order."""
    made = class_of_results((one.name, one.annotation) for one in bound)
    wanted = {field.name: field.type for field in fields_of(made).fields}
    found = {field.name: field.type for field in fields_of(result).fields}
    if wanted.keys() != found.keys():
        text = f"{result.__name__} has the fields {', '.join(found)}; the aggregates are "
        raise SpecError(with_hint(text + ", ".join(wanted), "give both the same names"))
    for one in bound:
        if found[one.name] not in (wanted[one.name], OptionalType(wanted[one.name])):
            text = f"`{result.__name__}.{one.name}` has another type than `{one.aggregate}`"
            spelled = getattr(one.annotation, "__name__", None)
            if get_args(one.annotation) or spelled is None:
                spelled = str(one.annotation)
            raise SpecError(with_hint(text, f"write `{one.name}: {spelled}`"))
