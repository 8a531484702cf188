"""
Aggregates: sessions without functions, such as counts and sums of their events.

    from datetime import timedelta

    import attrs
    import pyarrow.compute as pc

    from sessionkit import SessionSpec
    from sessionkit import aggregates as agg

    @attrs.frozen
    class View:  # the columns to read
        kind: str

    visits = SessionSpec.aggregate(
        View,
        {"pages": agg.count(), "bought": agg.any(pc.field("kind") == "buy")},
        keys={"user": str}, event_time="ts", gap="30 minutes", watermark_delay="10 minutes",
    )

Most functions take the name of a field of the event class. They return a frozen value, which the
spec checks against that class. NumPy and Arrow compute it for all sessions of a bucket at once; no
Python runs for an event or a session.

*Order never matters.* Any order of the events and any cut into micro-batches give the same result,
sums and means of floats within rounding.

*Events of one instant* have no order, unless the spec names a `sequence`. Then the rules for one
instant hold for one place in the sequence.

*Nulls are skipped*, as in SQL. Without values, counts and sums are 0, `any` is False, `all` is
True, lists are empty, and all else is None. So a field is Optional in the result only if it is in
the event class, or if there is a `where`.

*`where`* selects events: a pyarrow expression over the fields, such as `pc.field("kind") == "buy"`,
or the name of a bool field. Where it is null, the event isn't selected.

*Operators* combine aggregates of a session, and constants:

    agg.max("seconds") - agg.min("seconds")
    agg.count(where=pc.field("kind") == "view") >= 2
"""

from typing import TYPE_CHECKING, Final, NoReturn

from sessionkit.aggregates._aggregate import Aggregate
from sessionkit.aggregates._expressions import LackingError
from sessionkit.aggregates._funnels import funnel, funnel_next, funnel_times
from sessionkit.aggregates._lists import collect, path, steps
from sessionkit.aggregates._numbers import count, mean, stddev, sum
from sessionkit.aggregates._pairs import time_between
from sessionkit.aggregates._percentiles import percentile
from sessionkit.aggregates._picks import all, any, first, last, max, min
from sessionkit.aggregates._sessions import duration, engaged_time, greatest, least
from sessionkit.aggregates._tallies import count_by, count_distinct, top
from sessionkit.aggregates._within import counts_within, most_within, reached_within

if not TYPE_CHECKING:  # a type checker reports a missing name itself
    _ELSEWHERE: Final = {  # the names that SQL, Spark and pandas have
        **dict.fromkeys(("avg", "average"), "mean"),
        **dict.fromkeys(("std", "stddev_samp"), "stddev"),
        **dict.fromkeys(("countDistinct", "nunique", "approx_count_distinct"), "count_distinct"),
        **dict.fromkeys(("collect_list", "list", "array_agg"), "collect"),
        **dict.fromkeys(("value_counts", "histogram"), "count_by"),
        **dict.fromkeys(("median", "quantile", "percentile_approx"), "percentile"),
        **dict.fromkeys(("size", "count_if"), "count"),
        **dict.fromkeys(("first_value", "head"), "first"),
        **dict.fromkeys(("last_value", "tail"), "last"),
        **dict.fromkeys(("mode", "most_common"), "top"),
        **dict.fromkeys(("rolling", "rolling_count"), "counts_within"),
        **dict.fromkeys(("windowFunnel", "window_funnel"), "funnel"),
        **dict.fromkeys(("sequenceNextNode", "next_after"), "funnel_next"),
        "length": "duration",
    }

    def __getattr__(name: str) -> NoReturn:
        if name not in _ELSEWHERE:
            found = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(found)
        raise LackingError(f"there is no agg.{name}", f"write agg.{_ELSEWHERE[name]}(...)")


__all__ = [
    "Aggregate",
    "all",
    "any",
    "collect",
    "count",
    "count_by",
    "count_distinct",
    "counts_within",
    "duration",
    "engaged_time",
    "first",
    "funnel",
    "funnel_next",
    "funnel_times",
    "greatest",
    "last",
    "least",
    "max",
    "mean",
    "min",
    "most_within",
    "path",
    "percentile",
    "reached_within",
    "stddev",
    "steps",
    "sum",
    "time_between",
    "top",
]
