"""Whether a condition holds: for an event, for all events, or for other aggregates."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._arrays import mask_of
from sessionkit._instants import Duration
from sessionkit._instants import duration as _span
from sessionkit.aggregates._aggregate import Aggregate, BoundAggregate, Kind, field_of
from sessionkit.aggregates._binding import class_of_results
from sessionkit.aggregates._conditions import Condition, check_condition, evaluated
from sessionkit.aggregates._durations import DurationOfSession, duration
from sessionkit.aggregates._numbers import Count, count
from sessionkit.aggregates._rows import EventRows
from sessionkit.arguments import explains
from sessionkit.errors import SpecError, with_hint
from sessionkit.state._collections import Field
from sessionkit.state._scalars import BoolType
from sessionkit.state._types import FieldType

# -- of events ----------------------------------------------------------------------------------


class _OfCondition(Kind):
    __slots__ = ()
    takes_condition: ClassVar = True
    reduced_by: ClassVar[np.ufunc]

    @property
    def conditions(self) -> Mapping[str, Condition]:
        own = {} if self.of is None else {f"`{self.kind}`": self.of}
        return {**super().conditions, **own}

    def type_in(self, _: type[Any], __: str) -> FieldType:
        return BoolType()

    def annotation(self, _: BoundAggregate) -> Any:
        return bool

    def identity(self, _: BoundAggregate) -> str:
        return ""

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field_of(bound.name, BoolType())]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        flags, chosen = mask_of(self.values(rows)), self.chosen(rows)
        if chosen is not None:
            # What isn't chosen changes nothing: it's false for `any`, true for `all`.
            flags = np.where(chosen, flags, self.of_nothing(BoolType()))
        values = rows.joined(mask_of(rows.stored(bound.name)), flags)
        return [pa.array(rows.reduced(self.reduced_by, values))]

    def values(self, rows: EventRows) -> pa.Array:
        return rows.met(self.of)


@attrs.frozen(kw_only=True)
class AnyEvent(_OfCondition):
    kind: ClassVar = "any"
    reduced_by: ClassVar = np.logical_or


@attrs.frozen(kw_only=True)
class AllEvents(_OfCondition):
    kind: ClassVar = "all"
    reduced_by: ClassVar = np.logical_and

    def of_nothing(self, _: FieldType) -> Any:
        return True


@explains
def any(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition is true for at least one event.

    Example:
        import pyarrow.compute as pc
        from sessionkit import aggregates as agg

        aggregates = {
            "bought": agg.any(pc.field("kind") == "buy"),
            "logged_in": agg.any("is_member"),  # a bool field
        }

    Args:
        condition: The condition.
        where: Which events count.
    """
    return AnyEvent(of=condition, where=where)


@explains
def all(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition is false for no event.

    Args:
        condition: The condition.
        where: Which events count.
    """
    return AllEvents(of=condition, where=where)


# -- of sessions --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Holds(Kind):
    """
    Whether a condition over other aggregates is true; these alone are stored.

    Attributes:
        parts: The other aggregates, by their names in the condition.
    """

    kind: ClassVar = "holds"
    stored_as: ClassVar = "engaged"
    takes_condition: ClassVar = True
    parts: tuple[tuple[str, Kind], ...]

    def check(self) -> None:
        parts: tuple[tuple[str, object], ...] = self.parts
        for name, part in parts:
            if not isinstance(part, Kind) or isinstance(part, Holds):
                found = f"`holds`: `{name}` must be an aggregate of events, found {part!r}"
                raise SpecError(with_hint(found, f"write {name}=agg.count()"))
        if not self.parts:
            found = "`holds` takes the aggregates that its condition is over, found none"
            raise SpecError(with_hint(found, 'write holds(pc.field("n") > 1, n=agg.count())'))

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, *(f"{name}={part}" for name, part in self.parts)]

    def from_now(self) -> Self:
        parts = tuple((name, part.from_now()) for name, part in self.parts)
        return attrs.evolve(self, parts=parts, is_from_now=True)

    def read_by(self) -> list[Condition]:
        return [condition for _, part in self.parts for condition in part.read_by()]

    def bind(self, event: type[Any], name: str) -> BoundAggregate:
        bound = [(part, one.bind(event, f"{name}.{part}")) for part, one in self.parts]
        shown = class_of_results((part, one.annotation) for part, one in bound)
        check_condition(shown, f"`{name}`: `holds`", self.of)
        parts = tuple(one for _, one in bound)
        return BoundAggregate(name, self, BoolType(), may_be_missing=False, parts=parts)

    def annotation(self, _: BoundAggregate) -> Any:
        return bool

    def identity(self, bound: BoundAggregate) -> str:
        return ", ".join(map(_part_text, bound.parts))

    def stored(self, bound: BoundAggregate) -> list[Field]:
        return [field for part in bound.parts for field in part.stored]

    def fold(self, bound: BoundAggregate, rows: EventRows) -> list[pa.Array]:
        return [column for part in bound.parts for column in part.fold(rows)]

    def result(self, bound: BoundAggregate, sessions: pa.Table) -> pa.Array:
        """Return for which sessions the condition is true; a null isn't."""
        columns = [part.result(sessions) for part in bound.parts]
        table = pa.table(columns, [name for name, _ in self.parts])
        condition: Any = self.of
        (found,) = evaluated(table, [condition])
        return found.fill_null(fill_value=False)


def _part_text(part: BoundAggregate) -> str:
    # A count of events and a duration have a column whose type tells which it is.
    is_known = isinstance(part.aggregate, Count | DurationOfSession) and part.aggregate.of is None
    return part.name if is_known else f"{part.name}: {part.text}"


@explains
def holds(condition: Condition, **parts: Aggregate) -> Aggregate:
    """
    Return whether a condition over other aggregates of the session is true.

    A session is engaged, for instance, if it lasts long enough or has two views:

        long, views = pc.field("lasted") > timedelta(seconds=10), pc.field("views") >= 2
        agg.holds(long | views, lasted=agg.duration(), views=agg.count(where="is_view"))

    It's worked out when a row is made: an open session stores the parts alone. So the condition may
    change while a checkpoint lives, and the parts may not. Where it is null, it doesn't hold.

    Args:
        condition: An expression over the names of the parts, or the name of one that is a bool.
        parts: The aggregates that the condition uses, each with its name there. They aren't fields
            of the result, and none of them is a `holds` itself.
    """
    named: Any = tuple(parts.items())
    return Holds(of=condition, parts=named)


@explains
def is_bounce(
    *,
    fewer_than: int = 2,
    shorter_than: Duration | None = None,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return whether a session is a bounce: it has too few events, and is too short if that counts.

        agg.is_bounce(where=pc.field("kind") == "view", shorter_than="10 seconds")

    It's a `holds` over `count` and `duration`; write one yourself for another rule.

    Args:
        fewer_than: A bounce has fewer events than this.
        shorter_than: A bounce takes less than this from its first to its last event, of any kind;
            None if its length doesn't matter.
        where: Which events count.

    Raises:
        SpecError: `fewer_than` isn't a whole number from 1, or `shorter_than` isn't a duration.
    """
    if type(fewer_than) is not int or fewer_than < 1:
        found = f"`fewer_than` must be a whole number from 1, found {fewer_than!r}"
        raise SpecError(with_hint(found, "leave it out for the default, 2"))
    few = pc.field("events") < fewer_than
    if shorter_than is None:
        return holds(few, events=count(where=where))
    is_short = pc.field("lasted") < _span(shorter_than, "shorter_than")
    return holds(few & is_short, events=count(where=where), lasted=duration())
