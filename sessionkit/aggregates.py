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

*One instant* has no order. Where a spec names a `sequence`, events of one instant have one, and
what is said here of one instant holds for one place in its sequence.

*Nulls are skipped*, as SQL does it. Where nothing is left, counts and sums are 0, `any` is False,
`all` is True, lists are empty, and the others are None. So a field is Optional in the result only
if it is in the event class, or if there is a `where`.

*`where`* chooses events: a pyarrow expression over the fields, such as `pc.field("kind") == "buy"`,
or the name of a bool field. Where it is null, the event isn't chosen.

*`holds`* asks a condition of a whole session, over other aggregates:

    agg.holds(pc.field("views") >= 2, views=agg.count(where=pc.field("kind") == "view"))
"""

import pyarrow.compute as pc

from sessionkit._aggregate import Aggregate, Condition
from sessionkit._arguments import explains
from sessionkit._instants import Duration
from sessionkit._instants import duration as _span
from sessionkit._sequences import engaged_time, funnel, funnel_times, path, steps
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
    "entry",
    "exit",
    "first",
    "funnel",
    "funnel_times",
    "holds",
    "is_bounce",
    "last",
    "max",
    "mean",
    "min",
    "path",
    "percentile",
    "rate",
    "steps",
    "sum",
    "top",
]


@explains
def count(field: str | None = None, *, where: Condition | None = None) -> Aggregate:
    """
    Count the events of a session, or the values of a field that aren't null: an int.

    Example:
        import pyarrow.compute as pc
        from sessionkit import aggregates as agg

        aggregates = {
            "events": agg.count(),
            "searches": agg.count("query"),  # those whose query isn't null
            "purchases": agg.count(where=pc.field("kind") == "buy"),
        }

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
    that would have joined the session count as failed.

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

    Example:
        import pyarrow.compute as pc
        from sessionkit import aggregates as agg

        aggregates = {
            "landing": agg.first("page"),
            "first_price": agg.first("price", where=pc.field("kind") == "buy"),
        }

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
def entry(field: str, *, where: Condition | None = None) -> Aggregate:
    """
    Return where a session came in: `first`, under the name that analysts use.

    Args:
        field: The field, such as the page.
        where: Whose values count, such as page views.
    """
    return first(field, where=where)


@explains
def exit(field: str, *, where: Condition | None = None) -> Aggregate:  # noqa: A001
    """
    Return where a session went out: `last`, under the name that analysts use.

    Args:
        field: The field, such as the page.
        where: Whose values count, such as page views.
    """
    return last(field, where=where)


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
def top(field: str, n: int, *, at_most: int = 1_000, where: Condition | None = None) -> Aggregate:
    """
    List the most frequent values of a field, the most frequent first; None beyond a limit.

    Of values that are equally frequent, the lesser one comes first. The values and their counts are
    part of the state until there are more than the limit; then none is.

    Args:
        field: The field, of a plain type.
        n: How many values are listed. It may change while a checkpoint lives.
        at_most: With more different values, the result is None.
        where: Whose values count.

    Raises:
        SpecError: `n` isn't a whole number from 1 to `at_most`.
    """
    return Aggregate("top", field, where, at_most, n=n)


@explains
def percentile(
    field: str,
    share: float,
    *,
    relative_error: float = 0.01,
    at_most: int = 1_000,
    where: Condition | None = None,
) -> Aggregate:
    """
    Return a percentile of a field that is an int, a float or a timedelta, within a relative error.

        agg.percentile("seconds", 0.95)

    It's the least of the values for which at least this share of them are less or equal, as SQL's
    `percentile_disc` has it. What is returned is within the relative error of that value: a float,
    or a timedelta in whole microseconds. NaN is greater than all numbers; it, zero and the
    infinities are exact.

    Values are counted in bins that are twice the relative error wide, after DDSketch by Masson, Rim
    and Lee (VLDB 2019). A float closer to zero than 2.3e-308 counts as zero.

    Args:
        field: The field.
        share: From 0, the least value, to 1, the greatest; 0.5 is the median. It may change while a
            checkpoint lives.
        relative_error: How far the result may be from the value, as a part of the value.
        at_most: How many bins are kept: the highest. If the percentile is in a lower one, the
            result is None. With an error of 0.01, 1,000 bins in a row are from 1 to 480 million.
        where: Whose values count.

    Raises:
        SpecError: `share` isn't a number from 0 to 1, or `relative_error` one from 0.0001 to 0.5.
    """
    return Aggregate(
        "percentile", field, where, at_most, share=share, relative_error=relative_error
    )


@explains
def duration() -> Aggregate:
    """Return the time from the first to the last event of a session, as a timedelta."""
    return Aggregate("duration")


@explains
def rate(per: Duration, *, where: Condition | None = None) -> Aggregate:
    """
    Return how many events there are per some time of the session, as a float.

        agg.rate("1 minute", where=pc.field("kind") == "view")

    It's their number, divided by the time from the first to the last event of the session. It's
    None where that is zero: one instant has no rate.

    Args:
        per: The time. It may change while a checkpoint lives.
        where: Which events count. The length is that of the whole session.

    Raises:
        SpecError: `per` isn't a duration.
    """
    return Aggregate("rate", where=where, per=_span(per, "per"))


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
    return Aggregate("holds", condition, parts=tuple(parts.items()))


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
    if shorter_than is None:
        return holds(pc.field("events") < fewer_than, events=count(where=where))
    is_short = pc.field("lasted") < _span(shorter_than, "shorter_than")
    few = pc.field("events") < fewer_than
    return holds(few & is_short, events=count(where=where), lasted=duration())
