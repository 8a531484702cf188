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
`all` is True, lists are empty, and the others are None. So a field is Optional in the result only
if it is in the event class, or if there is a `where`.

*`where`* chooses events: a pyarrow expression over the fields, such as `pc.field("kind") == "buy"`,
or the name of a bool field. Where it is null, the event isn't chosen.

*`holds`* asks a condition of a whole session, over other aggregates:

    agg.holds(pc.field("views") >= 2, views=agg.count(where=pc.field("kind") == "view"))
"""

from collections.abc import Mapping, Sequence

import attrs

from sessionkit._aggregate import Aggregate, Condition
from sessionkit._arguments import explains
from sessionkit._instants import Duration
from sessionkit._instants import duration as _span
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
    "engaged_time",
    "first",
    "funnel",
    "funnel_times",
    "holds",
    "last",
    "max",
    "mean",
    "min",
    "path",
    "sum",
]


@explains
def count(field: str | None = None, *, where: Condition | None = None) -> Aggregate:
    """
    Count the events of a session, or the values of a field that aren't null: an int.

    Args:
        field: The field whose values count.
        where: Which events count.
    """
    return Aggregate("count", field, where)


@explains
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


@explains
def mean(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the mean of a field that is an int or a float, as a float.

    Args:
        field: The field.
        where: Whose values count.
    """
    return Aggregate("mean", field, where)


@explains
def min(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the least value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Aggregate("min", field, where)


@explains
def max(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001 (SQL's name)
    """
    Return the greatest value of a field of a plain type; NaN is greater than all numbers.

    Args:
        field: The field. Text is compared by code point, members of an Enum by their values.
        where: Whose values count.
    """
    return Aggregate("max", field, where)


@explains
def first(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the earliest event time; of several there, the least.

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return Aggregate("first", field, where)


@explains
def last(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return the value of a field at the latest event time; of several there, the greatest.

    Args:
        field: The field, of a plain type.
        where: Whose values count.
    """
    return Aggregate("last", field, where)


@explains
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


@explains
def collect(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, those at one instant by value.

    Args:
        field: The field, of a plain type.
        at_most: How many values are kept: the earliest. `count(field)` says how many there were.
        where: Whose values count.
    """
    return Aggregate("collect", field, where, at_most)


@explains
def path(field: str, *, at_most: int = 100, where: Condition | None = None) -> Aggregate:
    """
    List the values of a field in the order of event time, those in a row that are equal as one.

    Args:
        field: The field, of a plain type. At one instant, values are in ascending order.
        at_most: How many values are kept: the earliest, repeats included, since a value that comes
            late may part them. `count(field)` says how many there were.
        where: Whose values count.
    """
    return Aggregate("path", field, where, at_most)


@explains
def duration() -> Aggregate:
    """Return the time from the first to the last event of a session, as a timedelta."""
    return Aggregate("duration")


@explains
def engaged_time(
    *, cap: Duration, within: Duration = "1 day", where: Condition | None = None
) -> Aggregate:
    """
    Add up the times between the events of a session, each up to a cap: a timedelta.

        agg.engaged_time(cap="30 seconds", where=pc.field("kind") == "ping")

    With heartbeats or page pings, it's how long somebody was there, rather than how long the
    session was open. It's zero for one event: nobody knows how long that was looked at.

    Args:
        cap: How much of the time from one event to the next counts: somewhat more than the time
            between two heartbeats.
        within: How much of a session counts: an event later than this after the first one counts
            as one at that time. It's at most 100,000 times the cap, and bounds what is stored.
        where: Which events count, the first one among them.

    Raises:
        SpecError: A duration can't be used.
    """
    return Aggregate(
        "engaged_time", where=where, cap=_span(cap, "cap"), within=_span(within, "within")
    )


@explains
def any(condition: Condition, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return whether a condition is true for at least one event.

    Args:
        condition: The condition.
        where: Which events count.
    """
    return Aggregate("any", condition, where)


@explains
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


@explains
def funnel(
    steps: Mapping[str, Condition] | Sequence[Condition],
    *,
    within: Duration | None = None,
    strict: bool = False,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return how many steps of a funnel a session has reached, in the order of time: an int.

        agg.funnel({"viewed": is_view, "carted": is_cart, "bought": is_sale}, within="1 hour")

    It's the most steps of any chain: an event of the first step, one of the second at the same time
    or later, and so on, the last at most `within` after the first. Events of other steps, or of
    none, may come in between. ClickHouse's `windowFunnel` gives the same. Events at one instant
    have no order: together they may be several steps, and so may one event.

    Args:
        steps: The condition of each step, by its name. Without names, they are numbered.
        within: How much later the last step may be than the first, inclusive; None for any time.
            It may change while a checkpoint lives.
        strict: Whether another event ends a chain. Between two steps there may then be events of
            the earlier step alone, so use `where` to leave out what doesn't matter.
        at_most: How many instants with an event of a step are kept, or, if `strict`, with any
            event: the earliest. Where there are more, the result is None unless these alone reach
            the last step.
        where: Which events count.

    Raises:
        SpecError: There are no steps or more than 32, or another argument can't be used.
    """
    if isinstance(steps, str) or not isinstance(steps, Mapping | Sequence):
        found = f"`funnel` takes steps, found {steps!r}"
        raise SpecError(with_hint(found, 'write funnel(["is_view", "is_sale"])'))
    named = steps if isinstance(steps, Mapping) else {str(n): s for n, s in enumerate(steps, 1)}
    return Aggregate(
        "funnel",
        where=where,
        at_most=at_most,
        steps=tuple(named.items()),
        within=None if within is None else _span(within, "within"),
        strict=strict,
    )


@explains
def funnel_times(funnel: Aggregate) -> Aggregate:
    """
    List when a session reached each step of a funnel: as many times as the funnel counts steps.

        far = agg.funnel({"viewed": is_view, "bought": is_sale})
        {"far": far, "reached_at": agg.funnel_times(far)}

    Of several chains that come equally far, it's the one whose last step is earliest; each of its
    other steps is the last one that leads to the next.

    Args:
        funnel: The funnel. What it stores is stored for its times too.

    Raises:
        SpecError: It isn't a funnel.
    """
    if getattr(funnel, "kind", None) != "funnel":
        found = f"`funnel_times` takes a funnel, found {funnel!r}"
        raise SpecError(with_hint(found, 'write funnel_times(funnel(["is_view", "is_sale"]))'))
    return attrs.evolve(funnel, kind="funnel_times")
