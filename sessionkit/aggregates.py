"""
Sessions without functions: a row of counts, sums and the like from the events of a session.

    from sessionkit import aggregates as agg

    visits = SessionSpec.aggregate(
        View,
        {"pages": agg.count(), "bought": agg.any(pc.field("kind") == "buy")},
        keys={"user": str}, event_time="ts", gap="30 minutes", watermark_delay="10 minutes",
    )

Each function here names a field of the event class. It returns a frozen value, which the spec
checks against that class. NumPy and Arrow compute it for all sessions of a bucket at once; Python
runs neither for an event nor for a session.

*Order never matters.* Any order of the events and any cut into micro-batches give the same result,
sums and means of floats within rounding.

*Nulls are skipped*, as SQL does it. Where nothing is left, counts and sums are 0, `any` is False,
`all` is True, `collect` is an empty list, and the others are None. So a field is Optional in the
result only if it is in the event class, or if there is a `where`.

*`where`* chooses events: a pyarrow expression over the fields, such as `pc.field("kind") == "buy"`,
or the name of a bool field. Where it is null, the event isn't chosen.

*`holds`* asks a condition of a whole session, over other aggregates:

    agg.holds(pc.field("views") >= 2, views=agg.count(where=pc.field("kind") == "view"))
"""

from typing import Literal, TypeAlias

import attrs
import pyarrow.compute as pc

from sessionkit.errors import SpecError, with_hint

__all__ = [
    "Aggregate",
    "Condition",
    "all",
    "any",
    "collect",
    "count",
    "count_distinct",
    "duration",
    "first",
    "holds",
    "last",
    "max",
    "mean",
    "min",
    "sum",
]

Condition: TypeAlias = str | pc.Expression
"""The name of a bool field of the event class, or a pyarrow expression over its fields."""

Kind: TypeAlias = Literal[
    "count",
    "sum",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "count_distinct",
    "collect",
    "any",
    "all",
    "duration",
    "holds",
]


@attrs.frozen
class Aggregate:
    """
    One aggregate of a session. The functions of this module make it.

    Attributes:
        kind: The name of the function.
        of: The field that it is of; the condition, for `any`, `all` and `holds`; None for all
            events.
        where: Which events are chosen; None for all.
        at_most: How many values `collect` and `count_distinct` keep.
        parts: The aggregates that the condition of `holds` is over, by their names there.
        is_from_now: Whether sessions that were open before it was added have none of their earlier
            events in it.
    """

    kind: Kind
    # Expressions have no `==` that compares them: it makes a third one.
    of: Condition | None = attrs.field(default=None, eq=repr)
    where: Condition | None = attrs.field(default=None, eq=repr)
    at_most: int | None = None
    parts: tuple[tuple[str, "Aggregate"], ...] = ()
    is_from_now: bool = False

    def from_now(self) -> "Aggregate":
        """
        Return the aggregate as one that is added to a query with a checkpoint.

        A session that is open then has it of its later events alone; every later session has it of
        all events. So its result may be None where that of no event is. Keep this for as long as
        the checkpoint lives.

        Raises:
            SpecError: It is of the session as a whole: `duration`, alone or in `holds`.
        """
        if self.kind == "duration":
            found = "`duration` is of a whole session, so it can't begin with later events"
            raise SpecError(with_hint(found, "add it in a query with a new checkpoint"))
        parts = tuple((name, part.from_now()) for name, part in self.parts)
        return attrs.evolve(self, parts=parts, is_from_now=True)

    def __attrs_post_init__(self) -> None:
        """Check what needs no event class."""
        takes_condition = self.kind in {"any", "all", "holds"}
        if not isinstance(self.of, Condition if takes_condition else str | None):
            wanted = "a condition" if takes_condition else "the name of a field, as text"
            hint = f'write {self.kind}("seconds")'
            hint = f'write {self.kind}(pc.field("kind") == "buy")' if takes_condition else hint
            found = f"`{self.kind}` takes {wanted}, found {self.of!r}"
            raise SpecError(with_hint(found, hint))
        if not isinstance(self.where, Condition | None):
            found = f"`where` takes an expression or the name of a bool field, found {self.where!r}"
            raise SpecError(with_hint(found, 'write where=pc.field("kind") == "buy"'))
        if self.kind == "holds":
            self._check_parts()
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            found = f"`at_most` must be a whole number from 1, found {self.at_most!r}"
            raise SpecError(with_hint(found, "leave it out for the default"))

    def _check_parts(self) -> None:
        parts: tuple[tuple[str, object], ...] = self.parts
        for name, part in parts:
            if not isinstance(part, Aggregate) or part.parts:
                found = f"`holds`: `{name}` must be an aggregate of events, found {part!r}"
                raise SpecError(with_hint(found, f"write {name}=agg.count()"))
        if not self.parts:
            found = "`holds` takes the aggregates that its condition is over, found none"
            raise SpecError(with_hint(found, 'write holds(pc.field("n") > 1, n=agg.count())'))

    def __str__(self) -> str:
        """Return it as it is written, without its filter."""
        of = "" if self.of is None else repr(self.of) if isinstance(self.of, str) else str(self.of)
        limit = "" if self.at_most is None else f", at_most={self.at_most}"
        parts = "".join(f", {name}={part}" for name, part in self.parts)
        return f"{self.kind}({of}{limit}{parts})"


def count(field: str | None = None, *, where: Condition | None = None) -> Aggregate:
    """
    Count the events of a session, or the values of a field that aren't null: an int.

    Args:
        field: The field whose values count.
        where: Which events count.
    """
    return Aggregate("count", field, where)


def sum(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Add up a field that is an int, a float, a timedelta or a Decimal.

    The sum has the type of the field, a Decimal with 38 digits. A sum of ints, timedeltas or
    Decimals is exact. One that doesn't fit its type is never stored: it stops the query with the
    key and the name of the aggregate, or with `on_error="reject"` the events of the micro-batch
    that would have joined the session count as failed; with `"drop_session"` all of it goes.

    Args:
        field: The field.
        where: Whose values count.
    """
    return Aggregate("sum", field, where)


def mean(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the mean of a field that is an int or a float, as a float.

    Args:
        field: The field.
        where: Whose values count.
    """
    return Aggregate("mean", field, where)


def min(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the least value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Aggregate("min", field, where)


def max(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the greatest value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Aggregate("max", field, where)


def first(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the earliest event time; of several there, the least.

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return Aggregate("first", field, where)


def last(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the latest event time; of several there, the greatest.

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return Aggregate("last", field, where)


def count_distinct(
    field: str, *, at_most: int = 1_000, where: Condition | None = None
) -> Aggregate:
    """
    Count the different values of a field exactly, up to a limit; beyond it the count is None.

    The values are part of the state until there are more than the limit; then none is.

    Args:
        field: The field, of a plain type.
        at_most: The highest count.
        where: Whose values count.
    """
    return Aggregate("count_distinct", field, where, at_most)


def collect(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, those at one instant by value.

    Args:
        field: The field, of a plain type.
        at_most: How many values are kept: the earliest. `count(field)` says how many there were.
        where: Whose values count.
    """
    return Aggregate("collect", field, where, at_most)


def duration() -> Aggregate:
    """Return the time from the first to the last event of a session, as a timedelta."""
    return Aggregate("duration")


def any(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition is true for at least one event.

    Args:
        condition: The condition.
        where: Which events count.
    """
    return Aggregate("any", condition, where)


def all(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition is false for no event.

    Args:
        condition: The condition.
        where: Which events count.
    """
    return Aggregate("all", condition, where)


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
    return Aggregate("holds", condition, parts=tuple(parts.items()))
