"""The aggregates of `sessionkit.aggregates` that are of what came after what."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sessionkit._aggregate import Aggregate, Condition
from sessionkit._arguments import explains
from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint


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
def steps(
    field: str, before: Any, after: Any, *, at_most: int = 100, where: Condition | None = None
) -> Aggregate:
    """
    Count how often one value of a field came right after another: an int, None beyond a limit.

        agg.steps("page", before="/cart", after="/checkout")

    It's a step of the `path`: equal values in a row are one, and those of events that aren't chosen
    don't come in between. It may ask for other values while a checkpoint lives.

    Args:
        field: The field, of a plain type. At one instant, values are in ascending order.
        before: The value that the step leaves.
        after: The value that it leads to, another one.
        at_most: How many values are kept, repeats included; with more, the result is None.
        where: Whose values count.

    Raises:
        SpecError: Both values are the same, or another argument can't be used.
    """
    return Aggregate("steps", field, where, at_most, between=(before, after))


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
        "engaged_time", where=where, cap=duration(cap, "cap"), within=duration(within, "within")
    )


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
        within=None if within is None else duration(within, "within"),
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
